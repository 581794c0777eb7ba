"""Tasks from readable sources: hidden outputs asked of the references, mutants chosen, the task proved.

Sources come from people (`environments/nat_agent/data/*.source.yaml`), from `data.synthesis` or from `data.planner`.
Start at `build.py`.
"""
