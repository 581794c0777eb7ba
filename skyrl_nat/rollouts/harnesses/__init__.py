"""Harnesses that are shipped; each imports what it drives only when it plays."""
