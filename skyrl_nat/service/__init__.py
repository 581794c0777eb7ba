"""Training over HTTP: jobs, their record, the dashboard. Start at `app.py`. Imports no torch and no controller."""
