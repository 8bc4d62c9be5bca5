"""Read the beginning of files, recognize what they are, and the options with which they are read.

Little is read of a source: its bytes are counted, and the readers get a beginning for a file.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from xml.parsers import expat

from airflow_cloudfiles.engine.errors import CloudFilesError, FileUnreadableError
from airflow_cloudfiles.engine.extensions.proposal.dialect import recognize_dialect
from airflow_cloudfiles.engine.files import FileEntry
from airflow_cloudfiles.engine.formats.recognize import (
    BYTE_ORDER_MARKS,
    FORMAT_NAMES,
    MARK_BYTES,
    kind_of_content,
    wide_codec,
)
from airflow_cloudfiles.engine.messages import cut, size_text
from airflow_cloudfiles.engine.reading.decoding import decompressed
from airflow_cloudfiles.engine.storage import ObjectStore

TEXT_FORMATS: Final = frozenset({"csv", "json", "text", "xml"})
_OF_ENDINGS: Final = {
    **{each: each for each in FORMAT_NAMES.values()},
    "jsonl": "json",
    "ndjson": "json",
    "psv": "csv",
    "tsv": "csv",
    "xls": "excel",
    "xlsm": "excel",
    "xlsx": "excel",
}
"""The formats that endings promise."""
_CHUNK_BYTES: Final = 2**16
_SHARE_OF_LINES: Final = 2
"""One of so many lines, at least, is a record by itself where a file has a record a line."""
_MOST_LINES: Final = 50
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_XML_DECLARATION: Final = re.compile(r"^\s*<\?xml[^>]*\?>")
_ROW_TAG: Final = re.compile(r"[^\W\d][\w.:-]*")


@dataclass(slots=True)
class FileContent:
    """What a file is.

    Attributes:
        format: As `cloudFiles.format` names it; empty where it is no table.
        options: With which it is read, also those with default values.
        encoding: Of a text, and how sure that is; empty for others.
        doubts: What is not certain, in sentences.
        text: The text that was looked at, in the encoding of the file, decompressed; `None` for
            what is no text.
        is_whole: Whether that is all of it.
    """

    format: str = ""
    options: dict[str, str] = field(default_factory=dict)
    encoding: str = ""
    doubts: list[str] = field(default_factory=list)
    text: bytes | None = None
    is_whole: bool = True


def recognize_content(head: bytes, uri: str, ending: str, size: int, most: int) -> FileContent:
    """Recognize what a file is.

    Args:
        head: Its first bytes.
        uri: The file.
        ending: Of its name, as `NamePattern.ending`.
        size: Of the file.
        most: At most so many bytes of what is decompressed are looked at.

    Raises:
        FileUnreadableError: It is compressed, and damaged at its beginning.
    """
    begin, is_whole = _opened(head, uri, size, most)
    found = FileContent(text=begin, is_whole=is_whole)
    kind = kind_of_content(begin)
    if kind is not None and kind not in FORMAT_NAMES:
        found.doubts.append(f"{kind} is no format of tables: no stream reads such files.")
        return found
    if kind is not None and FORMAT_NAMES[kind] not in TEXT_FORMATS:
        found.format, found.text = FORMAT_NAMES[kind], None
    else:
        _read_text(begin, found, ending)
    promised = _OF_ENDINGS.get(ending)
    if found.format and promised is not None and promised != found.format:
        found.doubts.append(
            f"The names end in .{ending}, but the content is {found.format}: the content decides."
        )
    return found


def _opened(head: bytes, uri: str, size: int, most: int) -> tuple[bytes, bool]:
    """Decompress the beginning of a file; with it, whether that is all of its content."""
    stream = decompressed(io.BytesIO(head), head[:MARK_BYTES], uri)
    found = bytearray()
    while len(found) <= most:
        try:
            chunk = stream.read1(_CHUNK_BYTES)  # type: ignore[attr-defined]
        except (CloudFilesError, OSError, EOFError):
            if not found or len(head) == size:
                raise
            return bytes(found), False  # the rest of it was not fetched
        if not chunk:
            return bytes(found), len(head) == size
        found += chunk
    return bytes(found[:most]), False


def _read_text(begin: bytes, found: FileContent, ending: str) -> None:
    codec = _encoding(begin, found)
    if codec is None:
        found.doubts.append("The bytes are no text, and of no format that is known.")
        found.text = None
        return
    text = begin.decode(codec, "ignore").removeprefix("\ufeff")
    kind = kind_of_content(text.encode())
    if not text.strip():
        found.doubts.append("The file has nothing but white space.")
    elif kind == "HTML":
        found.doubts.append("HTML is no format of tables: is it the answer of a server?")
    elif kind == "XML":
        found.format = "xml"
        _row_tag(text, found)
    elif kind == "JSON":
        found.format = "json"
        _layout_of_json(text, found)
    else:
        _lines(text, found, ending)


def _encoding(begin: bytes, found: FileContent) -> str | None:
    """Find the encoding of a text; `None` where it is none."""
    for mark, codec in BYTE_ORDER_MARKS:
        if begin.startswith(mark):
            found.encoding = f"{codec.upper()}, by its byte order mark"
            return "utf-8" if codec == "utf-8" else codec.removesuffix("-le").removesuffix("-be")
    if wide := wide_codec(begin[:MARK_BYTES]):
        found.encoding = f"{wide}, by the zeros in it"
        found.options["encoding"] = wide
        return wide
    if b"\x00" in begin:
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(begin, final=found.is_whole)
    except UnicodeDecodeError:
        return _one_byte_encoding(begin, found)
    if begin.isascii():
        found.encoding = "UTF-8, supposed: the sample has only ASCII"
    else:
        found.encoding = "UTF-8, as the sample is valid"
        found.options["encoding"] = "UTF-8"
    return "utf-8"


def _one_byte_encoding(begin: bytes, found: FileContent) -> str:
    try:
        begin.decode("windows-1252")
        codec = "windows-1252"
    except UnicodeDecodeError:
        codec = "ISO-8859-1"
    found.options["encoding"] = codec
    found.encoding = f"{codec}, a guess"
    found.doubts.append(
        f"The text is not UTF-8. {codec} is a guess: many encodings fit any bytes. Look at letters "
        "with accents."
    )
    return codec


def _lines(text: str, found: FileContent, ending: str) -> None:
    """Tell CSV from lines that are only texts."""
    dialect = recognize_dialect(text, is_whole=found.is_whole)
    if dialect is not None:
        found.format = "csv"
        found.options |= dialect.options
        found.doubts += dialect.doubts
        _keep_zeros(dialect.zeros, found)
    elif _OF_ENDINGS.get(ending) == "csv":
        found.format = "csv"
        found.options |= {"sep": "\t" if ending == "tsv" else ",", "header": "true"}
        found.doubts.append("No separator was found: a single column with a header is supposed.")
    else:
        found.format = "text"
        found.options.pop("encoding", None)
        found.doubts.append("The lines have no separator in common: each is read as one text.")


def _keep_zeros(names: list[str], found: FileContent) -> None:
    """Read codes such as `01234` as texts: as numbers they would lose their zeros."""
    plain = [name for name in names if _PLAIN.fullmatch(name)]
    if plain:
        found.options["cloudFiles.schemaHints"] = ", ".join(f"{name} STRING" for name in plain)
    for name in names:
        hint = "a hint keeps them" if name in plain else "as numbers they lose them"
        found.doubts.append(f"Values of {cut(name)} begin with zeros: {hint}.")


def _layout_of_json(text: str, found: FileContent) -> None:
    """Tell a record a line from a document."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not found.is_whole and len(lines) > 1:
        lines.pop()  # it may be cut
    is_document = False
    if len(lines) > 1:
        is_document = found.is_whole and _is_json(text)
        sampled = lines[:_MOST_LINES]
        records = sum(_is_json(line) for line in sampled)
        is_array = text.lstrip().startswith("[") and not _is_json(lines[0])
        is_document = is_document or is_array or records * _SHARE_OF_LINES < len(sampled)
        if not is_document and records < len(sampled):
            found.doubts.append(
                f"{len(sampled) - records} of the first {len(sampled)} lines are not valid JSON."
            )
    elif not found.is_whole:
        is_document = True
    found.options["multiLine"] = "true" if is_document else "false"
    if found.is_whole and len(lines) == 1 and not _is_json(lines[0]):
        found.doubts.append("The only line is not valid JSON.")
    if is_document and not found.is_whole:
        found.doubts.append("A document is larger than what was sampled: its columns are unknown.")


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


class _Elements:
    """Counts the elements of an XML text by how deep they are.

    Attributes:
        levels: From the root down, how often each name was met.
    """

    def __init__(self) -> None:
        self.levels: list[Counter[str]] = []
        self._depth = 0

    def count(self, text: str, *, is_whole: bool) -> str | None:
        """Count the elements of a text; what is wrong with it, in a sentence, or `None`."""
        parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler, parser.EndElementHandler = self._begin, self._end
        parser.EntityDeclHandler = self._entity
        try:
            # The declaration may name the encoding that the text had.
            parser.Parse(_XML_DECLARATION.sub("", text).encode(), is_whole)
        except expat.ExpatError as error:
            return f"The XML is not well-formed: {expat.ErrorString(error.code)}."
        except _EntityDeclaredError:
            return "The XML declares entities, which are not expanded."
        return None

    def _begin(self, name: str, _: object) -> None:
        if len(self.levels) <= self._depth:
            self.levels.append(Counter())
        self.levels[self._depth][name] += 1
        self._depth += 1

    def _end(self, _: str) -> None:
        self._depth -= 1

    @staticmethod
    def _entity(*_: object) -> None:
        raise _EntityDeclaredError


class _EntityDeclaredError(Exception):
    """A text declares an entity, which could be one that grows without end."""


def _row_tag(text: str, found: FileContent) -> None:
    """Find the element that recurs nearest to the root."""
    elements = _Elements()
    mistake = elements.count(text, is_whole=found.is_whole)
    levels = elements.levels
    if not levels:
        found.format = ""
        found.doubts = ["The text begins like XML, and has no element."]
        return
    if mistake is not None:
        found.doubts.append(mistake)
    recurring = next((level for level in levels[1:] if max(level.values()) > 1), None)
    if recurring is not None:
        tag = recurring.most_common(1)[0][0]
    else:
        tag = next(iter(levels[1] if len(levels) > 1 and len(levels[1]) == 1 else levels[0]))
        found.doubts.append("No element recurs in the sample: which one is a row is a guess.")
    if not _ROW_TAG.fullmatch(tag):
        found.format = ""
        found.doubts.append(f"The name of a row is unusual: {cut(tag)}.")
        return
    found.options["rowTag"] = tag


HEAD_BYTES: Final = 256 * 2**10
"""So much of a file is read to recognize it, and to infer its columns."""
DOCUMENT_BYTES: Final = 4 * 2**20
"""A workbook up to this size is read whole."""


class SampledStore:
    """A source of which some files are only what was sampled of them.

    Args:
        store: The source.
        most_bytes: At most so many bytes are asked for.

    Attributes:
        bytes: So many bytes have come.
    """

    def __init__(self, store: ObjectStore, most_bytes: int) -> None:
        self._store = store
        self._most = most_bytes
        self._sampled: dict[str, tuple[FileEntry, bytes]] = {}
        self.bytes = 0
        self.uri = store.uri

    def add(self, file: FileEntry, path: str, content: bytes) -> FileEntry:
        """Let the readers find a content instead of a file.

        Args:
            file: Whose content it is the beginning of.
            path: Its path for the readers: without the ending of a compression.
            content: Decompressed.
        """
        entry = replace(file, path=path, size=len(content), etag="")
        self._sampled[path] = entry, content
        return entry

    def child_uri(self, key: str) -> str:
        """Give the URI of a file."""
        return self._store.child_uri(key)

    def head(self, key: str) -> FileEntry | None:
        """Describe a file, or what was sampled of it."""
        if key in self._sampled:
            return self._sampled[key][0]
        return self._store.head(key)

    def get_range(self, key: str, start: int, length: int, *, etag: str | None = None) -> bytes:
        """Read a part of a file, or of what was sampled of it.

        Raises:
            FileUnreadableError: More bytes would be read than may be.
        """
        if key in self._sampled:
            return self._sampled[key][1][start : start + length]
        if self.bytes + length > self._most:
            raise FileUnreadableError(
                f"{self._store.child_uri(key)} was not read: with it more than "
                f"{size_text(self._most)} would have been (--most-bytes)."
            )
        content = self._store.get_range(key, start, length, etag=etag)
        self.bytes += len(content)
        return content


def chosen(files: Sequence[FileEntry], most: int) -> list[FileEntry]:
    """Choose files of a table: the newest first, then from all of its life.

    Args:
        files: Of a table.
        most: At most so many.
    """
    by_time = sorted(
        (file for file in files if file.size),
        key=lambda file: (file.modification_time_us, file.path),
        reverse=True,
    )
    if len(by_time) <= most:
        return by_time
    last = len(by_time) - 1
    places = [at * last // max(1, most - 1) for at in range(most)]
    return [by_time[place] for place in dict.fromkeys(places)]
