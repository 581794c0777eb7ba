from skyrl_nat.environments.jira.verifier import verify

PLAN = ("read", "work", "close")


def judge(*executed: str, goal: bool = True, ended: bool = True) -> tuple[str, ...]:
    return verify(PLAN, executed, is_goal_reached=goal, is_ended=ended).findings


def test_plan_itself_is_right() -> None:
    assert judge("read", "work", "close") == ()


def test_tool_used_twice_is_found() -> None:
    assert judge("read", "read", "work", "close") == ("used more than once: read",)


def test_wrong_order_is_found_and_names_both() -> None:
    assert judge("work", "read", "close") == ("out of order: work, read",)


def test_tool_outside_of_the_plan_is_found() -> None:
    assert judge("read", "sing", "work", "close") == ("not needed: sing",)


def test_missing_tools_are_found() -> None:
    assert judge("read", "close") == ("not used: work",)


def test_end_without_goal_and_no_end_are_told_apart() -> None:
    assert judge("read", "work", "close", goal=False) == ("the goal does not hold",)
    assert judge("read", "work", "close", ended=False) == ("the work was not ended",)


def test_nothing_done_lacks_everything() -> None:
    verdict = verify(PLAN, (), is_goal_reached=False, is_ended=False)
    assert not verdict.is_ok
    assert (verdict.has_no_duplicate, verdict.is_in_order, verdict.has_nothing_needless) == (True, True, True)
    assert (verdict.is_complete, verdict.is_final_state_right) == (False, False)
