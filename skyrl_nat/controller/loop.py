"""The whole algorithm on one screen."""

import asyncio

from skyrl_nat.controller.evaluate import evaluate, is_evaluation_missing
from skyrl_nat.controller.run import Run
from skyrl_nat.controller.update import update_policy


async def train(run: Run) -> None:
    """Train until the last step: take groups, update the policy, push the weights, save, evaluate.

    Staleness is a number, not another loop: the producer plays as far ahead as the bound allows. With 0 the next
    batch opens its environments during the push, and is sampled from the pushed weights alone.
    """
    await run.push_weights()
    if is_evaluation_missing(run):
        await evaluate(run)
    run.producer.start_at(run.step)

    while not run.is_over():
        await run.begin_step()
        run.console.status(f"step {run.step + 1} of {run.total_steps}: playing")
        async with run.rollout_phase():
            groups = await run.producer.take()
        recording = asyncio.create_task(asyncio.to_thread(run.recorder.write, run.step + 1, groups))
        run.console.status(f"step {run.step + 1} of {run.total_steps}: training")
        async with run.training_phase():
            await recording  # what is trained on is on disk first
            metrics = await update_policy(run, groups, run.record)
        run.step += 1
        with run.pool.hold():
            run.producer.advance(run.step)
            if run.is_push_due():
                await run.push_weights()
        await run.end_step(groups, metrics)
        if run.is_checkpoint_due():
            await run.save_checkpoint()
        if run.is_evaluation_due():
            await evaluate(run)
