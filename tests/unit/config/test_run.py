"""Batch arithmetic."""

from skyrl_nat.config.load import load_config


def test_steps_come_from_epochs_where_none_are_given():
    config = load_config(["trainer.epochs=3", "trainer.tasks_per_step=4"])
    assert config.total_steps(10) == 7, "3 epochs of 10 tasks are 30 tasks, seven whole batches of 4"


def test_steps_win_over_epochs():
    assert load_config(["trainer.steps=5", "trainer.epochs=100"]).total_steps(1000) == 5


def test_batch_plan_resolves_every_word_to_a_number():
    config = load_config(
        [
            "trainer.steps=5",
            "trainer.tasks_per_step=6",
            "trainer.rollouts_per_task=4",
            "trainer.updates_per_batch=3",
            "algorithm.old_logprobs=recompute",
        ]
    )
    plan = config.batch_plan(40)
    assert plan["rollouts per step"] == 24
    assert plan["tasks per optimizer step"] == 2
    assert plan["optimizer steps"] == 15
    assert plan["rollouts in the run"] == 120
