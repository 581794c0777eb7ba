"""SkyRL-NAT: a Ray-distributed GRPO trainer for agents that write NeMo Agent Toolkit agents.

Start at `controller/loop.py` (the algorithm), then `types.py` (what travels) and `docs/architecture.md`.
"""

__version__ = "0.1.0"
