"""What an SFTP server has that no other store has: keys of hosts, links, connections, seconds."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from airflow_cloudfiles.cli import main
from airflow_cloudfiles.engine.clouds.sftp import session
from airflow_cloudfiles.engine.clouds.sftp.login import from_variables, login_of
from airflow_cloudfiles.engine.errors import (
    FileUnreachableError,
    FileUnreadableError,
    ListingError,
    OptionError,
    SourceAccessError,
    SourceNotFoundError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.intake.intake import Intake
from airflow_cloudfiles.engine.intake.opening import own_locations
from airflow_cloudfiles.engine.job.spec import JobSpec
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.discovery import DiscoveryOptions
from airflow_cloudfiles.engine.reading.fetch import FetchCounts, fetched_ahead
from airflow_cloudfiles.engine.reading.splits import FileRange
from airflow_cloudfiles.engine.storage import ObjectNotFoundError, open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from airflow_cloudfiles.engine.storage.base import LinkedObjectError, ObjectChangedError
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.storage.outage import is_transient
from tests.support.landed import Stream
from tests.support.lines import fetch
from tests.support.sftp_servers import PASSWORD, USER, Landed, faulty, public
from tests.support.waiting import until

SERVERS = ["asyncssh_server", "openssh_server"]


@pytest.fixture(params=SERVERS)
def landed(request):
    """A new folder on each server."""
    found = Landed(request.getfixturevalue(request.param), uuid.uuid4().hex)
    found.disk.make_folder("any")
    return found


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server whose faults the test decides; what is tried again is tried at once."""
    monkeypatch.setattr(session, "_FIRST_PAUSE_SECONDS", 0.001)
    with faulty(tmp_path / "server") as found:
        yield found


def _folder(landed):
    return os.fsdecode(landed.disk.local_path("x").removesuffix("/x"))


def _discovered(store, **options):
    state = MemoryStore(f"memory://{uuid.uuid4().hex}")
    given = DiscoveryOptions(**options)
    intake = Intake(source=store, state=state, format="json", discovery=given)
    return intake.discover()


def _read(store, *files):
    counts = FetchCounts()
    return b"".join(
        block
        for part, first in fetched_ahead(store, [FileRange(file) for file in files])
        for block in fetch(store, part, counts, first=first, ignore_missing=False)
    )


# ── links ────────────────────────────────────────────────────────────────────────────────────────


def test_links_below_the_source_are_not_followed_and_the_log_says_so(landed, tmp_path, caplog):
    landed.put("real/a.json", b"{}")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.json").write_bytes(b"{}")
    folder = _folder(landed)
    Path(f"{folder}/out").symlink_to(outside)
    Path(f"{folder}/out.json").symlink_to(outside / "secret.json")
    Path(f"{folder}/in").symlink_to("real")
    Path(f"{folder}/loop").symlink_to(".")
    Path(f"{folder}/broken").symlink_to("nowhere")
    with caplog.at_level(logging.WARNING):
        assert [entry.path for entry in landed.list()] == ["real/a.json"]
        list(landed.list())
    assert caplog.text.count("5 symbolic links") == 1
    assert landed.head("out.json") is None
    with pytest.raises(ObjectNotFoundError):
        landed.get("out.json")
    with pytest.raises(ObjectNotFoundError):
        landed.get_range("out.json", 0, 1)


def test_the_root_itself_may_be_a_link(request, landed):
    landed.put("real/a.json", b"{}")
    Path(f"{_folder(landed)}/inbox").symlink_to("real")
    store = open_store(f"{landed.uri}/inbox", landed._login.access)
    assert store.is_folder()
    assert [entry.path for entry in store.list()] == ["a.json"]


# ── versions ─────────────────────────────────────────────────────────────────────────────────────


def test_another_size_in_the_same_second_is_another_version(landed):
    landed.put("a.json", b"one")
    path = f"{_folder(landed)}/a.json"
    os.utime(path, (1_700_000_000, 1_700_000_000))
    first = landed.head("a.json")
    landed.put("a.json", b"three")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    second = landed.head("a.json")
    assert first.modification_time_us == second.modification_time_us == 1_700_000_000_000_000
    assert first.etag != second.etag
    with pytest.raises(ObjectChangedError):
        landed.get_range("a.json", 0, 3, etag=first.etag)
    assert landed.get_range("a.json", 0, 5, etag=second.etag) == b"three"
    with pytest.raises(ObjectChangedError):
        landed.delete_version(first)
    assert landed.get("a.json") == b"three"


@pytest.mark.parametrize("identity", ["path", "pathAndVersion", "pathAndModificationTime"])
def test_a_file_that_is_not_touched_is_found_once(landed, identity, tmp_path):
    landed.put("a.json", b"one")
    options = DiscoveryOptions(file_identity=identity)
    state = MemoryStore(f"memory://{uuid.uuid4().hex}")
    for expected in (1, 0, 0):
        intake = Intake(source=landed, state=state, format="json", discovery=options)
        assert intake.discover().files == expected


def test_a_listing_reads_the_folders_of_its_range_only(landed):
    for day in range(20):
        landed.put(f"day={day:02}/a.json", b"{}")
    everything = [entry.path for entry in landed.list()]
    assert landed.requests["list"] == 21
    assert [entry.path for entry in landed.list(start_after="day=17/z")] == everything[18:]
    assert landed.requests["list"] == 21 + 4  # the root, the folder that it begins in, two more
    assert landed.key_after("day=17/z") == everything[18]


def test_a_large_file_is_read_in_ranges_of_one_version(landed):
    content = os.urandom(5 * 2**20 + 3)
    landed.put("big", content)
    entry = landed.head("big")
    with ThreadPoolExecutor(4) as pool:
        pieces = pool.map(
            lambda at: landed.get_range("big", at, 2**20, etag=entry.etag),
            range(0, len(content), 2**20),
        )
        assert b"".join(pieces) == content
    assert landed.get_range("big", len(content), 5, etag=entry.etag) == b""


def test_small_and_empty_files_are_fetched_ahead(landed):
    for number in range(40):
        landed.put(f"{number:02}.json", b"%d\n" % number if number % 4 else b"")
    before = landed.requests
    expected = b"".join(b"%d\n" % number for number in range(40) if number % 4)
    assert _read(landed, *landed.list()) == expected
    assert (landed.requests - before)["get"] == 40


# ── cleaning ─────────────────────────────────────────────────────────────────────────────────────


def _other(landed, below):
    return open_store(f"{landed.uri}/{below}", landed._login.access)


def test_a_version_is_moved_to_a_free_name_and_no_other(landed):
    source, archive = _other(landed, "in"), _other(landed, "archive")
    landed.put("in/d/a b%.json", b"one")
    landed.put("archive/d/taken.json", b"theirs")
    landed.put("in/d/taken.json", b"ours")
    entry = source.head("d/a b%.json")
    assert source.move_version(entry, archive, "d/e/a b%.json")
    assert (source.head("d/a b%.json"), archive.get("d/e/a b%.json")) == (None, b"one")
    with pytest.raises(ObjectNotFoundError):
        source.move_version(entry, archive, "d/other.json")
    assert not source.move_version(source.head("d/taken.json"), archive, "d/taken.json")
    assert (source.get("d/taken.json"), archive.get("d/taken.json")) == (b"ours", b"theirs")
    moved = archive.head("d/e/a b%.json")
    assert (moved.size, moved.modification_time_us) == (3, entry.modification_time_us)


def test_a_link_is_neither_removed_nor_moved(landed):
    landed.put("real.json", b"x")
    Path(f"{_folder(landed)}/link.json").symlink_to("real.json")
    entry = replace(landed.head("real.json"), path="link.json")
    with pytest.raises(LinkedObjectError):
        landed.delete_version(entry)
    with pytest.raises(LinkedObjectError):
        landed.move_version(entry, _other(landed, "archive"), "link.json")
    assert Path(f"{_folder(landed)}/link.json").is_symlink()


@pytest.mark.parametrize("fails", ["rename", "remove"])
def test_what_fails_leaves_the_file_in_its_place(server, fails):
    (server.folder / "a.json").write_bytes(b"x")
    store = open_store(server.served.location, server.served.access)
    entry = store.head("a.json")
    server.faults.fails.add(fails)
    with pytest.raises(ConnectionError, match="does not say why"):
        store.delete_version(entry)
    assert [each.path for each in store.list()] == ["a.json"]
    server.faults.fails.clear()
    store.delete_version(entry)
    assert list(store.list()) == []


def test_a_hidden_name_that_a_killed_process_left_is_put_back(landed, monkeypatch):
    landed.put("a.json", b"x")
    entry = landed.head("a.json")

    class Killed(BaseException):
        pass

    def kill(point):
        raise Killed

    with monkeypatch.context() as killing:
        killing.setattr("airflow_cloudfiles.engine.clouds.sftp.store.crash_point", kill)
        with pytest.raises(Killed):
            landed.delete_version(entry)
    assert list(landed.list()) == []
    assert landed.fingerprint("a.json").entry == entry
    with monkeypatch.context() as killing:
        killing.setattr("airflow_cloudfiles.engine.clouds.sftp.store.crash_point", kill)
        with pytest.raises(Killed):
            landed.delete_version(entry)
    landed.put("a.json", b"newer")
    assert landed.fingerprint("a.json").entry.size == 5
    assert [path.name for path in Path(_folder(landed)).iterdir()] == ["a.json"]


# ── who is there ─────────────────────────────────────────────────────────────────────────────────


def _line(server, key, pattern=None):
    return f"{pattern or f'[127.0.0.1]:{server.port}'} {public(key)}\n"


def test_a_key_that_was_revoked_is_refused_for_good(server, tmp_path):
    hosts = tmp_path / "known_hosts"
    hosts.write_text(_line(server, server.key) + "@revoked " + _line(server, server.key))
    store = open_store(server.served.location, replace(server.known(), known_hosts=str(hosts)))
    with pytest.raises(SourceAccessError, match="was revoked"):
        _discovered(store)
    assert server.faults.logins == 0


@pytest.mark.parametrize("known", ["none", "another", "another kind"])
def test_a_server_that_is_not_known_gets_no_password(server, tmp_path, known):
    hosts = tmp_path / "known_hosts"
    kinds = {"another": "ssh-ed25519", "another kind": "ecdsa-sha2-nistp256"}
    if known == "none":
        hosts.write_text("")
    else:
        hosts.write_text(_line(server, asyncssh.generate_private_key(kinds[known])))
    access = replace(server.known(), known_hosts=str(hosts))
    store = open_store(server.served.location, access)
    with pytest.raises(SourceAccessError) as refused:
        _discovered(store)
    text = str(refused.value)
    assert server.key.get_fingerprint() in text
    assert f"[127.0.0.1]:{server.port}" in text
    assert ("is not the one that is known" in text) == (known != "none")
    assert f"ssh-keyscan -p {server.port}" in text
    assert not refused.value.is_retryable
    assert PASSWORD not in text
    assert server.faults.logins == 0


def test_a_server_is_known_by_a_file_by_its_key_or_not_at_all(server, tmp_path):
    hosts = tmp_path / "known_hosts"
    hosts.write_text(f"# ours\nother.example {public(asyncssh.generate_private_key('ssh-rsa'))}\n")
    with hosts.open("a") as more:
        more.write(_line(server, server.key))
    for access in (
        replace(server.known(), known_hosts=str(hosts)),
        server.served.access,
        replace(server.known(), checks_host_key=False),
    ):
        assert open_store(server.served.location, access).is_folder()


def test_a_wrong_password_is_a_refusal_that_says_who_was_refused(server):
    store = open_store(server.served.location, replace(server.served.access, password="wr0ng-pw"))
    with pytest.raises(SourceAccessError, match=f"does not let the user {USER} in") as refused:
        _discovered(store)
    assert "wr0ng-pw" not in str(refused.value)
    assert not refused.value.is_retryable


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("sftp://other.example/in", "host other.example"),
        ("sftp://127.0.0.1:2299/in", "port 2299"),
        ("sftp://root@127.0.0.1/in", "user root"),
    ],
)
def test_credentials_go_to_their_own_server_only(server, location, named):
    with pytest.raises(OptionError, match=f"names the {named}"):
        open_store(location, server.served.access)


def test_without_a_connection_the_environment_says_who_logs_in(monkeypatch):
    said = {"CLOUDFILES_SFTP_USER": "alice", "CLOUDFILES_SFTP_MAX_CONNECTIONS": "5"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    login = login_of("sftp://host/in", None)
    assert (login.user, login.host, login.port, login.access.max_connections) == (
        ("alice", "host", 22, 5)
    )
    monkeypatch.delenv("CLOUDFILES_SFTP_USER")
    monkeypatch.setenv("LOGNAME", "me")
    assert login_of("sftp://host:2222/in", None).user == "me"
    with pytest.raises(OptionError, match="CLOUDFILES_SFTP_HOST"):
        from_variables({"CLOUDFILES_SFTP_PASSWORD": PASSWORD})
    with pytest.raises(OptionError, match="number of connections"):
        from_variables({"CLOUDFILES_SFTP_MAX_CONNECTIONS": "many"})


@pytest.mark.parametrize("how", ["missing", "no key", "encrypted"])
def test_a_private_key_that_cannot_be_read_is_refused_without_its_text(server, tmp_path, how):
    path = tmp_path / "key"
    if how == "no key":
        path.write_text("hush-1234")
    if how == "encrypted":
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(path, passphrase="right")
    access = replace(
        server.served.access, password=None, key_file=str(path), passphrase="hush-wrong"
    )
    with pytest.raises(OptionError, match=r"key file .* cannot be read") as refused:
        open_store(server.served.location, access).is_folder()
    assert "hush" not in str(refused.value)


# ── outages ──────────────────────────────────────────────────────────────────────────────────────


def test_a_listing_survives_connections_that_break_off(server):
    names = [f"{folder}/{number}.json" for folder in range(12) for number in range(3)]
    for name in names:
        (server.folder / name).parent.mkdir(exist_ok=True)
        (server.folder / name).write_bytes(b"{}")
    store = open_store(server.served.location, server.served.access)
    for after in (0, 5, 9):
        server.faults.cut_after = after
        assert sorted(entry.path for entry in store.list()) == sorted(names)
    assert server.faults.cuts == 3


def test_reading_survives_connections_that_break_off(server):
    for number in range(30):
        (server.folder / f"{number:02}").write_bytes(b"%d\n" % number)
    store = open_store(server.served.location, server.served.access)
    files = list(store.list())
    server.faults.cut_after = 11
    assert _read(store, *files) == b"".join(b"%d\n" % number for number in range(30))
    assert server.faults.cuts == 1


def test_a_server_that_is_away_is_an_outage_and_its_return_is_noticed(server):
    (server.folder / "a.json").write_bytes(b"{}\n")
    store = open_store(server.served.location, server.served.access)
    (entry,) = store.list()
    server.stop()
    with pytest.raises(ListingError) as away:
        _discovered(store)
    assert away.value.is_retryable
    with pytest.raises(FileUnreachableError) as unread:
        _read(store, entry)
    assert unread.value.is_retryable
    server.start()
    assert _read(store, entry) == b"{}\n"
    assert _discovered(store).files == 1


def test_a_denied_folder_and_a_denied_file_are_named(server):
    (server.folder / "open").mkdir()
    (server.folder / "closed").mkdir()
    (server.folder / "open/a.json").write_bytes(b"{}\n")
    (server.folder / "open/b.json").write_bytes(b"{}\n")
    store = open_store(server.served.location, server.served.access)
    server.faults.denies = {"closed"}
    with pytest.raises(SourceAccessError, match=f"/closed could not be listed.*{USER}") as refused:
        _discovered(store)
    assert not refused.value.is_retryable
    server.faults.denies = {"b.json"}
    with pytest.raises(FileUnreadableError, match=r"open/b.json cannot be read.*denies") as denied:
        _read(store, *store.list())
    assert not denied.value.is_retryable


@pytest.mark.parametrize("kinds", ["line", "nothing", "no mode"])
def test_a_server_that_sends_no_kinds_of_files_lists_the_same(server, kinds):
    """Permissions without type bits, as servers that are no Unix send them, hid every file."""
    (server.folder / "deep/er").mkdir(parents=True)
    (server.folder / "a.json").write_bytes(b"{}\n")
    (server.folder / "deep/er/data.json").write_bytes(b"{}\n")
    (server.folder / "link.json").symlink_to(server.folder / "a.json")
    store = open_store(server.served.location, server.served.access)
    usual = list(store.list())
    server.faults.kinds = kinds
    assert list(store.list()) == usual
    assert [each.path for each in usual] == ["a.json", "deep/er/data.json"]
    assert store.is_folder()
    assert [store.head(key) for key in ("a.json", "deep", "link.json")] == [usual[0], None, None]
    assert store.get("deep/er/data.json") == b"{}\n"
    assert _discovered(store).files == len(usual)


def test_a_source_that_is_not_there_is_said_to_be(server):
    store = open_store(f"{server.served.location}none", server.served.access)
    with pytest.raises(SourceNotFoundError, match="does not exist"):
        _discovered(store)
    with pytest.raises(FileNotFoundError):
        list(store.list())


def test_a_failure_without_a_reason_is_an_outage(server):
    (server.folder / "a.json").write_bytes(b"{}\n")
    store = open_store(server.served.location, server.served.access)
    server.faults.fails.add("read")
    with pytest.raises(OSError, match="does not say why") as failed:
        store.get("a.json")
    assert is_transient(failed.value)
    assert "disk on fire" not in str(failed.value)


# ── connections ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [1, 3])
def test_many_threads_share_few_connections(server, limit):
    for number in range(60):
        (server.folder / f"{number}").write_bytes(b"%d" % number)
    access = replace(server.served.access, max_connections=limit)
    store = open_store(server.served.location, access)
    with ThreadPoolExecutor(24) as pool:
        found = list(pool.map(lambda number: store.get(f"{number}"), range(60)))
    assert found == [b"%d" % number for number in range(60)]
    assert 1 <= server.faults.most <= limit


def test_a_connection_that_nobody_uses_is_closed(server, monkeypatch):
    monkeypatch.setattr(session, "_IDLE_SECONDS", 0.05)
    store = open_store(server.served.location, server.served.access)
    assert store.is_folder()
    until(lambda: server.faults.connections == 0, 60)
    assert store.is_folder()


def test_nobody_waits_for_connections_that_have_been_closed(server, monkeypatch):
    monkeypatch.setattr(session, "_FIRST_PAUSE_SECONDS", 600)  # between two connections
    (server.folder / "a").write_bytes(b"x")
    store = open_store(server.served.location, server.served.access)
    assert store.get("a") == b"x"
    server.faults.cut_after = 0
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.get, "a")
        until(lambda: server.faults.cuts == 1, 60)
        session.close_all()
        with pytest.raises(ConnectionError, match="ConnectionAbortedError"):
            waiting.result(60)
    assert store.get("a") == b"x"


_FORKS = """
import os, sys
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import from_environment
from airflow_cloudfiles.engine.clouds.sftp import session

store = open_store(sys.argv[1], from_environment(os.environ))
content = store.get("a")
if (child := os.fork()) == 0:
    is_same = store.get("a") == content
    session.close_all()
    os._exit(0 if is_same else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert store.get("a") == content
print(len(content))
"""


def test_a_forked_process_has_connections_of_its_own(server, monkeypatch):
    (server.folder / "a").write_bytes(b"x" * 100_000)
    for name, value in to_environment(server.served.access).items():
        monkeypatch.setenv(name, value)
    # Not a fork of this process, which has threads and servers of other tests.
    forks = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORKS]
    found = subprocess.run(
        [*forks, server.served.location], check=True, capture_output=True, text=True, timeout=120
    )
    assert found.stdout == "100000\n"
    assert server.faults.logins == 2


# ── the command line ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def reached(landed, monkeypatch):
    """A folder that every process of this one reaches by its environment."""
    for name, value in to_environment(landed._login.access).items():
        monkeypatch.setenv(name, value)
    landed.put("in/a b%.json", b'{"a": 1, "b": "x"}\n')
    landed.put("in/b.json", b'{"a": 2, "c": true}\n')
    return f"{landed.uri}/in"


def test_a_schema_is_inferred_and_rows_are_read(reached, tmp_path):
    options = {"cloudFiles.inferColumnTypes": "true"}
    stream = Stream(reached, tmp_path / "state", "json", **options)
    found = [{name: row[name] for name in "abc"} for row in stream.run()]
    assert sorted(found, key=lambda row: row["a"]) == [
        {"a": 1, "b": "x", "c": None},
        {"a": 2, "b": None, "c": True},
    ]


def test_the_commands_find_files_and_check_a_source(reached, tmp_path, capsys):
    state = ["--checkpoint-location", str(tmp_path / "state")]
    assert main(["discover", "--source", reached, *state, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["new_files"] == 2
    assert main(["doctor", "--source", reached]) in {0, 1}  # whether there is a Java
    told = capsys.readouterr().out
    assert re.search(r"ok +source: list +such as sftp://\S+/in/a b%\.json", told)
    assert "not known: the server" in told
    assert main(["doctor", "--source", f"{reached}/none"]) == 1
    assert re.search(r"problem +source: list .*is no folder", capsys.readouterr().out)


# ── what is not there ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("option", ["cloudFiles.schemaLocation", "badRecordsPath"])
def test_schemas_and_bad_records_at_a_server_are_refused_by_name(option):
    given = {"cloudFiles.format": "json", option: "sftp://host/x"}
    with pytest.raises(UnsupportedOptionError, match=r"host/x .* source only"):
        own_locations(CloudFilesOptions.parse(given, path="/in", has_schema=True))


@pytest.mark.parametrize("place", ["checkpoint_location", "target"])
def test_a_state_or_a_table_at_a_server_is_refused_by_name(place):
    given = {
        "kind": "ingest",
        "source": "/in",
        "format": "json",
        "checkpoint_location": "/state",
        "target": "/table",
        "run_id": "r",
        place: "SFTP://host/folder",
    }
    with pytest.raises(UnsupportedOptionError, match=r"host/folder .* source only.*S3"):
        JobSpec(**given)


def test_nothing_is_written_to_a_server(server):
    store = open_store(server.served.location, server.served.access)
    for call in (
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.put_if_match("a", b"", "x"),
    ):
        with pytest.raises(UnsupportedOptionError, match="source only"):
            call()
    assert list(server.folder.iterdir()) == []
