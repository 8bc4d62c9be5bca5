"""Merge the batches of any streaming query into a Delta table.

`query.writeStream.foreachBatch(merge_into(path, keys=["id"]))`: each micro-batch is one merge,
which the table remembers by the stream and the number of the batch. A batch that Spark repeats,
after a crash for instance, is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow_cloudfiles.engine.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"
"""Local property in which Spark has the id of the query that calls `foreachBatch`."""


def merge_into(  # noqa: PLR0913 - what a merge is
    target: str,
    *,
    keys: Sequence[str],
    order_by: str | None = None,
    delete_when: str | None = None,
    when_matched: Literal["update", "delete", "ignore"] = "update",
    when_not_matched: Literal["insert", "ignore"] = "insert",
    null_keys: Literal["fail", "insert"] = "fail",
    merge_schema: bool = False,
    app_id: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Make the function for `foreachBatch` that merges each batch into a Delta table, once.

    A row updates the row of the table that has the same keys, or else is inserted (SCD type 1).
    The session must have been given to `register`.

    Args:
        target: Path or URI of the table; created when absent.
        keys: Columns that identify a row.
        order_by: Column whose greatest value is the newest state of a row. Of several rows of a
            batch with the same keys the newest is merged, and a row older than the table's changes
            nothing. Without it, a batch with two rows of the same keys fails.
        delete_when: Predicate such as `op = 'D'`; rows for which it is true delete the row with
            their keys, and are not inserted.
        when_matched: What the other rows do to a row with the same keys.
        when_not_matched: What they do where there is none.
        null_keys: Whether a row with a null among its keys fails the batch, or is inserted.
        merge_schema: Whether columns that the table lacks are added to it.
        app_id: Name under which the table remembers the batches; default: the id of the query,
            which its checkpoint keeps. Over Spark Connect it must be given.
        options: More options of the sink, such as `targetFileSize`.

    Returns:
        The function. It raises `OptionError` where `app_id` is needed, and `SinkError` or another
        `CloudFilesError` where the table does not take the rows; nothing is merged then.

    Raises:
        OptionError: There are no keys, or one cannot be named in an option.
    """
    if isinstance(keys, str) or not keys or any(not key or "," in key for key in keys):
        raise OptionError(f"keys must be a list of names of columns, without commas, got {keys!r}.")
    given = {
        "mergeKeys": ",".join(keys),
        "mergeOrderBy": order_by,
        "mergeDeleteWhen": delete_when,
        "mergeWhenMatched": when_matched,
        "mergeWhenNotMatched": when_not_matched,
        "mergeNullKeys": null_keys,
        "mergeSchema": str(merge_schema).lower(),
        **(options or {}),
    }
    texts = {name: value for name, value in given.items() if value is not None}

    def merge(frame: DataFrame, batch: int) -> None:
        writer = frame.write.format("deltalake").mode("append").options(**texts)
        app = app_id or _query_id(frame)
        writer.option("txnAppId", app).option("txnVersion", str(batch)).save(target)

    return merge


def _query_id(frame: DataFrame) -> str:
    """Find the id of the query that this is a batch of."""
    session: Any = frame.sparkSession
    context = getattr(session, "sparkContext", None) if hasattr(session, "_jsparkSession") else None
    found = None if context is None else context.getLocalProperty(_QUERY_ID)
    if not found:
        raise OptionError(
            "merge_into does not know which query the batch is of. Give app_id, a name that no "
            "other stream into this table uses."
        )
    return str(found)
