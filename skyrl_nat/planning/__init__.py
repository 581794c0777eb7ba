"""Before a run: what this machine has, and what a config will need of memory, time and money.

May import `rollouts` and what is below it, never torch: both commands answer in seconds. Start with `plan.py`; the
arithmetic is in `memory.py` (bytes), `roofline.py` (seconds) and `simulation.py` (the loop over time).
"""
