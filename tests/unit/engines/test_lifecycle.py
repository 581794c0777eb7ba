import pytest

from skyrl_nat.engines.lifecycle import Lifecycle, Memory
from skyrl_nat.errors import EngineError


def started(*, is_paused: bool = False) -> Lifecycle:
    lifecycle = Lifecycle()
    lifecycle.is_started = True
    lifecycle.is_paused = is_paused
    return lifecycle


def test_nothing_is_answered_before_start_and_after_the_end() -> None:
    lifecycle = Lifecycle()
    with pytest.raises(EngineError, match="not started"):
        lifecycle.require_generate()
    lifecycle.is_started = True
    lifecycle.require_generate()
    lifecycle.end = "shut down"
    with pytest.raises(EngineError, match="shut down"):
        lifecycle.require_generate()


def test_weights_are_taken_only_while_paused_and_with_memory_for_them() -> None:
    """EN-08."""
    lifecycle = started()
    with pytest.raises(EngineError, match=r"Call pause\(\) first"), lifecycle.update():
        pass
    lifecycle.is_paused = True
    lifecycle.memory = Memory.NONE
    with pytest.raises(EngineError, match=r"Call wake\(\['weights'\]\) first"), lifecycle.update():
        pass
    lifecycle.memory = Memory.WEIGHTS
    with lifecycle.update():
        pass


def test_half_awake_engines_answer_nothing() -> None:
    """EN-08."""
    lifecycle = started()
    lifecycle.memory = Memory.WEIGHTS
    with pytest.raises(EngineError, match=r"wake\(\['kv_cache'\]\)"):
        lifecycle.require_generate()
    with pytest.raises(EngineError, match=r"wake\(\['kv_cache'\]\)"):
        lifecycle.require_resume()


def test_requests_may_arrive_during_an_update_but_nobody_resumes_into_it() -> None:
    lifecycle = started(is_paused=True)
    with lifecycle.update():
        lifecycle.require_generate()
        with pytest.raises(EngineError, match="ended its update"):
            lifecycle.require_resume()
    lifecycle.require_resume()


def test_a_failed_update_refuses_requests_until_one_succeeds() -> None:
    """WS-08."""
    lifecycle = started(is_paused=True)
    with pytest.raises(ValueError, match="bad"), lifecycle.update():
        raise ValueError("bad")
    for call in (lifecycle.require_generate, lifecycle.require_resume):
        with pytest.raises(EngineError, match="the last weight update failed: ValueError"):
            call()
    with lifecycle.update():
        pass
    lifecycle.require_resume()


def test_sleep_is_refused_while_sampling() -> None:
    with pytest.raises(EngineError, match="sleep"):
        started().require_sleep()
    started(is_paused=True).require_sleep()


def test_the_kv_cache_does_not_wake_before_the_weights_are_there() -> None:
    """Row 58, EN-08: what was given back is pushed again first."""
    lifecycle = started(is_paused=True)
    lifecycle.memory = Memory.NONE
    lifecycle.fault = "weights were given back by sleep()"
    lifecycle.require_wake(["weights"])
    lifecycle.memory = Memory.WEIGHTS
    with pytest.raises(EngineError, match="Push weights first"):
        lifecycle.require_wake(["kv_cache"])
    with lifecycle.update():
        pass
    lifecycle.require_wake(["kv_cache"])
