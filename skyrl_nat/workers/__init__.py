"""What trains and scores: model, attention, log-probs, policy and reference workers, optimizer. Plain classes, know nothing of Ray. Start at `policy.py`."""
