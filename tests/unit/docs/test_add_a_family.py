"""The code of docs/add_a_family.md runs as it stands there."""

import asyncio
import importlib
import sys

import pytest
from own_family import train_command, write_files

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.config.load import load_config
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.worker import EnvironmentWorker


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the page's files, importable as PYTHONPATH would have it."""
    names = write_files(tmp_path)
    assert names == ["shop_family.py", "make_shop_tasks.py", "play_by_hand.py"]
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in names:
        sys.modules.pop(name.removesuffix(".py"), None)


def play(task, *actions, weights=None, max_turns=8):
    """Play an episode through the worker that trains, and judge it; returns the last reply and the reward."""
    family = importlib.import_module("shop_family")
    config = EnvironmentConfig(family=family.NAME, reward_weights=weights or {})

    async def episode():
        worker = EnvironmentWorker(family.NAME, config, max_turns=max_turns)
        await worker.create("r", task)
        replies = [await worker.step("r", action) for action in actions]
        await worker.shutdown()
        return replies[-1]

    reply = asyncio.run(episode())
    return reply, family.open_family(config).make_validator().validate(task, reply.artifact)


def test_an_episode_as_on_the_page_earns_everything(folder, capsys):
    reward = asyncio.run(importlib.import_module("play_by_hand").play())
    assert (reward.total, reward.is_success) == (1.0, True)
    assert "costs" in capsys.readouterr().out


def test_the_files_of_tasks_can_be_read_and_hold_out_other_goods(folder):
    maker = importlib.import_module("make_shop_tasks")
    maker.main(folder / "data")
    name = importlib.import_module("shop_family").NAME
    train, held_out = (
        load_tasks([str(folder / "data" / f"{s}.parquet")], family=name) for s in ("train", "validation")
    )
    assert (len(train), len(held_out)) == (64, 16)
    goods = [{good for task in tasks for good in task.payload["basket"]} for tasks in (train, held_out)]
    assert not goods[0] & goods[1]
    assert all(set(task.hidden) == {"total"} and "total" not in task.payload for task in train)


def test_a_guess_is_worth_less_and_nonsense_nothing(folder):
    task = importlib.import_module("make_shop_tasks").make_task("train", 1)
    _, guessed = play(task, f"total {task.hidden['total']}")
    assert (guessed.total, guessed.is_success) == (pytest.approx(0.8), False)
    reply, nothing = play(task, "", "price stone", "price", "\x00" * 99, max_turns=4)
    assert reply.is_done and reply.is_truncated
    assert nothing.total == 0.0 and nothing.findings
    _, shaped = play(task, "hello", max_turns=1, weights={"shaping_letters": 0.1})
    assert 0.0 < shaped.total < 0.1


def test_the_command_that_trains_is_a_config(folder):
    config = load_config(train_command()[1:])
    assert config.environment.family == importlib.import_module("shop_family").NAME
