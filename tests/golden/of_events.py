"""The formats of an event log, and of a stream's place in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.extensions.event_log import description, reading
from airflow_cloudfiles.engine.extensions.event_log.description import (
    EventLogDescription,
    create_log,
    read_description,
)
from airflow_cloudfiles.engine.extensions.event_log.log import COLLECTED, EventLog, LoggedEvent
from airflow_cloudfiles.engine.extensions.event_log.reading import (
    EventPosition,
    load_position,
    save_position,
)
from airflow_cloudfiles.engine.state.file_log import FileLog
from tests.golden.kinds import ID, Format, in_store, written

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.storage import ObjectStore

QUEUE = {"cloudFiles.queueUrl": "https://sqs.us-east-1.amazonaws.com/1/q"}
DESCRIBED = EventLogDescription(id=ID, source="s3://bucket", queue=QUEUE)
EVENTS = [
    LoggedEvent("created", "in/é 1.json", 60, 1_767_225_600_000_000, "e-1", "0055AED6DCD90281E5"),
    LoggedEvent("renamed", 'in/"2".json', 0, -1, "", ""),
]
ENTRY = f"events/{0:020}"


def _log(store: ObjectStore) -> EventLog:
    return EventLog(store, DESCRIBED)


def _collected(store: ObjectStore) -> None:
    for _ in range(3):
        _log(store).append(EVENTS)
    _log(store).mark_collected()


OF_LOG = [
    Format(
        name="event_log",
        keys=r"event-log\.json",
        write=lambda: written(
            description.KEY, lambda store: create_log(store, "s3://bucket", QUEUE), id=ID
        ),
        read=in_store(description.KEY, read_description),
        expected=DESCRIBED,
    ),
    Format(
        name="events",
        keys=r"events/[0-9]{20}",
        write=lambda: written(ENTRY, lambda store: _log(store).append(EVENTS)),
        read=in_store(ENTRY, lambda store: list(_log(store).read(0))),
        expected=EVENTS,
    ),
    Format(
        name="events_collected",
        keys=r"events/collected",
        write=lambda: written(COLLECTED, _collected),
        read=in_store(COLLECTED, lambda store: _log(store).hint()),
        expected=2,
        newer="passed over",
        nothing=0,
    ),
]

OF_STREAM = [
    Format(
        name="event_position",
        keys=r"_source/events\.json",
        write=lambda: written(
            reading.KEY, lambda store: save_position(store, EventPosition(ID, 7))
        ),
        read=in_store(reading.KEY, lambda store: load_position(store, FileLog(store), ID)),
        expected=7,
        newer="passed over",
    ),
]
