"""Playing episodes: chat to tokens, one group, the producer with its staleness bound, the recorder.

Start at `runner.py`. It plays with `environment_player.py`, or with a harness outside: `harness_player.py` over
`gateway.py`.
"""
