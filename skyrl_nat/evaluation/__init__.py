"""Playing held-out tasks and summing up (`evaluator.py`), and what a run teaches (`analysis/`)."""
