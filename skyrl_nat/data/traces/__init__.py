"""Recorded executions of agents, and what they become: rewards, labels, preference sets.

Start at `record.py` for what a trace is.
"""
