"""Task family `nat_agent`: write a NeMo Agent Toolkit tool package and its workflow file.

Start at `family.py`; `env.py` plays the turns, `validator.py` judges the files, `rewards.py` turns evidence into
reward parts. `data/` holds the shipped tasks. Imports neither torch nor NAT (NAT lives in the sandbox).
"""
