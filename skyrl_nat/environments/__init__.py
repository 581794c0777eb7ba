"""Task families as skyrl-gym environments: one folder per family, one registry line each.

Imports `rewards`, `sandbox` and lower layers; no torch. Start at `base.py`, then `registry.py`.
"""
