"""Playing held-out tasks and summing up. Start at `evaluator.py`."""
