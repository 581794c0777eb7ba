"""What a run is: one typed section per file, `RunConfig` in `run.py`, Hydra only in `load.py`.

Sections check themselves in `__post_init__`; relations between sections are checked in `RunConfig`.
Imports only `types` and `errors`. Start at `run.py`.
"""
