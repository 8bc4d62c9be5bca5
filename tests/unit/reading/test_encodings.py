"""A text comes out in UTF-8, whole, or the file is refused."""

from __future__ import annotations

import codecs
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import FileUnreadableError, OptionError
from airflow_cloudfiles.engine.options.formats.base import codec_of
from airflow_cloudfiles.engine.reading.decoding import in_utf8, without_mark
from tests.support.laws import examples

URI = "file:///in/f.txt"
MARKED = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}


class Dribble(io.RawIOBase):
    """A stream that gives few bytes at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__()
        self._rest = data
        self._most = most

    def read(self, size: int = -1) -> bytes:
        count = self._most if size < 0 else min(size, self._most)
        chunk, self._rest = self._rest[:count], self._rest[count:]
        return chunk


def _read(data: bytes, encoding: str = "utf-8") -> bytes:
    return in_utf8(io.BytesIO(data), encoding, URI).read()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@pytest.mark.law
@given(text=TEXT, codec=st.sampled_from(sorted(MARKED)), most=st.integers(1, 7))
@settings(max_examples=examples(200))
def test_a_marked_text_is_read_without_an_option(text: str, codec: str, most: int) -> None:
    data = MARKED[codec] + text.encode(codec)
    if codec == "utf-16-le" and text.startswith("\0"):
        return  # these bytes are those of UTF-32's mark
    assert in_utf8(Dribble(data, most), "utf-8", URI).read() == text.encode()


@given(text=TEXT, codec=st.sampled_from(["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]))
def test_a_named_encoding_needs_no_mark(text: str, codec: str) -> None:
    if text.startswith("\ufeff"):
        return
    assert _read(text.encode(codec), codec) == text.encode()
    assert _read(MARKED[codec] + text.encode(codec), codec) == text.encode()
    if codec.endswith("be"):  # as in Java: without a mark the big end comes first
        assert _read(text.encode(codec), codec[:6]) == text.encode()
    assert _read(MARKED[codec] + text.encode(codec), codec[:6]) == text.encode()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ISO-8859-1", "Grüße, ÿþ ¤"),
        ("windows-1252", "“€”"),
        ("windows-1251", "Привет"),
        ("US-ASCII", "plain"),
        ("KOI8-R", "Привет"),
        ("GB18030", "汉字 𠀀"),
        ("Shift_JIS", "日本語"),
        ("EUC-KR", "한국어"),
        ("ISO-2022-JP", "日本語 and more"),
        ("IBM500", "mainframe"),
        ("x-MacRoman", "fiancée"),
        ("latin1", "é"),
        ("Cp1252", "€"),
    ],
)
def test_encodings_by_the_names_people_use(name: str, text: str) -> None:
    codec = codec_of("encoding", name)
    data = (text + "\n").encode(codec) * 30_000  # beyond what is decoded at once
    for most in (3, 2**20):
        stream = in_utf8(Dribble(data, most) if most > 3 else io.BytesIO(data), codec, URI)
        assert stream.read() == (text + "\n").encode() * 30_000


def test_iso_8859_1_takes_any_bytes() -> None:
    data = bytes(range(256))
    assert _read(data, codec_of("encoding", "ISO-8859-1")).decode().encode("latin1") == data
    assert _read(b"\xff\xfea", "iso8859-1") == "ÿþa".encode()  # no mark: the name decides


def test_utf_8_passes_as_it_is_for_the_format_to_judge() -> None:
    assert _read(b"\xef\xbb\xbfa\xff\xfeb") == b"a\xff\xfeb"
    assert _read(b"") == b""
    assert _read(b"\xef\xbb") == b"\xef\xbb"


@pytest.mark.parametrize(
    ("data", "codec", "position"),
    [
        (b"plain \xe4", "ascii", 6),
        (b"a" * 300_000 + b"\x81", "cp1252", 300_000),
        ("ab".encode("utf-16-le") + b"\x00\xd8" + "c".encode("utf-16-le"), "utf-16-le", 4),
        ("ab".encode("utf-16") + b"x", "utf-16", 6),
        (codecs.BOM_UTF32_LE + b"a\0\0\0" + b"\xff\xff\xff\xff", "utf-8", 8),
        ("日本".encode("shift_jis") + b"\x81", "shift_jis", 4),
    ],
)
def test_bytes_that_mean_nothing_are_named_and_never_replaced(
    data: bytes, codec: str, position: int
) -> None:
    with pytest.raises(FileUnreadableError, match=rf"f\.txt is not in .*: byte {position} "):
        _read(data, codec)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("UFT-8", "UTF-8"), ("windows-125", "windows-1252"), ("iso-8859-99", "ISO-8859-9")],
)
def test_an_unknown_encoding_is_refused_with_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(OptionError, match=meant):
        codec_of("encoding", given)


@pytest.mark.parametrize("name", ["base64", "rot13", "hex", "unicode_escape", "idna", "", "\0"])
def test_what_is_no_encoding_of_text_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match="no encoding of text"):
        codec_of("charset", name)


def test_a_part_of_a_file_cannot_be_in_utf_16() -> None:
    assert without_mark(b"\xef\xbb\xbfabc", URI) == b"abc"
    with pytest.raises(FileUnreadableError, match="UTF-16-LE"):
        without_mark("abc".encode("utf-16"), URI)
