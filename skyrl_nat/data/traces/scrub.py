"""Secrets are taken out of a trace before it is written; each becomes a tag such as `[secret:openai-key]`.

Known shapes only, so that ordinary code stays as it is. Every expression is linear in the text: it begins with a fixed
text, and what repeats gives nothing back (`++`) or cannot overlap with what follows.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from skyrl_nat.data.traces.record import Trace

MIN_VALUE_CHARS = 8
"""Shorter values of environment variables could be any word."""
MIN_TOKEN_CHARS = 12

Rule = tuple[str, re.Pattern[str], Callable[[re.Match[str]], bool]]
"""Tag, what it looks like (the group `secret`, or all of it, is replaced), and whether a match is one."""


def _always(match: re.Match[str]) -> bool:
    return bool(match)


def _begins_a_word(match: re.Match[str]) -> bool:
    before = match.string[max(0, match.start() - 2) : match.start()]
    return not _WORD_END.search(before) or before in ("\\n", "\\r", "\\t")


def _has_digit(match: re.Match[str]) -> bool:
    return any(char.isdigit() for char in match["secret"])


def _is_no_template(match: re.Match[str]) -> bool:
    return match["secret"][0] not in "{$<%*["


def _is_literal(match: re.Match[str]) -> bool:
    """Tell a value from a reference to one, and from a word that only stands for it."""
    value, is_password = match["secret"], match["name"].upper().endswith(("PASSWORD", "PASSWD"))
    if _PLACEHOLDER.fullmatch(value):
        return False
    if _REFERENCE.fullmatch(value) or not any(char.isdigit() for char in value):
        return is_password and bool(match["quote"])
    return is_password or len(value) >= MIN_TOKEN_CHARS


_WORD_END = re.compile(r"[A-Za-z0-9_-]\Z")
_REFERENCE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_PLACEHOLDER = re.compile(r"(?i)[<{$%*].*|x+|\.+|your.*|changeme|password|secret|[a-z_]+\.[a-z_.]+")
_SECRET_NAME = r"(?:API_?KEY|SECRET_?KEY|SECRET_ACCESS_KEY|PRIVATE_?KEY|AUTH_?KEY|TOKEN|SECRET|PASSWORD|PASSWD)"
_FIELD_NAME = re.compile(rf"(?i)(?:[A-Z0-9_-]{{1,40}}[_-])?{_SECRET_NAME}")
_ENVIRONMENT_NAME = re.compile(r"(?i).*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT)")
_LINE_END = r"(?:\s|\\[nr])"
_LONG_LINE = r"[A-Za-z0-9+/=]{16,}+"
_PRIVATE_KEY = (
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_LINE_END}++[A-Z][A-Za-z-]{{1,20}}: [^\n\\]{{0,120}})*+"
    rf"(?:{_LINE_END}++{_LONG_LINE})++"
    rf"(?:(?:{_LINE_END}++[A-Za-z0-9+/=]{{1,15}}){{0,3}}{_LINE_END}*+-----END [A-Z0-9 ]{{0,30}}PRIVATE KEY"
    r"(?: BLOCK)?-----)?"
)


def _shape(tag: str, pattern: str) -> Rule:
    r"""Return a rule for a token with a prefix of its own; in a longer word it is none, after an escaped `\n` it is.

    The beginning is looked at last, so that the search can go by the prefix.
    """
    return tag, re.compile(pattern), _begins_a_word


RULES: tuple[Rule, ...] = (
    ("private-key", re.compile(_PRIVATE_KEY), _always),
    _shape("anthropic-key", r"sk-ant-[A-Za-z0-9_-]{20,}+"),
    _shape("openrouter-key", r"sk-or-v1-[a-f0-9]{32,}+"),
    _shape("openai-key", r"sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}+|[A-Za-z0-9]{32,}+)"),
    _shape("nvidia-key", r"nvapi-[A-Za-z0-9_-]{40,}+"),
    _shape("github-token", r"(?:gh[pousr]_[A-Za-z0-9]{36,}+|github_pat_[A-Za-z0-9_]{40,}+)"),
    _shape("gitlab-token", r"glpat-[A-Za-z0-9_-]{20,}+"),
    _shape("huggingface-token", r"hf_[A-Za-z0-9]{30,}+"),
    _shape("google-key", r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _shape("google-token", r"(?:ya29\.[A-Za-z0-9_-]{20,}+|GOCSPX-[A-Za-z0-9_-]{24,}+)"),
    _shape("slack-token", r"xox[abeoprs]-[0-9A-Za-z-]{20,}+"),
    _shape("stripe-key", r"[srp]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    _shape("pypi-token", r"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{20,}+"),
    _shape("aws-access-key", r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9_-])"),
    (
        "aws-secret-key",
        re.compile(
            r"(?i:aws_?secret_?(?:access_?)?key)[\"']?\s{0,4}[=:]\s{0,4}[\"']?"
            r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])"
        ),
        _always,
    ),
    _shape("jwt", r"eyJ[A-Za-z0-9_-]{10,}+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+"),
    ("bearer-token", re.compile(r"(?i:\bbearer)[ \t]{1,4}(?P<secret>[A-Za-z0-9._~+/-]{16,}+=*+)"), _has_digit),
    (
        "basic-auth",
        re.compile(r"(?i:\bauthorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?basic)[ \t]{1,4}(?P<secret>[\w+/=-]{8,}+)"),
        _always,
    ),
    ("url-password", re.compile(r"://[^\s/:@'\"`]*+:(?P<secret>[^\s/'\"`]+)@"), _is_no_template),
    (
        "assigned",
        re.compile(
            rf"(?<![A-Za-z0-9_])(?P<name>(?:[A-Z0-9]{{1,20}}_){{0,5}}{_SECRET_NAME})[\"']?"
            r"(?:=|\s{0,4}[=:]\s{0,4}(?=[\"']))(?P<quote>[\"']?)"
            r"(?P<secret>[^\s\"'`$(){}\[\]<>,;\\]{6,}+)(?=[\s\"',;\\]|$)"
        ),
        _is_literal,
    ),
)
EMAIL: Rule = (
    "email",
    re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}+@(?:[A-Za-z0-9-]{1,63}\.){1,5}[A-Za-z]{2,24}(?![\w(-])"),
    _always,
)


class Scrubber:
    """Takes secrets out of text and traces."""

    def __init__(self, environment: Mapping[str, str] | None = None, *, has_emails: bool = False) -> None:
        """Take the environment whose secret-looking values are known; None takes this process's."""
        self._rules = (*RULES, EMAIL) if has_emails else RULES
        named = (os.environ if environment is None else environment).items()
        values = {value for name, value in named if _ENVIRONMENT_NAME.fullmatch(name) and _is_telling(value)}
        self._values = sorted(values, key=len, reverse=True)

    def text(self, text: str) -> tuple[str, Counter[str]]:
        """Return a text without secrets, and the tags put in with how often."""
        found: Counter[str] = Counter()
        return self._text(text, found), found

    def trace(self, trace: Trace) -> tuple[Trace, Counter[str]]:
        """Return a trace without secrets, and the tags put in with how often."""
        found: Counter[str] = Counter()
        steps = tuple(
            replace(step, text=self._text(step.text, found), arguments=self._value(step.arguments, found))
            for step in trace.steps
        )
        clean = replace(
            trace,
            request=self._text(trace.request, found),
            steps=steps,
            files=self._value(trace.files, found),
            labels=self._value(trace.labels, found),
            metadata=self._value(trace.metadata, found),
        )
        return clean, found

    def _text(self, text: str, found: Counter[str]) -> str:
        for value in self._values:
            number = text.count(value)
            if number:
                found["environment"] += number
                text = text.replace(value, _tag("environment"))
        for tag, pattern, is_secret in self._rules:
            text = _replace(text, (tag, pattern, is_secret), found)
        return text

    def _value(self, value: Any, found: Counter[str]) -> Any:
        if isinstance(value, str):
            return self._text(value, found)
        if isinstance(value, dict):
            return {self._value(key, found): self._field(key, item, found) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._value(item, found) for item in value]
        return value

    def _field(self, name: Any, value: Any, found: Counter[str]) -> Any:
        """Return the value of an object's field, whose name may say that it is a secret."""
        is_named = isinstance(name, str) and isinstance(value, str) and _FIELD_NAME.fullmatch(name)
        if is_named and len(value) >= MIN_VALUE_CHARS and not any(char.isspace() for char in value):
            clean = self._text(value, found)
            if clean == value and not _PLACEHOLDER.fullmatch(value):
                found["assigned"] += 1
                return _tag("assigned")
            return clean
        return self._value(value, found)


def _tag(name: str) -> str:
    return f"[secret:{name}]"


def _replace(text: str, rule: Rule, found: Counter[str]) -> str:
    tag, pattern, is_secret = rule
    parts: list[str] = []
    end = 0
    for match in pattern.finditer(text):
        group = "secret" if "secret" in pattern.groupindex else 0
        if is_secret(match) and not match[group].startswith("[secret:"):
            parts += [text[end : match.start(group)], _tag(tag)]
            end = match.end(group)
            found[tag] += 1
    return "".join([*parts, text[end:]]) if parts else text


def _is_telling(value: str) -> bool:
    """Whether a value can be searched for: neither short nor a word or a path that code may hold."""
    is_word = re.fullmatch(r"[A-Za-z_]+|[A-Za-z]+-[a-z-]+|\d{1,11}", value) and len(value) < 24
    return len(value) >= MIN_VALUE_CHARS and not is_word and not value.startswith(("/", "./", "~", "http"))
