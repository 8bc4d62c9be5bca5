"""Tell the source where its state is.

Spark tells a Python source its options, but not the `checkpointLocation` of the query that runs
it, nor where its rows go. So `load()` gives the source the name of a file to look at, and `start()`
writes the locations there before Spark starts the query. The planning process takes the file away
when it has read it; `start()` waits for that, so that one DataFrame may be started several times.

The file lies in a directory that only this user can enter, and holds locations, nothing secret.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from airflow_cloudfiles.engine.stream.locations import QueryLocations


@cache
def process_folder() -> Path:
    """Make a temporary directory of this process that only this user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="airflow-cloudfiles-"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def new_token() -> str:
    """Name a hand-over; the name is the path of its file."""
    return str(process_folder() / uuid.uuid4().hex)


def put(token: str, value: Mapping[str, Any]) -> None:
    """Hand over a JSON object to whoever holds the token."""
    draft = Path(f"{token}.draft")
    draft.write_text(json.dumps(value), encoding="utf-8")
    draft.rename(token)


def receive(token: str) -> QueryLocations | None:
    """Take what was handed over; `None` when nothing was."""
    found = take(token)
    return None if found is None else QueryLocations(**found)


def take(token: str) -> dict[str, Any] | None:
    """Take a JSON object that was handed over; `None` when none was."""
    path = Path(token)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    path.unlink(missing_ok=True)
    found: dict[str, Any] = json.loads(text)
    return found


def is_received(token: str) -> bool:
    """Tell whether what was handed over has been taken."""
    return not Path(token).exists()


def withdraw(token: str) -> None:
    """Take back what was handed over, if it is still there."""
    Path(token).unlink(missing_ok=True)
