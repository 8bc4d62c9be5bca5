"""What of a session do queries from Delta tables need to know?

Spark tells a Python source its options only. So for the sources `delta` and `deltalake`,

1. `readStream...load()` says that the read is a stream, and raises our errors as themselves;
2. `writeStream...start()` tells each of them where the checkpoint of the query is, which of its
   sources it is, and what Delta's SQL configurations allow (`handoff`). Where Spark cannot reach
   the checkpoint location, it gets a local one that is mirrored there (`checkpoint_mirror`);
3. `read...load()` passes on `spark.databricks.delta.checkLatestSchemaOnRead`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.errors.exceptions.base import PySparkException

from airflow_cloudfiles.engine import errors
from airflow_cloudfiles.engine.delta.stream.changes import PREFIX
from airflow_cloudfiles.engine.spark import checkpoint_mirror, handoff
from airflow_cloudfiles.engine.spark.tables.source import CHECK_CONF, CHECK_OPTION
from airflow_cloudfiles.engine.spark.tables.stream_reader import IS_STREAM, TOKEN

_RECEIVE_SECONDS = 60.0


def load_stream(original: Callable[..., Any], reader: Any, call: dict[str, Any]) -> Any:
    """`DataStreamReader.load` of a Delta table.

    Args:
        original: PySpark's own method.
        reader: The reader.
        call: The arguments of the call.
    """
    reader.option(IS_STREAM, "true").option(TOKEN, handoff.new_token())
    try:
        frame = original(reader, **call)
        # Spark resolves the source only when it is asked for the schema.
        frame.schema  # noqa: B018
    except PySparkException as error:
        raise (errors.from_text(str(error)) or error) from None
    return frame


def load_batch(original: Callable[..., Any], reader: Any, args: Any, kwargs: Any) -> Any:
    """`DataFrameReader.load` of a Delta table."""
    check = reader._spark.conf.get(CHECK_CONF, None)  # noqa: SLF001
    if check is not None:
        reader.option(CHECK_OPTION, check)
    return original(reader, *args, **kwargs)


def started(
    start: Callable[[str | None], Any],
    spark: Any,
    leaves: list[dict[str, str]],
    checkpoint: str | None,
) -> Any:
    """Start a query, and wait until its Delta sources know where its state is.

    Args:
        start: Starts it, with a folder in place of the checkpoint location if one is given.
        spark: The session.
        leaves: The options of its streaming sources, in their order.
        checkpoint: Its checkpoint location, if it is known.
    """
    tokens = list(_tokens(leaves))
    if not tokens or checkpoint is None:
        return start(None)
    # A source of files publishes the checkpoint itself.
    only_ours = len(tokens) == len(leaves)
    for_spark, mirror = (
        checkpoint_mirror.for_spark(spark, checkpoint) if only_ours else (checkpoint, None)
    )
    settings = {
        key: value
        for key, value in spark.conf.getAll.items()
        if key.lower().startswith(PREFIX.lower())
    }
    place = {
        "checkpoint": checkpoint,
        "settings": settings,
        "mirror": None if mirror is None else str(mirror.folder),
    }
    try:
        for token, ordinal in tokens:
            handoff.put(token, {**place, "ordinal": ordinal})
        query = start(for_spark if for_spark != checkpoint else None)
        if mirror is not None:
            checkpoint_mirror.follow(query, mirror)
        _wait(query, [token for token, _ in tokens])
    except BaseException:
        if mirror is not None:
            mirror.finish()
        raise
    finally:
        for token, _ in tokens:
            handoff.withdraw(token)
    return query


def _wait(query: Any, tokens: list[str]) -> None:
    """Wait until all sources have taken what was handed over."""
    deadline = time.monotonic() + _RECEIVE_SECONDS
    while query.isActive and time.monotonic() < deadline:
        if all(map(handoff.is_received, tokens)):
            return
        time.sleep(0.01)


def _tokens(leaves: list[dict[str, str]]) -> Iterator[tuple[str, int]]:
    """The sources that track schemas, and their numbers; a frame that is used twice is one."""
    seen: list[str] = []
    for place, options in enumerate(leaves):
        token = options.get(TOKEN.lower())
        name = token or f"source {place}"
        if name not in seen:
            seen.append(name)
            if token:
                yield token, len(seen) - 1
