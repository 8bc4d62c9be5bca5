"""Messages agree with their numbers."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.messages import counted, plural, sentence


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [
        (0, "file", "0 files"),
        (1, "file", "1 file"),
        (2, "new file", "2 new files"),
        (1234, "entry", "1,234 entries"),
        (3, "key", "3 keys"),
        (2, "batch", "2 batches"),
        (1, "batch", "1 batch"),
        (2, "index", "2 indexes"),
    ],
)
def test_a_noun_agrees_with_its_number(count: int, noun: str, said: str) -> None:
    assert counted(count, noun) == said


def test_other_words_are_given_for_both() -> None:
    assert [plural(count, "comes", "come") for count in (0, 1, 2)] == ["come", "comes", "come"]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 file has changed since it was listed, and stays."),
        (2000, "2,000 files have changed since they were listed, and stay."),
    ],
)
def test_every_word_in_braces_agrees(count: int, said: str) -> None:
    text = "{file} {has} changed since {it} {was} listed, and {stays}."
    assert sentence(count, text) == said
