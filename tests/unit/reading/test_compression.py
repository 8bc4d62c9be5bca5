"""Whatever is compressed comes out whole, or not at all."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tracemalloc
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.errors import FileUnreadableError
from airflow_cloudfiles.engine.reading.decoding import (
    _masked_crc32c,
    decompressed,
    refuse_compressed,
)


def _arrow(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: pa.compress(data, codec=codec, asbytes=True)


def _hadoop(codec: str, *, block: int = 1000, chunk: int = 300) -> Callable[[bytes], bytes]:
    """Hadoop's layout, with several chunks a block."""

    def compress(data: bytes) -> bytes:
        parts = []
        for begin in range(0, len(data), block):
            content = data[begin : begin + block]
            parts.append(len(content).to_bytes(4, "big"))
            for at in range(0, len(content), chunk):
                packed = _arrow(codec)(content[at : at + chunk])
                parts += [len(packed).to_bytes(4, "big"), packed]
        return b"".join(parts) or b"\0\0\0\0"

    return compress


def _snappy_frames(data: bytes) -> bytes:
    parts = [b"\xff\x06\x00\x00sNaPpY", b"\x80\x03\x00\x00abc", b"\xfe\x02\x00\x00\0\0"]
    for number, begin in enumerate(range(0, len(data), 60000)):
        content = data[begin : begin + 60000]
        body = content if number % 2 else _arrow("snappy")(content)
        body = _masked_crc32c(content).to_bytes(4, "little") + body
        parts.append(bytes([number % 2]) + len(body).to_bytes(3, "little") + body)
    return b"".join(parts)


def _raw_deflate(data: bytes) -> bytes:
    one = zlib.compressobj(wbits=-15)
    return one.compress(data) + one.flush()


def _skipping(codec: str) -> Callable[[bytes], bytes]:
    """Frames between others that hold nothing of the content, as `pzstd` writes them."""

    def compress(data: bytes) -> bytes:
        frame = _arrow(codec)(data)
        skipped = [bytes([0x50 + n]) + b"\x2a\x4d\x18" + n.to_bytes(4, "little") for n in (4, 15)]
        return skipped[0] + b"size" + frame + skipped[1] + bytes(15)

    return compress


KINDS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": (".gz", gzip.compress),
    "bzip2": (".bz2", bz2.compress),
    "xz": (".xz", lzma.compress),
    "zstd": (".zst", _arrow("zstd")),
    "lz4 frames": (".lz4", _arrow("lz4")),
    "zstd of pzstd": (".zst", _skipping("zstd")),
    "lz4 with skippable frames": (".lz4", _skipping("lz4")),
    "lz4 of Hadoop": (".lz4", _hadoop("lz4_raw")),
    "snappy frames": (".sz", _snappy_frames),
    "snappy of Hadoop": (".snappy", _hadoop("snappy")),
    "zlib": (".deflate", zlib.compress),
    "raw deflate": (".deflate", _raw_deflate),
}
BY_NAME_ONLY = {"lz4 of Hadoop", "snappy of Hadoop", "zlib", "raw deflate"}
CHECKED = {"gzip", "bzip2", "xz", "snappy frames", "zlib"}
"""Kinds with checksums."""


def _what_can_be_read(data: bytes, name: str) -> bytes | None:
    """The content; `None` when it is refused, by the right error."""
    try:
        return _read(data, name)
    except FileUnreadableError as error:
        if f"file:///in/{name}" not in error.message:
            raise
        return None


def _some(size: int) -> bytes:
    return b"a line\n" * (size // 7 + 1) if size > 0 else random.Random(size).randbytes(-size)


def _read(data: bytes, name: str) -> bytes:
    return decompressed(io.BytesIO(data), data[:100], f"file:///in/{name}").read()


@pytest.mark.law
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(
    contents=st.lists(
        st.one_of(
            st.binary(max_size=3000),
            st.integers(1, 200_000),  # so much of a text
            st.integers(-90_000, -1),  # so much of noise
        ),
        min_size=1,
        max_size=3,
    )
)
def test_parts_one_after_another_come_out_whole(kind: str, contents: list[bytes | int]) -> None:
    ending, compress = KINDS[kind]
    parts = [each if isinstance(each, bytes) else _some(each) for each in contents]
    data = b"".join(map(compress, parts))
    assert _read(data, f"f.json{ending}") == b"".join(parts)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - BY_NAME_ONLY))
def test_what_has_a_mark_is_known_whatever_its_name(kind: str) -> None:
    data = KINDS[kind][1](b"some text")
    assert _read(data, "f.json") == b"some text"
    with pytest.raises(FileUnreadableError, match="too large to be read by one task"):
        refuse_compressed(data, "file:///in/f.json")


@pytest.mark.parametrize("kind", KINDS)
def test_what_ends_early_is_damaged(kind: str) -> None:
    ending, compress = KINDS[kind]
    generator = random.Random(3)
    text = b"".join(b"%d\n" % generator.randrange(10**6) for _ in range(500))
    data = compress(text)
    # Hadoop's and Snappy's layouts have no end of their own: a cut between blocks is no damage.
    for cut in {1, 2, 3, 5, 9, len(data) // 2, len(data) - 5, len(data) - 1}:
        content = _what_can_be_read(data[:cut], f"f{ending}")
        assert content is None or (
            kind in {"snappy frames", "snappy of Hadoop", "lz4 of Hadoop"}
            and text.startswith(content)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bits_never_end_in_anything_but_our_error(kind: str) -> None:
    ending, compress = KINDS[kind]
    text = b"".join(b"line %d\n" % number for number in range(2000))
    data = compress(text)
    generator = random.Random(11)
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(generator.randrange(1, 4)):
            damaged[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        content = _what_can_be_read(bytes(damaged), f"f{ending}")
        # A flipped bit of a header may mean nothing; one of the content shows in the checksum.
        assert content is None or kind not in CHECKED or content == text


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_behind_the_end_is_damage(kind: str) -> None:
    ending, compress = KINDS[kind]
    with pytest.raises(FileUnreadableError, match="damaged or truncated"):
        _read(compress(b"some text") + b"garbage behind the end", f"f{ending}")


def test_zeros_behind_the_end_are_padding() -> None:
    assert _read(gzip.compress(b"a") + bytes(512), "f.gz") == b"a"
    assert _read(lzma.compress(b"a") + bytes(4) + lzma.compress(b"b"), "f.xz") == b"ab"


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".deflate"])
def test_a_name_that_promises_what_the_content_is_not_is_refused(ending: str) -> None:
    with pytest.raises(FileUnreadableError, match=r"damaged|not of that kind"):
        _read(b'{"a": 1}\n' * 20, f"f.json{ending}")


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".deflate"])
def test_a_file_of_nothing_is_nothing_whatever_its_name(ending: str) -> None:
    assert _read(b"", f"f.json{ending}") == b""


def test_text_that_looks_like_a_mark_is_text() -> None:
    assert _read(b"BZhello\n", "f.txt") == b"BZhello\n"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zstd", "zlib", "lz4 frames"])
def test_a_bomb_is_streamed_in_bounded_memory(kind: str) -> None:
    ending, compress = KINDS[kind]
    megabytes = 64
    data = b"".join(compress(bytes(2**24)) for _ in range(megabytes // 16))
    stream = decompressed(io.BytesIO(data), data[:100], f"file:///f{ending}")
    tracemalloc.start()
    total = 0
    while chunk := stream.read(2**20):
        total += len(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == megabytes * 2**20
    assert peak < 16 * 2**20  # the window of xz alone has 8 MiB


@pytest.mark.parametrize("ending", [".lz4", ".snappy"])
def test_a_block_that_claims_to_be_huge_is_damage(ending: str) -> None:
    claim = (2**31).to_bytes(4, "big") + (4).to_bytes(4, "big") + b"abcd"
    with pytest.raises(FileUnreadableError, match="a block of more than"):
        _read(claim, f"f{ending}")
    snappy_of_a_gigabyte = b"\x80\x80\x80\x80\x04"
    claim = (2**20).to_bytes(4, "big") + (5).to_bytes(4, "big") + snappy_of_a_gigabyte
    with pytest.raises(FileUnreadableError, match="damaged or truncated"):
        _read(claim, f"f{ending}")


@pytest.mark.parametrize("kind", ["gzip", "zstd", "lz4 of Hadoop"])
def test_what_reading_itself_raises_is_no_damage(kind: str) -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise ConnectionError("the network is down")

    ending, compress = KINDS[kind]
    data = compress(b"text")
    stream = decompressed(Broken(), data, f"file:///f{ending}")
    with pytest.raises(ConnectionError, match="the network is down"):
        stream.read()


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_large_frame_to_be_skipped_costs_nothing(codec: str) -> None:
    header = b"\x5a\x2a\x4d\x18" + (3 * 2**20).to_bytes(4, "little")
    data = header + bytes(3 * 2**20) + _arrow(codec)(b"some text")
    assert _read(data, "f.json") == b"some text"
    assert _read(header + bytes(3 * 2**20), f"f.{codec}") == b""
