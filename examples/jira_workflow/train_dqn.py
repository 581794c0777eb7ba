"""Train DQN: `train_dqn.py --env skyrl_nat/JiraIssueResolution-v0 --timesteps 60000 --seed 0 --out FOLDER`."""

from sb3 import main

if __name__ == "__main__":
    main("dqn", default_timesteps=60_000)
