"""How does the shared Spark end, also when it does not end by itself?"""

from __future__ import annotations

import faulthandler
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

STOP_SECONDS = 60


def stop_spark(
    session: SparkSession, kill: Callable[[], None], seconds: float = STOP_SECONDS
) -> bool:
    """Stop a session; have its JVM killed when that takes too long.

    All tests have ended then: that Spark hangs is said, and fails none of them.

    Returns:
        Whether it ended by itself.
    """
    failures: list[Exception] = []

    def stop() -> None:
        try:
            session.stop()
        except Exception as failure:  # noqa: BLE001 - raised below, unless the JVM was killed
            failures.append(failure)

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    stopping.join(seconds)
    if not stopping.is_alive():
        if failures:
            raise failures[0]
        return True
    print(f"Spark did not stop in {seconds:g} s and is killed:", file=sys.__stderr__)
    faulthandler.dump_traceback(sys.__stderr__)
    kill()
    stopping.join(seconds)
    return False
