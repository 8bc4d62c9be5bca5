"""Where does the documentation say more of an error?

Every error has a section under its code in docs/how-to/troubleshooting.md. The page is in the wheel
(`cloudfiles docs` with the code), and online where the metadata of this package says where it is.
"""

from __future__ import annotations

from functools import cache
from typing import Final

PAGE: Final = "how-to/troubleshooting"
"""The page with a section for each code."""
_DISTRIBUTION: Final = "airflow-provider-cloudfiles"


def section_of(code: str) -> str:
    """Write a code and where its section is, for the end of a message.

    Args:
        code: Of an error.
    """
    address = _address()
    online = f", {address}#{code.lower()}" if address else ""
    return f"[{code}] More: cloudfiles docs {code}{online}"


@cache
def _address() -> str:
    """The page online: beside the documentation that the metadata names; empty without one."""
    from importlib import metadata  # noqa: PLC0415 - only a process that tells an error needs it

    try:
        urls = metadata.metadata(_DISTRIBUTION).get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # a checkout, or the wheel alone on a cluster's path
        return ""
    named = dict(each.split(", ", 1) for each in urls)
    return beside(named.get("Documentation", ""))


def beside(documentation: str) -> str:
    """The address of the page, beside the first page of the documentation.

    Args:
        documentation: Address of that page, such as `https://code.example/blob/HEAD/docs/index.md`;
            empty where nobody has said one.
    """
    folder, _, name = documentation.rpartition("/")
    suffix = name.removeprefix("index")
    return f"{folder}/{PAGE}{suffix}" if folder else ""
