"""From what a rollout produced to a reward: rubric, validator protocol and the reward worker.

Imports `types`, `errors`, `config`, `sandbox`; no torch. Start at `rubric.py`.
"""
