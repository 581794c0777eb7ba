"""Saving and finding: an atomic manifest and sharded state (torch DCP). Start at `manager.py`."""
