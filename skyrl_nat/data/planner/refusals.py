"""What a service says when it gives no answer, in one form for all services."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

DAILY = re.compile(r"per[ _-]?day|daily|insufficient_quota", re.IGNORECASE)
"""How Gemini's quota ids and messages of OpenAI's kind name a quota that no retry of today gets past."""
OF_PROMPT = (400, 413, 422)
"""Statuses for a request that is too long or malformed, but also, from Gemini, for a wrong key."""
MAX_MESSAGE = 400


class RefusalKind(StrEnum):
    """Why there is no answer."""

    rate_limited = "rate_limited"
    exhausted = "exhausted"
    """A daily quota or the account's money is used up."""
    denied = "denied"
    """A wrong key, model, address or request."""
    unavailable = "unavailable"
    """The server failed, or the connection did."""
    timed_out = "timed_out"
    unreadable = "unreadable"
    """Something came that is no answer of this protocol."""


class Billed(StrEnum):
    """What a call without an answer is taken to cost, since nobody says."""

    nothing = "nothing"
    """It was turned away before any work."""
    prompt = "prompt"
    everything = "everything"
    """An answer may have been written in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A call that brought no answer."""

    kind: RefusalKind
    message: str
    billed: Billed
    delay_s: float = 0.0
    """How long the server wants to be left alone; 0 where it does not say."""
    may_be_the_prompt: bool = False
    """Whether other requests may well be taken: the status speaks of what was sent."""

    @property
    def concerns_all(self) -> bool:
        """Whether every worker should wait, not only the one that was refused."""
        return self.kind is RefusalKind.rate_limited or self.delay_s > 0


def read_refusal(status: int, headers: Mapping[str, str], body: Any) -> Refusal:
    """Return what an HTTP answer other than 200 means.

    Args:
        status: HTTP status.
        headers: Its headers.
        body: Parsed JSON, or text.
    """
    error = body.get("error", body) if isinstance(body, dict) else body
    said = error.get("message") if isinstance(error, dict) else error
    name = str(error.get("status") or error.get("code") or "") if isinstance(error, dict) else ""
    delay = max(_retry_after(headers.get("Retry-After", "")), _retry_info(error))
    kind = _kind(status, error)
    billed = Billed.prompt if status >= 500 else Billed.nothing
    message = " ".join(f"{status} {name}: {said or 'no message'}".split())[:MAX_MESSAGE]
    return Refusal(kind=kind, message=message, billed=billed, delay_s=delay, may_be_the_prompt=status in OF_PROMPT)


def _kind(status: int, error: Any) -> RefusalKind:
    if status == 402 or (status == 429 and DAILY.search(json.dumps(error))):
        return RefusalKind.exhausted
    if status == 429:
        return RefusalKind.rate_limited
    if status in (408, 499) or status >= 500:
        return RefusalKind.unavailable
    return RefusalKind.denied


def _retry_after(value: str) -> float:
    """Return seconds; the header holds them or a date."""
    if re.fullmatch(r"\d+(\.\d+)?", value.strip()):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0


def _retry_info(error: Any) -> float:
    """Return the seconds of Gemini's `RetryInfo`, written as `53s` or `53.2s`."""
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else []:
        delay = str(detail.get("retryDelay", "")) if isinstance(detail, dict) else ""
        if re.fullmatch(r"\d+(\.\d+)?s", delay):
            return float(delay[:-1])
    return 0.0
