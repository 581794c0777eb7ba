"""What trains and scores: model, attention, log-probs, policy and reference workers, optimizer.

Plain classes that know nothing of Ray. Start at `policy.py`.
"""
