"""Which streams does a query read, and with which options?

Read from the logical plan of its DataFrame, which only a session with a JVM has here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATE_HANDOFF: Final = "cloudFiles.internal.token"
"""Option of a source: the token by which it is handed the checkpoint location."""
_CHECKPOINT: Final = "checkpointlocation"


def streaming_leaves(frame: DataFrame) -> int:
    """How many streams a query reads."""
    leaves = cast("Any", frame)._jdf.queryExecution().logical().collectLeaves()  # noqa: SLF001
    return sum(bool(leaves.apply(index).isStreaming()) for index in range(leaves.size()))


def tokens_of(frame: DataFrame) -> tuple[list[str], list[str]]:
    """The hand-over tokens of the cloudFiles sources in a query.

    Returns:
        Those of the sources that were not given their checkpoint location, and those of the others.
    """
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return [], []
    leaves = plan.queryExecution().logical().collectLeaves()
    tokens: list[str] = []
    located: list[str] = []
    for index in range(leaves.size()):
        options = _leaf_options(leaves.apply(index))
        token = options.get(STATE_HANDOFF.lower())
        if token:
            (located if options.get(_CHECKPOINT) else tokens).append(token)
    return list(dict.fromkeys(tokens)), list(dict.fromkeys(located))


def streaming_options(frame: DataFrame) -> list[dict[str, str]]:
    """The reader options of the streams that a query reads, in their order."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return []
    leaves = plan.queryExecution().logical().collectLeaves()
    found = [leaves.apply(index) for index in range(leaves.size())]
    return [_leaf_options(leaf) for leaf in found if leaf.isStreaming()]


def _leaf_options(leaf: Any) -> dict[str, str]:
    """The reader options of a leaf of a logical plan, keyed in lower case."""
    kind = leaf.getClass().getSimpleName()
    if kind == "UnresolvedDataSource":  # Spark 4.3
        entries = leaf.options()
        iterator = entries.iterator()
        pairs = []
        while iterator.hasNext():
            pair = iterator.next()
            pairs.append((pair.productElement(0), pair.productElement(1)))
    elif kind == "StreamingRelationV2":  # Spark 4.2
        pairs = list(dict(leaf.extraOptions().asCaseSensitiveMap()).items())
    else:
        return {}
    return {str(key).lower(): str(value) for key, value in pairs}
