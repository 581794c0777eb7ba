"""Jira issues as a workflow: one state machine, Gymnasium environments and a language task on top of it.

May import rewards, config and lower layers; gymnasium only in `env.py`. Start at `machine.py`.
"""
