"""What must hold in every cloud of setting up the one queue of an event log, and removing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.event_log.collector import EventCollector
from airflow_cloudfiles.engine.extensions.event_log.description import (
    list_event_log,
    set_up_event_log,
    tear_down_event_log,
)
from airflow_cloudfiles.engine.extensions.event_log.log import EventLog

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage.access import Access


def goes_without_a_trace(
    location: str,
    source: str,
    name: str,
    access: Access,
    tell: Callable[[EventLog], None],
    **details: Any,
) -> None:
    """Set up, drain one message, set up again, list, tear down, and set up anew.

    Args:
        location: Where the log is to be.
        source: The bucket.
        name: Of the set-up.
        access: How it is reached.
        tell: Sends the message of a new file `in/a` into the queue of a log.
        details: As of `set_up_event_log`.
    """
    set_up_event_log(location, source, name, access=access, dry_run=True, **details)
    with pytest.raises(OptionError, match="no event log"):
        EventLog.open(location, access)
    made = set_up_event_log(location, source, name, access=access, **details)
    assert made.is_complete
    log = EventLog.open(location, access)
    assert made.options == {
        "cloudFiles.useManagedFileEvents": "true",
        "cloudFiles.fileEventsLocation": log.store.uri,
    }
    tell(log)
    report = EventCollector(log, access).collect()
    assert (report.received, report.deleted) == (1, 1)
    assert [each.path for each in log.read(0)] == ["in/a"]
    again = set_up_event_log(location, source, name, access=access, **details)
    assert {part.done for part in again.parts} == {"found"}
    found, listed = list_event_log(location, access=access, **details)
    assert found == log.description
    assert [(each.name, each.options, each.is_complete) for each in listed] == [
        (name, made.options, True)
    ]
    gone = tear_down_event_log(location, source, name, access=access, **details)
    assert {part.done for part in gone.parts} == {"removed"}
    with pytest.raises(OptionError, match="no event log"):
        list_event_log(location, access=access, **details)
    set_up_event_log(location, source, name, access=access, **details)
    anew = EventLog.open(location, access)
    assert (anew.description.id != log.description.id, anew.end()) == (True, 1)
