"""Give Airflow's OpenLineage provider what a task reads and writes.

The provider is an extra, and calls the operators' methods itself. So its classes, and those of its
client, are imported when it does, and never when a DAG is parsed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_cloudfiles.hooks.observability.lineage import Lineage, LineageDataset

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

_PARQUET = "parquet"
_log = logging.getLogger(__name__)


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
            InputDataset(**_named(each), inputFacets=_input_facets(each)) for each in lineage.inputs
        ],
        outputs=[
            OutputDataset(**_named(each), outputFacets=_output_facets(each))
            for each in lineage.outputs
        ],
    )


def _named(dataset: LineageDataset) -> dict[str, Any]:
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
