"""Say what is asked of the source of a stream: files, or a Delta table.

Tasks, commands and runs ask a `Source`, and need not know which kinds there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.declared import values_of
from airflow_cloudfiles.engine.options.sink import TaskSinkOptions, is_of_sink
from airflow_cloudfiles.engine.options.table_stream import check_names
from airflow_cloudfiles.engine.options.values import option_text
from airflow_cloudfiles.engine.schema.ddl_grammar import check_hints

ARGUMENTS: Final = {
    "path": "source",
    "cloudfiles.format": "format",
    "checkpointlocation": "checkpoint_location",
    "cloudfiles.schemalocation": "schema_location",
}
"""Options, in lower case, that are arguments of a task, and which."""
_OF_TABLES: Final = frozenset({"delta", "deltalake"})


class _OfFormat:
    """What a stream reads.

    Args:
        format: As the stream names it.
    """

    def __init__(self, format: str) -> None:  # noqa: A002 - Spark's word
        self.format = format


class FileSource(_OfFormat):
    """Files of one format in a folder.

    Attributes:
        records_arrivals: Whether the state records what has arrived; otherwise the source does.
        shown: What a person is shown of the report of a run.
    """

    records_arrivals = True
    shown = (
        "files",
        "registered_files",
        "copied_files",
        "rows",
        "rescued_rows",
        "corrupt_records",
        "violations",
        "quarantined_rows",
        "dropped_rows",
        "replaced_rows",
        "inserted_rows",
        "updated_rows",
        "deleted_rows",
        "batches",
        "schema_version",
        "target_version",
        "warnings",
    )

    def parsed(self, options: Mapping[str, object], path: str) -> CloudFilesOptions:
        """Parse the options; those of the sink are looked at there."""
        given = {name: value for name, value in options.items() if not is_of_sink(name)}
        return CloudFilesOptions.parse({"cloudFiles.format": self.format, **given}, path=path)

    def check(self, options: Mapping[str, object], path: str) -> None:
        """Check the options of a stream.

        Args:
            options: Those that are no arguments of its task; those of the sink may be among them.
            path: The source.

        Raises:
            OptionError: One is unknown, not offered, or has a bad value.
        """
        self.parsed(options, path)

    def check_at_parse(
        self, plain: Mapping[str, object], templates: Collection[str], path: str
    ) -> None:
        """Check the options that are known when a DAG is parsed, and those of the sink.

        Args:
            plain: Their values.
            templates: Names of the others.
            path: The source; may be a template.

        Raises:
            OptionError: As `check` raises it.
            SchemaHintError: The hints cannot be read.
        """
        tags = {name: "row" for name in templates if name.lower() == "rowtag"}
        parsed = self.parsed({**plain, **tags}, path)
        values_of(TaskSinkOptions, {name.lower(): option_text(plain[name]) for name in plain})
        if parsed.schema_hints:
            check_hints(parsed.schema_hints)

    def require_files(self, why: str) -> None:
        """Refuse what is for streams of files, which this is.

        Args:
            why: What is refused and what to do, in sentences.

        Raises:
            OptionError: The source is something else.
        """

    def batch(self, given: object) -> object:
        """Choose which batch a run ingests: the one that a sensor has left."""
        return given

    def dataset(self, report: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - files have none
        """Describe the source for lineage, as far as its kind and the report of a run tell.

        Its location may have a pattern.
        """
        return {"is_source": True}


class TableSource(_OfFormat):
    """A Delta table, whose log says what is new. It is asked what a `FileSource` is."""

    records_arrivals = False
    shown = ("rows", "batches", "versions", "source_version", "target_version", "warnings")

    def check(self, options: Mapping[str, object], path: str) -> None:  # noqa: ARG002 - any table
        """Check the options."""
        check_names(options)

    def check_at_parse(
        self,
        plain: Mapping[str, object],
        templates: Collection[str],  # noqa: ARG002 - no option needs another
        path: str,
    ) -> None:
        """Check the options that are known when a DAG is parsed."""
        self.check({name: plain[name] for name in plain if name.lower() not in ARGUMENTS}, path)

    def require_files(self, why: str) -> None:
        """Refuse it."""
        raise OptionError(why)

    def batch(self, given: object) -> object:  # noqa: ARG002 - any is the same
        """Ingest all versions, whatever a sensor has seen."""
        return None

    def dataset(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Name its layer, which version was read last, and how many rows it gave."""
        version = report.get("last_version")
        return {
            "layer": "delta",
            "version": None if version is None else str(version),
            "rows": report.get("rows"),
        }


Source: TypeAlias = FileSource | TableSource
"""What a stream reads."""


def is_table(format: str) -> bool:  # noqa: A002 - Spark's word
    """Tell whether a format is that of a Delta table."""
    return format.lower() in _OF_TABLES


def source_of(format: str) -> Source:  # noqa: A002 - Spark's word
    """Tell what a stream reads by its format."""
    return (TableSource if is_table(format) else FileSource)(format)
