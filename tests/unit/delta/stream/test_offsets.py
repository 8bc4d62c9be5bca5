"""An offset is Delta's own JSON, and one that cannot be right is refused."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cloudfiles.engine.errors import (
    CorruptedStateError,
    IncompatibleStateError,
    StateConflictError,
)
from airflow_cloudfiles.engine.tables.delta.stream.commits import (
    AFTER_CHANGE,
    BEGIN,
    CHANGE,
    TableOffset,
    check_order,
)

WRITTEN = {
    "sourceVersion": 1,
    "reservoirId": "id",
    "reservoirVersion": 7,
    "index": -1,
    "isStartingVersion": False,
}


@pytest.mark.parametrize(
    ("offset", "version", "index"),
    [
        (TableOffset("id", 7), 1, -1),
        (TableOffset("id", 7, 3), 1, 3),
        (TableOffset("id", 7, 3, is_initial=True), 1, 3),
        (TableOffset("id", 7, CHANGE), 3, -20),
        (TableOffset("id", 7, AFTER_CHANGE), 3, -19),
    ],
)
def test_offsets_are_written_as_delta_does(offset: TableOffset, version: int, index: int) -> None:
    written = offset.to_json()
    assert (written["sourceVersion"], written["index"]) == (version, index)
    assert list(written) == list(WRITTEN)
    assert TableOffset.from_json(written, "id", "t") == offset


def test_the_begin_of_a_version_is_read_in_both_of_its_forms() -> None:
    for form in ({**WRITTEN}, {**WRITTEN, "sourceVersion": 3, "index": BEGIN}):
        assert TableOffset.from_json(form, "id", "t") == TableOffset("id", 7)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"sourceVersion": 4}, IncompatibleStateError),
        ({"sourceVersion": 2}, CorruptedStateError),
        ({"sourceVersion": 0}, CorruptedStateError),
        ({"sourceVersion": "1"}, CorruptedStateError),
        ({"sourceVersion": None}, CorruptedStateError),
        ({"reservoirVersion": "7"}, CorruptedStateError),
        ({"index": None}, CorruptedStateError),
        ({"index": CHANGE}, CorruptedStateError),
        ({"reservoirId": "another"}, StateConflictError),
    ],
)
def test_offsets_that_cannot_be_right_are_refused(
    change: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        TableOffset.from_json({**WRITTEN, **change}, "id", "t")


def test_a_batch_does_not_move_back() -> None:
    at = TableOffset("id", 7, 3)
    check_order(at, at, "t")
    check_order(TableOffset("id", 9, 3, is_initial=True), at, "t")
    for end in (
        TableOffset("id", 6, 9),
        TableOffset("id", 7, 2),
        TableOffset("id", 8, 0, is_initial=True),
    ):
        with pytest.raises(CorruptedStateError):
            check_order(at, end, "t")
