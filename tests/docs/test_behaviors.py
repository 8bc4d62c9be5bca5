"""The page of behaviors is what the tests show, and the behaviors of reading all have one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import load_script

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load_script("generate_behaviors")


@pytest.mark.slow
def test_the_page_is_what_the_tests_say(generator: ModuleType) -> None:
    text = generator.PAGE.read_text(encoding="utf-8")
    assert text == generator.page(), "run: make generate"


@pytest.mark.slow
def test_every_behavior_of_reading_has_a_test_or_a_reason(generator: ModuleType) -> None:
    assert generator.holes(generator.citations()) == []


@pytest.mark.slow
def test_every_number_has_a_sentence_or_a_reason(generator: ModuleType) -> None:
    data = generator._data()
    told = {*map(int, data["behaviors"]), *map(int, data["not_here"])}
    assert told == set(range(1, generator.LAST + 1))
    assert not set(data["behaviors"]) & set(data["not_here"])
    assert all(f"| B{number} |" in generator.page({}) for number in told)


SOURCE = '''
"""Everything here is about B1."""

CASES = [1]  # B2


# B3
def test_a():
    pass  # B4, B5 and B9-B11


@parametrize(1)  # B12
def test_b_shows_b13():
    """It is so. B14 to B16."""


class TestC:  # B17
    def test_d(self):  # B18
        "B19 is no comment, but a docstring"
        x = "B20"


def _helper():  # B21, B149
    pass
'''


def test_citations_are_found_with_their_tests(generator: ModuleType) -> None:
    found: dict[str, set[int]] = {}
    for number, test in generator.cited_in(SOURCE):
        found.setdefault(test, set()).add(number)
    assert found == {
        "": {1, 2, 21},
        "test_a": {3, 4, 5, 9, 10, 11},
        "test_b_shows_b13": {12, 13, 14, 15, 16},
        "TestC": {17},
        "TestC::test_d": {18, 19},
    }
    assert generator.cited_in("def broken(:  # B1") == set()


def test_a_hole_is_found_and_told(generator: ModuleType) -> None:
    found = {number: [generator.Citation("tests/t.py", "")] for number in range(1, 81)}
    assert generator.holes(found) == []
    del found[45]
    assert generator.holes(found) == [45]
    assert "| no test yet |" in generator.page(found)
    assert "[t.py](../../tests/t.py)" in generator.page(found)
