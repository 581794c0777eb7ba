"""Every attack of the table against every profile that holds on this machine, as root and as an ordinary user."""

import pytest
from security.attacks import ATTACKS
from security.everywhere import PLACES, run_table

pytestmark = pytest.mark.timeout(1000)


@pytest.mark.parametrize(("user", "profile"), PLACES)
def test_every_attack_is_held_or_the_profile_refuses_this_machine(user: int, profile: str) -> None:
    refusal, rows = run_table(user, profile)
    if refusal:
        # A machine may lack what a profile needs (no container runtime): then it must say so, and nothing runs in it.
        assert profile != "bubblewrap", refusal
        assert len(refusal) > 20
        assert rows == {}
        return
    assert list(rows) == list(ATTACKS), "the table ended early"
    failed = {name: (ATTACKS[name].must_not, row["evidence"]) for name, row in rows.items() if not row["held"]}
    assert failed == {}
