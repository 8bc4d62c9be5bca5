"""Which options does plain text have?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.formats.charsets import UTF8, codec_of, overlaps_itself
from airflow_cloudfiles.engine.options.values import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """The validated options of plain text."""

    encoding: str = UTF8
    """`encoding` (or `charset`): of the files, for instance `UTF-16LE` or `ISO-8859-1`. Only UTF-8
    is read in parts. Default UTF-8; a file with the mark of UTF-16 or UTF-32 is read as that."""
    line_sep: str | None = None
    r"""`lineSep`: what ends a line. Default: `\n`, `\r\n` or `\r`."""
    whole_text: bool = False
    """`wholeText`: whether a file is one row, with its whole content. Default false: a line is."""

    NAMES: ClassVar[tuple[str, ...]] = ("charset", "encoding", "lineSep", "wholeText")
    REFUSED: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def parse(cls, read: Values) -> Self:
        """Validate."""
        whole_text = read.boolean("wholeText", default=False)
        line_sep = read.raw("lineSep")
        if line_sep == "":
            raise OptionError(
                "lineSep must not be empty. Give what ends a line, or leave it out for line breaks."
            )
        if whole_text and line_sep is not None:
            raise OptionError(
                f"lineSep={line_sep!r} says that a file has many rows, wholeText=true that it is "
                "one. Leave one of them out."
            )
        return cls(encoding=_encoding(read), line_sep=line_sep, whole_text=whole_text)

    def can_split(self) -> bool:
        """Whether large files may be read in parts."""
        cannot_be_found = self.line_sep is not None and overlaps_itself(self.line_sep.encode())
        return not self.whole_text and self.encoding == UTF8 and not cannot_be_found


def _encoding(read: Values) -> str:
    """The encoding under either of its names."""
    found = {name: codec_of(name, given) for name in ("encoding", "charset")
             if (given := read.raw(name)) is not None}  # fmt: skip
    if len(set(found.values())) > 1:
        raise OptionError("encoding and charset are two names of one option. Give one.")
    return next(iter(found.values()), UTF8)
