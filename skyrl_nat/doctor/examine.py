"""Section `engine`: all checks on one opened run; nothing is trained and nothing is kept."""

import asyncio
from dataclasses import dataclass, replace

from skyrl_nat.config.cluster import Device
from skyrl_nat.controller.run import Run
from skyrl_nat.doctor.agreement import (
    Played,
    check_agreement,
    check_layouts,
    check_neighbours,
    check_record,
    check_repeatable,
    check_streams,
    trainer_logprobs,
)
from skyrl_nat.doctor.check import Check, equal, none_of
from skyrl_nat.errors import EngineError
from skyrl_nat.types import GenerationRequest, Message, SamplingParams

NUM_LOOKED_AT = 16
"""Held-out tasks from which prompts are taken."""
MAX_NEW_TOKENS = 32
"""Of a sampled answer: in half of them, confident models say the same every time."""
NUM_ALONE = 2
"""Samples that are computed by themselves too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is asked for: enough to see a fault, and on a CPU answered soon."""

    num_answers: tuple[int, ...]
    """To each prompt, of which the shortest are taken."""
    num_greedy: int
    """Tokens of a greedy answer."""


SIZES = {
    Device.cpu: Size(num_answers=(4, 1), num_greedy=8),
    Device.cuda: Size(num_answers=(4, 4, 4, 4), num_greedy=32),
}


async def examine(run: Run) -> list[Check]:
    """Return every check on the run's model, engines and policy ranks.

    Args:
        run: Opened, not trained; its engines hold nothing yet.
    """
    token_ids = [run.codec.prompt_tokens(messages) for messages in await _first_messages(run)]
    size = SIZES[run.config.cluster.device]
    token_ids = sorted(token_ids, key=len)[: len(size.num_answers)]
    await run.push_weights()
    temperature = run.config.rollout.temperature
    answers = await asyncio.gather(
        *[
            _answer(run, prompt, f"{number}-{seed}", temperature=temperature, seed=seed)
            for number, prompt in enumerate(token_ids)
            for seed in range(size.num_answers[number])
        ]
    )
    checks = check_record(answers, MAX_NEW_TOKENS, run.codec.eos_token_id)
    checks.append(check_streams(answers[: size.num_answers[0]]))
    by_prompt = [[answer for answer in answers if answer.prompt == prompt] for prompt in token_ids]
    checks += await _compare(run, by_prompt)
    checks += await _engines(run, token_ids)
    return checks


async def _first_messages(run: Run) -> list[list[Message]]:
    """Return the first prompts of some held-out tasks, made by their own environment."""
    prompts: list[list[Message]] = []
    for number, task in enumerate(run.data.validation_tasks[:NUM_LOOKED_AT]):
        name = f"doctor-{number}"
        prompts.append(await run.topology.environments.create(name, task.visible()))
        await run.topology.environments.close(name)
    return prompts


async def _answer(
    run: Run, prompt: list[int], name: str, *, temperature: float, seed: int, num_tokens: int = MAX_NEW_TOKENS
) -> Played:
    room = run.config.rollout.max_total_tokens - len(prompt)
    request = GenerationRequest(
        request_id=f"doctor-{name}/0",
        prompt_token_ids=prompt,
        sampling=SamplingParams(
            max_new_tokens=min(num_tokens, room), temperature=temperature, seed=run.config.seed + seed
        ),
    )
    return Played(prompt=prompt, completion=await run.pool.generate(request))


async def _greedy(run: Run, prompts: list[list[int]]) -> list[list[int]]:
    num_tokens = SIZES[run.config.cluster.device].num_greedy
    asked = [
        _answer(run, prompt, f"greedy-{at}", temperature=0.0, seed=0, num_tokens=num_tokens)
        for at, prompt in enumerate(prompts)
    ]
    answers = await asyncio.gather(*asked)
    return [answer.completion.token_ids for answer in answers]


async def _compare(run: Run, answers: list[list[Played]]) -> list[Check]:
    """Return the checks of the trainer against the engine and against itself; `answers` are those to each prompt."""
    config = run.config
    layout = {"num_ranks": config.data_parallel_size, "token_budget": config.trainer.micro_batch_tokens}
    by_prompt = [
        [answer.sample(f"a{prompt}-{number}", f"prompt {prompt}") for number, answer in enumerate(group)]
        for prompt, group in enumerate(answers)
    ]
    samples = [sample for group in by_prompt for sample in group]
    together = await trainer_logprobs(run.policy, samples, **layout)
    again = await trainer_logprobs(run.policy, samples, **layout)
    alone = {}
    for sample in samples[:NUM_ALONE]:
        alone |= await trainer_logprobs(run.policy, [sample], **layout)
    # Another last token of one that has neighbours: nothing in the layout moves, and no other sample may notice.
    one = by_prompt[0][-1]
    token = next(token for token in one.token_ids if token != one.token_ids[-1])
    other = replace(one, token_ids=[*one.token_ids[:-1], token])
    changed = await trainer_logprobs(run.policy, [other if s is one else s for s in samples], **layout)
    return [
        *check_agreement(samples, together, limit=config.alarms.logprob_diff_warn),
        check_layouts(alone, together, str(config.model.compute_dtype)),
        check_repeatable(together, again),
        check_neighbours(together, changed, one.sample_id),
    ]


async def _engines(run: Run, prompts: list[list[int]]) -> list[Check]:
    """Return the checks of weights, caches and limits of the engines."""
    expected = (await run.policy.call_all("checksums", run.config.engine.dtype))[0]
    found = await run.engines.call_all("checksums")
    wrong = sorted({name for engine in found for name in expected if engine.get(name) != expected[name]})
    before = await _greedy(run, prompts)
    async with run.training_phase():
        pass
    await run.push_weights()
    after = await _greedy(run, prompts)
    return [
        none_of("57", "tensors that differ in an engine after a push", wrong),
        equal("58, 59", "greedy answers equal after another push", after == before, True),
        equal("54", "a prompt without room for an answer is", await _over_long(run), "refused"),
    ]


async def _over_long(run: Run) -> str:
    prompt = [run.codec.eos_token_id] * run.config.rollout.max_total_tokens
    request = GenerationRequest(
        request_id="doctor-long/0", prompt_token_ids=prompt, sampling=SamplingParams(max_new_tokens=1)
    )
    try:
        await run.pool.generate(request)
    except EngineError:
        return "refused"
    return "answered"
