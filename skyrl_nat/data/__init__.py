"""Tasks in: specs as parquet and the resumable prompt stream. No torch. Start at `specs.py`."""
