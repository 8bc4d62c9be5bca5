"""Arrow's check of UTF-8 agrees with Python's, which agrees with the JVM's."""

from __future__ import annotations

from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from airflow_cloudfiles.engine.formats.base import is_utf8

EDGES = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0)
LEADS = (0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF)
"""Bytes next to which the rules of UTF-8 change."""


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_every_sequence_of_bytes_at_the_edges_is_judged_alike() -> None:
    for length in (0, 1, 2, 3):
        for some in product(EDGES + LEADS, repeat=length):
            text = bytes(some)
            assert is_utf8(text) == _is_utf8(text), text
    for lead in LEADS[5:]:
        for some in product(EDGES, repeat=3):
            text = bytes((lead, *some))
            assert is_utf8(text) == _is_utf8(text), text


@given(st.binary(max_size=60), st.text(max_size=60))
@example(b"\xed\xa0\x80", "")  # half a character
@example(b"\xe2\x82", "x" * 60)  # cut off
def test_bytes_within_a_text_are_judged_alike(some: bytes, text: str) -> None:
    for each in (some, text.encode() + some, some + text.encode()):
        assert is_utf8(each) == _is_utf8(each)
