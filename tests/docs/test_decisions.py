"""Every decision is in the index, under its title and with its outcome."""

from __future__ import annotations

from tests.docs.pages import load_script


def test_the_index_has_every_record_and_its_outcome() -> None:
    script = load_script("generate_decisions")
    text = script.PAGE.read_text(encoding="utf-8")
    assert text == script.page(), "run: python docs/generate_decisions.py"
    assert script.MISSING not in text


def test_no_two_records_have_one_number() -> None:
    numbers = [number for number, _, _ in load_script("generate_decisions").records()]
    assert len(numbers) == len(set(numbers))
