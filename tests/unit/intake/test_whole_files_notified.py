"""A message is acknowledged when its file is recorded or noted; a marker's brings its file."""

from __future__ import annotations

import time

import pytest

from airflow_cloudfiles.engine.discovery import settling
from airflow_cloudfiles.engine.discovery.events import FileEvent
from airflow_cloudfiles.engine.discovery.queues.base import Message, WaitingMessages
from airflow_cloudfiles.engine.discovery.settling import PREFIX
from airflow_cloudfiles.engine.errors import StateUnreachableError
from airflow_cloudfiles.engine.intake.intake import Intake
from tests.unit.intake.test_whole_files import MINUTE, Stream


class ListQueue:
    """A queue in this process; a message is the name of a file."""

    name, batch_size = "queue", 10

    def __init__(self, root: str) -> None:
        self.root = root
        self.messages: dict[str, Message] = {}
        self.hidden: set[str] = set()

    def send(self, key: str) -> None:
        number = f"{time.monotonic_ns()}"
        self.messages[number] = Message(number, number, key.encode())

    def receive(self, seconds: int) -> list[Message]:
        found = [each for number, each in self.messages.items() if number not in self.hidden]
        self.hidden.update(each.id for each in found)
        return found

    def hide(self, messages, seconds: int) -> list[Message]:
        if not seconds:
            self.hidden.difference_update(each.id for each in messages)
        return []

    def delete(self, messages) -> list[Message]:
        for each in messages:
            del self.messages[each.id]
        return []

    def approximate_size(self) -> int:
        return len(self.messages)

    def look(self) -> WaitingMessages:
        return WaitingMessages(self.approximate_size())

    def parse(self, message: Message) -> list[FileEvent]:
        return [FileEvent(location=f"{self.root}/{message.body.decode()}", size=None, time_us=0)]


class Notified(Stream):
    """A stream whose files a queue announces."""

    def __init__(self, **options) -> None:
        super().__init__(use_notifications=True, queue_url="queue", **options)
        self.queue = ListQueue(self.source.uri)
        self.discover()

    def open(self, **options) -> Intake:
        intake = super().open(**options)
        intake._announced()._queue = self.queue
        return intake

    def put(self, key: str, content: bytes = b"1") -> None:
        self.source.put(key, content)
        self.queue.send(key)


def test_the_message_of_a_young_file_is_acknowledged_and_the_file_is_not_forgotten():
    stream = Notified(min_file_age_seconds=MINUTE)
    stream.put("a")
    found = stream.discover()
    assert (found.files, found.waiting.files, stream.queue.messages) == (0, 1, {})
    assert found.listing is None, "nothing is listed to find it again"
    assert not stream.open().arrivals()
    stream.source.pass_time(61)
    assert stream.open().arrivals().unrecorded
    found = stream.discover()
    assert (found.by, found.listing) == ({"notification": 1}, None)
    assert stream.recorded() == {"a": 1}
    assert not list(stream.state.list(PREFIX))


def test_a_message_stays_until_its_file_is_noted(monkeypatch):
    stream = Notified(min_file_age_seconds=MINUTE)
    stream.put("a")

    def unreachable(*_):
        raise StateUnreachableError("no answer")

    monkeypatch.setattr(settling, "keep_waiting", unreachable)
    with pytest.raises(StateUnreachableError):
        stream.discover()
    monkeypatch.undo()
    assert len(stream.queue.messages) == 1
    assert stream.discover().waiting.files == 1
    stream.source.pass_time(61)
    assert stream.discover().files == 1


@pytest.mark.parametrize("pattern", ["{name}.done", "_SUCCESS"])
@pytest.mark.parametrize("order", [("file", "marker"), ("marker", "file")], ids=str)
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
def test_the_later_of_two_messages_brings_the_file(pattern, order, at_once):
    stream = Notified(completion_marker=pattern)
    names = {"file": "in/a", "marker": f"in/{pattern.replace('{name}', 'a')}"}
    for number, what in enumerate(order):
        stream.put(names[what])
        if not at_once and not number:
            assert stream.discover().files == 0
    found = stream.discover()
    assert (found.files, found.listing, stream.queue.messages) == (1, None, {})
    stream.queue.send(names["marker"])
    stream.queue.send(names["file"])
    assert stream.discover().files == 0
    assert stream.recorded() == {"in/a": 1}


def test_a_marker_brings_a_young_file_that_then_waits():
    stream = Notified(completion_marker="{name}.done", min_file_age_seconds=MINUTE)
    stream.put("a")
    stream.discover()
    stream.put("a.done")
    assert stream.discover().waiting.reasons == {"minFileAge": 1}
    stream.source.pass_time(61)
    assert stream.discover().files == 1
