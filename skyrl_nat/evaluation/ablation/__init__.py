"""The same training with something varied: which variant is better, and what did it take (docs/evaluation.md)."""
