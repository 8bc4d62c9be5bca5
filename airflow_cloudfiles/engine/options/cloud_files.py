"""What did the user ask for?

The only parser of `cloudFiles.*` keys and of the format options. Keys are compared without regard
to case (Spark hands them over in lower case); names, defaults and meanings are Auto Loader's.
Everything wrong with an option is found here, before any file is touched.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from airflow_cloudfiles.engine.casing import NameMatcher
from airflow_cloudfiles.engine.errors import OptionError, UnknownOptionError, UnsupportedOptionError
from airflow_cloudfiles.engine.files import ReadLimit
from airflow_cloudfiles.engine.options import names as option_names
from airflow_cloudfiles.engine.options.discovery import (
    MIN_FILE_AGE_SECONDS,
    RECOMMENDED_FILE_AGE_SECONDS,
    SECONDS_A_DAY,
    DiscoveryOptions,
    IncrementalListing,
)
from airflow_cloudfiles.engine.options.formats.base import FormatOptions
from airflow_cloudfiles.engine.options.formats.json import JsonOptions
from airflow_cloudfiles.engine.options.formats.registry import FORMATS, formats_of
from airflow_cloudfiles.engine.options.values import Values
from airflow_cloudfiles.engine.shortened import cut

EvolutionMode = Literal[
    "addNewColumns", "addNewColumnsWithTypeWidening", "rescue", "failOnNewColumns", "none"
]
InexactNumbers = Literal["none", "wholeNumbers", "all"]
ParseMode = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]

EVOLUTION_MODES: tuple[EvolutionMode, ...] = (
    "addNewColumns",
    "addNewColumnsWithTypeWidening",
    "rescue",
    "failOnNewColumns",
    "none",
)
ADDING_MODES = frozenset({"addNewColumns", "addNewColumnsWithTypeWidening"})
"""Modes in which the schema grows by itself."""
WATCHING_MODES = ADDING_MODES | {"failOnNewColumns"}
"""Modes in which a reader must tell of new fields."""
INCREMENTAL_LISTING: tuple[IncrementalListing, ...] = ("auto", "true", "false")
INEXACT_NUMBERS: tuple[InexactNumbers, ...] = ("none", "wholeNumbers", "all")
PARSE_MODES: tuple[ParseMode, ...] = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
DEFAULT_RESCUED_DATA_COLUMN = "_rescued_data"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudFilesOptions:
    """The validated options of one source.

    Build it with `CloudFilesOptions.parse`. Two sources with equal options behave the same.
    """

    path: str
    """`path`: the folder the files land in, or a pattern of folders, as a path or URI (`s3://`,
    `abfss://`, `gs://`); usually the argument of `load`. Folders below it are read too."""
    format: str
    """`cloudFiles.format`; required: `avro`, `binaryFile`, `csv`, `json`, `orc`, `parquet`, `text`
    or `xml`."""
    schema_location: str | None = None
    """`cloudFiles.schemaLocation`: folder of the schema log, `_schemas/`. Without it the checkpoint
    location serves. One location serves one source."""
    checkpoint_location: str | None = None
    """`checkpointLocation`: the state of the stream. Usually learnt from `writeStream`; needed here
    over Spark Connect, and in a query with several `cloudFiles` sources."""
    schema_hints: str | None = None
    """`cloudFiles.schemaHints`: columns and types in DDL, put over the inferred schema; names may
    be dotted (`user.id INT`, `tags.element STRING`)."""
    schema_evolution_mode: EvolutionMode = "addNewColumns"
    """`cloudFiles.schemaEvolutionMode`: what a field does that the schema lacks; `none` is the
    default when a schema is given (B56)."""
    rescue_inexact_numbers: InexactNumbers = "wholeNumbers"
    """`cloudFiles.rescueInexactNumbers`: which numbers of JSON, CSV and XML are rescued because a
    DOUBLE or FLOAT column would change them: whole numbers and what would become 0; `all`,
    fractions with too many digits too; or `none`, as in Spark, which is also what holds without a
    rescued data column. Ours, not Auto Loader's."""
    infer_column_types: bool = False
    """`cloudFiles.inferColumnTypes`: whether numbers, booleans and (in paths) dates get types;
    false makes every leaf a string, which keeps the exact text."""
    max_files_per_trigger: int = 1000
    """`cloudFiles.maxFilesPerTrigger`: hard limit of files in a micro-batch; at least 1."""
    max_bytes_per_trigger: int | None = None
    """`cloudFiles.maxBytesPerTrigger`: soft limit of bytes in a micro-batch; the file that reaches
    it is the last. The limit of files holds besides."""
    partition_columns: tuple[str, ...] | None = None
    """`cloudFiles.partitionColumns`: names of the `key=value` folders that are columns. Without it
    they are inferred when all sampled paths agree; an empty text means no partition columns."""
    sample_bytes: int = 50 * 2**30
    """`cloudFiles.schemaInference.sampleSize.numBytes`: most bytes looked at to infer."""
    sample_files: int = 1000
    """`cloudFiles.schemaInference.sampleSize.numFiles`: most files looked at to infer."""
    rescued_data_column: str | None = DEFAULT_RESCUED_DATA_COLUMN
    """`rescuedDataColumn`: name of the column for what did not fit; there is none when a schema is
    given without this option, unless the mode is `rescue` or `failOnNewColumns` (B18, B53)."""
    reader_case_sensitive: bool = True
    """`readerCaseSensitive`: whether `Foo` in a record is another field than column `foo`, and is
    rescued; false reads it into `foo`."""
    mode: ParseMode = "PERMISSIVE"
    """`mode`: what a record does that is not valid: it is kept in the corrupt record column or else
    in the rescued data, it is dropped and counted, or it fails the query."""
    corrupt_record_column: str = "_corrupt_record"
    """`columnNameOfCorruptRecord`: filled when the schema (or a hint) has that column."""
    ignore_missing_files: bool = False
    """`ignoreMissingFiles`: whether a file deleted between discovery and reading is skipped and
    counted, rather than an error."""
    ignore_corrupt_files: bool = False
    """`ignoreCorruptFiles`: whether a file that is damaged, or not of this format, is given up with
    a warning and counted, rather than an error; rows read from it before are kept."""
    bad_records_path: str | None = None
    """`badRecordsPath`: folder that takes records that are not valid, as JSON with file, record and
    reason; they are left out of the table then, whatever `mode` says. Without a rescued data
    column, a value that does not fit makes a record that is not valid."""
    single_variant_column: str | None = None
    """`singleVariantColumn`: name of the one column, of type VARIANT, that takes whole records."""
    evolve_ahead: bool = False
    """`cloudFiles.evolveAhead`: whether a run looks at its files before it reads them, and evolves
    the schema once for all of them, so that it need not fail first. Ours, not Auto Loader's."""
    recursive_file_lookup: bool = False
    """`recursiveFileLookup`: folders at any depth are read either way; `true` besides takes no
    partition columns from their names, as in Spark, unless `cloudFiles.partitionColumns` names
    some."""
    discovery: DiscoveryOptions = field(default_factory=DiscoveryOptions)
    """Which files are wanted and how they are found."""
    format_options: FormatOptions = field(default_factory=JsonOptions)
    """The options that only this format has."""
    has_schema: bool = False
    """Whether the user gave a schema (`.schema(...)`)."""
    token: str | None = None
    """Internal: how `writeStream` tells the source its checkpoint location."""
    up_to_entry: int | None = None
    """Internal: read the file log up to this entry and discover nothing."""
    split_token: str | None = field(default=None, repr=False)
    """Internal: the source only says what to read, in rows signed with this token."""
    parallelism: int = 8
    """Internal: how many tasks can run at once (Spark's default parallelism)."""
    case_sensitive: bool = False
    """Internal: whether the session has `spark.sql.caseSensitive`: `foo` and `Foo` are two columns
    then (B16)."""
    path_columns: tuple[str, ...] = ()
    """Internal: columns that the paths fill; a field of such a name is rescued."""
    exclude: tuple[str, ...] = ()
    """Internal: locations below the source that are not sources (the target)."""

    @property
    def matcher(self) -> NameMatcher:
        """How names of columns are compared."""
        return NameMatcher(self.case_sensitive)

    @property
    def reserved_columns(self) -> tuple[str, ...]:
        """Names that are never new columns, whatever the files hold."""
        own = (self.corrupt_record_column, self.rescued_data_column, *self.path_columns)
        return tuple(filter(None, own))

    @property
    def read_limit(self) -> ReadLimit:
        """How much a micro-batch may take."""
        return ReadLimit(max_files=self.max_files_per_trigger, max_bytes=self.max_bytes_per_trigger)

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
        given = {key.lower(): _text(value) for key, value in options.items()}
        typed = {key.lower(): key for key in options}
        if path is not None:
            given["path"] = path
        read = Values(given)
        name = read.format()
        _refuse_foreign(given, name, typed)
        schema_given_mode = "none" if has_schema else "addNewColumns"
        mode = read.choice("cloudFiles.schemaEvolutionMode", EVOLUTION_MODES, schema_given_mode)
        if has_schema and mode in ADDING_MODES:
            raise OptionError(
                f"cloudFiles.schemaEvolutionMode={mode} is not allowed with a given schema. Give "
                "the schema as cloudFiles.schemaHints instead, or choose rescue, "
                "failOnNewColumns or none."
            )
        # B18, B53 and the seed's second example: a given schema has a rescued column only when it
        # is named, or when the mode rescues what does not fit.
        inferred = not has_schema and name not in option_names.FIXED_FORMATS
        rescues = inferred or mode == "rescue" or (has_schema and mode == "failOnNewColumns")
        rescued = given.get("rescueddatacolumn", DEFAULT_RESCUED_DATA_COLUMN if rescues else None)
        if rescued is not None and not rescued.strip():
            raise OptionError(
                "rescuedDataColumn must be a column name, got an empty text. Leave the option out "
                f"for the default {DEFAULT_RESCUED_DATA_COLUMN}."
            )
        source = given.get("path", "")
        if not source:
            raise OptionError("No source: give the folder to load(path) or as the option `path`.")
        partitions = given.get("cloudfiles.partitioncolumns")
        recursive = read.boolean("recursiveFileLookup", default=False)
        if recursive and partitions is None:
            partitions = ""
        return cls(
            path=source,
            format=name,
            schema_location=given.get("cloudfiles.schemalocation") or None,
            checkpoint_location=given.get("checkpointlocation") or None,
            schema_hints=given.get("cloudfiles.schemahints") or None,
            schema_evolution_mode=mode,
            rescue_inexact_numbers=read.choice(
                "cloudFiles.rescueInexactNumbers", INEXACT_NUMBERS, "wholeNumbers"
            ),
            infer_column_types=read.boolean("cloudFiles.inferColumnTypes", default=False),
            max_files_per_trigger=read.positive("cloudFiles.maxFilesPerTrigger", 1000),
            max_bytes_per_trigger=read.size("cloudFiles.maxBytesPerTrigger", None),
            partition_columns=None if partitions is None else _names(partitions),
            sample_bytes=read.size("cloudFiles.schemaInference.sampleSize.numBytes", 50 * 2**30)
            or 50 * 2**30,
            sample_files=read.positive("cloudFiles.schemaInference.sampleSize.numFiles", 1000),
            rescued_data_column=rescued,
            reader_case_sensitive=read.boolean("readerCaseSensitive", default=True),
            mode=read.choice("mode", PARSE_MODES, "PERMISSIVE"),
            corrupt_record_column=given.get("columnnameofcorruptrecord") or "_corrupt_record",
            ignore_missing_files=read.boolean("ignoreMissingFiles", default=False),
            ignore_corrupt_files=read.boolean("ignoreCorruptFiles", default=False),
            bad_records_path=read.text("badRecordsPath"),
            single_variant_column=read.text("singleVariantColumn"),
            evolve_ahead=read.boolean("cloudFiles.evolveAhead", default=False),
            recursive_file_lookup=recursive,
            discovery=_discovery(read),
            format_options=FORMATS[name].parse(read),
            has_schema=has_schema,
            token=given.get("cloudfiles.internal.token") or None,
            up_to_entry=read.optional_number("cloudFiles.internal.upToEntry"),
            split_token=given.get("cloudfiles.internal.splittoken") or None,
            parallelism=read.optional_number("cloudFiles.internal.parallelism") or 8,
            case_sensitive=read.boolean("cloudFiles.internal.caseSensitive", default=False),
            exclude=tuple(filter(None, given.get("cloudfiles.internal.exclude", "").split("\n"))),
        )


def _discovery(read: Values) -> DiscoveryOptions:
    """Read the options of discovery and refuse those that contradict each other."""
    incremental = read.choice("cloudFiles.useIncrementalListing", INCREMENTAL_LISTING, "auto")
    found = DiscoveryOptions(
        use_incremental_listing=incremental,
        backfill_interval_seconds=read.interval("cloudFiles.backfillInterval"),
        include_existing_files=read.boolean("cloudFiles.includeExistingFiles", default=True),
        allow_overwrites=read.boolean("cloudFiles.allowOverwrites", default=False),
        max_file_age_seconds=_max_file_age(read.interval("cloudFiles.maxFileAge")),
        modified_after_us=read.time("modifiedAfter"),
        modified_before_us=read.time("modifiedBefore"),
        path_glob_filter=_name_pattern(read),
        use_strict_globber=read.boolean("cloudFiles.useStrictGlobber", default=False),
        use_notifications=read.boolean("cloudFiles.useNotifications", default=False),
        list_on_start=read.boolean("cloudFiles.listOnStart", default=False),
        fetch_parallelism=read.positive("cloudFiles.fetchParallelism", 1),
        path_rewrites=read.rewrites("cloudFiles.pathRewrites"),
        queue_url=read.text("cloudFiles.queueUrl"),
        queue_name=read.text("cloudFiles.queueName"),
        subscription=read.text("cloudFiles.subscription"),
        project_id=read.text("cloudFiles.projectId"),
        region=read.text("cloudFiles.region"),
    )
    if found.allow_overwrites and incremental == "true":
        raise OptionError(
            "cloudFiles.allowOverwrites=true and cloudFiles.useIncrementalListing=true contradict "
            "each other: an incremental listing does not look at files it knows. Leave "
            "useIncrementalListing out (auto lists everything then)."
        )
    if not found.use_notifications:
        for name in ("queueUrl", "queueName", "subscription", "pathRewrites"):
            if read.text(f"cloudFiles.{name}"):
                raise OptionError(
                    f"cloudFiles.{name} is given, but cloudFiles.useNotifications is not true, so "
                    "no queue would be read. Set cloudFiles.useNotifications=true, or remove it."
                )
    return found


def _max_file_age(seconds: float | None) -> float | None:
    """Refuse an age below the minimum (B108); warn of one below what is recommended."""
    if seconds is None:
        return None
    if seconds < MIN_FILE_AGE_SECONDS:
        raise OptionError(
            f"cloudFiles.maxFileAge must be at least {MIN_FILE_AGE_SECONDS // SECONDS_A_DAY} days, "
            f"{RECOMMENDED_FILE_AGE_SECONDS // SECONDS_A_DAY} days are recommended: files that "
            "arrive with an older modification time are never ingested."
        )
    return seconds


def _name_pattern(read: Values) -> str | None:
    """`pathGlobFilter` under either of its names."""
    first, second = read.text("pathGlobFilter"), read.text("fileNamePattern")
    if first and second and first != second:
        raise OptionError(
            f"pathGlobFilter={first!r} and fileNamePattern={second!r} are two names of one option. "
            "Give one."
        )
    return first or second


def _text(value: object) -> str:
    """An option's value as Spark passes it: booleans in lower case."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of column names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _refuse_foreign(given: Mapping[str, str], format_name: str, typed: Mapping[str, str]) -> None:
    """Refuse every key that this version does not obey, each with what to do instead.

    With `cloudFiles.validateOptions=false` keys that nobody documents are accepted (B101);
    documented ones that would change what is read are refused all the same.
    """
    validate = given.get("cloudfiles.validateoptions", "true").lower() != "false"
    fixed = {name.lower(): (name, value) for name, value in option_names.FIXED.items()}
    defaults = {
        name.lower(): values
        for (of, name), values in option_names.DEFAULTS_OF_REFUSED.items()
        if of == format_name
    }
    own = FORMATS[format_name].NAMES
    served = {name.lower() for name in (*option_names.SUPPORTED, *option_names.INTERNAL, *own)}
    for key, value in given.items():
        if value.lower() in defaults.get(key, ()):
            continue
        _refuse_for_format(key, format_name)
        if key in served:
            continue
        if key in fixed:
            name, (only, reason) = fixed[key]
            if value.lower() != only:
                raise UnsupportedOptionError(f"{name}={value} is refused: {reason}")
            continue
        _refuse_documented(key)
        if validate:
            raise UnknownOptionError(_unknown(key, typed.get(key, key)))


def _refuse_for_format(key: str, format_name: str) -> None:
    """Raise for an option that other formats have, or that this one cannot have."""
    for name, reason in FORMATS[format_name].REFUSED.items():
        if name.lower() == key:
            raise UnsupportedOptionError(f"{name} is refused for format {format_name}: {reason}")
    for name, formats in option_names.ONLY_FOR.items():
        if name.lower() == key and format_name not in formats:
            raise UnsupportedOptionError(_not_of(name, formats, format_name))
    formats_with = formats_of(key)
    if formats_with and format_name not in formats_with:
        name = _documented()[key]
        raise UnsupportedOptionError(_not_of(name, formats_with, format_name))


def _not_of(name: str, formats: Iterable[str], format_name: str) -> str:
    return f"{name} is an option of format {', '.join(formats)}, not of {format_name}. Remove it."


def _documented() -> dict[str, str]:
    """Every name a user may have meant, keyed by its lower-case form."""
    of_formats = (
        name for options in FORMATS.values() for name in (*options.NAMES, *options.REFUSED)
    )
    return {name.lower(): name for name in of_formats} | option_names.documented()


def _refuse_documented(key: str) -> None:
    """Raise for a documented option that this version does not offer."""
    name = option_names.documented().get(key)
    if key.startswith("cloudfiles.resourcetag"):
        name = "cloudFiles.resourceTag"
    if name in option_names.CREDENTIALS:
        raise UnsupportedOptionError(
            f"{name} is refused: credentials never travel as options, which are logged and stored. "
            "Use an Airflow connection (conn_id), or the environment's own credential chain."
        )
    if name in option_names.PLATFORM:
        raise UnsupportedOptionError(
            f"{name} belongs to Databricks' platform. Use an Airflow connection (conn_id), or the "
            "environment's own credential chain."
        )
    if name in option_names.IN_CONNECTION:
        raise UnsupportedOptionError(
            f"{name} belongs to the identity that is used: give it in the extra field of the "
            "Airflow connection (conn_id), or in the environment's own credential chain."
        )
    if name in option_names.IN_SET_UP:
        raise UnsupportedOptionError(
            f"{name} is given once, when the queue is set up (docs/how-to/set-up-notifications.md)"
            ", not to the stream; remove it."
        )
    if name in option_names.PLANNED:
        raise UnsupportedOptionError(f"{name} is not in this version; remove it.")


def _unknown(key: str, typed: str) -> str:
    """Say that a key, as it was typed, is unknown, and which one was probably meant."""
    sink = {name.lower(): name for name in option_names.OF_SINK}
    if key in sink:
        return f"{sink[key]} is an option of the Delta sink: give it to writeStream."
    bare = "cloudfiles."
    options = {name.removeprefix(bare): option for name, option in (_documented() | sink).items()}
    near = difflib.get_close_matches(key.removeprefix(bare), options, n=2, cutoff=0.6)
    hint = f" Did you mean {' or '.join(options[name] for name in near)}?" if near else ""
    return (
        f"Unknown option {cut(typed)!r}.{hint} Options are listed in docs/reference/options.md; "
        "cloudFiles.validateOptions=false accepts unknown ones."
    )
