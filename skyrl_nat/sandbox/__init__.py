"""Running what the model wrote: a small protocol and its back ends.

Imports only `types`, `errors`, `config`. Start at `base.py`.
"""
