"""One line of the doctor's table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What must hold and what was found."""

    name: str
    expected: str
    found: str
    """Of a check that was skipped: why."""
    is_ok: bool | None
    """None for a fact that is neither right nor wrong."""
    rows: str = ""
    """Rows of `tests/unit/correctness_contract.md` that it stands for."""
    advice: str = ""
    """What to do where it is wrong, one sentence."""
    is_skipped: bool = False
    is_needed: bool = False
    """Whether the model cannot be tried where this is wrong."""

    @property
    def verdict(self) -> str:
        """`ok`, `WRONG`, `note` or `skipped`."""
        return "skipped" if self.is_skipped else {True: "ok", False: "WRONG", None: "note"}[self.is_ok]


def at_most(rows: str, name: str, value: float, limit: float) -> Check:
    """Return a check of a number against its upper bound; NaN fails."""
    return Check(rows=rows, name=name, expected=f"<= {limit:g}", found=f"{value:.3g}", is_ok=value <= limit)


def equal(rows: str, name: str, found: object, expected: object) -> Check:
    """Return a check of two values that must be the same."""
    return Check(rows=rows, name=name, expected=str(expected), found=str(found), is_ok=found == expected)


def none_of(rows: str, name: str, found: list[str], *, advice: str = "", is_needed: bool = False) -> Check:
    """Return a check that a list of faults is empty; the first three are shown."""
    text = "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
    return Check(
        rows=rows,
        name=name,
        expected="none",
        found=text or "none",
        is_ok=not found,
        advice=advice,
        is_needed=is_needed,
    )


def skipped(name: str, reason: str) -> Check:
    """Return a check that was not made."""
    return Check(name=name, expected="", found=reason, is_ok=None, is_skipped=True)
