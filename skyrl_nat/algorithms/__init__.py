"""The maths, torch only: advantages, losses, kl, reduction. Pure functions over tensors, imports itself and torch. Start at `advantages.py`."""
