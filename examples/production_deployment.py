"""Creates agents with a trained policy from a program of one's own; docs/deployment.md has the commands for the same.

usage: production_deployment.py SUBJECT REQUEST [key=value ...]

SUBJECT is the folder of a run, a checkpoint, a model or an adapter. The planner is Gemini with $GEMINI_API_KEY, or for
instance planner.backend=openai planner.base_url=http://localhost:8000/v1 planner.model=NAME planner.api_key_env=''.
"""

import asyncio
import secrets
import sys
from pathlib import Path

from skyrl_nat.deploy.feedback import AGENTS, FeedbackFile, export_feedback
from skyrl_nat.deploy.flag import FlagFile, FlagState
from skyrl_nat.deploy.log import logging_to, serving
from skyrl_nat.deploy.pipeline import AgentRequest, Progress
from skyrl_nat.deploy.running import FLAG, LOG, Limits, deployed, opened_pipeline, subject_of

FOLDER = Path("deployment")


async def main(what: str, request: str, overrides: list[str]) -> None:
    """Serve the model, create one agent for each of two users, and keep what one of them says of it."""
    subject, limits = subject_of(what, "latest", overrides), Limits(deadline_s=600, policy_timeout_s=300)
    FlagFile(FOLDER / FLAG).write(FlagState(percent=50))  # half of the users get the trained policy
    async with (
        deployed(subject, FOLDER, probation_s=limits.probation_s) as served,
        opened_pipeline(served, FOLDER, limits) as (pipeline, switch),
    ):
        for user in ("ada", "bob"):
            agent_id = secrets.token_hex(16)
            print(f"creating an agent for {user}; {FOLDER / LOG} says meanwhile how far it is", flush=True)
            with serving(agent_id):
                wanted = AgentRequest(text=request, user_id=user, difficulty=2)
                record = await pipeline.create(wanted, agent_id, Progress())
            verdict = record["validation"]
            print(f"{FOLDER / AGENTS / agent_id / 'agent'}: {record['outcome']}, {verdict['reward']:.2f} of 1")
        print(switch.counts.to_dict())
    FeedbackFile(FOLDER).add(agent_id, "bob", "good", "It does what I asked for.")
    print(export_feedback(FOLDER, FOLDER / "traces"))  # for skyrl-nat label and skyrl-nat traces export


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with logging_to(FOLDER / LOG):
        asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
