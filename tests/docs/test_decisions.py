"""Every decision is in the index, under its title and with its outcome, and in one area."""

from __future__ import annotations

import re

from tests.docs.pages import load_script


def test_the_index_has_every_record_and_its_outcome() -> None:
    script = load_script("generate_decisions")
    text = script.PAGE.read_text(encoding="utf-8")
    assert text == script.page(), "run: make generate"
    assert script.MISSING not in text


def test_no_two_records_have_one_number() -> None:
    numbers = [number for number, _, _ in load_script("generate_decisions").records()]
    assert len(numbers) == len(set(numbers))


def test_every_record_is_in_one_area_under_its_title() -> None:
    script = load_script("generate_decisions")
    text = (script.FOLDER / "areas.md").read_text(encoding="utf-8")
    links = re.findall(r"^- \[(\d+)\. (.+)\]\((0\S+\.md)\)", text, re.MULTILINE)
    assert sorted(links, key=lambda link: int(link[0])) == script.records()
