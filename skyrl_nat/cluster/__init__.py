"""Everything that knows Ray: session, placement, actors, groups. Start at `placement.py`."""
