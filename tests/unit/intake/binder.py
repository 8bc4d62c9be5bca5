"""A real process that takes states for its source: `python binder.py SOURCE STATE...`.

It says `ready`, waits for a line, and prints for each state whether it was refused.
"""

from __future__ import annotations

import sys

from airflow_cloudfiles.engine.errors import StateConflictError
from airflow_cloudfiles.engine.intake.intake import Intake


def discovers(source: str, state: str) -> bool:
    """Discover twice, as two runs do; false where the state is another source's."""
    try:
        for _ in range(2):
            intake = Intake.open(source=source, format="json", checkpoint_location=state)
            try:
                intake.discover()
            finally:
                intake.close()
    except StateConflictError:
        return False
    return True


if __name__ == "__main__":
    print("ready", flush=True)  # noqa: T201 - tells the test that it runs
    sys.stdin.readline()
    print([int(discovers(sys.argv[1], state)) for state in sys.argv[2:]])  # noqa: T201
