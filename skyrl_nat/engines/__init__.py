"""Tokens in, tokens out: the engine protocol and its implementations.

May import batching and lower layers. `vllm` is imported only in `vllm.py`. Start at `base.py`.
"""
