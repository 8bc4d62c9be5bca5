"""Is a row what an XML schema says?

Rows are checked one by one, as documents of their own, with the namespaces that the elements around
them declare. Nothing is fetched: neither for the rows nor for the schema, whose imports are files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.xml.rows import XmlRows

_NAME: Final = re.compile(rb"\s(xmlns(?::[^\s=<>/]+)?)\s*=")
_START: Final = re.compile(rb"<[^\s/>]+")


class RowValidator:
    """Checks rows against the schema of `rowValidationXSDPath`.

    Args:
        path: Where the schema is: a local path, or a `file:` URI.

    Raises:
        OptionError: It is not there, or no XML schema; or the extra `xml` is not installed.
    """

    def __init__(self, path: str) -> None:
        try:
            from lxml import etree  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise OptionError(
                "rowValidationXSDPath needs lxml. Install it with: "
                "pip install 'airflow-provider-cloudfiles[xml]'"
            ) from error
        self._etree: Any = etree
        self._parser = etree.XMLParser(
            resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True
        )
        self._schema = self._load(path)

    def check(self, rows: XmlRows) -> None:
        """Mark the rows that are not valid as broken."""
        for position, text in enumerate(rows.texts):
            if position not in rows.broken:
                problem = self._problem(text, rows.namespaces)
                if problem is not None:
                    rows.broken[position] = problem

    def _problem(self, text: bytes, namespaces: list[bytes]) -> str | None:
        """What is wrong with a row; `None` for nothing."""
        try:
            row = self._etree.fromstring(_declared(text, namespaces), self._parser)
        except self._etree.XMLSyntaxError as error:
            return str(error)
        if self._schema.validate(row):
            return None
        return f"not valid: {self._schema.error_log.last_error.message}"

    def _load(self, path: str) -> Any:
        place = unquote(urlsplit(path).path) if path.lower().startswith("file:") else path
        if not Path(place).is_file():
            raise OptionError(
                f"rowValidationXSDPath={path!r} is no file here. Give the path of an XML schema "
                "that every machine which reads has."
            )
        parser = self._etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        try:
            return self._etree.XMLSchema(self._etree.parse(place, parser))
        except (self._etree.XMLSyntaxError, self._etree.XMLSchemaParseError, OSError) as error:
            raise OptionError(
                f"rowValidationXSDPath={path!r} is no XML schema: {error}. Correct the file."
            ) from error


def _declared(text: bytes, namespaces: list[bytes]) -> bytes:
    """A row with the declarations around it that it does not make itself."""
    start = _START.match(text)
    if start is None or not namespaces:
        return text
    own = set(_NAME.findall(text[: text.find(b">")]))
    missing = {
        name[1]: each for each in namespaces if (name := _NAME.match(b" " + each)) is not None
    }
    added = b"".join(b" " + each for name, each in missing.items() if name not in own)
    return text[: start.end()] + added + text[start.end() :]
