"""Held-out tasks: playing them and summing up, comparing two policies, what a run teaches.

Start at `evaluator.py` and `folder.py`, then `comparison.py`, then `analysis/`. All of it reads recorded rollouts.
"""
