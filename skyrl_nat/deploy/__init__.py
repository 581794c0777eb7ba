"""Agents for users: planner, policy, validator and repair behind a feature flag. Start at `pipeline.py`."""
