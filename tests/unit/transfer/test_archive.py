"""A state becomes one file, and a file a state, whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import uuid
import zipfile

import pytest

from airflow_cloudfiles.engine.errors import (
    IncompatibleStateError,
    OptionError,
    StateError,
    StateLockedError,
    StateMovedError,
)
from airflow_cloudfiles.engine.extensions.transfer import archived
from airflow_cloudfiles.engine.extensions.transfer.archived import (
    KIND,
    MANIFEST,
    StateArchive,
    export_state,
    import_state,
    write_archive,
)
from airflow_cloudfiles.engine.state.locks.run_lock import JOB_KEY, RunLock
from airflow_cloudfiles.engine.state.metadata import KEY
from airflow_cloudfiles.engine.state.metadata_format import StreamMetadata, encode_metadata
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.local import LocalStore
from tests.support.crash_points import IMPORT_POINTS
from tests.support.transferred import Stream, killed

BOTH = ["2026/a.json", "2026/b.json"]
METADATA = encode_metadata(StreamMetadata("0" * 32, "file:///in", "json"))


@pytest.fixture
def stream(tmp_path):
    return Stream(tmp_path)


def contents(uri):
    store = open_store(uri)
    return {entry.path: store.get(entry.path) for entry in store.list(ordered=False)}


@pytest.mark.parametrize("scheme", ["disk", "memory"])
def test_an_exported_state_is_imported_as_it_was(stream, tmp_path, scheme):
    place = str(tmp_path / "kept") if scheme == "disk" else f"memory://{uuid.uuid4().hex}"
    store = open_store(stream.state)
    store.put("_source/snapshots/1-x/COMPLETE", b"a cache")
    store.put("table/part-0.parquet", b"not of the state")
    exported = export_state(stream.state, place + "/state.zip")
    imported = import_state(place + "/state.zip", place + "/again")
    assert (exported.objects, exported.stream_id) == (imported.objects, imported.stream_id)
    before, after = contents(stream.state), contents(place + "/again")
    hints = {"_source/head.json", "_source/listing.json"}
    left_out = {key for key in before if key not in after}
    assert left_out - hints == {
        "_source/run.lock",
        "_source/job.lock",
        "_source/snapshots/1-x/COMPLETE",
        "table/part-0.parquet",
    }
    assert all(before[key] == after[key] for key in after)
    stream.zone.write("c.json")
    assert stream.ingest(place + "/again") == ("c.json",)
    assert stream.works(stream.state)  # the original is not changed


def test_what_is_recorded_while_it_is_exported_is_not_in_it(stream, tmp_path, monkeypatch):
    real = open_store(stream.state).list

    def arrives(prefix="", **given):
        if prefix == "_source/":
            stream.zone.write("c.json")
            stream.open(stream.state).discover()
        return real(prefix, **given)

    class Arriving(LocalStore):
        list = staticmethod(arrives)

    def opened(uri, access=None):
        found = open_store(uri, access)
        return Arriving(found.uri) if found.uri.endswith("/state") else found

    with monkeypatch.context() as patched:
        patched.setattr(archived, "open_store", opened)
        export_state(stream.state, str(tmp_path / "state.zip"))
    import_state(str(tmp_path / "state.zip"), str(tmp_path / "again"))
    assert stream.recorded(stream.state) == [*BOTH, "c.json"]
    assert stream.recorded(str(tmp_path / "again")) == BOTH
    assert stream.ingest(str(tmp_path / "again")) == ("c.json",)
    assert "_source/files/" + f"{2:020}" not in _keys(tmp_path / "state.zip")


def _keys(path):
    with path.open("rb") as file:
        return {member.key for member in StateArchive(file, "state.zip").members}


def test_nothing_is_exported_over_a_file_or_while_a_run_is_at_work(stream, tmp_path):
    (tmp_path / "state.zip").write_text("mine")
    with pytest.raises(OptionError, match="exists"):
        export_state(stream.state, str(tmp_path / "state.zip"))
    with RunLock(open_store(stream.state), JOB_KEY), pytest.raises(StateLockedError):
        export_state(stream.state, str(tmp_path / "other.zip"))
    with pytest.raises(StateError, match="no state"):
        export_state(str(tmp_path / "none"), str(tmp_path / "other.zip"))
    assert sorted(each.name for each in tmp_path.glob("*.zip")) == ["state.zip"]
    assert not list(tmp_path.glob(".*.zip*"))


def test_an_import_needs_a_location_that_has_nothing(stream, tmp_path):
    archive = str(tmp_path / "state.zip")
    export_state(stream.state, archive)
    with pytest.raises(StateError, match=f"not empty: there is {KEY}"):
        import_state(archive, _other_state(tmp_path))
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "a").write_text("")
    with pytest.raises(StateError, match="not empty: there is a"):
        import_state(archive, str(tmp_path / "used"))
    assert import_state(archive, str(tmp_path / "new")) == import_state(
        archive, str(tmp_path / "new")
    )


def _other_state(tmp_path):
    (tmp_path / "x").mkdir()
    return Stream(tmp_path / "x").state


@pytest.mark.parametrize("point", [*IMPORT_POINTS, "after-part-of-import:3"])
def test_killed_anywhere_an_import_leaves_no_state_and_is_repeated(stream, tmp_path, point):
    archive, new = str(tmp_path / "state.zip"), str(tmp_path / "new")
    export_state(stream.state, archive)
    killed(point, "import", archive, new)
    with pytest.raises(StateMovedError, match=r"brought here from state\.zip.* Repeat"):
        stream.open(new)
    stream.zone.write("c.json")
    stream.ingest(stream.state)
    export_state(stream.state, str(tmp_path / "later.zip"))
    with pytest.raises(StateError, match="not of this archive"):
        import_state(str(tmp_path / "later.zip"), new)
    import_state(archive, new)
    assert stream.ingest(new) == ("c.json",)


def test_an_export_that_is_killed_leaves_no_archive(stream, tmp_path):
    archive = str(tmp_path / "state.zip")
    killed("before-export-ends", "export", stream.state, archive)
    assert not (tmp_path / "state.zip").exists()
    assert export_state(stream.state, archive).objects


# ── archives from anywhere ──────────────────────────────────────────────────────────────────────


def made(objects, change=lambda manifest: None, add=lambda archive: None):
    """An archive whose manifest fits its members, but for what is changed."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        members = []
        for number, (key, content) in enumerate(objects):
            archive.writestr(f"{number:08}", content)
            digest = hashlib.sha256(content).hexdigest()
            members.append({"key": key, "size": len(content), "sha256": digest})
        manifest = {"kind": KIND, "version": 1, "objects": members}
        change(manifest)
        archive.writestr(MANIFEST, json.dumps(manifest))
        add(archive)
    return target.getvalue()


def refused(tmp_path, content, error=StateError, match="cannot be imported"):
    (tmp_path / "bad.zip").write_bytes(content)
    with pytest.raises(error, match=match):
        import_state(str(tmp_path / "bad.zip"), str(tmp_path / "target" / "state"))
    assert not (tmp_path / "target").exists()


def test_the_smallest_archive_is_imported(tmp_path):
    (tmp_path / "good.zip").write_bytes(made([(KEY, METADATA)]))
    import_state(str(tmp_path / "good.zip"), str(tmp_path / "target"))
    assert open_store(str(tmp_path / "target")).get(KEY) == METADATA


@pytest.mark.parametrize(
    "key",
    [
        "../escaped",
        "_source/../../escaped",
        "/etc/passwd",
        "_source//x",
        "_source/./x",
        "_source\\..\\x",
        "_source/a\nb",
        "_source/caf\u00e9",
        "_source/run.lock",
        "_source/snapshots/1-x/COMPLETE",
        "table/_delta_log/0.json",
        "C:/x",
        "",
    ],
)
def test_names_that_no_state_has_are_refused(tmp_path, key):
    refused(tmp_path, made([(KEY, METADATA), (key, b"x")]), match="not the name of a part")


def test_two_objects_of_one_name_are_refused(tmp_path):
    for pair in (("_runs/a", "_runs/a"), ("_runs/a", "_runs/a/b")):
        objects = [(KEY, METADATA), *((key, b"x") for key in pair)]
        refused(tmp_path, made(objects), match="one name")


def _link(archive):
    link = zipfile.ZipInfo("00000001")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(link, "/etc/passwd")


def _link_in(manifest):
    digest = hashlib.sha256(b"/etc/passwd").hexdigest()
    manifest["objects"].append({"key": "_runs/a", "size": 11, "sha256": digest})


def _set(number, **fields):
    return lambda manifest: manifest["objects"][number].update(fields)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (made([(KEY, METADATA)], _link_in, _link), "no file"),
        (made([(KEY, METADATA)], add=lambda a: a.writestr("../x", b"")), "members are not"),
        (made([(KEY, METADATA)], _set(0, sha256="0" * 64)), "does not match its digest"),
        (made([(KEY, METADATA)], _set(0, size=5)), "does not fit"),
        (made([(KEY, METADATA)], _set(0, size="5")), "manifest cannot be read"),
        (made([(KEY, METADATA)], lambda m: m.update(objects=[])), "does not name all"),
        (made([(KEY, METADATA)], lambda m: m.update(kind="x")), "no archive of a state"),
        (made([(KEY, METADATA)], lambda m: m.pop("objects")), "manifest cannot be read"),
        (made([("_runs/a", b"x")]), f"lacks {KEY}"),
        (made([(KEY, b"v1\n{}")]), KEY),
        (made([(KEY, METADATA)])[:-30], "not a zip file"),
        (b"", "not a zip file"),
        (b"PK\x05\x06" + bytes(18), "members are not"),
    ],
)
def test_what_is_damaged_or_made_up_is_refused_and_nothing_is_written(tmp_path, content, match):
    refused(tmp_path, content, match=match)


def test_a_newer_archive_is_refused_by_name(tmp_path):
    content = made([(KEY, METADATA)], lambda manifest: manifest.update(version=2))
    refused(
        tmp_path, content, IncompatibleStateError, match=r"bad\.zip has format version 2.*Upgrade"
    )


def test_every_flipped_byte_is_noticed_or_harmless(tmp_path):
    content = made([(KEY, METADATA), ("_runs/a.json", b"{}" * 40)])
    good = {KEY: METADATA, "_runs/a.json": b"{}" * 40}
    for place in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[place] ^= 0x41
        try:
            found = dict(StateArchive(io.BytesIO(flipped), "bad.zip").objects())
        except (StateError, IncompatibleStateError):
            continue
        assert found == good, place


def test_a_bomb_is_refused_before_it_is_read(tmp_path):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("00000000", bytes(30_000_000))
        archive.writestr(MANIFEST, "{}")
    refused(tmp_path, target.getvalue(), match="more than 100 times")


def test_what_would_shrink_too_much_is_stored_as_it_is():
    target = io.BytesIO()
    objects = [(KEY, METADATA), ("_runs/a.json", bytes(3_000_000))]
    write_archive(target, objects, {})
    assert dict(StateArchive(target, "state.zip").objects()) == dict(objects)


def test_an_archive_says_no_more_than_it_holds(tmp_path):
    """A member whose size is a lie is read no further than that."""
    content = bytearray(made([(KEY, METADATA)]))
    central = content.rindex(b"PK\x01\x02", 0, content.rindex(b"PK\x01\x02"))
    content[central + 24] -= 1  # the size of the first member
    refused(tmp_path, bytes(content))
