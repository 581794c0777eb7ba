"""Checks on the user's own model, template and layout, before any training: `skyrl-nat doctor`.

Start at `examine.py`.
"""
