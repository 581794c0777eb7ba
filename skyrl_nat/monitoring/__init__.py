"""Metrics out: names, tracker back ends, the progress display. No torch. Start at `tracker.py`."""
