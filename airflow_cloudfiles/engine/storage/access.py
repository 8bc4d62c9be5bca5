"""Describe the identity with which a cloud is reached, and its address.

The values of an Airflow connection; nothing here opens anything. Without an access the
clients find credentials in the environment's own chain (instance profile, workload identity,
environment variables, a developer's login), as every other tool of that cloud does.

A Spark driver is another process than the task that starts it. It gets the access in its
environment (`ENVIRONMENT`), never on a command line, in a file or in the state; credentials that
end, it asks the task for (`identities`). Executors of a cluster have an identity of their own.

A secret that was read from a file often ends in a line end. HTTP clients quote what they are given
when it is no header; so an access takes line ends off, and refuses others unseen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Final, cast

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.vendors import BY_NAME

ENVIRONMENT = "CLOUDFILES_ACCESS"
"""Environment variable of a child process: the access as JSON. It holds secrets."""

CONNECTIONS = 32
"""Connections to a cloud that one client keeps: no more threads ask one at once."""

_LINES: Final = frozenset({"keyfile_json", "private_key"})
"""Secrets that have lines."""
_TYPED: Final = frozenset({"password", "passphrase"})
"""Secrets that a person may have chosen to begin or end with a blank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a cloud or a server is reached; each vendor has its own (`clouds`).

    Attributes:
        vendor: The name of its vendor (`vendors`), and what it is called in the environment.
        identity: Who is asked for credentials (`identities`), in place of all others that it has.
    """

    vendor: ClassVar[str]
    identity: str | None = None

    def __post_init__(self) -> None:
        """Take off what a file or a form has put around a value."""
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, str) or each.name in _LINES:
                continue
            trimmed = value.strip("\r\n") if each.name in _TYPED else value.strip()
            if each.name == "connection_string":  # which is long, and may be written in lines
                trimmed = "".join(line.strip() for line in trimmed.splitlines())
            object.__setattr__(self, each.name, trimmed)
            if not each.repr:
                check_secret(f"The credential {each.name}", trimmed)


def check_secret(what: str, text: str) -> None:
    """Refuse a secret that no client can send, without showing it.

    Args:
        what: What it is, for the message.
        text: The secret.

    Raises:
        OptionError: There is a line end or another control character in it.
    """
    if any(ord(char) < ord(" ") or char == "\x7f" for char in text):
        raise OptionError(
            f"{what} has a line end or another control character in it, which is no part of a "
            f"secret. Correct it where it is kept."
        )


def check_environment(*names: str) -> None:
    """Refuse secrets of the environment that clients would quote in their errors.

    Args:
        names: Of the variables.

    Raises:
        OptionError: One of them begins or ends with a blank or a line end, or has one in it.
    """
    for name in names:
        value = os.environ.get(name, "")
        if value != value.strip():
            raise OptionError(
                f"The environment variable {name} begins or ends with a blank or a line end, which "
                f"is no part of it. Remove it where the variable is set."
            )
        check_secret(f"The environment variable {name}", value)


def version_of_file(path: str | None) -> str:
    """Tell a file from the one that was there before; something may renew the keys in it.

    Args:
        path: Of the file; may begin with `~`.

    Returns:
        An empty text where there is none.
    """
    try:
        found = os.stat(os.path.expanduser(path or ""))  # noqa: PTH111, PTH116 - as clients do
    except OSError:
        return ""
    return f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}"


def to_environment(access: Access) -> dict[str, str]:
    """Give the environment variable that hands an access to a child process."""
    return {ENVIRONMENT: json.dumps({"kind": access.vendor, **asdict(access)})}


def from_environment(environment: Mapping[str, str] | None = None) -> Access | None:
    """Read what `to_environment` gave; `None` when there is nothing.

    Raises:
        OptionError: The variable holds something else.
    """
    text = (os.environ if environment is None else environment).get(ENVIRONMENT)
    if not text:
        return None
    try:
        fields: dict[str, Any] = json.loads(text)
        return cast("Access", BY_NAME[fields.pop("kind")].access_class()(**fields))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise OptionError(  # without the cause, whose text could hold a secret
            f"{ENVIRONMENT} is not an access as this version writes it. It is set by the operators "
            "for the Spark they start; unset it to use the environment's own credential chain."
        ) from None


def of_kind(kind: type[Any], access: Access | None) -> Any:
    """Choose the access for one cloud: the given one, else the environment's, else none.

    An access of another cloud is none for this one: a stream may have its source in one cloud and
    its state in another.
    """
    for candidate in (access, from_environment()):
        if isinstance(candidate, kind):
            return candidate
    return None
