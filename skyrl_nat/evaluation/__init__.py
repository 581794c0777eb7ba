"""Playing held-out tasks, summing up, comparing two policies. Start at `evaluator.py`, then `comparison.py`."""
