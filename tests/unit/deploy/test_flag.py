import asyncio
from pathlib import Path

import pytest

from skyrl_nat.deploy.flag import FlagFile, FlagState, TrainedSwitch
from skyrl_nat.errors import ConfigError, DataError, EngineError
from skyrl_nat.feature_flag import FlagOutcome


async def good() -> str:
    return "an agent"


async def slow() -> str:
    await asyncio.sleep(30)
    return "too late"


def failing(error: Exception):
    async def fail() -> str:
        raise error

    return fail


def switch(folder: Path, **how) -> TrainedSwitch:
    return TrainedSwitch(FlagFile(folder / "flag.json"), **{"timeout_s": 5.0, "max_concurrent": 2, **how})


def ask(made: TrainedSwitch, work=good, user: str = "u") -> FlagOutcome:
    return asyncio.run(made.ask(user, work)).outcome


def test_without_a_file_everybody_gets_the_trained_policy(tmp_path: Path) -> None:
    answer = asyncio.run(switch(tmp_path).ask("u", good))
    assert (answer.outcome, answer.value, answer.reason) == (FlagOutcome.trained, "an agent", "")


@pytest.mark.parametrize(
    ("work", "how", "outcome"),
    [
        (failing(EngineError("no server")), {}, FlagOutcome.fallback_error),
        (failing(TimeoutError("of the engine")), {}, FlagOutcome.fallback_error),
        (failing(DataError("does not pass")), {}, FlagOutcome.fallback_invalid),
        (slow, {"timeout_s": 0.05}, FlagOutcome.fallback_timeout),
    ],
)
def test_whatever_the_policy_does_the_baseline_answers_at_once_and_it_is_counted(
    tmp_path: Path, work, how: dict[str, float], outcome: FlagOutcome
) -> None:
    made = switch(tmp_path, **how)
    assert ask(made, work) is outcome
    assert ask(made) is FlagOutcome.trained
    counts = made.counts.to_dict()
    assert (counts[outcome], counts["trained"], sum(counts.values())) == (1, 1, 2)


def test_more_requests_than_may_be_with_the_policy_do_not_wait_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        made = switch(tmp_path, max_concurrent=1)
        first = asyncio.create_task(made.ask("u", slow))
        await asyncio.sleep(0)
        assert (await made.ask("u", good)).outcome is FlagOutcome.fallback_busy
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert (await made.ask("u", good)).outcome is FlagOutcome.trained

    asyncio.run(scenario())


def test_a_roll_out_grows_and_ends_while_it_runs_and_keeps_its_users(tmp_path: Path) -> None:
    made, users = switch(tmp_path), [f"user-{number}" for number in range(400)]
    drawn: dict[float, set[str]] = {}
    for percent in (10.0, 40.0):
        FlagFile(tmp_path / "flag.json").write(FlagState(percent=percent))
        drawn[percent] = {user for user in users if ask(made, user=user) is FlagOutcome.trained}
        assert abs(len(drawn[percent]) / 4 - percent) < 6
    assert drawn[10.0] < drawn[40.0]
    FlagFile(tmp_path / "flag.json").write(FlagState(is_on=False))
    assert ask(made, user=min(drawn[10.0])) is FlagOutcome.baseline_flag_off


@pytest.mark.parametrize(
    "text", ["", "{}x", '{"percent": 101}', '{"percent": NaN}', '{"is_on": 1}', '{"share": 3}', "3"]
)
def test_a_broken_flag_is_off_and_no_request_is_lost(tmp_path: Path, text: str) -> None:
    (tmp_path / "flag.json").write_text(text)
    with pytest.raises(ConfigError):
        FlagFile(tmp_path / "flag.json").read()
    assert ask(switch(tmp_path)) is FlagOutcome.baseline_flag_off
