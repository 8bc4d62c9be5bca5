"""Declare the arguments of tasks for a type checker.

An `__init__` names the arguments it adds and passes the others on as `**kwargs`: Airflow reads the
signature of every class on the way to its base operator. The classes that a DAG is written with
type their `**kwargs` with what is declared here once, so that a misspelt argument is an error in
an editor already. Nothing here runs: the names are imported for type checkers only.

No argument of a stream is required here. What all tasks of a DAG share may be in its
`default_args`, which no type checker sees; Airflow names what is missing when the DAG is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Required, TypeAlias, TypedDict

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from airflow.providers.common.compat.sdk import (
        DAG,
        Asset,
        Context,
        RetryPolicy,
        TaskGroup,
        XComArg,
    )

    from airflow_cloudfiles.hooks.approval import Decision
    from airflow_cloudfiles.hooks.spark import Engine

Location: TypeAlias = "str | PathLike[str] | XComArg"
"""Where something lies; templated, or what another task returns."""

AssetLocation: TypeAlias = "Location | Asset"
"""The same, or an asset with the URI of the location."""

Options: TypeAlias = "Mapping[str, object] | str | XComArg"
"""Options of a stream, or what becomes them when the task runs."""

Callback: TypeAlias = "Callable[[Context], Any]"
"""What Airflow calls about a task, such as a notifier."""


class TaskId(TypedDict):
    """The argument that every operator requires; a decorated function has its name instead."""

    task_id: Required[str]


class AirflowArguments(TypedDict, total=False):
    """Airflow's own arguments of an operator, but for `task_id`, and `retries` with its default.

    Those of Airflow 3.1 to 3.3; `retry_policy` and `render_template_as_native_obj` are 3.3's.
    """

    owner: str
    email: str | Sequence[str] | None
    email_on_retry: bool
    email_on_failure: bool
    retry_delay: timedelta | float
    retry_exponential_backoff: float
    max_retry_delay: timedelta | float | None
    retry_policy: RetryPolicy | None
    start_date: datetime | None
    end_date: datetime | None
    depends_on_past: bool
    ignore_first_depends_on_past: bool
    wait_for_past_depends_before_skipping: bool
    wait_for_downstream: bool
    dag: DAG | None
    params: MutableMapping[str, Any] | None
    default_args: dict[str, Any] | None
    priority_weight: int
    weight_rule: Any
    queue: str
    pool: str | None
    pool_slots: int
    sla: timedelta | None
    execution_timeout: timedelta | None
    on_execute_callback: Callback | Collection[Callback] | None
    on_failure_callback: Callback | list[Callback] | None
    on_success_callback: Callback | Collection[Callback] | None
    on_retry_callback: Callback | list[Callback] | None
    on_skipped_callback: Callback | Collection[Callback] | None
    pre_execute: Callable[[Context], None] | None
    post_execute: Callable[[Context, Any], None] | None
    trigger_rule: str
    resources: dict[str, Any] | None
    run_as_user: str | None
    map_index_template: str | None
    max_active_tis_per_dag: int | None
    max_active_tis_per_dagrun: int | None
    executor: str | None
    executor_config: dict[str, Any] | None
    do_xcom_push: bool
    multiple_outputs: bool
    inlets: Any
    outlets: Any
    task_group: TaskGroup | None
    doc: str | None
    doc_md: str | None
    doc_json: str | None
    doc_yaml: str | None
    doc_rst: str | None
    task_display_name: str | None
    logger_name: str | None
    allow_nested_operators: bool
    render_template_as_native_obj: bool | None


class OperatorKeywords(AirflowArguments, TaskId):
    """Airflow's own arguments of an operator, but for `retries`, of which we have a default."""


class TableKeywords(OperatorKeywords, total=False):
    """The arguments of `TableTask`, but for `target`."""

    conn_id: str | None
    retries: int


class StreamOnly(AirflowArguments, total=False):
    """The arguments of `StreamTask`, but for `target` and `task_id`."""

    source: AssetLocation
    format: str
    checkpoint_location: Location
    schema_location: Location | None
    options: Options | None
    conn_id: str | None
    retries: int


class StreamKeywords(StreamOnly, TaskId):
    """The arguments of `StreamTask`, but for `target`, which some tasks require."""


class TargetKeyword(TypedDict, total=False):
    """The argument `target` of a task that does not require it."""

    target: AssetLocation | None


class ReconcileKeywords(StreamKeywords, TargetKeyword):
    """The arguments of `StreamTask`."""


class SilenceKeywords(TypedDict, total=False):
    """The arguments of `WatchedTask` besides those of `StreamTask`."""

    expected_every: timedelta | None
    on_silence: Callback | Collection[Callback] | None


class SensorKeywords(StreamKeywords, TargetKeyword, SilenceKeywords, total=False):
    """The arguments of `WatchedTask`, and Airflow's own of a sensor."""

    poke_interval: timedelta | float
    timeout: timedelta | float | None
    soft_fail: bool
    mode: str
    exponential_backoff: bool
    max_wait: timedelta | float | None
    silent_fail: bool
    never_fail: bool


class SparkOnly(StreamOnly, total=False):
    """The arguments of `CloudFilesSparkJobOperator`, but for `target` and `task_id`."""

    engine: Engine
    master: str | None
    deploy_mode: str | None
    driver_memory: str | None
    spark_conf: Mapping[str, str] | None
    spark_conn_id: str | None
    spark_remote: str | None
    packages: Sequence[str]
    files: Sequence[str]
    py_files: Sequence[str]


class InferKeywords(SparkOnly, TargetKeyword, TaskId):
    """The arguments of `CloudFilesSparkJobOperator`."""


class ParkingOnly(SparkOnly, SilenceKeywords, total=False):
    """The arguments of `ParkingSparkJobOperator` and `WatchedTask`, but for `target`, `task_id`."""

    deferrable: bool | None
    poke_interval: float
    require_approval: bool
    approval_timeout: timedelta | None
    approval_default: Decision | None


class ParkingKeywords(ParkingOnly, TaskId):
    """The arguments of `ParkingSparkJobOperator` and `WatchedTask`, but for `target`."""


class IngestKeywords(ParkingOnly, total=False):
    """The arguments of `CloudFilesIngestOperator`, of which a decorated function is one."""

    task_id: str
    target: AssetLocation
    batch: object
    write: Literal["append", "merge"]
    keys: Sequence[str]
    order_by: str | None
    delete_when: str | None
    partition_by: Sequence[str]
    metadata_columns: Sequence[str] | Mapping[str, str]
    row_rules: Mapping[str, str | tuple[str, str]] | None
    on_schema_change: Callback | Collection[Callback] | None
    on_rescued: Callback | Collection[Callback] | None
    on_lost_files: Callback | Collection[Callback] | None


class StreamFields(TypedDict, total=False):
    """The fields of `StreamArguments`, as a trigger is given them."""

    source: Required[str]
    format: Required[str]
    checkpoint_location: Required[str]
    schema_location: str | None
    target: str | None
    options: Mapping[str, object] | None
