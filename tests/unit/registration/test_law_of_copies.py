"""The rows of a table whose files are registered are those of one that has copies of them."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.support.laws import examples
from tests.support.registered import REFERENCE, Landing, multiset

pytestmark = pytest.mark.law

_TEXTS = st.sampled_from(["", "a", "ü", "x" * 40, "😀", "0001-01-01"])
_NUMBERS = st.sampled_from([0, 1, -1, 100, 127])
_FLOATS = st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])
_TIMES = st.sampled_from(
    [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC),
     datetime(1, 1, 2, tzinfo=UTC), datetime(1582, 10, 4, tzinfo=UTC)]
)  # fmt: skip
_DAYS = st.sampled_from([date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 1)])
_DECIMALS = st.sampled_from([Decimal("0.00"), Decimal("1.25"), Decimal("-99.99")])
_STRUCTS = st.fixed_dictionaries({"x": st.none() | _NUMBERS, "y": st.none() | _TEXTS})
_STRUCT = [pa.field("x", pa.int64()), pa.field("y", pa.string())]

COLUMNS: dict[str, tuple[st.SearchStrategy[Any], list[pa.DataType]]] = {
    "i": (_NUMBERS, [pa.int64(), pa.int64(), pa.int32(), pa.int8(), pa.uint8()]),
    "n": (_NUMBERS, [pa.int32(), pa.int32(), pa.int64()]),
    "s": (_TEXTS, [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]),
    "y": (_TEXTS.map(str.encode), [pa.binary(), pa.large_binary(), pa.string()]),
    "f": (_FLOATS, [pa.float64(), pa.float64(), pa.float32()]),
    "b": (st.booleans(), [pa.bool_()]),
    "t": (
        _TIMES,
        [pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ms", "UTC")],
    ),
    "w": (
        _TIMES.map(lambda each: each.replace(tzinfo=None)),
        [pa.timestamp("us"), pa.timestamp("us"), pa.timestamp("ms")],
    ),
    "d": (_DAYS, [pa.date32(), pa.date32(), pa.date64()]),
    "c": (_DECIMALS, [pa.decimal128(9, 2), pa.decimal128(9, 2), pa.decimal128(12, 2)]),
    "o": (
        _STRUCTS,
        [pa.struct(_STRUCT), pa.struct(_STRUCT), pa.struct(_STRUCT[::-1]), pa.struct(_STRUCT[:1])],
    ),
    "l": (
        st.lists(st.none() | _TEXTS, max_size=3),
        [pa.list_(pa.string()), pa.large_list(pa.string())],
    ),
    "m": (
        st.dictionaries(_TEXTS, _NUMBERS, max_size=2).map(lambda each: list(each.items())),
        [pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32())],
    ),
}  # fmt: skip
_HOW = st.fixed_dictionaries(
    {},
    optional={
        "compression": st.sampled_from(["gzip", "zstd", "none", "lz4", "brotli"]),
        "data_page_version": st.just("2.0"),
        "row_group_size": st.sampled_from([1, 2]),
        "store_decimal_as_integer": st.just(True),
        "use_compliant_nested_type": st.just(False),
        "use_deprecated_int96_timestamps": st.just(True),
        "use_dictionary": st.just(False),
        "write_statistics": st.just(False),
        "store_schema": st.just(False),
    },
)


@st.composite
def tables(draw: Callable[..., Any]) -> pa.Table:
    """Columns of any types; most of the first one that a name has, so that files fit."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5, unique=True))
    rows = draw(st.integers(0, 4))
    arrays, spelled = [], []
    is_usual = draw(st.booleans())
    for name in names:
        values, kinds = COLUMNS[name]
        kind = kinds[0] if is_usual else draw(st.sampled_from(kinds))
        found = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        if pa.types.is_unsigned_integer(kind):
            found = [None if each is None else abs(each) for each in found]
        arrays.append(pa.array(found, kind))
        is_other_case = not is_usual and draw(st.integers(0, 9)) == 0
        spelled.append(name.upper() if is_other_case else name)
    return pa.table(dict(zip(spelled, arrays, strict=True)))


FILES = st.lists(
    st.tuples(st.sampled_from(["", "p=1/", "p=2/", "p=/", "p=x y/", "q=5/"]), tables(), _HOW),
    min_size=1,
    max_size=4,
)


@given(
    files=FILES,
    later=FILES,
    partitions=st.sampled_from(["", "", "p"]),
    rescues=st.sampled_from(["addNewColumns", "rescue", "none"]),
)
@settings(max_examples=examples(45), deadline=None)
def test_the_rows_are_those_of_copies(
    files: list[Any], later: list[Any], partitions: str, rescues: str
) -> None:
    options = {"cloudFiles.schemaEvolutionMode": rescues}
    options |= {"partitionBy": partitions, "cloudFiles.partitionColumns": "p"} if partitions else {}
    with tempfile.TemporaryDirectory() as folder:
        roots = [Path(folder, name) for name in ("registered", "copied")]
        one, other = (
            Landing(root, options | more) for root, more in zip(roots, (REFERENCE, {}), strict=True)
        )
        registered = 0
        for wave, some in enumerate((files, later)):
            for number, (path, table, how) in enumerate(some):
                for stream in (one, other):
                    stream.add(f"{path}{wave}-{number}.parquet", table, **how)
            outcomes = [_outcome(stream) for stream in (one, other)]
            assert outcomes[0][0] == outcomes[1][0]
            if outcomes[0][0]:
                break
            registered += outcomes[0][1]["registered_files"]
            assert one.rows().schema == other.rows().schema
            assert multiset(one.rows(), roots[0]) == multiset(other.rows(), roots[1])
            for name in ("files", "rows", "bytes", "rescued_rows"):
                assert outcomes[0][1][name] == outcomes[1][1][name]
        event(f"registered: {min(registered, 3)}")


def _outcome(stream: Landing) -> tuple[str, dict[str, Any]]:
    """The class of the error, if there is one, and the report."""
    try:
        return "", stream.run()
    except Exception as error:  # noqa: BLE001 - whichever it is, it is the same for both
        return type(error).__name__, {}
