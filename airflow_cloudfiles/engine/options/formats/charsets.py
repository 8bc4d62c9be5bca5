"""Which encoding does a name mean?

The options of every text format name encodings, and the stream decodes them: both ask here.
Names are those that Java, Python and the IANA give, in any case.
"""

from __future__ import annotations

import codecs
import difflib
from functools import cache
from typing import Final

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.values import Kind

UTF8: Final = "utf-8"
_NO_TEXT: Final = frozenset(
    {"base64", "bz2", "hex", "quopri", "rot-13", "uu", "zlib", "mbcs", "oem", "undefined"}
    | {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "unicode-internal"}
)
"""What Python calls codecs, but no file is written in."""
_USUAL: Final = (
    *("UTF-8", "UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32", "UTF-32LE", "UTF-32BE", "US-ASCII"),
    *(f"ISO-8859-{number}" for number in range(1, 17) if number != 12),  # noqa: PLR2004 - none
    *(f"windows-125{number}" for number in range(9)),
    *("KOI8-R", "KOI8-U", "GBK", "GB18030", "Big5", "EUC-JP", "EUC-KR", "Shift_JIS"),
    *("IBM437", "IBM850", "IBM037", "IBM500", "x-MacRoman"),
)
"""What is offered where a name is not known."""


def codec_of(option: str, name: str) -> str:
    """Python's name of the codec for an encoding.

    Args:
        option: The option that names it, for the error.
        name: For instance `UTF-8`, `latin1`, `windows-1252` or `Cp1252`.

    Raises:
        OptionError: There is no such encoding; the text names the nearest.
    """
    for candidate in (name.strip(), name.strip().lower().removeprefix("x-").replace("mac", "mac-")):
        try:
            codec = codecs.lookup(candidate).name
        except (LookupError, ValueError):
            continue
        if codec.replace("_", "-") not in _NO_TEXT:
            return UTF8 if codec == "utf-8-sig" else codec
    spellings = {each.lower(): each for each in _USUAL}
    near = difflib.get_close_matches(name.strip().lower(), spellings, n=2)
    hint = f" Did you mean {' or '.join(spellings[each] for each in near)}?" if near else ""
    raise OptionError(
        f"{option}={name!r} is no encoding of text that is known here.{hint} Give a name such as "
        "UTF-8, UTF-16LE, ISO-8859-1 or windows-1252."
    )


charset: Final = Kind("encoding", codec_of, ignores_empty=True)
"""The name of an encoding; its value is Python's name of the codec."""


@cache
def overlaps_itself(separator: bytes) -> bool:
    r"""Whether the end of a separator may be the beginning of the next one, as in `||` or `\n\n`.

    Of three bars only the first two are a separator then: to know, one must read from the first
    line on, so such a file is not read in parts.
    """
    return any(separator.startswith(separator[-size:]) for size in range(1, len(separator)))
