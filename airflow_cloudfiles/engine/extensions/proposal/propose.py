"""Propose streams for what is below a folder.

1. List the files, up to a number, and group them to tables by folders and names.
2. Of each table read the beginning of a few files: what they are, and how they are written.
3. Infer the columns of what was read with the options that would be proposed.

Nothing is written. What cannot be read, or is not certain, becomes a doubt beside its table, and
the others go on.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final, cast

from airflow_cloudfiles.engine.errors import CloudFilesError, OptionError, SourceNotFoundError
from airflow_cloudfiles.engine.extensions.proposal.content import (
    DOCUMENT_BYTES,
    HEAD_BYTES,
    TEXT_FORMATS,
    FileContent,
    SampledStore,
    chosen,
    recognize_content,
)
from airflow_cloudfiles.engine.extensions.proposal.proposed import (
    Limits,
    Places,
    ProposedStream,
    StreamsProposal,
    growth_of,
    monthly_cost,
)
from airflow_cloudfiles.engine.extensions.proposal.tables import (
    FileSelection,
    FoundTable,
    Listing,
    Selector,
    find_tables,
    list_files,
    split_compression,
)
from airflow_cloudfiles.engine.files import FileEntry, printable_path
from airflow_cloudfiles.engine.inference import infer_files
from airflow_cloudfiles.engine.messages import counted, cut
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.source_columns import path_partitions
from airflow_cloudfiles.engine.storage import ObjectStore, normalize_uri, open_store
from airflow_cloudfiles.engine.storage.uri import refuse_source_only
from airflow_cloudfiles.engine.types import short_type

_log = logging.getLogger(__name__)
_DEFAULTS: Final = {"sep": ",", "header": "true", "multiLine": "false", "encoding": "UTF-8"}
"""Values that are those of the readers, and are not written."""
_CONTRADICTING: Final = ("sep", "quote", "header", "encoding", "rowTag", "multiLine")
_MOST_NAME: Final = 80
_MOST_DOUBTS: Final = 20


def propose(
    source: str, places: Places, limits: Limits, *, runs_an_hour: float = 1
) -> StreamsProposal:
    """Propose streams for a bucket, a prefix or a folder.

    Args:
        source: Its URI.
        places: Where the streams would keep what they have; not below it.
        limits: How much is looked at.
        runs_an_hour: How often the streams would run, for what that costs.

    Raises:
        OptionError: A location is none, or state or target are below the source.
        SourceNotFoundError: There is no such folder, or it has no files.
        ListingError: It cannot be listed.
    """
    store = open_store(source)
    _check_places(store, places)
    listing = list_files(store, limits.files)
    found = StreamsProposal(
        store.uri, places, doubts=list(listing.doubts), files=len(listing.files)
    )
    if not listing.files and not listing.doubts:
        raise SourceNotFoundError(
            f"There is no file in {printable_path(store.uri)}. Correct the URI, or propose when "
            "the first files have arrived."
        )
    tables = find_tables(listing.files)
    found.tables = len(tables)
    _Proposer(store, tables, limits, runs_an_hour).add_to(found, listing)
    found.requests = store.requests
    return found


def _check_places(store: ObjectStore, places: Places) -> None:
    """Refuse places where a state or a table would be ingested, or the source be overwritten."""
    roots = {"state": places.state_root, "target": places.target_root}
    for name, location in roots.items():
        refuse_source_only(location)
        inside = store.key_of(location) is not None
        if inside or f"{store.uri}/".startswith(normalize_uri(location).rstrip("/") + "/"):
            how = "in the source" if inside else "a folder above the source"
            raise OptionError(
                f"--{name}-root {printable_path(location)} is {how}: streams would ingest what "
                "streams write. Give a place apart from it."
            )
    if len({normalize_uri(location) for location in roots.values()}) == 1:
        raise OptionError(
            "--state-root and --target-root are the same: each stream would keep its state in its "
            "table. Give two places."
        )


class _Proposer:
    """Looks at the tables of a folder, one after the other."""

    def __init__(
        self, store: ObjectStore, tables: Sequence[FoundTable], limits: Limits, runs_an_hour: float
    ) -> None:
        self._store = store
        self._tables = tables
        self._limits = limits
        self._runs_an_hour = runs_an_hour
        self._sampled = SampledStore(store, limits.bytes)
        self._selector = Selector(store, tables)
        self._names: set[str] = set()

    def add_to(self, found: StreamsProposal, listing: Listing) -> None:
        looked_at = self._tables[: self._limits.tables]
        without: list[str] = []
        for table in looked_at:
            try:
                stream = self._stream(table)
            except CloudFilesError as error:
                table.doubts.append(str(error))
                stream = None
            if stream is None:
                without.append(f"{self._shown(table)}: {' '.join(map(str, table.doubts))}")
            else:
                if listing.is_cut:
                    stream.doubts.append("Not all files of the source were listed.")
                found.streams.append(stream)
        found.doubts += without
        if more := self._tables[len(looked_at) :]:
            files = sum(len(table.files) for table in more)
            found.doubts.append(
                f"{counted(len(more), 'more table')} with {counted(files, 'file')} were found and "
                "not looked at. Propose for a folder below, or raise --most-tables."
            )
        _note_siblings(found.streams)
        found.bytes = self._sampled.bytes

    def _shown(self, table: FoundTable) -> str:
        first = printable_path(table.files[0].path)
        count = len(table.files)
        return first if count == 1 else f"{first} and {count - 1:,} more like it"

    def _stream(self, table: FoundTable) -> ProposedStream | None:
        contents = self._contents(table)
        if not contents:
            if not any(file.size for file in table.files):
                table.doubts.append("All files are empty.")
            return None
        kind = _merged(contents, table)
        if not kind.format:
            table.doubts += kind.doubts
            return None
        selection = self._selector.select(table)
        options = {
            **({"cloudFiles.inferColumnTypes": "true"} if kind.format in TEXT_FORMATS else {}),
            **selection.options,
            **{k: v for k, v in kind.options.items() if _DEFAULTS.get(k, "") != v},
        }
        if kind.format == "text":
            options = dict(selection.options)
        source = selection.source
        parsed = CloudFilesOptions.parse({"cloudFiles.format": kind.format, **options}, path=source)
        doubts = [*table.doubts, *kind.doubts, *_selection_doubts(selection)]
        if len(table.files) == 1 and not table.name.varies:
            doubts.append(
                "There is one file, whose name has no number: how others will be named "
                "is not known."
            )
        columns = self._columns(contents, kind, parsed, doubts)
        growth = growth_of(table.files)
        return ProposedStream(
            name=self._name(table, selection),
            source=source,
            format=kind.format,
            options=options,
            files=len(table.files),
            bytes=sum(file.size for file in table.files),
            encoding=kind.encoding,
            columns=columns,
            partitions=_partitions(table.files, doubts),
            growth=growth,
            cost=monthly_cost(source, parsed, table.files, growth, self._runs_an_hour),
            doubts=list(dict.fromkeys(doubts))[:_MOST_DOUBTS],
        )

    def _contents(self, table: FoundTable) -> list[tuple[FileEntry, FileContent]]:
        """Look at a few files of a table."""
        found = []
        for file in chosen(table.files, self._limits.sampled):
            uri = self._store.child_uri(file.path)
            try:
                head = self._sampled.get_range(
                    file.path, 0, min(file.size, HEAD_BYTES), etag=file.etag or None
                )
                content = recognize_content(head, uri, table.name.ending, file.size, HEAD_BYTES)
            except (CloudFilesError, OSError, LookupError) as error:
                table.doubts.append(_unread(uri, error))
                continue
            found.append((file, content))
        return found

    def _columns(
        self,
        contents: Sequence[tuple[FileEntry, FileContent]],
        kind: FileContent,
        options: CloudFilesOptions,
        doubts: list[str],
    ) -> list[tuple[str, str]]:
        """Infer the columns of what was read; what is refused is a doubt."""
        files = []
        for file, content in contents:
            if content.format != kind.format:
                continue
            if content.text is not None:
                text = content.text if content.is_whole else _whole_records(content)
                path = split_compression(file.path)[0]
                files.append(self._sampled.add(file, path, text))
            elif kind.format != "excel" or file.size <= DOCUMENT_BYTES:
                files.append(file)
            else:
                doubts.append("The workbooks are too large to be sampled: columns are unknown.")
        if not files:
            return []
        try:
            found = infer_files(cast("ObjectStore", self._sampled), files, options)
        except CloudFilesError as error:
            doubts.append(f"The columns could not be inferred: {error}")
            return []
        except Exception as error:  # noqa: BLE001 - the other tables go on
            # A library may raise anything for a file that is damaged.
            _log.debug("Unexpected", exc_info=error)
            doubts.append(f"The columns could not be inferred: {type(error).__name__}: {error}")
            return []
        doubts += found.warnings
        fields = [*found.data_schema.fields, *found.partition_schema.fields]
        return [(each.name, short_type(each.dataType)) for each in fields]

    def _name(self, table: FoundTable, selection: FileSelection) -> str:
        """Find a name that no other stream has."""
        folders = [_slug(each) for each in table.folders]
        last = next((each for each in reversed(folders) if each), "")
        bucket = _slug(printable_path(self._store.uri).rstrip("/").rpartition("/")[2])
        stem = _slug(table.name.stem)
        is_whole = "pathGlobFilter" not in selection.options and (
            not selection.source.endswith(table.name.glob(frozenset({""})))
        )
        wanted = [last or bucket, stem] if is_whole else [stem, last or bucket]
        first = next((each for each in wanted if each), "stream")
        full = "_".join(each for each in [*folders, "" if is_whole else stem] if each) or first
        number, name = 1, first[:_MOST_NAME]
        if name in self._names:
            name = full[:_MOST_NAME]
        while name in self._names:
            number += 1
            name = f"{full[:_MOST_NAME]}_{number}"
        self._names.add(name)
        return name


def _slug(text: str) -> str:
    """Make the name of a stream of a text: letters and digits, and `_` between them."""
    words = "".join(each if each.isalnum() else " " for each in text).split()
    return "_".join(words)


def _unread(uri: str, error: Exception) -> str:
    if isinstance(error, CloudFilesError):
        return str(error)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{uri} cannot be read: {reason}."


def _merged(contents: Sequence[tuple[FileEntry, FileContent]], table: FoundTable) -> FileContent:
    """Decide for a table what its sampled files are, and note where they contradict each other."""
    formats = Counter(content.format for _, content in contents if content.format)
    if not formats:
        return contents[0][1]
    chosen_format = formats.most_common(1)[0][0]
    newest = next(content for _, content in contents if content.format == chosen_format)
    merged = FileContent(
        chosen_format, {}, newest.encoding, list(newest.doubts), newest.text, newest.is_whole
    )
    for file, content in contents:
        shown = cut(printable_path(file.path), 120)
        if content.format != chosen_format:
            what = content.format or "no table"
            table.doubts.append(
                f"{shown} is {what}, the others are {chosen_format}: {' '.join(content.doubts)}"
            )
            continue
        for name, value in content.options.items():
            known = merged.options.setdefault(name, value)
            if known != value and name in _CONTRADICTING:
                table.doubts.append(
                    f"{shown} has {name}={value!r}, a newer file has {name}={known!r}."
                )
        if content is not newest:
            merged.doubts += [each for each in content.doubts if each not in merged.doubts]
        if content.options.get("multiLine") == "true":
            merged.options["multiLine"] = "true"
    return merged


def _selection_doubts(selection: FileSelection) -> list[str]:
    if selection.is_exact:
        return []
    return ["The source selects files of other tables, too, or not all of its own."]


def _whole_records(content: FileContent) -> bytes:
    """Cut the beginning of a file behind its last whole line, or row."""
    text = content.text or b""
    if content.format == "xml":
        end = f"</{content.options.get('rowTag', '')}>".encode()
        place = text.rfind(end)
        return text[: place + len(end)] if place >= 0 else text
    if content.encoding.startswith(("UTF-16", "UTF-32")):
        return text  # a byte that looks like the end of a line may be half of a character
    place = text.rfind(b"\n")
    return text[: place + 1] if place >= 0 else text


def _partitions(files: Sequence[FileEntry], doubts: list[str]) -> list[str]:
    """Find the keys in the paths, and note where they contradict each other."""
    keys = Counter(tuple(key for key, _ in path_partitions(file.path)) for file in files)
    if len(keys) > 1:
        shown = "; ".join("/".join(each) or "none" for each, _ in keys.most_common(3))
        doubts.append(
            f"The folders have different keys ({shown}): none is a column. Name those you want in "
            "cloudFiles.partitionColumns."
        )
        return []
    return [printable_path(key) for key in next(iter(keys))]


def _note_siblings(streams: Sequence[ProposedStream]) -> None:
    """Note streams with the same columns: they may be one table."""
    alike: dict[tuple[object, ...], list[ProposedStream]] = {}
    for stream in streams:
        if stream.columns:
            alike.setdefault((stream.format, tuple(stream.columns)), []).append(stream)
    for group in alike.values():
        for stream in group if len(group) > 1 else ():
            other = next(each for each in group if each is not stream)
            more = f" and {len(group) - 2} more" if len(group) > 2 else ""  # noqa: PLR2004
            stream.doubts.append(
                f"The columns are those of {other.name}{more}: perhaps they are one table."
            )
