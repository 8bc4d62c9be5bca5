"""Old entries of a log are packed in every cloud, and stay readable."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.state.compaction import Compaction, Folder, work_of
from airflow_cloudfiles.engine.state.numbered_log import NumberedLog
from airflow_cloudfiles.engine.storage import open_store

pytestmark = [pytest.mark.emulator]

ENTRIES = 205
AT_ONCE = -60.0
"""A grace that is over at once, whatever fractions of a second the server's clock leaves out."""


@pytest.mark.parametrize("cloud", ["aws", "azurite", "gcs"])
def test_old_entries_are_packed_and_then_removed(cloud, request):
    emulator = request.getfixturevalue(cloud)
    root = emulator.container() if cloud == "azurite" else emulator.bucket()
    store = open_store(f"{root}/state", emulator.access)

    def a_log():
        return NumberedLog(store, "log", has_all=True, is_packed=True)

    log = a_log()
    for number in range(ENTRIES):
        assert log.append(number, {"n": number})
    before = [log.read(number).id for number in range(ENTRIES)]
    for packed, removed in ((100, 0), (0, 100)):
        folder = Folder.of("log", store.list("log/"))
        work = work_of(folder, store.clock_us(), grace_seconds=AT_ONCE)
        compaction = Compaction(store, folder)
        compaction.run(work)
        assert (compaction.done.packed, compaction.done.removed) == (packed, removed)
        assert a_log().read(99).id == before[99]
    log = a_log()
    assert log.latest() == ENTRIES - 1
    assert [log.read(number).id for number in range(ENTRIES)] == before
    assert len(list(store.list("log/"))) == ENTRIES - 100 + 2
