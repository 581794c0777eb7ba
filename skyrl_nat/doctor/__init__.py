"""Checks before any training, of machine, sandbox, data, rewards, template, model and layout: `skyrl-nat doctor`.

Start at `sections.py`; `examination.py` runs them, `report.py` shows them, the checks that need the model are in
`examine.py`. Sections import what they need when they are asked: `environment` no torch.
"""
