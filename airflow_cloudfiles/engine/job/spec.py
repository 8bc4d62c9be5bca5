"""Specify one run.

A job specification travels from whoever asks (an operator, a test) to the Spark driver as JSON in
the state (`_runs/<run id>.json`), so that it reaches a driver on another machine and never passes
a command line. It holds no credentials. A driver on the same machine finds it, too, in a folder
that only this user can enter, and leaves its report there when the state has it: neither then waits
for the store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    OptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.sink import (
    OF_SINK,
    TaskSinkOptions,
    is_of_sink,
    rule_options,
)
from airflow_cloudfiles.engine.options.values import check_ends, option_text
from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.engine.spark import preload
from airflow_cloudfiles.engine.state.run_history import REPORTS_PREFIX, RUNS_PREFIX, SPEC_VERSION
from airflow_cloudfiles.engine.storage import ObjectNotFoundError
from airflow_cloudfiles.engine.storage.outage import reaching_state
from airflow_cloudfiles.engine.storage.small_objects import seal, unseal
from airflow_cloudfiles.engine.storage.uri import refuse_iceberg, refuse_source_only
from airflow_cloudfiles.engine.target import target_of
from airflow_cloudfiles.engine.versions import FIELD, fields_of, read_note

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

BESIDE = "CLOUDFILES_RUN_FOLDER"
"""Environment variable of a driver: the folder in which whoever started it hands it the
specification, and gets the report."""
TRANSFORMS = "CLOUDFILES_TRANSFORMS"
"""Environment variable of a driver: the run has a function over micro-batches, which may import
what a driver otherwise hides (`spark.preload`)."""
SPEC, REPORT = "spec.json", "report.json"
MOST_DDL = 20_000
"""Characters of a schema in the report of an ingestion, which each run leaves, and in XCom."""
_SAME = "Install the same version of the package on the Spark side."
_WIDENING = "addnewcolumnswithtypewidening"
_SECRET = re.compile(
    r"(?i)secret|password|passphrase|token|access[.]?key|credential[.]?file"  # as Spark redacts
    r"|account[.]key|azure[.]sas[.]|private[.]key|encryption[.]key$"  # what Hadoop's stores read
    # Environment variables of a driver or an executor that tools of the clouds, and this one, read.
    r"|env[.]\w*(access_key|account_key|storage_key|connection_string|cloudfiles_access)"
    r"|env[.](\w*_)?sas(_|$)"
)
_REFERENCE = re.compile(
    r"spark[.]kubernetes[.](driver|executor)[.](secretKeyRef|secrets)[.].+"
    r"|spark[.]kubernetes[.]container[.]image[.]pullSecrets"
)
"""Keys that name a secret of Kubernetes, and do not hold it."""
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=+-]{0,199}")

JobKind = Literal["ingest", "infer", "promote", "replay", "clean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One run.

    Attributes:
        kind: `ingest` files into the target, `infer` the schema and write the schema log,
            `promote` fields of the rescued data of the target, `replay` batches it has lost, or
            `clean` the source of what is committed.
        source: Folder the files land in; or a Delta table.
        format: `cloudFiles.format`; or `delta`, to ingest the versions of a table.
        checkpoint_location: State of the stream.
        run_id: Names the run's report; letters, digits and `_.=+-`, at most 200.
        schema_location: Where `_schemas/` is; default is the checkpoint location.
        target: The Delta table, or (to ingest or clean) the URI of an Iceberg table; needed but to
            infer or clean.
        options: `cloudFiles.*` and format options, and those of the sink (`sink_options`).
        batch: The sensor's reference to a batch: ingest the file log up to its `last_entry` and
            discover nothing. `None`: discover first, then ingest all that is outstanding.
        spark_conf: Spark configuration of the run.
        promote: Of `promote`: dotted paths of fields, each with a type in DDL or `None`.
        replay: Of `replay`: which batches, and what to do with them (`engine.stream.replay`).
        clean: Of `clean`: how (`engine.job.cleaning`).
        infer_again: Of `infer`: also where there is a schema; what differs is a new version.
        leave_after_seconds: Of `ingest`, on a Spark Connect server: a query that lasts longer is
            left there, and a run of the same `run_id` comes back to it (`connect.coming_back`).
        transform: Of `ingest`: the function that makes of each micro-batch what is written
            (`batch_function.BatchFunction`). The state gets its name only.
    """

    kind: JobKind
    source: str
    format: str
    checkpoint_location: str
    run_id: str
    schema_location: str | None = None
    target: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    batch: Mapping[str, Any] | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    promote: Mapping[str, str | None] = field(default_factory=dict)
    replay: Mapping[str, Any] = field(default_factory=dict)
    clean: Mapping[str, Any] = field(default_factory=dict)
    infer_again: bool = False
    leave_after_seconds: float | None = None
    transform: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not _RUN_ID.fullmatch(self.run_id):
            raise OptionError(
                f"run_id must be 1 to 200 letters, digits or _.=+-, got {self.run_id!r}."
            )
        _refuse_internal(self.options)
        refuse_secrets(self.spark_conf)
        preload.check(self.spark_conf)
        if self.kind not in {"infer", "clean"} and not self.target:
            raise OptionError(f"target is required to {self.kind}: the folder of a Delta table.")
        for name in ("source", "checkpoint_location", "schema_location", "target"):
            check_ends(name, getattr(self, name) or "")
        for place in (self.checkpoint_location, self.target):
            refuse_source_only(place or "")
        if self.kind not in {"ingest", "clean"} and self.target:
            refuse_iceberg(self.target)
        if self.transform is not None:
            self._check_transform()
        if self.kind != "ingest":
            source_of(self.format).require_files(
                f"A source of format {self.format} can be ingested only: to {self.kind} is for "
                "streams of files."
            )

    def _check_transform(self) -> None:
        """Refuse what a run with a function cannot do."""
        if self.kind != "ingest":
            raise OptionError(f"transform is to ingest; it means nothing to {self.kind}.")
        if "expect.maxcorruptshare" in _lower(self.options):
            raise OptionError(
                "expect.maxCorruptShare does not go with transform: the rows that a function "
                "returns do not say how many records were corrupt. Remove it."
            )

    def check_follows(self, options: CloudFilesOptions) -> None:
        """Refuse what leaves no rows in the table of which each is known to be of a file.

        Raises:
            UnsupportedOptionError: The table is to follow its files, and cannot.
        """
        if not options.discovery.follows:
            return
        is_nested = len(options.discovery.path_column) > 1
        whys = {
            "mergeKeys": (
                bool(self.table_options.merge_keys),
                "a merged row may be of several files",
            ),
            "transform": (self.transform is not None, "its function makes rows of its own"),
            "cloudFiles.metadataColumns=_metadata": (
                is_nested and target_of(str(self.target)).layer == "iceberg",
                "rows of an Iceberg table are found by a column in no struct, such as file_path",
            ),
        }
        for name, (is_given, why) in whys.items():
            if is_given:
                raise UnsupportedOptionError(
                    "cloudFiles.onOverwrite=replace and cloudFiles.onDelete=delete do not go with "
                    f"{name}: {why}. Leave one of them out."
                )

    @property
    def report_key(self) -> str:
        """Where below the state the run's report is."""
        return f"{REPORTS_PREFIX}/{self.run_id}.json"

    @property
    def spec_key(self) -> str:
        """Where below the state this specification is."""
        return f"{RUNS_PREFIX}/{self.run_id}.json"

    def to_json(self) -> str:
        """Encode it for storage."""
        return json.dumps({FIELD: SPEC_VERSION, **self._fields()}, indent=1, ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str | bytes, name: str = "The specification of a run") -> JobSpec:
        """Read what `to_json` wrote.

        Args:
            text: All of it.
            name: Of the file, for messages.

        Raises:
            IncompatibleStateError: It was written by a newer version of this package.
        """
        return cls(**read_note(text, name=name, understood=SPEC_VERSION, what_to_do=_SAME))

    def sealed(self) -> bytes:
        """Encode it for storage in the state: without the code of a function."""
        fields = self._fields()
        if self.transform is not None:
            fields["transform"] = {"name": self.transform.get("name")}
        return seal({FIELD: SPEC_VERSION, **fields})

    def _fields(self) -> dict[str, Any]:
        """Encode all fields; a version of this package without functions reads what has none."""
        fields = asdict(self)
        if self.transform is None:
            del fields["transform"]
        return fields

    @classmethod
    def stored(cls, state: ObjectStore, run_id: str) -> JobSpec:
        """Read what a state has of a run.

        Raises:
            IncompatibleStateError: It was written by a newer version of this package.
            CorruptedStateError: It is missing or damaged.
            StateError: The state cannot be read.
        """
        key = f"{RUNS_PREFIX}/{run_id}.json"
        name = printable_path(state.child_uri(key))
        try:
            with reaching_state(state):
                value = unseal(state.get(key))
        except (ObjectNotFoundError, ValueError) as failure:
            raise CorruptedStateError(
                f"The specification {name} of this run cannot be read: {failure}. Start the run "
                "again, which writes a new one."
            ) from failure
        return cls(**fields_of(value, name=name, understood=SPEC_VERSION, what_to_do=_SAME))

    def source_options(self) -> dict[str, str]:
        """Build the options of the source, without those of the sink."""
        arguments = {
            "cloudFiles.format": self.format,
            "checkpointLocation": self.checkpoint_location,
            "cloudFiles.schemaLocation": self.schema_location or self.checkpoint_location,
        }
        given = _lower(self.options)
        for key, value in arguments.items():
            if given.get(key.lower(), value) != value:
                raise OptionError(
                    f"{key} is given as an option and as an argument, with different values. "
                    "Give the argument only."
                )
        others = _lower(arguments)
        options = {
            key: option_text(value)
            for key, value in self.options.items()
            if key.lower() not in others and not is_of_sink(key)
        }
        options |= arguments
        if _lower(self.spark_conf).get("spark.sql.casesensitive", "").lower() == "true":
            options["cloudFiles.internal.caseSensitive"] = "true"
        if self.target:
            options["cloudFiles.internal.exclude"] = self.target
        if self.batch is not None:
            options["cloudFiles.internal.upToEntry"] = str(int(self.batch["last_entry"]))
        return options

    def parsed(self) -> CloudFilesOptions:
        """Parse the options of a source of files.

        Raises:
            OptionError: As of `CloudFilesOptions.parse`.
        """
        return CloudFilesOptions.parse(self.source_options(), path=self.source)

    def sink_options(self) -> dict[str, str]:
        """Build the options of the sink, with the defaults of a job.

        New columns are added to the target unless `mergeSchema=false`. The target is rewritten for
        wider columns if the stream's mode widens them, unless `typeWidening=false`.
        """
        given = _lower(self.options)
        widens = given.get("cloudfiles.schemaevolutionmode", "").lower() == _WIDENING
        defaults = {"mergeschema": "true", "typewidening": str(widens).lower()}
        given = {**defaults, **given}
        named = {name: given[name.lower()] for name in OF_SINK if name.lower() in given}
        return {**named, **rule_options(given)}

    @property
    def table_options(self) -> TaskSinkOptions:
        """The options of the sink, validated.

        Raises:
            OptionError: A value is not valid.
        """
        return TaskSinkOptions.read(_lower(self.sink_options()))

    @property
    def merge_schema(self) -> bool:
        """Whether new columns are added to the target; true unless `mergeSchema=false`."""
        return self.table_options.merge_schema is not False


def _refuse_internal(options: Mapping[str, str]) -> None:
    """Refuse options that only this package sets, such as where rows are read as splits."""
    for key in options:
        if key.lower().startswith("cloudfiles.internal."):
            raise OptionError(f"{key} is set by this package itself; remove it.")


def refuse_secrets(conf: Mapping[str, str]) -> None:
    """Refuse Spark configuration that holds a credential: it is stored and shown in many places.

    Raises:
        OptionError: A key looks like one of a secret.
    """
    for key in conf:
        if _SECRET.search(key) and not _REFERENCE.fullmatch(key):
            raise OptionError(
                f"The Spark configuration {key} looks like a credential, which would be written "
                "into state and command lines. Give it to Spark's environment instead (an instance "
                "profile, workload identity, spark-defaults.conf, or a secret of Kubernetes that "
                "spark.kubernetes.driver.secretKeyRef.* and spark.kubernetes.executor."
                "secretKeyRef.* name)."
            )


def _lower(options: Mapping[str, object]) -> dict[str, str]:
    return {key.lower(): option_text(value) for key, value in options.items()}
