"""Say whether this version of the package may read what another one has written.

Whatever is written and may be read by another version says its own version: as a first line `v1`,
or in the field `version` of a JSON object. A version that is newer than what is understood is
refused by name, before anything else of it is believed.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

from airflow_cloudfiles.engine.errors import IncompatibleStateError

FIELD: Final = "version"
"""Where a JSON object says its version."""
_UPGRADE: Final = "Upgrade the package here, or use a new checkpoint location."
_Record = TypeVar("_Record")


def require_version(
    found: object, *, name: str, understood: int, what_to_do: str = _UPGRADE
) -> None:
    """Refuse a version that is newer than what is understood, or is none.

    Args:
        found: What was read as the version.
        name: Of the file.
        understood: The newest version that is understood; the oldest is 1.
        what_to_do: The end of the message.

    Raises:
        IncompatibleStateError: A newer version of this package wrote it.
    """
    if type(found) is int and 1 <= found <= understood:
        return
    raise IncompatibleStateError(
        f"{name} has format version {found}; this version of airflow-provider-cloudfiles "
        f"understands versions up to {understood}. {what_to_do}"
    )


def older(name: str) -> IncompatibleStateError:
    """Give the error of what a version wrote that had no checksums yet; it is not damaged."""
    return IncompatibleStateError(
        f"{name} has no checksum: a version of airflow-provider-cloudfiles wrote it that is older "
        "than format version 1. It is not damaged, and not understood here. Go on with the version "
        "that wrote it, or ingest everything anew with a new checkpoint location and a new table."
    )


def read_note(
    content: bytes | str, *, name: str, understood: int, what_to_do: str = _UPGRADE
) -> dict[str, Any]:
    """Read a JSON object that says its version; one that does not say is of version 1.

    Args:
        content: All of its bytes.
        name: Of the file.
        understood: The newest version that is understood.
        what_to_do: What an error says at its end.

    Returns:
        Its other fields.

    Raises:
        ValueError: It is no JSON object, for instance because a power failure cut it off.
        IncompatibleStateError: A newer version of this package wrote it.
    """
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not a JSON object")  # noqa: TRY004 - as what is no JSON at all
    return fields_of(value, name=name, understood=understood, what_to_do=what_to_do)


def json_object(text: bytes) -> dict[str, Any]:
    """Read a JSON object; an empty one for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


def fields_of(
    value: dict[str, Any], *, name: str, understood: int, what_to_do: str = _UPGRADE
) -> dict[str, Any]:
    """Give the fields of a JSON object, without its version; without one it is of version 1.

    Args:
        value: The object; its version is taken out.
        name: Of the file.
        understood: The newest version that is understood.
        what_to_do: What an error says at its end.

    Raises:
        IncompatibleStateError: A newer version of this package wrote it.
    """
    version = value.pop(FIELD, 1)
    require_version(version, name=name, understood=understood, what_to_do=what_to_do)
    return value


def as_record(value: object, kind: type[_Record]) -> _Record:
    """Make a dataclass, and those within it, of what JSON has of them.

    Args:
        value: The object; fields that the dataclass does not have are passed over.
        kind: The dataclass.

    Raises:
        ValueError: A field has another type, or is missing and has no default.
    """
    import msgspec  # noqa: PLC0415 - files of DAGs import this module and read no records

    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as failure:  # a ValueError in newer versions only
        raise ValueError(str(failure)) from failure
