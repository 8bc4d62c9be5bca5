"""What is read of an archive, and what of it names the member."""

from __future__ import annotations

import io
import json
import logging
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import (
    CorruptRecordError,
    FileUnreachableError,
    FileUnreadableError,
    OptionError,
    UnknownOptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.extensions.archives import members, zip_files
from airflow_cloudfiles.engine.files import archive_of, is_archive
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from tests.support.archive_files import KINDS, tar_of, zip_of
from tests.support.landed import Stream
from tests.unit.stream.test_every_format import OPTIONS, WRITERS

ONE, TWO = b'{"a": 1}\n', b'{"a": 2}\n'
both = pytest.mark.parametrize("pack", [zip_of, tar_of], ids=["zip", "tar"])
Pack = Callable[[list[tuple[str, bytes]]], bytes]


class Archives(Stream):
    """A stream whose files are archives."""

    def __init__(self, folder: Path, format_name: str = "json", **options: object) -> None:
        given = {**OPTIONS.get(format_name, {}), **options}
        super().__init__(folder / "in", folder / "state", format_name, **given)
        self.source.mkdir(exist_ok=True)

    def put(self, name: str, content: bytes) -> str:
        """Land an archive; gives its URI."""
        (self.source / name).write_bytes(content)
        return (self.source / name).as_uri()

    def values(self) -> list[str]:
        """The values of column `a` of one run."""
        return sorted(row["a"] for row in self.run())


@pytest.fixture
def stream(tmp_path: Path) -> Archives:
    """A stream of JSON, with a first file."""
    found = Archives(tmp_path)
    found.put("0.json", b'{"a": 0}\n')
    assert found.values() == ["0"]
    return found


def packed(stream: Archives, pack: Pack, *named: tuple[str, bytes]) -> str:
    name = "a.zip" if pack is zip_of else "a.tar"
    return stream.put(name, pack(list(named)))


def refused(stream: Archives) -> str:
    """The error of a run; with `ignoreCorruptFiles`, nothing is read and the archive is counted."""
    with pytest.raises(FileUnreadableError) as caught:
        stream.run()
    stream.given["ignoreCorruptFiles"] = "true"
    assert stream.run() == []
    assert [each.fetched.corrupt_files for each in stream.counts] == [1]
    return caught.value.message


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read(stream: Archives, kind: str) -> None:
    long = "l" * 90 + "/1.json"
    stream.put(f"a{kind}", KINDS[kind]([("1.json", ONE), (long, TWO)]))
    assert stream.values() == ["1", "2"]
    assert sum(each.fetched.files for each in stream.counts) == 1, "an archive is one file"
    assert stream.values() == []


def test_names_of_archives() -> None:
    assert all(is_archive(f"x/a{kind}") for kind in KINDS)
    for name in ("a.gz", "tar", "a.zip.json", "a.targz", "zip/a.json", "a.tar.json", "a.7z", ""):
        assert not is_archive(name), name
    assert archive_of("s3://b/x.zip!/y/1.json") == "s3://b/x.zip"
    assert archive_of("s3://b/x!/a.tgz!/1.json!/2") == "s3://b/x!/a.tgz"
    assert archive_of("s3://b/x!/y.json") == "s3://b/x!/y.json"


@both
def test_a_name_is_never_a_place(stream: Archives, pack: Pack, tmp_path: Path) -> None:
    names = ["../1.json", "/2.json", "./3.json", "a/../../../4.json", "//5.json", "x\\..\\6.json"]
    before = sorted(tmp_path.rglob("*"))
    packed(stream, pack, *((name, b'{"a": %d}\n' % n) for n, name in enumerate(names, 1)))
    assert stream.values() == ["1", "2", "3", "4", "5", "6"]
    new = set(tmp_path.rglob("*")) - set(before)
    assert {each.relative_to(tmp_path).parts[0] for each in new} <= {"in", "state"}
    assert not (tmp_path.parent / "1.json").exists()


@both
def test_members_are_left_out_by_their_names_as_files_are(stream: Archives, pack: Pack) -> None:
    names = ("_SUCCESS", "__MACOSX/._1.json", ".DS_Store", "x/.git/1.json", "x/_tmp/1.json")
    packed(stream, pack, *((name, b"no JSON") for name in names), ("day=1/1.json", ONE))
    assert stream.run() == [{"a": "1", "_rescued_data": None}]


@both
def test_archive_path_filter_matches_the_path_in_the_archive(
    stream: Archives, pack: Pack, caplog: pytest.LogCaptureFixture
) -> None:
    stream.given["archivePathFilter"] = "2026/*.json"
    packed(stream, pack, ("2026/1.json", ONE), ("2026/x/2.json", TWO), ("3.json", b"{"))
    assert stream.values() == ["1", "2"]
    stream.given["archivePathFilter"] = "none/*"
    packed(stream, pack)
    stream.put("b.zip", zip_of([("1.json", ONE)]))
    with caplog.at_level(logging.WARNING):
        assert stream.values() == []
    assert "b.zip: nothing is read of it, 1 member is left out" in caplog.text


def test_links_and_devices_are_passed_over(
    stream: Archives, caplog: pytest.LogCaptureFixture
) -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:") as archive:
        kinds = (
            tarfile.SYMTYPE,
            tarfile.LNKTYPE,
            tarfile.CHRTYPE,
            tarfile.BLKTYPE,
            tarfile.FIFOTYPE,
        )
        for number, kind in enumerate(kinds):
            member = tarfile.TarInfo(f"{number}.json")
            member.type, member.linkname, member.devmajor = kind, "/etc/passwd", 1
            archive.addfile(member)
        member = tarfile.TarInfo("folder/")
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
        member = tarfile.TarInfo("1.json")
        member.size = len(ONE)
        archive.addfile(member, io.BytesIO(ONE))
    stream.put("a.tar", sink.getvalue())
    link = zipfile.ZipInfo("2.json")
    link.external_attr = 0o120777 << 16
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as zipped:
        zipped.writestr(link, "/etc/passwd")
        zipped.mkdir("folder")
    stream.put("b.zip", sink.getvalue())
    with caplog.at_level(logging.WARNING):
        assert stream.values() == ["1"]
    assert "5 members without content" in caplog.text
    assert "1 member without content" in caplog.text


@pytest.mark.parametrize("format_name", WRITERS)
def test_rescued_data_names_the_member_and_metadata_the_archive(
    tmp_path: Path, format_name: str
) -> None:
    stream = Archives(
        tmp_path,
        format_name,
        **{
            "cloudFiles.schemaEvolutionMode": "rescue",
            "cloudFiles.metadataColumns": "file_path, file_name, file_size, archive_member",
        },
    )
    write = WRITERS[format_name]
    stream.put("0.zip", zip_of([("x", write([{"a": "0"}]))]))
    stream.put("none", write([{"a": "9"}]))
    members = {row["a"]: row["archive_member"] for row in stream.run()}
    assert members == {"0": "x", "9": None}
    content = zip_of([("x/é 1", write([{"a": "1", "new": "n"}])), ("2", write([{"a": "2"}]))])
    stream.put("a b.zip", content)
    uri = f"file://{stream.source}/a b.zip"
    [first, second] = sorted(stream.run(), key=lambda row: row["a"])
    assert json.loads(first["_rescued_data"]) == {"new": "n", "_file_path": f"{uri}!/x/é 1"}
    for row in (first, second):
        assert (row["file_path"], row["file_name"]) == (
            f"file:{stream.source}/a%20b.zip",
            "a%20b.zip",
        ), "as in Spark"
        assert row["file_size"] == len(content)
    assert (first["archive_member"], second["archive_member"]) == ("x/é 1", "2")


@both
def test_errors_name_the_member(stream: Archives, pack: Pack) -> None:
    stream.given["mode"] = "FAILFAST"
    uri = packed(stream, pack, ("1.json", ONE), ("x/2.json", b"{no"))
    with pytest.raises(CorruptRecordError) as caught:
        stream.run()
    assert f"{uri}!/x/2.json" in caught.value.message


def test_bad_records_name_the_member(stream: Archives, tmp_path: Path) -> None:
    stream.given["badRecordsPath"] = str(tmp_path / "bad")
    uri = stream.put("a.zip", zip_of([("1.json", ONE), ("x/2.json", b"{no\n")]))
    assert stream.values() == ["1"]
    [found] = [path.read_text() for path in (tmp_path / "bad").rglob("*.json")]
    assert json.loads(found)["path"] == f"{uri}!/x/2.json"


@both
def test_an_archive_in_an_archive_is_refused(stream: Archives, pack: Pack) -> None:
    uri = packed(stream, pack, ("1.json", ONE), ("in/b.tar.gz", b"whatever"))
    message = refused(stream)
    assert f"{uri}!/in/b.tar.gz cannot be read: it is an archive in an archive" in message
    stream.given["archivePathFilter"] = "*.json"
    stream.put("b.zip", zip_of([("1.json", ONE), ("b.zip", b"")]))
    assert stream.values() == ["1"]


def test_an_encrypted_member_is_named(stream: Archives) -> None:
    content = bytearray(zip_of([("1.json", ONE), ("2.json", TWO)]))
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 8] |= 1
    uri = stream.put("a.zip", bytes(content))
    assert f"{uri}!/2.json cannot be read: it is encrypted" in refused(stream)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_without_bounds_is_named(stream: Archives, method: int) -> None:
    uri = stream.put("a.zip", zip_of([("1.json", ONE)], method))
    assert f"{uri}!/1.json cannot be read: its compression (method {method})" in refused(stream)


def test_a_sparse_file_is_named(stream: Archives) -> None:
    header = tarfile.TarInfo("1.json")
    header.size = len(ONE)
    blocks = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    blocks[156:157] = tarfile.GNUTYPE_SPARSE
    blocks[482] = 1
    blocks[148:156] = b" " * 8
    blocks[148:156] = b"%06o\0 " % sum(blocks)
    content = bytes(blocks) + bytes(512) + ONE.ljust(512, b"\0") + tar_of([("2.json", TWO)])
    stream.given["archivePathFilter"] = "2*"
    stream.put("a.tar", content)
    assert stream.values() == ["2"], "it was passed over with its map"
    del stream.given["archivePathFilter"]
    uri = stream.put("b.tar", content)
    assert f"{uri}!/1.json cannot be read: it is sparse" in refused(stream)


@pytest.mark.parametrize("format_name", WRITERS)
def test_with_a_damaged_member_nothing_of_an_archive_is_ingested(
    tmp_path: Path, format_name: str
) -> None:
    stream = Archives(tmp_path, format_name)
    write = WRITERS[format_name]
    good = write([{"a": "1"}])
    stream.put("0", good)
    assert [row["a"] for row in stream.run()] == ["1"]
    damaged = b"\x1f\x8b\x08cut"  # a compression where there may be one, else no format
    uri = stream.put("a.zip", zip_of([("1", good), ("2.gz", damaged), ("3", good)]))
    assert f"{uri}!/2.gz" in refused(stream)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_cut_archive_is_named_and_ingested_not_at_all(tmp_path: Path, kind: str) -> None:
    stream = Archives(tmp_path)
    stream.put("0.json", b'{"a": 0}\n')
    stream.run()
    noise = json.dumps({"a": os.urandom(3000).hex()}).encode()
    content = KINDS[kind]([("1.json", ONE), ("2.json", noise), ("3.json", TWO)])
    whole = len(content)
    if kind.endswith(".tar"):  # zeros fill it up to 10 KiB; the first block of them is its end
        whole = len(content.rstrip(b"\0")) // 512 * 512 + 1024
    for end in (1, whole // 4, whole // 2, whole - 600, whole - 1):
        stream.put(f"a{kind}", content[:end])
        with pytest.raises(FileUnreadableError, match=f"a{kind}"):
            stream.run()
    stream.put(f"a{kind}", content[:whole])
    assert len(stream.run()) == 3


def test_one_byte_of_a_zip_is_changed(stream: Archives) -> None:
    content = bytearray(zip_of([("1.json", ONE * 50)], zipfile.ZIP_STORED))
    content[content.index(b"1}")] ^= 3
    uri = stream.put("a.zip", bytes(content))
    assert f"{uri} is damaged" in refused(stream)


def test_what_is_no_archive_is_named(stream: Archives) -> None:
    for name in ("a.zip", "a.tar"):
        uri = stream.put(name, b'{"a": 1}\n' * 100)
        with pytest.raises(FileUnreadableError, match="no archive of the kind") as caught:
            stream.run()
        assert uri in caught.value.message
        (stream.source / name).unlink()
        stream.given["ignoreMissingFiles"] = "true"
    stream.put("b.zip", b"")
    stream.put("b.tar", b"")
    assert stream.values() == [], "an empty file has no members"


def test_a_tar_may_be_extended_only_so_far(stream: Archives) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 2**33
    uri = stream.put("a.tar", header.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    assert f"{uri} is damaged" in refused(stream)


@pytest.mark.parametrize(
    "record", [b"9 a=b\n", b"x", b"0 a=\n", b"30 path=1.json\n", b"9 size=x\n"]
)
def test_an_extended_header_that_is_not_valid_is_named(stream: Archives, record: bytes) -> None:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, len(record)
    content = header.tobuf() + record.ljust(512, b"\0") + tar_of([("1.json", ONE)])
    uri = stream.put("a.tar", content)
    assert f"{uri} is damaged" in refused(stream)


def test_a_global_header_is_read(stream: Archives) -> None:
    header = tarfile.TarInfo("pax_global_header")
    record = b"52 comment=0123456789012345678901234567890123456789\n"
    header.type, header.size = tarfile.XGLTYPE, len(record)
    content = header.tobuf() + record.ljust(512, b"\0") + tar_of([("1.json", ONE)])
    stream.put("a.tar", content)
    assert stream.values() == ["1"]


def test_too_many_members_of_a_zip_are_refused(
    stream: Archives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_files._ArchiveBytes, "most", 1000)
    uri = stream.put("a.zip", zip_of([(f"{n}.json", ONE) for n in range(100)]))
    message = refused(stream)
    assert uri in message
    assert "too many members" in message


@pytest.mark.parametrize("kind", [".zip", ".tar.gz", ".tar.zst"])
def test_an_archive_that_comes_to_far_more_than_its_size_is_refused(
    stream: Archives, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_cloudfiles.engine.extensions.archives.base.LEAST_BYTES", 2**16)
    monkeypatch.setattr("airflow_cloudfiles.engine.extensions.archives.base.MOST_TIMES", 20)
    content = KINDS[kind]([("1.json", ONE), ("2.json", b'{"a": "' + b"0" * 2**20 + b'"}')])
    uri = stream.put(f"a{kind}", content)
    assert f"{uri} has {len(content)} bytes and comes to more than" in refused(stream)


def test_a_format_that_seeks_needs_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "HELD_BYTES", 10)
    stream = Archives(tmp_path, "parquet")
    uri = stream.put("a.zip", zip_of([("1", WRITERS["parquet"]([{"a": "1"}]))]))
    assert stream.values() == ["1"]
    full = lambda **_: open("/dev/full", "wb")  # noqa: E731, PTH123, SIM115
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    stream.put("b.zip", zip_of([("1", WRITERS["parquet"]([{"a": "1"}]))]))
    with pytest.raises(FileUnreachableError, match="set TMPDIR") as caught:
        stream.run()
    assert uri.replace("a.zip", "b.zip!/1") in caught.value.message


def test_binary_files_are_whole_unless_asked(tmp_path: Path) -> None:
    content = tar_of([("x/1.bin", b"12"), ("b.zip", b"345")])
    for whole in ("", "true", "false"):
        folder = tmp_path / whole
        folder.mkdir(exist_ok=True)
        options = {"wholeFile": whole} if whole else {}
        stream = Archives(folder, "binaryFile", **options)
        uri = stream.put("a.tar", content)
        rows = [(row["path"], row["length"], row["content"]) for row in stream.run()]
        if whole == "false":
            assert rows == [(f"{uri}!/x/1.bin", 2, b"12"), (f"{uri}!/b.zip", 3, b"345")]
        else:
            assert rows == [(uri, len(content), content)]


def test_text_is_read_by_line_and_whole(tmp_path: Path) -> None:
    content = zip_of([("1", b"one\ntwo"), ("2", "drei\n".encode("utf-16"))])
    for whole, rows in (("false", ["drei", "one", "two"]), ("true", ["drei\n", "one\ntwo"])):
        folder = tmp_path / whole
        folder.mkdir()
        stream = Archives(folder, "text", wholeText=whole)
        stream.put("a.zip", content)
        assert sorted(row["value"] for row in stream.run()) == rows


def test_partition_columns_are_those_of_the_archives_path(tmp_path: Path) -> None:
    stream = Archives(tmp_path)
    (stream.source / "day=1").mkdir()
    stream.put("day=1/a.zip", zip_of([("day=2/hour=3/1.json", ONE)]))
    assert stream.run() == [{"a": "1", "day": "1", "_rescued_data": None}]
    given = Archives(tmp_path, rescuedDataColumn="_rescued_data")
    given.schema = parse_schema("a INT, day INT, hour INT, _rescued_data STRING")
    given.given |= {"checkpointLocation": str(tmp_path / "other")}
    assert given.run() == [{"a": 1, "day": 1, "hour": None, "_rescued_data": None}]


def test_a_large_archive_is_one_task(stream: Archives) -> None:
    stream.put(
        "a.tar",
        tar_of(
            [
                (f"{n}.json", os.urandom(10).hex().join(('{"a": "', '"}\n')).encode() * 20_000)
                for n in range(9)
            ]
        ),
    )
    assert len(stream.run(parallelism=4)) == 180_000
    assert len(stream.counts) == 1


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"archivePathFilter|cannot be read"):
        Archives(tmp_path, archivePathFilter="[a").run()
    with pytest.raises(UnknownOptionError, match="archivePathFilter"):
        CloudFilesOptions.parse({"cloudFiles.format": "json", "archivePathFilte": "*"}, path="/x")
    with pytest.raises(UnsupportedOptionError, match="binaryFile"):
        CloudFilesOptions.parse({"cloudFiles.format": "json", "wholeFile": "false"}, path="/x")


def test_a_7z_is_named_as_what_is_not_read(stream: Archives) -> None:
    stream.put("a.7z", b"7z\xbc\xaf\x27\x1c\0\4" + bytes(50))
    assert "Pack its files as .zip or .tar.gz" in refused(stream)
