"""Task family `task_dag`: turn a request into a hierarchical plan of tasks that depend on each other.

Start at `family.py`; `env.py` plays the turns, `validator.py` judges the plan, `rewards.py` turns it into reward
parts, `simulation.py` carries it out. `planner.py` is for applications. Imports no torch.
"""
