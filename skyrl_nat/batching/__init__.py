"""From scored groups to packed micro-batches: samples, packing, micro-batches.

Imports `types`, `config`, `algorithms` and torch. Start at `samples.py`.
"""
