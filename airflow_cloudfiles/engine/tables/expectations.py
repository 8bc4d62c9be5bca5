"""Find out whether a micro-batch is what it was expected to be.

1. Tasks count what the counts of reading do not say: which required columns have values, and which
   files have rescued or corrupt records (`Observer`).
2. When all tasks have written, and before the commit, the counts of the batch are compared with the
   options `expect.*` (`unmet`).
3. The report of a run compares the counts of its batches once more: what it has committed although
   it was not as expected is a warning. Counts outlive a killed run, since the table has them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc
import pyarrow.types as pa_types

from airflow_cloudfiles.engine.errors import ExpectationError, OptionError
from airflow_cloudfiles.engine.files import FileCounts, printable_path
from airflow_cloudfiles.engine.messages import counted, few
from airflow_cloudfiles.engine.stream.schema_change import TaskReader

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
    from airflow_cloudfiles.engine.options.sink import TaskSinkOptions
    from airflow_cloudfiles.engine.reading.splits import Split

NO_VALUE: Final = "no_value_in."
"""Begins the name of a count: the rows of a batch in which a required column has no value."""
MOST_FILES: Final = 20
"""Files with rescued or corrupt records that a task names."""
_SHOWN_FILES: Final = 3
_FILE_PATH: Final = r'"_file_path": ?(?P<path>"(?:[^"\\]|\\.)*")\}$'
"""How rescued data ends (`formats.base`)."""


@dataclass(slots=True)
class ObservedRows:
    """What a task has seen of its rows.

    Attributes:
        values: How many values each required column has, by its name in the option.
        rescued: How many rows have rescued data, by URI of the file; of `MOST_FILES` at most.
        corrupt: How many records are corrupt, in the same way.
        by_file: What was read of the files of which some may be rescued or corrupt, by path; of all
            of these, where files are to be quarantined.
        missing: URIs of files that were gone and skipped; of `split_reader.MOST_MISSING` of each
            split at most.
    """

    values: Counter[str] = field(default_factory=Counter)
    rescued: Counter[str] = field(default_factory=Counter)
    corrupt: Counter[str] = field(default_factory=Counter)
    by_file: dict[str, FileCounts] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


class Observer:
    """Looks at the rows of a task on their way to the data files.

    Args:
        options: The expectations.
    """

    def __init__(self, options: TaskSinkOptions) -> None:
        self._required = options.required_columns
        self._names_rescued = options.max_rescued_share is not None
        self._names_corrupt = options.max_corrupt_share is not None
        self._blames = options.on_violation == "quarantine"
        self.observed = ObservedRows()
        self.rescued_rows = 0
        """How many of the rows that `made` has passed on have rescued data."""

    def made(
        self, batches: Iterable[pa.RecordBatch], rescues: str | None
    ) -> Iterator[pa.RecordBatch]:
        """Pass on rows that a function has made of those of files.

        Args:
            batches: The rows.
            rescues: The rescued data column of the stream; the rows may have none.
        """
        for batch in batches:
            places = {name.lower(): place for place, name in enumerate(batch.schema.names)}
            for name in self._required:
                if (place := places.get(name.lower())) is not None:
                    self.observed.values[name] += len(batch) - batch.column(place).null_count
            if rescues is not None and (place := places.get(rescues.lower())) is not None:
                rescued = batch.column(place).drop_null()
                self.rescued_rows += len(rescued)
                if self._names_rescued and pa_types.is_string(rescued.type):
                    self.observed.rescued.update(_files_of(rescued))
            yield batch
        self.observed.rescued = _most(self.observed.rescued)

    def reader(self, split: Split) -> TaskReader:
        """Build a reader of a split whose rows can be looked at."""
        return TaskReader(split)

    def rows(self, split: Split, reader: TaskReader) -> Iterator[pa.RecordBatch]:
        """Pass on the rows of a split."""
        options = split.context.options
        schema, rescues = reader.arrow_schema, options.rescued_data_column
        places = self._places(schema, options)
        names_rescued = self._names_rescued and rescues in schema.names
        for batch in reader.read():
            for name, place in places.items():
                self.observed.values[name] += len(batch) - batch.column(place).null_count
            if names_rescued:
                self.observed.rescued.update(_files_of(batch.column(rescues).drop_null()))
            yield batch
        if self._names_corrupt:
            self.observed.corrupt.update(reader.corrupt_by_file)
        self.observed.missing += reader.missing
        for part, counts in reader.by_part() if self._blames else ():
            if not part.is_whole or counts.rescued_rows or counts.corrupt_records:
                path = part.file.path
                known = self.observed.by_file.get(path, FileCounts())
                self.observed.by_file[path] = known + counts
        self.observed.rescued = _most(self.observed.rescued)
        self.observed.corrupt = _most(self.observed.corrupt)

    def _places(self, schema: pa.Schema, options: CloudFilesOptions) -> dict[str, int]:
        """Find where those of the required columns are that exist."""
        key = options.matcher.key
        places = {key(name): place for place, name in enumerate(schema.names)}
        return {name: places[key(name)] for name in self._required if key(name) in places}


@dataclass(frozen=True, slots=True)
class UnmetExpectation:
    """An expectation that a batch does not meet.

    Attributes:
        name: Of the option.
        wanted: Its value.
        found: What the batch has, in words.
        blamed: Of which count of files this is: `rescued` or `corrupt`; empty where it is of none.
    """

    name: str
    wanted: str
    found: str
    blamed: str = ""

    def sentence(self, files: Mapping[str, int] | None = None) -> str:
        """Say the expectation and what was found, without a full stop."""
        most = Counter(files or {}).most_common(_SHOWN_FILES)
        where = ", ".join(f"{printable_path(uri)} ({count})" for uri, count in most)
        sentence = f"{self.name}={self.wanted}, but {self.found}"
        return f"{sentence}, most in {where}" if most else sentence


def check_source(options: TaskSinkOptions, source: CloudFilesOptions) -> None:
    """Refuse an expectation that a stream could never fail to meet.

    Raises:
        OptionError: There is no rescued data column whose rows could be counted.
    """
    if options.max_rescued_share is not None and source.rescued_data_column is None:
        raise OptionError(
            "expect.maxRescuedShare needs a rescued data column, and this stream has none. Set "
            "rescuedDataColumn, or remove the expectation."
        )


def counts_of(
    options: TaskSinkOptions, counts: Mapping[str, int], observed: Iterable[ObservedRows]
) -> dict[str, int]:
    """Count a batch, with the required columns that have no value in it."""
    values: Counter[str] = Counter()
    for each in observed:
        values.update(each.values)
    rows = _read(counts)
    lacking = [name for name in options.required_columns if rows and not values[name]]
    return {**counts, **{f"{NO_VALUE}{name}": rows for name in lacking}}


def unmet(options: TaskSinkOptions, counts: Mapping[str, int]) -> list[UnmetExpectation]:
    """Find the expectations that a batch does not meet.

    Args:
        options: The expectations.
        counts: What `counts_of` gives; a batch of which no file was read meets all.
    """
    if not counts.get("files"):
        return []
    rows = _read(counts)
    found = unmet_shares(options, counts)
    lacking = [name for name in options.required_columns if counts.get(f"{NO_VALUE}{name}")]
    if lacking:
        what = f"no row has a value in {few(lacking)}"
        wanted = few(options.required_columns)
        found.append(UnmetExpectation("expect.requiredColumns", wanted, what))
    has = f"it has {counted(rows, 'row')}"
    if options.min_rows is not None and rows < options.min_rows:
        found.append(UnmetExpectation("expect.minRows", str(options.min_rows), has))
    if options.max_rows is not None and rows > options.max_rows:
        found.append(UnmetExpectation("expect.maxRows", str(options.max_rows), has))
    return found


def unmet_shares(options: TaskSinkOptions, counts: Mapping[str, int]) -> list[UnmetExpectation]:
    """Find the shares that are larger than expected, of a batch or of one file."""
    rows, rescued = _read(counts), counts.get("rescued_rows", 0)
    dropped = counts.get("dropped_records", 0)
    records, corrupt = rows + dropped, max(counts.get("corrupt_records", 0), dropped)
    found = []
    if (share := options.max_rescued_share) is not None and _share(rescued, rows) > share:
        what = f"it has rescued data in {rescued} of {counted(rows, 'row')}"
        found.append(UnmetExpectation("expect.maxRescuedShare", f"{share:g}", what, "rescued"))
    if (share := options.max_corrupt_share) is not None and _share(corrupt, records) > share:
        what = f"it has {counted(corrupt, 'corrupt record')} of {records}"
        found.append(UnmetExpectation("expect.maxCorruptShare", f"{share:g}", what, "corrupt"))
    return found


def _read(counts: Mapping[str, int]) -> int:
    """Count the rows that were read, those that rules for rows leave out among them."""
    return sum(counts.get(name, 0) for name in ("rows", "dropped_rows", "quarantined_rows"))


def _share(part: int, whole: int) -> float:
    # A quotient of two counts is the same number as its decimals in an option; a product is not.
    return part / whole if whole else 0.0


def as_text(found: Sequence[UnmetExpectation], observed: Iterable[ObservedRows]) -> str:
    """Describe what was found, with the files that have most of it as far as they are known."""
    files: dict[str, Counter[str]] = {"rescued": Counter(), "corrupt": Counter()}
    for each in observed:
        files["rescued"].update(each.rescued)
        files["corrupt"].update(each.corrupt)
    return "; ".join(each.sentence(files.get(each.blamed)) for each in found)


def to_blame(
    options: TaskSinkOptions, found: Sequence[UnmetExpectation], observed: Iterable[ObservedRows]
) -> set[str]:
    """Choose the files without which a batch meets the expectations that it does not meet.

    Those whose own share is larger than the bound: where the share of a batch is larger, that of
    some file is; and where that of each file is not, that of all together is not.

    Args:
        options: The expectations.
        found: What the batch does not meet.
        observed: What its tasks have seen.

    Returns:
        Their paths; none where something is not met for which no file is to blame.
    """
    if not all(each.blamed for each in found):
        return set()
    files: dict[str, FileCounts] = {}
    for task in observed:
        for path, counts in task.by_file.items():
            files[path] = files.get(path, FileCounts()) + counts
    names = {each.name for each in found}
    return {
        path
        for path, counts in files.items()
        if any(each.name in names for each in unmet_shares(options, asdict(counts)))
    }


def refusal(batch: int, target: str, what: str, *, blames_nobody: str = "") -> ExpectationError:
    """Build the error for a batch that is not committed.

    Args:
        batch: Its number.
        target: The table.
        what: What `as_text` gives.
        blames_nobody: Why no file is put aside, in a sentence, where that is asked for.
    """
    why = f"{blames_nobody} " if blames_nobody else ""
    return ExpectationError(
        f"Batch {batch} is not what was expected, and nothing of it was committed to {target}: "
        f"{what}. {why}Correct the files, or put them aside (cloudfiles file quarantine), and run "
        "again. To accept what they are, change the expectation, or run once with "
        "expect.onViolation=warn."
    )


def warnings_of(options: TaskSinkOptions, batches: Iterable[tuple[int, Mapping[str, int]]]) -> str:
    """Say which batches were committed although they were not as expected; empty for none.

    Args:
        options: The expectations.
        batches: Numbers and counts of batches.
    """
    found = [
        f"batch {number}: {'; '.join(each.sentence() for each in those)}"
        for number, counts in batches
        if (those := unmet(options, counts))
    ]
    if not found:
        return ""
    return f"Committed, although not as expected: {few(found, most=3, characters=1000)}."


def _files_of(rescued: pa.Array) -> Counter[str]:
    """Count how many rescued values come from which file."""
    if not len(rescued):
        return Counter()
    paths = pc.struct_field(pc.extract_regex(rescued, _FILE_PATH), "path").drop_null()
    return Counter(
        {json.loads(each["values"]): each["counts"] for each in paths.value_counts().to_pylist()}
    )


def _most(files: Counter[str]) -> Counter[str]:
    return Counter(dict(files.most_common(MOST_FILES)))
