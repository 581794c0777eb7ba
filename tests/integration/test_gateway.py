"""Episodes played by the real OpenAI client, through the gateway and Ray actors, and trained on exact tokens."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import small_run
from openai import APITimeoutError, AsyncOpenAI

from skyrl_nat.batching.samples import build_samples
from skyrl_nat.config.load import load_config
from skyrl_nat.controller.opening import open_run
from skyrl_nat.controller.run import Run
from skyrl_nat.controller.update import update_policy
from skyrl_nat.engines.pool import EnginePool
from skyrl_nat.rollouts.environment_player import EnvironmentPlayer
from skyrl_nat.rollouts.policy_access import Attempt, PolicyAccess
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


def play_and_train(folder: Path, check: Any, *overrides: str) -> None:
    async def scenario() -> None:
        # A random model ends few turns by itself.
        fixed = ("engine.deterministic=true", "rollout.stop=[e,a,t]", HARNESS)
        config = load_config(small_run.arguments(folder, *fixed, *overrides))
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


def test_a_client_that_goes_away_stops_the_engine_across_ray(tmp_path: Path, seen: Seen) -> None:
    """With one request at a time, the next one is answered long before the first could have ended."""

    async def ask(run: Run, number: int, timeout_s: float, max_tokens: int) -> float:
        assert run.gateway is not None
        session = run.gateway.open(Attempt(rollout_id=f"train-9-{number}", number=0, temperature=1.0))
        started = time.monotonic()
        async with AsyncOpenAI(
            base_url=run.gateway.base_url(session), api_key=session.api_key, timeout=timeout_s, max_retries=0
        ) as client:
            await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "go"}], max_tokens=max_tokens
            )
        return time.monotonic() - started

    async def check(run: Run) -> None:
        await ask(run, 0, 60, 1)
        started = time.monotonic()
        calls = [ask(run, number, 0.3, 4000) for number in range(1, 40)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        print(sorted({f"{type(r).__name__}: {str(r)[:300]}" for r in results}))
        assert sum(isinstance(result, APITimeoutError) for result in results) > 20
        waited = await ask(run, 99, 60, 1)
        print(f"gone after {time.monotonic() - started - waited:.2f} s, next answer after {waited:.2f} s")
        assert waited < 2.0

    play_and_train(
        tmp_path,
        check,
        "rollout.max_new_tokens=4000",
        "rollout.max_total_tokens=4096",
        "trainer.micro_batch_tokens=4096",
    )
