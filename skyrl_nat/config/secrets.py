"""No secret in a config: it is saved beside the run, printed, and shown by trackers."""

import os
import re
from collections.abc import Iterator
from typing import Any, cast

from skyrl_nat.config.run import RunConfig
from skyrl_nat.errors import ConfigError

SECRET_NAME = re.compile(
    r"((^|[_-])(key|pass|pat|auth)|(^|[_-]|auth|access)token|(api|access|secret|private|account)key|pgpass"
    r"|secrets?|password|passwd|credentials?)[_-]?\d*$",
    re.IGNORECASE,
)
"""Names of keys and of environment variables whose values are secrets."""
SPECIAL_TOKEN = re.compile(r"(^|_)(bos|eos|pad|unk|sep|cls|mask|stop|image|per)_token$", re.IGNORECASE)
"""Names of a tokenizer's own, which are none."""
WITH_PASSWORD = re.compile(r"https?://[^\s/@]+@|://[^\s/:@\[]*:(?!\d+(?:[/?#\s]|$))\S*@", re.IGNORECASE)
"""A URL with user and password; under http the user alone is a token."""
IN_QUERY = re.compile(r"[?&;#]([\w.-]+)=[^&;#\s]")
SIGNATURE = re.compile(r"(^|[_-])(sig|signature)$", re.IGNORECASE)
MIN_LENGTH = 8
"""Shorter values of environment variables are found in innocent text too."""


def refuse_secrets(config: RunConfig) -> None:
    """Refuse a value under a secret's name, and one that holds what an environment variable keeps secret.

    Raises:
        ConfigError: With the path, never with the value.
    """
    known = {value: name for name, value in os.environ.items() if _is_secret(name) and len(value) >= MIN_LENGTH}
    for path, value in _texts(config.to_dict(), ""):
        if any(_is_secret(name) for name in path.split(".")):
            raise ConfigError(
                f"{path} must not be in a config, which is saved and shown, got {len(value)} characters. "
                f"Export an environment variable before the start instead"
            )
        if _holds_password(path, value):
            raise ConfigError(
                f"{path} must not hold a password or key in a URL, since a config is saved and shown, got "
                f"{len(value)} characters. Export what opens it as environment variables before the start instead"
            )
        for secret, variable in known.items():
            if secret in value:
                raise ConfigError(
                    f"{path} must not hold a secret, since a config is saved and shown, got the value of the "
                    f"environment variable {variable}. What needs it reads the variable itself: leave {path} out"
                )


def _is_secret(name: str) -> bool:
    parts = _with_parts(name)
    return SECRET_NAME.search(parts) is not None and SPECIAL_TOKEN.search(parts) is None


def _holds_password(path: str, value: str) -> bool:
    # A proxy's address may stand without a scheme.
    url = value if "://" in value or not path.lower().endswith("proxy") else f"://{value}"
    names = [_with_parts(name) for name in IN_QUERY.findall(url)]
    return WITH_PASSWORD.search(url) is not None or any(_is_secret(name) or SIGNATURE.search(name) for name in names)


def _with_parts(name: str) -> str:
    """Return a name whose parts are told apart by underscores, where capitals did."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)


def _texts(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for name, item in cast("dict[str, Any]", node).items():
            yield from _texts(item, f"{path}.{name}".lstrip("."))
    elif isinstance(node, list | tuple):
        for item in cast("list[Any]", node):
            yield from _texts(item, path)
    elif isinstance(node, str | int) and not isinstance(node, bool) and node != "":
        yield path, str(node)
