"""Tasks without a planner: a library of tool families, and agents composed of their tools.

`families/` holds one module per family; start at `family.py` for what a family is.
"""
