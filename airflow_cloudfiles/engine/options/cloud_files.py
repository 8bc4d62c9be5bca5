"""Parse the options of a source, and refuse names that are none with the nearest that is one.

The options of a source, under `cloudFiles.*` keys and those of its format. Keys are compared
without regard to case (Spark hands them over in lower case); names, defaults and meanings are Auto
Loader's. Everything wrong with an option is found here, before any file is read.

Derived from the declarations: of the source's options (`cloud_files.py`, `discovery.py`), of each
format (`formats`), of the sink (`sink.py`), and of what is refused (`refusals.py`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Final, Literal, get_args

from airflow_cloudfiles.engine.errors import OptionError, UnknownOptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.files import ReadLimit
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.names import NameMatcher
from airflow_cloudfiles.engine.options.declared import (
    Option,
    OptionGroup,
    option,
    options_of,
    values_of,
)
from airflow_cloudfiles.engine.options.discovery import (
    CleaningOptions,
    DiscoveryOptions,
    UpkeepOptions,
)
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.formats.nested import JsonOptions
from airflow_cloudfiles.engine.options.formats.registry import FORMATS, formats_by_option
from airflow_cloudfiles.engine.options.metadata_columns import NAME as METADATA_COLUMNS
from airflow_cloudfiles.engine.options.metadata_columns import (
    MetadataColumn,
    metadata_columns,
    of_files,
)
from airflow_cloudfiles.engine.options.sink import OF_SINK, is_of_sink
from airflow_cloudfiles.engine.options.values import (
    GIB,
    REFUSED,
    ValueKind,
    at_least_zero,
    boolean,
    choice,
    internal_number,
    lines,
    names,
    option_text,
    place,
    positive,
    refused,
    size,
    text,
)

Groups = tuple[type[OptionGroup], ...]
"""The dataclasses that declare the options of a source."""

_BARE: Final = "cloudfiles."


@cache
def of_source(groups: Groups) -> Mapping[str, Option[Any]]:
    """List the options of a source, whatever its format, by each of their names in lower case."""
    return {
        name.lower(): each
        for group in groups
        for each in (*options_of(group).values(), *group.WITHOUT_FIELD)
        for name in each.names
    }


@cache
def documented(groups: Groups) -> Mapping[str, str]:
    """List every name a user may have meant, by its lower-case form."""
    public = (each for each in of_source(groups).values() if not each.is_internal)
    names = (
        *(name for each in FORMATS.values() for name in each.names()),
        *(one.name for each in FORMATS.values() for one in each.REFUSED),
        *(name for each in public for name in each.names),
        *(each.name for each in REFUSED),
    )
    return {name.lower(): name for name in names}


def usable(groups: Groups) -> list[str]:
    """Name the options that a stream into a table can have, whatever its format, in order."""
    public = (each.name for each in of_source(groups).values() if not each.is_internal)
    of_formats = (name for each in FORMATS.values() for name in each.names())
    return sorted({*public, *of_formats, *OF_SINK}, key=str.lower)


def check_names(
    given: Mapping[str, str],
    typed: Mapping[str, str],
    groups: Groups,
    format_name: str,
    *,
    validate: bool,
) -> None:
    """Refuse every key that this version does not obey, each with what to do instead.

    Args:
        given: The strings of options, by their names in lower case.
        typed: The names as they were typed, by their lower-case form.
        groups: The dataclasses that declare the options of a source.
        format_name: The format of the source.
        validate: Whether keys that nobody documents are refused too (B101). Documented ones that
            would change what is read always are.

    Raises:
        UnknownOptionError: A key nobody documents; the text names the nearest ones.
        UnsupportedOptionError: A documented key or value this version does not offer.
    """
    own = FORMATS[format_name].refused()
    for key, value in given.items():
        if key in own:
            own[key].refuse(value, format_name)
        elif _is_served(key, groups, format_name):
            continue
        elif (one := refused(key)) is not None:
            one.refuse(value)
        elif validate:
            raise UnknownOptionError(_unknown(key, typed.get(key, key), groups))


def _is_served(key: str, groups: Groups, format_name: str) -> bool:
    """Tell whether a source of this format obeys an option.

    Raises:
        UnsupportedOptionError: Only sources of other formats do.
    """
    common = of_source(groups).get(key)
    formats = formats_by_option().get(key, ()) if common is None else common.formats
    if formats and format_name not in formats:
        raise UnsupportedOptionError(
            f"{documented(groups)[key]} is an option of format {', '.join(formats)}, not of "
            f"{format_name}. Remove it."
        )
    return common is not None or bool(formats)


def _unknown(key: str, typed: str, groups: Groups) -> str:
    """Say that a key, as it was typed, is unknown, and which one was probably meant."""
    sink = {name.lower(): name for name in OF_SINK}
    if is_of_sink(key):
        return f"{sink.get(key, typed)} is an option of the Delta sink: give it to writeStream."
    known = {**documented(groups), **sink}
    options = {name.removeprefix(_BARE): option for name, option in known.items()}
    near = difflib.get_close_matches(key.removeprefix(_BARE), options, n=2, cutoff=0.6)
    hint = f" Did you mean {' or '.join(options[name] for name in near)}?" if near else ""
    return (
        f"Unknown option {cut(typed)!r}.{hint} `cloudfiles docs options` lists them; "
        "cloudFiles.validateOptions=false accepts unknown ones."
    )


EvolutionMode = Literal[
    "addNewColumns", "addNewColumnsWithTypeWidening", "rescue", "failOnNewColumns", "none"
]
InexactNumbers = Literal["none", "wholeNumbers", "all"]
LoadMode = Literal["copy", "reference"]
ParseMode = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]

EVOLUTION_MODES: tuple[EvolutionMode, ...] = get_args(EvolutionMode)
ADDING_MODES = frozenset({"addNewColumns", "addNewColumnsWithTypeWidening"})
"""Modes in which the schema grows by itself."""
WATCHING_MODES = ADDING_MODES | {"failOnNewColumns"}
"""Modes in which a reader must report new fields."""
PARSE_MODES: tuple[ParseMode, ...] = get_args(ParseMode)
DEFAULT_RESCUED_DATA_COLUMN = "_rescued_data"
_REFERENCE: Final = "cloudFiles.loadMode=reference"
_INFERRED: Final = tuple(name for name, own in FORMATS.items() if own.INFERS_SCHEMA)
_TEXT_FORMATS: Final = tuple(name for name in _INFERRED if not FORMATS[name].HAS_TYPES)
"""Formats with records that may not be valid."""


def _column_name(name: str, text: str) -> str:
    if not text.strip():
        raise OptionError(
            f"{name} must be a column name, got an empty text. Leave the option out for the "
            f"default {DEFAULT_RESCUED_DATA_COLUMN}."
        )
    return text


_VALIDATE: Final = Option(
    name="cloudFiles.validateOptions",
    kind=ValueKind(boolean.label, lambda _, text: text.lower() != "false"),
    default=True,
    doc="Whether undocumented options are refused.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudFilesOptions(OptionGroup):
    """The validated options of one source.

    Build it with `CloudFilesOptions.parse`. Two sources with equal options behave the same.
    """

    path: str = option(
        "path", place, required="No source: give the folder to load(path) or as the option `path`."
    )
    """The folder the files land in, or a pattern of folders, as a path or URI (`s3://`, `abfss://`,
    `gs://`, `sftp://`); usually the argument of `load`. Folders below it are read too."""
    format: str = option(
        "cloudFiles.format",
        replace(choice(tuple(FORMATS)), ignores_empty=True),
        required=f"cloudFiles.format is required: one of {', '.join(FORMATS)}.",
    )
    """The format of the files."""
    schema_location: str | None = option("cloudFiles.schemaLocation", place, default=None)
    """Folder of the schema log, `_schemas/`. Without it the checkpoint location serves. One
    location serves one source."""
    checkpoint_location: str | None = option("checkpointLocation", place, default=None)
    """The state of the stream. Usually learnt from `writeStream`; needed here over Spark Connect,
    and in a query with several `cloudFiles` sources."""
    schema_hints: str | None = option("cloudFiles.schemaHints", text, default=None)
    """Columns and types in DDL, put over the inferred schema; names may be dotted (`user.id INT`,
    `tags.element STRING`)."""
    schema_evolution_mode: EvolutionMode = option(
        "cloudFiles.schemaEvolutionMode",
        choice(EVOLUTION_MODES),
        default="addNewColumns",
        shown="`addNewColumns`; `none` when a schema is given",
    )
    """What a field does that the schema lacks (B56)."""
    evolve_ahead: bool = option("cloudFiles.evolveAhead", boolean, default=False)
    """Whether a run reads its files for new fields first, and evolves the schema once for all of
    them, so that it need not fail first. Ours, not Auto Loader's."""
    require_approval: bool = option("cloudFiles.requireApproval", boolean, default=False)
    """Whether a change of the schema waits, in the modes that add columns, until somebody accepts
    it, rescues its fields or refuses it. Ours, not Auto Loader's."""
    approval_samples: int = option("cloudFiles.approvalSamples", at_least_zero, default=3)
    """How many values of each new field are kept with such a change, for who decides; 0 keeps none.
    Ours, not Auto Loader's."""
    rescue_inexact_numbers: InexactNumbers = option(
        "cloudFiles.rescueInexactNumbers",
        choice(get_args(InexactNumbers)),
        default="wholeNumbers",
        formats=_TEXT_FORMATS,
    )
    """Which numbers of JSON, CSV, XML and Excel are rescued because a DOUBLE or FLOAT column would
    change them: whole numbers and what would become 0; `all`, fractions with too many digits too;
    or `none`, as in Spark, which is also what holds without a rescued data column. Ours, not Auto
    Loader's."""
    infer_column_types: bool = option("cloudFiles.inferColumnTypes", boolean, default=False)
    """Whether numbers, booleans and (in paths) dates get types; false makes every leaf a string,
    which keeps the exact text."""
    max_files_per_trigger: int = option("cloudFiles.maxFilesPerTrigger", positive, default=1000)
    """Hard limit of files in a micro-batch; at least 1."""
    max_bytes_per_trigger: int | None = option("cloudFiles.maxBytesPerTrigger", size, default=None)
    """Soft limit of bytes in a micro-batch; the file that reaches it is the last. The limit of
    files holds besides."""
    load_mode: LoadMode = option(
        "cloudFiles.loadMode", choice(get_args(LoadMode)), default="copy", formats=("parquet",)
    )
    """How a run loads files into a Delta table. `copy` reads each file and writes its rows.
    `reference` registers the files that are just what the table's own data files are: they become
    data files where they lie, and only their footers are read; the others of the batch are copied.
    The source must lie in a folder of the table whose name begins with `_`. Ours, not Auto Loader's
    (in Snowflake `LOAD_MODE=ADD_FILES_REFERENCE`)."""
    partition_columns: tuple[str, ...] | None = option(
        "cloudFiles.partitionColumns", names, default=None
    )
    """Names of the `key=value` folders that are columns. Without it they are inferred when all
    sampled paths agree; an empty text means no partition columns."""
    sample_bytes: int = option(
        "cloudFiles.schemaInference.sampleSize.numBytes", size, default=50 * GIB
    )
    """The most bytes that are read to infer the schema."""
    sample_files: int = option(
        "cloudFiles.schemaInference.sampleSize.numFiles", positive, default=1000
    )
    """The most files that are read to infer the schema."""
    rescued_data_column: str | None = option(
        "rescuedDataColumn",
        ValueKind("text", _column_name),
        default=DEFAULT_RESCUED_DATA_COLUMN,
    )
    """Name of the column for what did not fit; there is none when a schema is given without this
    option, unless the mode is `rescue` or `failOnNewColumns` (B18, B53)."""
    reader_case_sensitive: bool = option(
        "readerCaseSensitive",
        boolean,
        default=True,
        formats=_INFERRED,
    )
    """Whether `Foo` in a record is another field than column `foo`, and is rescued; false reads it
    into `foo`."""
    mode: ParseMode = option(
        "mode", choice(PARSE_MODES), default="PERMISSIVE", formats=_TEXT_FORMATS
    )
    """What is done with a record that is not valid: it is kept in the corrupt record column or else
    in the rescued data, it is dropped and counted, or it fails the query."""
    corrupt_record_column: str = option(
        "columnNameOfCorruptRecord", text, default="_corrupt_record", formats=_TEXT_FORMATS
    )
    """Column for records that are not valid; filled when the schema (or a hint) has it."""
    ignore_missing_files: bool = option("ignoreMissingFiles", boolean, default=False)
    """Whether a file deleted between discovery and reading is skipped and counted, rather than an
    error. Where the source is gone or empty, or a whole micro-batch with all that lay beside it,
    that is an outage: nothing is skipped."""
    ignore_corrupt_files: bool = option("ignoreCorruptFiles", boolean, default=False)
    """Whether a file that is damaged, or not of this format, is given up with a warning and
    counted, rather than an error; rows read from it before are kept."""
    bad_records_path: str | None = option(
        "badRecordsPath", place, default=None, formats=_TEXT_FORMATS
    )
    """Folder that takes records that are not valid, as JSON with file, record and reason; they are
    left out of the table then, whatever `mode` says. Without a rescued data column, a value that
    does not fit makes a record that is not valid."""
    single_variant_column: str | None = option(
        "singleVariantColumn", text, default=None, formats=("json", "xml")
    )
    """Name of the one column, of type VARIANT, that takes whole records."""
    metadata_columns: tuple[MetadataColumn, ...] = option(
        METADATA_COLUMNS, metadata_columns, default=(), shown="none"
    )
    """Columns that say what file a row came from, as the list of a SELECT over Spark's `_metadata`:
    `_metadata`, `file_path AS source_file, file_size` or `_metadata.*`; of workbooks `sheet_name`,
    and of archives `archive_member`, too. Ours, not Auto Loader's: there the column is hidden,
    which a data source in Python cannot have."""
    recursive_file_lookup: bool = option("recursiveFileLookup", boolean, default=False)
    """Folders at any depth are read either way; `true` besides takes no partition columns from
    their names, as in Spark, unless `cloudFiles.partitionColumns` names some."""
    discovery: DiscoveryOptions = field(default_factory=DiscoveryOptions)
    """Which files are wanted and how they are found."""
    cleaning: CleaningOptions = field(default_factory=CleaningOptions)
    """What becomes of files that were ingested."""
    upkeep: UpkeepOptions = field(default_factory=UpkeepOptions)
    """What keeps the state small."""
    format_options: FormatOptions = field(default_factory=JsonOptions)
    """The options that only this format has."""
    has_schema: bool = False
    """Whether the user gave a schema (`.schema(...)`)."""
    token: str | None = option("cloudFiles.internal.token", text, default=None)
    """The token under which `writeStream` hands the source its checkpoint location."""
    inferred: str | None = option("cloudFiles.internal.inferred", text, default=None)
    """What was inferred when the DataFrame was defined, for its query."""
    up_to_entry: int | None = option("cloudFiles.internal.upToEntry", internal_number, default=None)
    """Read the file log up to this entry and discover nothing."""
    parallelism: int = option("cloudFiles.internal.parallelism", internal_number, default=8)
    """How many tasks can run at once (Spark's default parallelism)."""
    is_batch: bool = option("cloudFiles.internal.isBatch", boolean, default=False)
    """Whether `spark.read` is known to have asked, which writes nothing."""
    case_sensitive: bool = option("cloudFiles.internal.caseSensitive", boolean, default=False)
    """Whether the session has `spark.sql.caseSensitive`: `foo` and `Foo` are two columns then
    (B16)."""
    path_columns: tuple[str, ...] = ()
    """Columns that the paths fill; a field of such a name is rescued."""
    stay_rescued: tuple[str, ...] = ()
    """Paths that somebody has decided to leave in the rescued data: fields that become no columns,
    and columns that do not get wider types."""
    exclude: tuple[str, ...] = option("cloudFiles.internal.exclude", lines, default=())
    """Locations below the source that are not sources (the target)."""

    client_version: str | None = option("cloudFiles.internal.clientVersion", text, default=None)
    """Over Spark Connect: the version of this package where the stream was defined."""

    WITHOUT_FIELD: ClassVar[tuple[Option[Any], ...]] = (_VALIDATE,)

    @property
    def matcher(self) -> NameMatcher:
        """How names of columns are compared."""
        return NameMatcher(self.case_sensitive)

    @property
    def reserved_columns(self) -> tuple[str, ...]:
        """Names that are never new columns, whatever the files hold."""
        own = (self.corrupt_record_column, self.rescued_data_column, *self.path_columns)
        return (*filter(None, own), *(each.name for each in self.metadata_columns))

    @property
    def read_limit(self) -> ReadLimit:
        """How much a micro-batch may take."""
        return ReadLimit(max_files=self.max_files_per_trigger, max_bytes=self.max_bytes_per_trigger)

    def check_batch(self) -> None:
        """Refuse options with which a batch read would not be what was asked for.

        Raises:
            OptionError: There is one.
        """
        if self.bad_records_path is not None:
            raise OptionError(
                "badRecordsPath is for streams: a batch read writes nothing. Remove it; to see "
                "records that are not valid, add columnNameOfCorruptRecord to the columns, such as "
                "cloudFiles.schemaHints='_corrupt_record STRING'."
            )
        if not self.discovery.include_existing_files:
            raise OptionError(
                "cloudFiles.includeExistingFiles=false is for streams: a batch read is of the "
                "files that exist. Remove it; modifiedAfter leaves older files out."
            )
        self.check_query()

    def check_query(self) -> None:
        """Refuse what only a run does, whose tasks know the table.

        Raises:
            OptionError: It is asked for.
        """
        if self.load_mode == "reference":
            raise OptionError(
                f"{_REFERENCE} is for runs (CloudFilesIngestOperator, cloudfiles ingest): a query "
                "of your own gives rows to Spark, and a file that is registered gives none. Remove "
                "it, or let a run ingest the files."
            )

    def _check_reference(self) -> None:
        """Refuse what does not go with data files of a table that are files of the source."""
        if self.load_mode != "reference":
            return
        identity = self.discovery.identity
        contradicting = {
            f"cloudFiles.cleanSource={self.cleaning.mode}": (
                self.cleaning.is_on,
                "the table would lose the files that it is made of",
            ),
            f"cloudFiles.fileIdentity={identity} (or cloudFiles.allowOverwrites=true)": (
                identity != "path",
                "a file that is overwritten in place changes the rows that the table has",
            ),
            METADATA_COLUMNS: (
                bool(self.metadata_columns),
                "the files do not have such columns, so that each would have to be copied",
            ),
            "ignoreCorruptFiles=true": (
                self.ignore_corrupt_files,
                "only the end of a file is read, so damage elsewhere would go into the table",
            ),
        }
        for option_name, (is_given, why) in contradicting.items():
            if is_given:
                raise OptionError(
                    f"{_REFERENCE} and {option_name} contradict each other: {why}. Remove one of "
                    "them."
                )

    @classmethod
    def parse(
        cls, options: Mapping[str, object], *, has_schema: bool = False, path: str | None = None
    ) -> CloudFilesOptions:
        """Validate a source's options.

        Args:
            options: Keys in any case; values as strings, numbers or booleans.
            has_schema: Whether a schema was given besides.
            path: The source; default is the option `path`, which Spark's `load(path)` sets.

        Raises:
            UnknownOptionError: A key nobody documents; the text names the nearest ones.
            UnsupportedOptionError: A documented key or value this version does not offer.
            OptionError: A value of the wrong kind, or options that contradict each other.
        """
        given = {key.lower(): option_text(value) for key, value in options.items()}
        if path is not None:
            given["path"] = path
        name = options_of(cls)["format"].value_in(given)
        validate = _VALIDATE.value_in(given)
        typed = {key.lower(): key for key in options}
        check_names(given, typed, GROUPS, name, validate=validate)
        values = values_of(cls, given)
        _complete(values, has_schema=has_schema)
        _check_metadata(values)
        discovery, cleaning = DiscoveryOptions.read(given), CleaningOptions.read(given)
        if discovery.follows:
            discovery = _following(values, discovery, cleaning)
        found = cls(
            **values,
            discovery=discovery,
            cleaning=cleaning,
            upkeep=UpkeepOptions.read(given),
            format_options=FORMATS[name].read(given),
            has_schema=has_schema,
        )
        found._check_reference()
        return found


GROUPS: Final[Groups] = (CloudFilesOptions, DiscoveryOptions, CleaningOptions, UpkeepOptions)
"""The classes that declare the options of a source, whatever its format."""


def _complete(values: dict[str, Any], *, has_schema: bool) -> None:
    """Add the defaults that depend on other options."""
    mode = values.setdefault("schema_evolution_mode", "none" if has_schema else "addNewColumns")
    if has_schema and mode in ADDING_MODES:
        raise OptionError(
            f"cloudFiles.schemaEvolutionMode={mode} is not allowed with a given schema. Give "
            "the schema as cloudFiles.schemaHints instead, or choose rescue, "
            "failOnNewColumns or none."
        )
    # B18, B53 and the seed's second example: a given schema has a rescued column only when it
    # is named, or when the mode rescues what does not fit.
    inferred = not has_schema and FORMATS[values["format"]].INFERS_SCHEMA
    rescues = inferred or mode == "rescue" or (has_schema and mode == "failOnNewColumns")
    if not rescues:
        values.setdefault("rescued_data_column", None)
    if values.get("recursive_file_lookup"):
        values.setdefault("partition_columns", ())


def _following(
    values: dict[str, Any], discovery: DiscoveryOptions, cleaning: CleaningOptions
) -> DiscoveryOptions:
    """Add what a table needs that follows its files, or refuse what it cannot have.

    A file that is gone when it is to be read is skipped: its rows would be removed next.
    """
    if discovery.deletes:
        if cleaning.is_on:
            raise OptionError(
                f"cloudFiles.onDelete=delete and cloudFiles.cleanSource={cleaning.mode} contradict "
                "each other: the rows of each cleaned file would be removed. Leave one of them out."
            )
        values["ignore_missing_files"] = True
    column = next(filter(None, (each.path_field for each in values["metadata_columns"])), ())
    if not column:
        given = "onOverwrite=replace" if discovery.replaces else "onDelete=delete"
        raise OptionError(
            f"cloudFiles.{given} needs a column that says from which file a row came, by which "
            f"former rows are found: set {METADATA_COLUMNS}=_metadata, or file_path."
        )
    return replace(discovery, path_column=column)


def _check_metadata(values: dict[str, Any]) -> None:
    """Give metadata columns the fields of the format; refuse those named as another column."""
    have_sheets = FORMATS[values["format"]].HAS_SHEETS
    values["metadata_columns"] = of_files(
        values.get("metadata_columns", ()), have_sheets=have_sheets
    )
    matcher = NameMatcher(bool(values.get("case_sensitive")))
    others = {
        "rescuedDataColumn": values.get("rescued_data_column", DEFAULT_RESCUED_DATA_COLUMN),
        "columnNameOfCorruptRecord": values.get("corrupt_record_column", "_corrupt_record"),
        "singleVariantColumn": values.get("single_variant_column"),
    }
    named = [(option, name) for option, name in others.items() if name is not None]
    in_paths = values.get("partition_columns") or ()
    named += [("cloudFiles.partitionColumns", name) for name in in_paths]
    for column in values["metadata_columns"]:
        for option_name, name in named:
            if matcher.same(column.name, name):
                raise OptionError(
                    f"{METADATA_COLUMNS} makes a column {column.name}, which {option_name} names "
                    f"as well. Give it another name: {column.field} AS another_name."
                )
