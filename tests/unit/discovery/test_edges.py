"""Where does a tree grow? What would be found there, and what it costs to look."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.discovery.listing.edges import (
    MAX_EDGES,
    MAX_LOOSE_FILES,
    EdgeRanges,
    KeyRange,
    plan_edges,
)
from airflow_cloudfiles.engine.storage.base import key_bytes
from tests.support.discovery.known import Known


def edges(paths, prefix="") -> EdgeRanges:
    found = plan_edges(Known(paths), prefix, key_bytes)
    assert found is not None
    return found


def days(count, start=1):
    return [f"dt=2024-01-{day:02d}" for day in range(start, start + count)]


def files(folder, count, start=0):
    return [f"{folder}/part-{n:05d}.json" for n in range(start, start + count)]


def test_nothing_known_has_no_edges():
    assert plan_edges(Known(), "", key_bytes) is None
    assert plan_edges(Known(["a/1"]), "b/", key_bytes) is None


def test_a_sequence_of_files_grows_at_its_end():
    found = edges([f"{n:06d}" for n in range(3000)])
    assert found.ranges == [KeyRange("002499")]
    assert found.covers("003000")
    assert not found.covers("0000005")


def test_a_tree_of_dates_grows_in_its_last_folder_and_behind_it():
    found = edges([path for day in days(20) for path in files(day, 700)])
    assert len(found.ranges) == 1
    assert found.covers("dt=2024-01-20/part-00700.json")
    assert found.covers("dt=2024-01-21/part-00000.json")
    assert found.covers("dt=2024-01-20/part-00699.json")
    assert not found.covers("dt=2024-01-19/part-00700.json")
    assert not found.covers("dt=2023-12-31/part-00000.json")


def test_nested_dates_grow_in_one_place():
    tree = [
        f"2024/{month:02d}/{day:02d}/{hour:02d}/f-{n:03d}"
        for month in (1, 2)
        for day in range(1, 29)
        for hour in range(24)
        for n in range(2)
    ]
    found = edges(tree)
    assert len(found.ranges) == 1
    for path in (
        "2024/02/28/23/f-002",
        "2024/02/29/00/f-000",
        "2024/03/01/00/f",
        "2025/01/01/00/f",
    ):
        assert found.covers(path)
    assert not found.covers("2024/01/05/00/f-002")


def test_each_member_of_a_fixed_set_grows():
    regions = ("region=eu", "region=us", "region=za")
    tree = [path for region in regions for day in days(9) for path in files(f"{region}/{day}", 200)]
    found = edges(tree)
    assert len(found.ranges) == 4  # before the first, too
    for region in regions:
        assert found.covers(f"{region}/dt=2024-01-09/part-00200.json")
        assert found.covers(f"{region}/dt=2024-01-10/part-00000.json")
        assert not found.covers(f"{region}/dt=2024-01-02/part-00200.json")


@pytest.mark.parametrize("region", ["region=aa", "region=fr", "region=zz", "archive", "z"])
def test_a_new_member_of_a_fixed_set_is_found_wherever_it_sorts(region):
    tree = [
        p for r in ("region=eu", "region=us") for day in days(9) for p in files(f"{r}/{day}", 90)
    ]
    assert edges(tree).covers(f"{region}/dt=2024-01-01/part-00000.json")


def test_dates_above_a_fixed_set_grow_in_the_last_date():
    tree = [p for day in days(9) for r in ("eu", "us") for p in files(f"{day}/region={r}", 900)]
    found = edges(tree)
    for region in ("eu", "aa", "fr", "us", "zz"):
        assert found.covers(f"dt=2024-01-09/region={region}/part-00900.json")
    assert found.covers("dt=2024-01-10/region=eu/part-00000.json")
    assert not found.covers("dt=2024-01-05/region=eu/part-00900.json")


def test_a_member_that_sorts_behind_the_dates_does_not_hide_their_end():
    tree = [p for day in days(9) for p in files(day, 90)]
    found = edges([*tree, "dt=__HIVE_DEFAULT_PARTITION__/part-00000.json", "readme.txt"])
    assert found.covers("dt=2024-01-09/part-00090.json")
    assert found.covers("dt=2024-01-10/part-00000.json")
    assert found.covers("dt=__HIVE_DEFAULT_PARTITION__/part-00001.json")


def test_random_names_in_the_last_folder_are_found_wherever_they_sort():
    tree = [f"{day}/{n * 7919 % 1000003:x}-{day}.json" for day in days(20) for n in range(3000)]
    found = edges(tree)
    assert found.covers("dt=2024-01-20/0.json")
    assert found.covers("dt=2024-01-20/8888.json")
    assert found.covers("dt=2024-01-20/z.json")
    assert found.covers("dt=2024-01-21/0.json")
    assert not found.covers("dt=2024-01-10/0.json")


def test_a_late_file_of_the_last_folder_is_found():  # B86
    tree = [f"2024/01/01/00/{minute:02d}/f-{n}" for minute in range(60) for n in range(9)]
    found = edges([path for path in tree if path != "2024/01/01/00/59/f-3"])
    assert found.covers("2024/01/01/00/59/f-3")


def test_numbers_without_zeros_do_not_grow_at_their_end():  # B85
    padded = [f"hour={hour:02d}/f" for hour in range(1, 10)]
    unpadded = [f"hour={hour}/f{n:03d}" for hour in range(1, 10) for n in range(700)]
    assert edges(padded).covers("hour=10/f")
    assert not edges(unpadded).covers("hour=10/f")


@pytest.mark.slow
def test_a_tree_that_grows_everywhere_has_no_edges():
    names = (uuid.uuid5(uuid.NAMESPACE_OID, str(n)).hex for n in range(MAX_LOOSE_FILES + 100))
    assert plan_edges(Known(names), "", key_bytes) is None
    tables = [f"t{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(MAX_EDGES + 10)]
    tree = [path for table in tables for path in files(table, 3)]
    assert plan_edges(Known(tree), "", key_bytes) is None or len(edges(tree).ranges) <= MAX_EDGES


def test_only_what_begins_like_the_pattern_is_planned():
    tree = [p for r in ("a", "b", "c") for day in days(5) for p in files(f"{r}/{day}", 600)]
    found = edges(tree, "b/")
    assert found.covers("b/dt=2024-01-05/part-00600.json")
    assert not found.covers("a/dt=2024-01-05/part-00600.json")


PATHS = st.lists(
    st.lists(st.sampled_from(["a", "b", "1", "2", "03", "x9"]), min_size=1, max_size=3).map(
        "/".join
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.law
@given(PATHS)
def test_what_sorts_last_is_always_found(paths):
    found = edges(paths)
    assert found.covers(max(paths) + "0")
    assert found.covers("zzz")


@given(st.lists(st.tuples(st.text("abc", max_size=3), st.text("abc", max_size=3)), max_size=8))
def test_merged_ranges_cover_what_their_parts_did(pairs):
    parts = [KeyRange(low, high) for low, high in pairs if not high or low < high]
    found = EdgeRanges(parts, key_bytes)
    for key in ("a", "ab", "abc", "b", "ba", "bcb", "c", "cc", "ccc"):
        is_covered = any(part.after < key and (not part.end or key < part.end) for part in parts)
        assert found.covers(key) or not is_covered
    ends = [each.end for each in found.ranges]
    assert all(end < each.after for end, each in zip(ends, found.ranges[1:], strict=False))
