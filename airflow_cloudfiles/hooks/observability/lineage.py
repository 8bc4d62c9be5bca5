"""Name the datasets that a task reads and writes as OpenLineage does, and count them.

Plain values, made of the arguments of a task and the report of its run: nothing is read for them.
`operator_lineage` makes of them what Airflow's OpenLineage provider takes. The provider is an
extra, and calls the operators' methods itself. So its classes, and those of its client, are
imported when it does, and never when a DAG is parsed.

A dataset is named by where it is, so that what other tools say of it meets what we say: `s3://`,
`gs://` or `abfss://` with the bucket or container, or `file`, and the path. Of a source with a
pattern it is the folder above the pattern. A table of an Iceberg catalog is named by its catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.discovery.globs import split_pattern
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.schema.ddl_grammar import names_and_types
from airflow_cloudfiles.engine.source import source_of
from airflow_cloudfiles.engine.storage import normalize_uri
from airflow_cloudfiles.engine.storage.uri import local_path
from airflow_cloudfiles.engine.target import target_of
from airflow_cloudfiles.hooks.arguments import StreamArguments
from airflow_cloudfiles.hooks.cloud_files import is_absolute

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

_MERGED: Final = ("inserted_rows", "updated_rows", "deleted_rows")
_PARQUET: Final = "parquet"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageDataset:
    """A dataset, and what a run has read or written of it.

    Attributes:
        namespace: The data source that it is in.
        name: Its name there.
        layer: `delta` or `iceberg`; `None` for a folder of files.
        version: Of a table, which version was read or written; `None` if that is not known.
        columns: Names and types, in DDL; empty if they are not known.
        rows: How many were read or written; `None` if that is not known, as the next two.
        files: How many files were read.
        bytes: How many bytes they have.
    """

    namespace: str
    name: str
    layer: str | None = None
    version: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What a task reads and writes."""

    inputs: list[LineageDataset] = field(default_factory=list)
    outputs: list[LineageDataset] = field(default_factory=list)


def ingested(stream: StreamArguments, report: Mapping[str, Any] | None) -> Lineage:
    """List what an ingestion reads and writes.

    Args:
        stream: The stream; a relative location gives no dataset.
        report: Of the run; `None` when there is none (yet). That of a failed run may lack anything.
    """
    known = report or {}
    columns = _columns(known)
    source = _named(
        stream.source,
        files=_count(known, "files"),
        bytes=_count(known, "bytes"),
        **source_of(stream.format).dataset(known),
    )
    target = _named(
        stream.target or "",
        layer=target_of(stream.target or "").layer,
        version=_version(known, "target_version"),
        columns=columns,
        rows=_written(known),
    )
    return Lineage(inputs=source, outputs=target)


def inferred(stream: StreamArguments, report: Mapping[str, Any] | None) -> Lineage:
    """List what an inference reads: the source, whose schema is known then. It writes no table.

    Args:
        stream: The stream; a relative location gives no dataset.
        report: Of the run; `None` when there is none (yet).
    """
    known = report or {}
    source = _named(
        stream.source,
        is_source=True,
        columns=_columns(known),
        files=_count(known, "sampled_files"),
        bytes=_count(known, "sampled_bytes"),
    )
    return Lineage(inputs=source)


def dataset_name(location: str, *, is_source: bool = False) -> tuple[str, str] | None:
    """Derive namespace and name of a location, by the naming rules of OpenLineage.

    Args:
        location: Path or URI.
        is_source: Whether it may have a pattern, which is left out with what follows it.

    Returns:
        `None` for what has no such name: a relative location, or no location. What may hold a
        credential is not in a name: in a cloud, a query (`?sig=…`) and a user with a password.
    """
    if not is_absolute(location):
        return None
    try:
        table = target_of(location.partition("?")[0])
        if table.identifier is not None:
            catalog, identifier = table.identifier
            return f"{table.layer}://{catalog}", ".".join(identifier)
        folder = split_pattern(location)[0] if is_source else location
        uri = normalize_uri(folder)
    except OptionError:
        return None
    if uri.startswith("file://"):
        return "file", local_path(uri)
    scheme, _, rest = uri.partition("?")[0].partition("://")
    authority, _, path = rest.partition("/")
    if ":" in authority.rpartition("@")[0]:
        return None
    return f"{scheme}://{authority}", path.rstrip("/") or "/"


def _named(location: str, *, is_source: bool = False, **details: Any) -> list[LineageDataset]:
    """Name the dataset at a location, if any."""
    found = dataset_name(location, is_source=is_source)
    return [LineageDataset(namespace=found[0], name=found[1], **details)] if found else []


def _columns(report: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(names_and_types(str(report.get("schema") or "")))


def _version(report: Mapping[str, Any], name: str) -> str | None:
    found = report.get(name)
    return None if found is None else str(found)


def _count(report: Mapping[str, Any], name: str) -> int | None:
    found = report.get(name)
    return None if found is None else int(found)


def _written(report: Mapping[str, Any]) -> int | None:
    """Count the rows that were written; those that a merge has inserted, updated or deleted."""
    merged = [int(report[name]) for name in _MERGED if name in report]
    return sum(merged) if merged else _count(report, "rows")


def operator_lineage(found: Callable[[], Lineage]) -> OperatorLineage[Any, Any] | None:
    """Make what the provider takes; `None` where that fails: no task fails by its lineage.

    Args:
        found: Says what the task reads and writes.
    """
    try:
        return _operator_lineage(found())
    except Exception:  # noqa: BLE001 - whatever it is, the task is not to fail by it
        _log.warning("OpenLineage gets no datasets of this task.", exc_info=True)
        return None


def _operator_lineage(lineage: Lineage) -> OperatorLineage[Any, Any]:
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415
    from openlineage.client.event_v2 import InputDataset, OutputDataset  # noqa: PLC0415

    return OperatorLineage(
        inputs=[
            InputDataset(**_common(each), inputFacets=_input_facets(each))
            for each in lineage.inputs
        ],
        outputs=[
            OutputDataset(**_common(each), outputFacets=_output_facets(each))
            for each in lineage.outputs
        ],
    )


def _common(dataset: LineageDataset) -> dict[str, Any]:
    """Build what inputs and outputs have in common."""
    return {"namespace": dataset.namespace, "name": dataset.name, "facets": _facets(dataset)}


def _facets(dataset: LineageDataset) -> dict[str, Any]:
    """Build the facets that every dataset has."""
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset, storage_dataset  # noqa: PLC0415

    facets: dict[str, Any] = {}
    if dataset.columns:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(
            fields=[
                schema_dataset.SchemaDatasetFacetFields(name=name, type=kind)
                for name, kind in dataset.columns
            ]
        )
    if dataset.layer:
        facets["storage"] = storage_dataset.StorageDatasetFacet(
            storageLayer=dataset.layer, fileFormat=_PARQUET
        )
    if dataset.version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=dataset.version
        )
    return facets


def _input_facets(dataset: LineageDataset) -> dict[str, Any]:
    """Build the facet that says how much was read."""
    from openlineage.client.facet_v2 import input_statistics_input_dataset  # noqa: PLC0415

    if dataset.rows is None and dataset.files is None and dataset.bytes is None:
        return {}
    return {
        "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            rowCount=dataset.rows, size=dataset.bytes, fileCount=dataset.files
        )
    }


def _output_facets(dataset: LineageDataset) -> dict[str, Any]:
    """Build the facet that says how much was written."""
    from openlineage.client.facet_v2 import output_statistics_output_dataset  # noqa: PLC0415

    if dataset.rows is None:
        return {}
    return {
        "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=dataset.rows
        )
    }
