"""Describe the Spark Connect server whose Spark a run uses.

The driver of such a run is a Python process without a JVM: a client of the server, for which the
package `pyspark-client` is enough. The address of the server may hold a token, so it reaches the
driver in its environment and nothing else. Importing this module imports no Spark.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.job.spark_command import LAUNCHED, How
from airflow_cloudfiles.engine.storage.access import check_environment, check_secret

REMOTE = "CLOUDFILES_SPARK_REMOTE"
"""Environment variable of a driver: the address of the server, with its token."""
CONNECT = "connect"
"""What `CLOUDFILES_LAUNCHED` is for such a driver."""
DEFAULT_PORT = 15002
TOKEN, USER_ID, USE_SSL = "token", "user_id", "use_ssl"
_SHOWN = frozenset({USER_ID, USE_SSL, "session_id", "user_agent"})
"""Parameters that are no secret; any other may be one, since it is sent as a header."""
_HIDDEN = "***"
_USER_INFO = re.compile(r"^sc://[^/;]*@")
_ADVICE = "Write sc://host:port, or sc://host:port/;use_ssl=true;token=..."


@dataclass(frozen=True, slots=True)
class SparkConnect(How):
    """A Spark Connect server.

    The server's Python needs this package in the version of the client, with its extras `spark` and
    `delta`, and it must reach the source, the state and the target by the same URIs
    (docs/how-to/spark-connect.md).

    Attributes:
        remote: Its address as Spark writes it: `sc://host:port/;token=...;use_ssl=true`.
    """

    remote: str = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "remote", self.remote.strip())
        if _USER_INFO.match(self.remote):
            raise OptionError(f"The address of a Spark Connect server has no user. {_ADVICE}")
        try:
            split = urlsplit(self.remote)
            parts = (split.scheme, split.hostname, split.port)
        except ValueError:  # without the cause, whose text may hold the token
            raise OptionError(
                f"The port of a Spark Connect server is a number. {_ADVICE}"
            ) from None
        if parts[0] != "sc" or not parts[1]:
            raise OptionError(
                f"The address of a Spark Connect server begins with sc:// and a host. {_ADVICE}"
            )
        if split.query or split.fragment or split.path.partition(";")[0] not in {"", "/"}:
            raise OptionError(f"The address of a Spark Connect server has no path. {_ADVICE}")
        for each in self._parameters():
            if "=" not in each:
                raise OptionError(
                    f"A parameter of the Spark Connect server {self.address} lacks a value. "
                    f"{_ADVICE}"
                )
        for value in self._secrets():
            check_secret(f"A parameter of the Spark Connect server {self.address}", unquote(value))

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        split = urlsplit(self.remote)
        host = f"[{split.hostname}]" if ":" in str(split.hostname) else split.hostname
        return f"{host}:{self.port}"

    @property
    def host(self) -> str:
        """Name or address of the machine."""
        return str(urlsplit(self.remote).hostname)

    @property
    def port(self) -> int:
        """Its port."""
        return urlsplit(self.remote).port or DEFAULT_PORT

    @property
    def uses_ssl(self) -> bool:
        """Whether the client is to speak TLS."""
        pairs = (each.partition("=") for each in self._parameters())
        return any(name == USE_SSL and value.lower() == "true" for name, _, value in pairs)

    @property
    def has_secrets(self) -> bool:
        """Whether the address holds what others should not see."""
        return bool(self._secrets())

    def scrubbed(self, text: str) -> str:
        """Remove from a text what is secret in the address."""
        for value in self._secrets():
            for written in (value, unquote(value)):
                text = text.replace(written, _HIDDEN)
        return text

    def environment(self) -> dict[str, str]:
        """Return the address of the server as variables, which no other process can read."""
        return {LAUNCHED: CONNECT, REMOTE: self.remote}

    def _secrets(self) -> list[str]:
        pairs = (each.partition("=") for each in self._parameters())
        return [
            value
            for name, _, value in pairs
            if name not in _SHOWN and value.lower() not in {"", "true", "false"}
        ]

    def _parameters(self) -> list[str]:
        return [each for each in urlsplit(self.remote).path.split(";")[1:] if each]


def remote_of(
    host: str, port: int | None, *, user: str | None, token: str | None, use_ssl: object
) -> str:
    """Write the address of a server from the fields of an Airflow connection."""
    authority = host.removeprefix("sc://").rstrip("/")
    if port:
        authority = f"{authority}:{port}"
    parameters = []
    for name, value in ((USER_ID, user), (TOKEN, token), (USE_SSL, use_ssl)):
        if value not in {None, ""}:
            text = str(value).lower() if isinstance(value, bool) else str(value).strip()
            parameters.append(f";{name}={quote(text, safe='')}")
    return f"sc://{authority}/{''.join(parameters)}"


def server_of_driver() -> SparkConnect:
    """Return the server that this driver was started for; its child processes get no address."""
    check_environment("SPARK_CONNECT_AUTHENTICATE_TOKEN")
    return SparkConnect(os.environ.pop(REMOTE))
