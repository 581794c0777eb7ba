"""Playing episodes: chat to tokens, one group, the producer with its staleness bound, the recorder.

Start at `runner.py`.
"""
