"""The maths, torch only: advantages, losses, kl, off_policy, reduction.

Pure functions over tensors; imports itself and torch. Start at `advantages.py`.
"""
