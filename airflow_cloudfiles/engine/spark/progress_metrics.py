"""Show the metrics of a source where Spark documents them: `lastProgress["sources"][0]["metrics"]`.

Spark takes none from a source in Python, so ours gives them with its newest offset
(`CloudFilesStreamReader.reportLatestOffset`).
"""

from __future__ import annotations

import functools
import json
from typing import Any, Final

_METRICS: Final = (
    "numFilesOutstanding",
    "numBytesOutstanding",
    "isBacklogComputationComplete",
    "approximateQueueSize",
)


@functools.cache
def show_metrics() -> None:
    """Have the progress of queries and of their listeners show them; once a process."""
    from pyspark.sql.streaming.listener import SourceProgress  # noqa: PLC0415

    original = SourceProgress.__init__

    @functools.wraps(original)
    def with_metrics(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self["metrics"] = self["metrics"] or _metrics_in(self["latestOffset"])

    SourceProgress.__init__ = with_metrics  # type: ignore[method-assign]


def _metrics_in(offset: str) -> dict[str, str]:
    """The metrics that our source has put beside an offset; none beside another's."""
    if f'"{_METRICS[0]}"' not in offset:
        return {}
    found = json.loads(offset)
    return {name: found[name] for name in _METRICS if name in found}
