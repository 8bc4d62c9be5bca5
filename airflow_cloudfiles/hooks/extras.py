"""Declare the extra fields of connections, and those that this package obeys.

A field decides with which identity a cloud is reached. So each is used, or known to change nothing
for us, or refused by its name; what is misspelt is not passed over either. Values never reach a
message: any of them may be a secret.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.engine.errors import OptionError, UnsupportedOptionError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

Source = Callable[[str], Mapping[str, Any]]
"""Gives the credentials that a purpose needs, as the provider's hook has them now."""
TEST_LOCATION = "test_location"
"""The field that says where a connection is tried; how the cloud is reached, it does not say."""

_TRUE = ("true", "1", "yes")
_FALSE = ("false", "0", "no")


class Extras:
    """The extra fields of a connection, taken one after the other.

    A field without a value (`None`, `""`, `{}`) is not there: Airflow's forms write such.

    Args:
        where: The connection and, for fields within a field, the path to them; for messages.
        fields: The fields.
    """

    def __init__(self, where: str, fields: Mapping[str, Any]) -> None:
        self._where = where
        self._fields = {
            str(name): value for name, value in fields.items() if value not in (None, "", {}, [])
        }

    @classmethod
    def of(cls, connection: Connection) -> Extras:
        """Read the extra fields, also under the names that older forms gave them.

        Raises:
            OptionError: They are not a JSON object.
        """
        where = f"Connection {connection.conn_id!r} ({connection.conn_type})"
        if connection.extra:
            _object(where, "extra", connection.extra)
        prefix = f"extra__{connection.conn_type}__"
        fields = connection.extra_dejson.items()
        named = {name.removeprefix(prefix): value for name, value in fields}
        named.pop(TEST_LOCATION, None)
        return cls(where, named)

    def text(self, name: str, words: Collection[str] = ()) -> str | None:
        """Take a field that holds a text.

        Args:
            name: Of the field.
            words: The texts that it may hold; any, if there is none.

        Raises:
            OptionError: It holds something else.
        """
        value = self._fields.pop(name, None)
        if words and value is not None and value not in words:
            raise OptionError(
                f"{self._where}: {name} must be {' or '.join(words)}. Correct it in the connection."
            )
        if value is None or isinstance(value, str):
            return value
        raise OptionError(f"{self._where}: {name} must be a string. Correct it in the connection.")

    def flag(self, name: str, *, default: bool) -> bool:
        """Take a field that says yes or no.

        Raises:
            OptionError: It says neither.
        """
        value = str(self._fields.pop(name, default)).lower()
        if value in (*_TRUE, *_FALSE):
            return value in _TRUE
        raise OptionError(f"{self._where}: {name} must be true or false. Correct it there.")

    def whole(self, name: str, *, default: int) -> int:
        """Take a field that holds a whole number, perhaps as text.

        Raises:
            OptionError: It holds something else.
        """
        value = str(self._fields.pop(name, default))
        if value.isascii() and value.removeprefix("-").isdigit():
            return int(value)
        raise OptionError(f"{self._where}: {name} must be a whole number. Correct it there.")

    def within(self, name: str) -> Extras:
        """Take a field that holds fields, or their JSON text.

        Raises:
            OptionError: It holds something else.
        """
        where = f"{self._where}: {name}"
        return Extras(where, _object(self._where, name, self._fields.pop(name, {})))

    def items(self) -> list[tuple[str, Extras]]:
        """Take all that is left: fields that hold fields."""
        return [(name, self.within(name)) for name in list(self._fields)]

    def fields(self) -> dict[str, Any]:
        """Take all that is left, as it is."""
        taken, self._fields = self._fields, {}
        return taken

    def peek(self, name: str) -> Any:
        """Look at a field without taking it."""
        return self._fields.get(name)

    def drop(self, *names: str) -> None:
        """Take fields that somebody else reads."""
        for name in names:
            self._fields.pop(name, None)

    def replace(self, name: str, value: Mapping[str, Any]) -> None:
        """Put a field back, or another in its place."""
        if value:
            self._fields[name] = value

    def pass_over(self, name: str, value: object) -> None:
        """Take a field that says what holds anyway."""
        if self._fields.get(name) == value:
            del self._fields[name]

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Refuse the fields that need something unsupported.

        Args:
            reasons: What to do instead, by the name of the field.

        Raises:
            UnsupportedOptionError: One of them is there.
        """
        for name in self._fields:
            if name in reasons:
                raise UnsupportedOptionError(f"{self._where}: {name} is refused. {reasons[name]}")

    def end(self, *, passed_over: Collection[str] = ()) -> None:
        """Refuse the fields that have not been read.

        Args:
            passed_over: Fields that say nothing about how the cloud is reached.

        Raises:
            UnsupportedOptionError: There is a further one.
        """
        for name in self._fields:
            if name not in passed_over:
                raise UnsupportedOptionError(
                    f"{self._where}: the extra field {name!r} is not supported, and ignoring it "
                    "could change who is given access. Correct its name, or use a connection "
                    "without it."
                )


def refuse_fields(connection: Connection, reasons: Mapping[str, str]) -> None:
    """Refuse fields of a connection itself that are not used.

    Args:
        connection: The connection.
        reasons: What to do instead, by the name of the field.

    Raises:
        UnsupportedOptionError: One of them is there.
    """
    where = f"Connection {connection.conn_id!r} ({connection.conn_type})"
    named = {name: getattr(connection, name, None) for name in reasons}
    Extras(where, named).refuse(reasons)


def address_of(connection: Connection) -> str | None:
    """Give the address that host, port and schema of a connection name; `None` without a host.

    Raises:
        UnsupportedOptionError: A port or a schema has no host, or the schema is not valid.
    """
    host = (connection.host or "").strip().rstrip("/")
    schema = (connection.schema or "").strip().lower()
    if schema not in {"", "http", "https"}:
        refuse_fields(connection, {"schema": _NO_SCHEMA})
    if not host:
        refuse_fields(connection, {"port": _NO_HOST, "schema": _NO_HOST})
        return None
    named, found, rest = host.rpartition("://")
    scheme = named.lower() if found else (schema or "https")
    name, slash, path = rest.partition("/")
    is_numbered = name.rpartition("]")[2].count(":") == 1
    port = f":{connection.port}" if connection.port and not is_numbered else ""
    return f"{scheme}://{name}{port}{slash}{path}"


_NO_SCHEMA = (
    "It can be http or https, for the host; what is read or written, a location says. Remove it."
)
_NO_HOST = "It means nothing without a host. Remove it, or give the host."


def _object(where: str, name: str, value: object) -> dict[str, Any]:
    """Read a JSON object that may be given as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if isinstance(value, Mapping):
        return dict(value)
    raise OptionError(f"{where}: {name} must be a JSON object. Correct it in the connection.")
