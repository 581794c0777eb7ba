"""What a finished or running run teaches, read from the files of its folder (docs/analysis.md)."""
