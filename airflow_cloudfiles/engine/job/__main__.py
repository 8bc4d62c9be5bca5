"""`python -m airflow_cloudfiles.engine.job <state> <run id>`: carry out one run.

The same file is what `spark-submit` submits. It exits with 1 when the run failed, else with 0;
either way the report is beside the state.
"""

from __future__ import annotations

import atexit
import gc
import json
import logging
import os
import sys

_ARGUMENTS = (3, 4)
_TRANSFORMS = "CLOUDFILES_TRANSFORMS"  # as in `spec`, which is imported after pandas is hidden


def main(arguments: list[str]) -> int:
    """Read the specification that the arguments name, carry it out, say how it went."""
    if len(arguments) not in _ARGUMENTS:
        usage = "usage: python -m airflow_cloudfiles.engine.job STATE_URI RUN_ID [FUNCTION]"
        print(usage, file=sys.stderr)  # noqa: T201
        return 2
    if not __package__:
        # spark-submit runs this file as a script, with its folder in front of everything.
        sys.path.pop(0)
    from airflow_cloudfiles.engine.job.spark_command import (  # noqa: PLC0415
        LAUNCHED,
        WITHOUT_SPARK,
    )
    from airflow_cloudfiles.engine.spark.preload import hide_pandas  # noqa: PLC0415

    launched = os.environ.get(LAUNCHED)
    is_local = launched == "local"
    if launched in {"local", WITHOUT_SPARK} and _TRANSFORMS not in os.environ:
        hide_pandas()
    gc.disable()  # of what is imported nothing is garbage
    from airflow_cloudfiles.engine import crashpoints  # noqa: PLC0415
    from airflow_cloudfiles.engine.job import run as job  # noqa: PLC0415
    from airflow_cloudfiles.engine.job.batch_function import with_function  # noqa: PLC0415
    from airflow_cloudfiles.engine.job.spec import BESIDE, SPEC, JobSpec  # noqa: PLC0415
    from airflow_cloudfiles.engine.spark import forked_python, handoff  # noqa: PLC0415
    from airflow_cloudfiles.engine.storage import open_store  # noqa: PLC0415

    gc.freeze()  # pages that the collector does not touch stay shared
    gc.enable()
    daemon = forked_python.fork_early() if is_local else None
    logging.basicConfig(
        level=os.environ.get("CLOUDFILES_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    crashpoints.be_the_driver()
    state, run_id, *function = arguments[1:]
    handed = handoff.take(f"{os.environ[BESIDE]}/{SPEC}") if BESIDE in os.environ else None
    spec = (
        JobSpec.from_json(json.dumps(handed))
        if handed
        else JobSpec.stored(open_store(state), run_id)
    )
    if function and not handed:
        spec = with_function(spec, *function)
    report = job.run(spec, daemon)
    return 1 if report["outcome"] == "failed" else 0


def _end(code: list[int]) -> None:
    """End this process, after all else that is done at its end, without clearing its memory.

    What Python does last waits for the threads of a Connect client, and frees a million objects.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code[0])


if __name__ == "__main__":
    code = [1]  # unless `main` returns
    atexit.register(_end, code)
    code[0] = main(sys.argv)
