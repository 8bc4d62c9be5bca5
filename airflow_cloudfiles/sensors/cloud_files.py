"""Have files arrived that are not ingested yet?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseSensorOperator, PokeReturnValue

from airflow_cloudfiles.engine.errors import UnsupportedOptionError
from airflow_cloudfiles.hooks.arguments import StreamArguments, check_at_parse
from airflow_cloudfiles.hooks.cloud_files import CloudFilesHook
from airflow_cloudfiles.hooks.task import set_retry_defaults, task_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.providers.common.compat.sdk import Context


class CloudFilesSensor(BaseSensorOperator):
    """Wait until a folder holds files that its stream has not ingested.

    Each poke lists the source and appends what is new to the stream's file log. It succeeds as
    soon as anything is outstanding, also files that an earlier run found and did not ingest. It
    starts no Spark, and a file it found is found once, however often it is poked.

    Args:
        source: The folder the files land in. (templated)
        format: The format of the files, for instance `json`.
        checkpoint_location: Where the state of the stream lives. (templated)
        schema_location: Where the schema log lives; the checkpoint location when left out.
            (templated)
        target: The table the rows go to; never taken for a source when it is below it.
            (templated)
        options: `cloudFiles.*` and format options, under Auto Loader's names. (templated)
        conn_id: Connection of type *File (path)* that relative locations are below.
        deferrable: Not in this version; use `mode="reschedule"` to free the worker slot.
        kwargs: Airflow's own arguments of a sensor (`poke_interval`, `timeout`, `mode`, …).
            `retries` is 3 unless you say otherwise.

    Returns:
        XCom: `{"checkpoint_location", "first_entry", "last_entry", "files", "bytes", "sample"}`:
        a reference to the batch, small however many files it has.
    """

    template_fields: Sequence[str] = (
        "source",
        "checkpoint_location",
        "schema_location",
        "target",
        "options",
    )
    template_fields_renderers = {"options": "json"}  # noqa: RUF012 - Airflow declares it so
    ui_color = "#d9ecf7"

    def __init__(  # noqa: PLR0913 - a task's arguments are its interface
        self,
        *,
        source: str,
        format: str,  # noqa: A002 - Spark's word
        checkpoint_location: str,
        schema_location: str | None = None,
        target: str | None = None,
        options: Mapping[str, object] | None = None,
        conn_id: str | None = None,
        deferrable: bool = False,
        **kwargs: Any,
    ) -> None:
        if deferrable:
            raise UnsupportedOptionError(
                "CloudFilesSensor(deferrable=True) is not in this version. Use mode='reschedule', "
                "which frees the worker slot between pokes too."
            )
        check_at_parse(source=source, format=format, options=options)
        set_retry_defaults(kwargs, heals=False)
        super().__init__(**kwargs)
        self.source = source
        self.format = format
        self.checkpoint_location = checkpoint_location
        self.schema_location = schema_location
        self.target = target
        self.options = options
        self.conn_id = conn_id

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002 - Airflow's signature
        """Discover once; done when anything is outstanding."""
        stream = StreamArguments(
            source=self.source,
            format=self.format,
            checkpoint_location=self.checkpoint_location,
            schema_location=self.schema_location,
            target=self.target,
            options=self.options or {},
        )
        with task_errors():
            batch = CloudFilesHook(self.conn_id).discover(stream)
        if batch is None:
            self.log.info("Nothing to ingest below %s.", self.source)
            return PokeReturnValue(is_done=False)
        self.log.info("%s files (%s bytes) to ingest.", batch["files"], batch["bytes"])
        return PokeReturnValue(is_done=True, xcom_value=batch)
