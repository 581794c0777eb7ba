"""The loop: opening and closing a run, the loop itself, one update. Start at `loop.py`."""
