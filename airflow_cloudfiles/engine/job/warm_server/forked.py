"""What does a process do that a warm Spark has forked?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.job.fork_server import run, take_over
from airflow_cloudfiles.engine.processes import die_with_parent

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.job.warm_server.service import Fork


def become(fork: Fork) -> int:
    """Be a driver, or a Python process of Spark, to its end.

    Returns:
        Its exit code, where it does not end by itself.
    """
    die_with_parent()
    os.umask(fork.umask)
    if not fork.is_run:
        # PySpark's daemon forks workers. One that is stuck would outlive it.
        os.register_at_fork(after_in_child=die_with_parent)
        return run(fork.request)
    os.setsid()
    take_over(fork.request)
    from airflow_cloudfiles.engine.job.__main__ import main  # noqa: PLC0415

    return main(fork.request.arguments)
