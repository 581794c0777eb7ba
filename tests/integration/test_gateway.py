"""Episodes played by the real OpenAI client, through the gateway and Ray actors, and trained on exact tokens."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import small_run
from open_gateway import client_of, open_gateway, open_session, user

from skyrl_nat.batching.samples import build_samples
from skyrl_nat.cluster.actors import AsyncHost
from skyrl_nat.cluster.clients import RemoteEngine
from skyrl_nat.cluster.group import ActorGroup
from skyrl_nat.cluster.session import ray_session
from skyrl_nat.config.load import load_config
from skyrl_nat.controller.opening import open_run
from skyrl_nat.controller.run import Run
from skyrl_nat.controller.update import update_policy
from skyrl_nat.engines.pool import EnginePool
from skyrl_nat.rollouts.environment_player import EnvironmentPlayer
from skyrl_nat.rollouts.policy_access import PolicyAccess
from skyrl_nat.rollouts.runner import GroupRunner
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, Outcome, RolloutGroup, TrainingSample

pytestmark = pytest.mark.slow

HARNESS = "rollout.harness=skyrl_nat.rollouts.harnesses.openai_client:make_harness"
Seen = list[tuple[GenerationRequest, Completion]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What engines were given and gave back."""
    calls: Seen = []
    generate = EnginePool.generate

    async def remember(pool: EnginePool, request: GenerationRequest) -> Completion:
        completion = await generate(pool, request)
        calls.append((request, completion))
        return completion

    monkeypatch.setattr(EnginePool, "generate", remember)
    # Actors import the test's family.
    monkeypatch.setenv("PYTHONPATH", small_run.environment()["PYTHONPATH"])
    return calls


def play_and_train(folder: Path, check: Any) -> None:
    async def scenario() -> None:
        # A random model ends few turns by itself.
        fixed = ("engine.deterministic=true", "rollout.stop=[e,a,t]", HARNESS)
        config = load_config(small_run.arguments(folder, *fixed))
        async with open_run(config) as run:
            await run.push_weights()
            await check(run)

    asyncio.run(scenario())


async def play(run: Run, count: int) -> list[RolloutGroup]:
    tasks = run.data.train_tasks[:count]
    calls = [run.runner.play_group(t, i, num_rollouts=4, temperature=1.0) for i, t in enumerate(tasks)]
    return list(await asyncio.gather(*calls))


def samples_of(group: RolloutGroup) -> list[TrainingSample]:
    zeros = [[0.0] * len(rollout.token_ids) for rollout in group.valid_rollouts]
    return build_samples(group, zeros, mask_truncated=False)


def test_a_rollout_of_the_openai_client_is_trained_on_the_tokens_that_engines_saw_and_sampled(
    tmp_path: Path, seen: Seen
) -> None:
    """Rows 38, 42, 44 and 56, MT-01: token by token, log-probs as the trainer has them, and an optimizer step."""

    async def check(run: Run) -> None:
        groups = await play(run, 2)
        samples = [sample for group in groups for sample in samples_of(group)]
        played = [rollout for group in groups for rollout in group.rollouts]
        assert len(played) == 8
        assert {rollout.outcome for rollout in played} <= {Outcome.FINISHED, Outcome.TRUNCATED}
        assert max(len(rollout.turns) for rollout in played) == 2
        assert {turn.finish_reason for rollout in played for turn in rollout.turns} >= {FinishReason.STOP_WORD}
        for sample in samples:
            calls = sorted(
                (pair for pair in seen if pair[0].request_id.startswith(f"{sample.rollout_id}.0/")),
                key=lambda pair: pair[0].request_id,
            )
            # The last prompt and its answer are the whole sample; every sampled token stands where it was sampled.
            request, completion = calls[-1]
            assert sample.token_ids == request.prompt_token_ids + completion.token_ids
            expected = {}
            for request, completion in calls:
                start = len(request.prompt_token_ids)
                assert sample.token_ids[:start] == request.prompt_token_ids
                pairs = zip(completion.token_ids, completion.logprobs, strict=True)
                expected |= {start + place: pair for place, pair in enumerate(pairs)}
            found = {
                place: (token, logprob)
                for place, (token, kept, logprob) in enumerate(
                    zip(sample.token_ids, sample.loss_mask, sample.rollout_logprobs, strict=True)
                )
                if kept
            }
            assert found == expected
        metrics = await update_policy(run, groups)
        assert metrics["loss/rollout_logprob_diff"] < 1e-5, "engine and trainer agree in fp32"
        assert metrics["loss/grad_norm"] > 0
        before = (await run.engines.call_all("checksums"))[0]
        run.step += 1
        await run.push_weights()
        assert (await run.engines.call_all("checksums"))[0] != before, "the optimizer step moved the weights"

    play_and_train(tmp_path, check)


@pytest.mark.long
def test_the_client_and_the_environment_play_the_same_rollouts(tmp_path: Path, seen: Seen) -> None:
    async def check(run: Run) -> None:
        by_client = await play(run, 2)
        policy = PolicyAccess(
            generate=run.pool.generate, codec=run.codec, config=run.config.rollout, seed=run.config.seed
        )
        score = run.topology.rewards.score if run.topology.rewards else None
        player = EnvironmentPlayer(policy, run.topology.environments)
        run.runner = GroupRunner(player=player, score=score, config=run.config.rollout)
        for mine, theirs in zip(by_client, await play(run, 2), strict=True):
            for one, two in zip(mine.rollouts, theirs.rollouts, strict=True):
                assert (one.token_ids, one.loss_mask) == (two.token_ids, two.loss_mask)
                assert (one.rollout_logprobs, one.token_versions) == (two.rollout_logprobs, two.token_versions)
                assert (one.reward, one.outcome, one.artifact) == (two.reward, two.outcome, two.artifact)

    play_and_train(tmp_path, check)


@pytest.mark.long
def test_a_client_that_goes_away_ends_its_generation_in_the_engines_actor(tmp_path: Path, seen: Seen) -> None:
    async def counts_become(group: ActorGroup, expected: tuple[int, int]) -> None:
        async with asyncio.timeout(60):
            while await group.call_one(0, "counts") != expected:  # noqa: ASYNC110 - it counts in another process
                await asyncio.sleep(0.05)

    async def scenario() -> None:
        config = load_config(small_run.arguments(tmp_path))
        with ray_session(config.cluster):
            host = AsyncHost.options(num_cpus=0)
            group = ActorGroup("engine", lambda rank: host.remote("slow_worker:SlowWorker", {}), [0], timeout_s=60)
            async with open_gateway(RemoteEngine(group, 0, 600)) as gateway:
                session = open_session(gateway)
                async with client_of(gateway, session) as client:
                    asking = asyncio.create_task(client.chat.completions.create(model="m", messages=[user("go")]))
                    await counts_become(group, (1, 0))
                    asking.cancel()
                    await counts_become(group, (1, 1))

    asyncio.run(scenario())
