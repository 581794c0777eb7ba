"""Moving new weights from the policy ranks into the engines: one file per transport.

Rides on vLLM's weight-transfer life cycle where the engine is vLLM. Start at `base.py`.
"""
