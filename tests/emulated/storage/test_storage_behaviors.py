"""What every store promises, tried on every store there is."""

from __future__ import annotations

import itertools
import pickle
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_cloudfiles.engine.storage import ObjectNotFoundError, open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from airflow_cloudfiles.engine.storage.base import ObjectChangedError, key_bytes
from airflow_cloudfiles.engine.storage.local import LocalStore
from airflow_cloudfiles.engine.storage.memory import MemoryStore
from airflow_cloudfiles.engine.storage.small_objects import require_conditional_put
from tests.support.emulators.other_servers import kinds
from tests.support.sftp_servers import PASSWORD, Landed

ODD_NAMES = [
    "with space.json",
    "100%.json",
    "a%20b.json",
    "a+b.json",
    "a#b.json",
    "key=value/x=y.json",
    "caf\u00e9.json",  # NFC
    "cafe\u0301.json",  # NFD: another file
    "new\nline.json",
    "tab\tand\r.json",
    "back\\slash.json",
    'quote".json',
    "\U0001f600.json",
    "\uffee.json",
    "deep/er/and/deeper/x.json",
    "?*[a]{b}.json",
    " ",
    "~",
    "-rf",
    "a:b",
    "x" * 255,
]
NOT_UTF8 = ["not-utf8-\udcff\udcfe.json"]  # a disk has such names, clouds do not

OPAQUE_KEYS = ["a//b", "a/./x", "a/../y", "/lead", "//", "ctl-\x01", "a.", "dir/"]
"""Keys that only an object store can have."""

NOT_KEPT = {
    "azure": {"a/./x", "a/../y", "back\\slash.json", "ctl-\x01"},  # nor Azure, but for the last
    "seaweed": {"a//b", "a/./x", "a/../y", "/lead", "//", "back\\slash.json", "dir/"},
    "moto": {"new\nline.json", "ctl-\x01"},
    "s3mock": {"back\\slash.json", "\uffee.json"},  # lists the last in UTF-16's order
    "versity": {"a//b", "a/./x", "a/../y", "/lead", "//", "dir/", "ctl-\x01"},
    "ceph": {"ctl-\x01"},  # keeps it, and does not take it as the prefix of a listing
}
"""Keys that an emulator changes or refuses; but for Azure, the service itself does not."""

SERVERS = {"sftp": "asyncssh_server", "openssh": "openssh_server"}
"""SFTP servers: nothing is written there; what a test puts there comes by the disk behind them."""
STRICT = {"local", "memory", "memory folder", *SERVERS}
DISKS = {"local"}
IN_ORDER = kinds("local", *SERVERS, "memory", "memory folder", "s3", "s3 folder", "azure", "gcs")
"""Seaweedfs lists folder by folder: see test_s3.py."""
CLOUDS = kinds("s3", "s3 folder", "seaweed", "azure", "gcs")
EMULATORS = {"s3": "aws", "s3 folder": "aws", "seaweed": "seaweed", "azure": "azurite"}
WRITTEN = kinds("local", "memory", "memory folder", *CLOUDS)
"""Stores that states and tables can be in."""
AT_ONCE = [each for each in WRITTEN if each not in {"s3mock", "swift"}]
"""Where one of those who create an object at the same moment wins: these let several."""


@pytest.fixture(params=kinds(*WRITTEN, *SERVERS))
def kind(request):
    return request.param


@pytest.fixture
def access(kind, request):
    if kind in SERVERS:
        return request.getfixturevalue(SERVERS[kind]).access
    if kind not in CLOUDS:
        return None
    return request.getfixturevalue(EMULATORS.get(kind, kind)).access


@pytest.fixture
def store(kind, access, request, tmp_path):
    if kind == "local":
        return open_store(str(tmp_path / "root"))
    if kind in SERVERS:
        found = Landed(request.getfixturevalue(SERVERS[kind]), uuid.uuid4().hex)
        found.disk.make_folder("any")
        return found
    if kind.startswith("memory"):
        name = f"memory://{uuid.uuid4().hex}"
        return open_store(name if kind == "memory" else f"{name}/some/folder")
    emulator = request.getfixturevalue(EMULATORS.get(kind, kind))
    root = emulator.container() if kind == "azure" else emulator.bucket()
    return open_store(f"{root}/some//+folder" if kind == "s3 folder" else root, access)


def in_order(kind, names):
    """As the store lists them: Azure in the order of UTF-16, all others in that of UTF-8."""
    return (
        sorted(names, key=lambda name: name.encode("utf-16-be"))
        if kind == "azure"
        else sorted(names, key=key_bytes)
    )


def keys(store, *args, **kwargs):
    return [entry.path for entry in store.list(*args, **kwargs)]


def small_pages(store, access, size):
    """The same store, that lists a few objects a page."""
    return type(store)(store.uri, *([access] if access else []), page_size=size)


def test_open_store_gives_the_store_of_the_scheme(tmp_path):
    assert isinstance(open_store(str(tmp_path)), LocalStore)
    assert isinstance(open_store("memory://x/y"), MemoryStore)


def test_what_was_put_is_got(store):
    store.put("a/b", b"one")
    assert store.get("a/b") == b"one"


def test_put_replaces(store):
    store.put("a", b"one")
    store.put("a", b"second")
    assert store.get("a") == b"second"
    assert store.head("a").size == 6


@pytest.mark.parametrize("kind", WRITTEN, indirect=True)
def test_put_if_absent_never_replaces(store):
    assert store.put_if_absent("a/b", b"one") is True
    assert store.put_if_absent("a/b", b"two") is False
    assert store.get("a/b") == b"one"


@pytest.mark.parametrize("kind", AT_ONCE, indirect=True)
def test_of_many_threads_one_creates_the_object(store):
    gate = threading.Barrier(8)
    winners: list[bytes] = []

    def race(content: bytes) -> None:
        gate.wait()
        if store.put_if_absent("race/0", content):
            winners.append(content)

    threads = [threading.Thread(target=race, args=(b"%d" % number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.get("race/0")] == winners


@pytest.mark.parametrize("kind", sorted({*AT_ONCE} & {*CLOUDS}), indirect=True)
def test_every_object_has_one_creator(store):
    numbers = range(50)
    with ThreadPoolExecutor(8) as pool:
        races = [
            [pool.submit(store.put_if_absent, f"{number}", b"%d" % me) for me in range(8)]
            for number in numbers
        ]
    for number, race in zip(numbers, races, strict=True):
        (winner,) = (me for me, call in enumerate(race) if call.result())
        assert store.get(f"{number}") == b"%d" % winner


@pytest.mark.parametrize("kind", [each for each in WRITTEN if each != "swift"], indirect=True)
def test_put_if_match_replaces_one_version(kind, store):
    store.put("a", b"one")
    if kind in DISKS:
        with pytest.raises(NotImplementedError, match="no etags"):
            store.put_if_match("a", b"two", "")
        return
    etag = store.head("a").etag
    assert etag
    assert '"' not in etag
    assert store.put_if_match("a", b"two", etag) is True
    assert store.put_if_match("a", b"three", etag) is False
    assert store.put_if_match("none", b"", etag) is False
    assert store.get("a") == b"two"
    assert store.head("none") is None


@pytest.mark.parametrize("kind", WRITTEN, indirect=True)
def test_requests_are_counted(store):
    store.put("a", b"")
    store.put_if_absent("a", b"")
    store.head("a")
    store.get("a")
    store.get_range("a", 0, 1)
    keys(store)
    store.delete("a")
    assert store.requests == {"put": 2, "head": 1, "get": 2, "list": 1, "delete": 1}


@pytest.mark.parametrize("kind", WRITTEN, indirect=True)
def test_a_store_with_conditional_writes_is_trusted(store):
    require_conditional_put(store)
    assert keys(store) == []


def test_a_missing_object_is_not_found(store):
    store.put("folder/file", b"")
    for key in ("none", "folder", "folder/file/below", "folder/none"):
        assert store.head(key) is None
        with pytest.raises(ObjectNotFoundError):
            store.get(key)
        with pytest.raises(ObjectNotFoundError):
            store.get_range(key, 0, 1)


def test_a_range_is_cut_at_the_end_of_the_object(store):
    store.put("a", b"0123456789")
    assert store.get_range("a", 2, 3) == b"234"
    assert store.get_range("a", 8, 100) == b"89"
    assert store.get_range("a", 10, 1) == b""
    assert store.get_range("a", 99, 1) == b""
    assert store.get_range("a", 3, 0) == b""
    for start, length in ((-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="range"):
            store.get_range("a", start, length)


def test_a_read_may_ask_for_a_version(kind, store):
    store.put("a", b"0123456789")
    first = store.head("a").etag
    assert store.get_range("a", 2, 3, etag=first or None) == b"234"
    assert store.get_range("a", 10, 3, etag=first or None) == b""
    assert store.get_range("a", 0, 0, etag=first or None) == b""
    store.put("a", b"abcdefghij")
    if kind in DISKS:
        assert store.get_range("a", 2, 3, etag="any") == b"cde"
        return
    for start, length in ((2, 3), (0, 10), (0, 0), (10, 3)):
        with pytest.raises(ObjectChangedError):
            store.get_range("a", start, length, etag=first)
    assert store.get_range("a", 2, 3, etag=store.head("a").etag) == b"cde"
    store.delete("a")
    with pytest.raises(ObjectNotFoundError):
        store.get_range("a", 2, 3, etag=first)


def test_deleting_twice_is_deleting_once(store):
    store.put("a/b", b"")
    store.delete("a/b")
    store.delete("a/b")
    store.delete("never/was")
    assert keys(store) == []


def test_head_and_list_agree(store):
    store.put("a/b", b"xyz")
    (listed,) = store.list()
    assert listed == store.head("a/b")
    assert (listed.path, listed.size) == ("a/b", 3)
    assert listed.modification_time_us > 1_600_000_000_000_000


@pytest.mark.parametrize("kind", WRITTEN, indirect=True)
def test_the_clock_of_a_store_is_that_of_its_modification_times(store):
    before = store.clock_us()
    store.put("a", b"1")
    arrived = store.arrived_us(store.head("a"))
    # Clouds tell whole seconds, and the clock of Versity's gateway may stand for one.
    assert before <= arrived <= store.clock_us() + 1_000_000


def test_an_empty_store_lists_nothing(store):
    assert keys(store) == []
    assert keys(store, "some/prefix") == []


def test_odd_names_are_names_like_others(kind, store):
    names = [*ODD_NAMES, *(NOT_UTF8 if kind in STRICT else [])]
    names = [name for name in names if name not in NOT_KEPT.get(kind, ())]
    for number, name in enumerate(names):
        store.put(f"odd/{name}", b"%d" % number)
    assert keys(store) == in_order(kind, (f"odd/{name}" for name in names))
    for number, name in enumerate(names):
        assert store.get(f"odd/{name}") == b"%d" % number
        if kind not in SERVERS:
            assert store.put_if_absent(f"odd/{name}", b"") is False
        store.child_uri(f"odd/{name}").encode("utf-8")
        store.delete(f"odd/{name}")
    assert keys(store) == []


@pytest.mark.parametrize("kind", CLOUDS, indirect=True)
def test_any_text_is_a_key_of_an_object_store(kind, store):
    names = [name for name in OPAQUE_KEYS if name not in NOT_KEPT.get(kind, ())]
    for name in names:
        store.put(name, name.encode())
    assert keys(store) == in_order(kind, names)
    for name in names:
        assert store.get(name) == name.encode()
        assert store.head(name).path == name
        assert keys(store, name) == [n for n in in_order(kind, names) if n.startswith(name)]
        assert name not in keys(store, start_after=name)
        store.delete(name)
    assert keys(store) == []


@pytest.mark.parametrize("kind", CLOUDS, indirect=True)
def test_the_mark_of_a_folder_is_no_file(store):
    store.put("", b"") if store.uri.endswith("folder") else None
    store.put("folder/", b"")
    store.put("folder/a", b"")
    assert keys(store) == ["folder/a"]


@pytest.mark.parametrize("kind", IN_ORDER, indirect=True)
def test_folders_sort_where_their_contents_do(store):
    names = ["a/x", "a-b", "a.json", "a0", "ab/c", "a/b/c", "a/b-c", "A", "a b/1"]
    for name in names:
        store.put(name, b"")
    assert keys(store) == in_order("", names)
    assert keys(store).index("a-b") < keys(store).index("a/b/c") < keys(store).index("a0")


@pytest.mark.parametrize("kind", IN_ORDER, indirect=True)
def test_a_prefix_is_a_prefix_of_the_key(store):
    for name in ("a/b/c", "a/bc", "a/b-c", "ab", "b/a"):
        store.put(name, b"")
    assert keys(store, "a/b") == ["a/b-c", "a/b/c", "a/bc"]
    assert keys(store, "a/b/") == ["a/b/c"]
    assert keys(store, "a/b/c") == ["a/b/c"]
    assert keys(store, "a") == ["a/b-c", "a/b/c", "a/bc", "ab"]
    assert keys(store, "none/of/these") == []


def test_start_after_leaves_out_what_was_listed(store):
    names = ["a/1", "a/2", "a/2-3", "b", "c/d/e"]
    for name in names:
        store.put(name, b"")
    everything = keys(store)
    for number, name in enumerate(everything):
        assert keys(store, start_after=name) == everything[number + 1 :]
    assert keys(store, start_after="a/") == everything
    assert keys(store, "a/", start_after="a/1") == [n for n in everything[1:] if n[0] == "a"]
    assert keys(store, "a/", start_after="b") == []


def test_end_before_leaves_out_the_end(store):
    for name in ("a/1", "a/2", "a/2-3", "b", "c/d/e"):
        store.put(name, b"")
    everything = keys(store)
    for first, last in itertools.combinations_with_replacement(range(len(everything)), 2):
        listed = keys(store, start_after=everything[first], end_before=everything[last])
        assert listed == everything[first + 1 : last]
    assert keys(store, end_before="a/2") == ["a/1"]
    assert keys(store, end_before="a/") == []
    assert keys(store, end_before="c/d") == everything[:-1]
    assert keys(store, "a/", end_before="zzz") == everything[:3]


def test_the_first_key_after_a_text(store):
    names = ["a/1", "a/2", "b", "c/d/e"]
    for name in names:
        store.put(name, b"")
    assert store.key_after("") == "a/1"
    assert store.key_after("a/1") == "a/2"
    assert store.key_after("a/10") == "a/2"
    assert store.key_after("b") == "c/d/e"
    assert store.key_after("c/d/") == "c/d/e"
    assert store.key_after("c/d/e") is None


@pytest.mark.parametrize("kind", ["memory", "memory folder", *CLOUDS], indirect=True)
def test_a_listing_makes_one_request_a_page(store, access):  # B87
    for number in range(13):
        store.put(f"day={number // 4}/hour={number}/file", b"")
    paged = small_pages(store, access, 5)
    everything = keys(paged)
    assert len(everything) == 13
    assert paged.requests["list"] == 3  # though there are 17 folders
    assert keys(paged, start_after=everything[9]) == everything[10:]
    assert keys(paged, end_before=everything[4]) == everything[:4]
    assert paged.requests["list"] == 5
    assert paged.key_after(everything[3]) == everything[4]
    assert paged.requests["list"] == 6


@pytest.mark.parametrize("kind", ["memory", "memory folder", *CLOUDS], indirect=True)
def test_a_folder_that_is_left_out_is_not_paged_through(store, access):
    for number in range(20):
        store.put(f"b/skipped/{number:02}", b"")
    for name in ("a", "b/a", "b/z", "c"):
        store.put(name, b"")
    paged = small_pages(store, access, 4)
    assert keys(paged, skip=lambda key, is_folder: key == "b/skipped") == ["a", "b/a", "b/z", "c"]
    assert paged.requests["list"] == 2
    assert keys(paged, "b/skipped/", skip=lambda key, is_folder: key == "b") == []
    assert paged.requests["list"] == 2


def test_skip_prunes_folders_without_looking_into_them(store):
    for name in ("keep/a", "drop/a", "keep/drop/a", "keep/x", "dropped"):
        store.put(name, b"")
    asked: list[tuple[str, bool]] = []

    def skip(key: str, is_folder: bool) -> bool:
        asked.append((key, is_folder))
        return key.rpartition("/")[2] == "drop" or key == "keep/x"

    assert keys(store, skip=skip) == ["dropped", "keep/a"]
    assert not any(key.startswith("drop/") for key, _ in asked)
    assert ("drop", True) in asked
    assert ("dropped", False) in asked
    assert keys(store, "drop/", skip=skip) == []


@pytest.mark.parametrize("kind", sorted(STRICT), indirect=True)
def test_keys_that_do_not_stay_below_the_root_are_refused(store):
    for key in ("", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a/.", "nul\0"):
        for call in (store.get, store.head, store.delete, lambda k: store.put(k, b"")):
            with pytest.raises(ValueError, match="not a key"):
                call(key)


def test_a_location_below_the_root_has_a_key(store):
    assert store.key_of(store.uri) == ""
    assert store.key_of(store.uri + "/a/b c") == "a/b c"
    assert store.key_of(store.uri + "x") is None
    assert store.key_of("memory://somewhere/else") is None
    assert store.key_of("/") is None


def test_a_uri_opens_the_same_store_again(store, access):
    store.put("a", b"1")
    assert open_store(store.uri, access).get("a") == b"1"
    assert store.child_uri("a") == store.uri + "/a"


@pytest.mark.parametrize("kind", ["local", *CLOUDS, *SERVERS], indirect=True)
def test_a_store_travels_without_its_credentials(store, access, monkeypatch):
    store.put("a", b"1")
    pickled = pickle.dumps(store)
    for name, value in (to_environment(access) if access else {}).items():
        monkeypatch.setenv(name, value)
    assert pickle.loads(pickled).get("a") == b"1"
    assert b"secret" not in pickled
    assert b"AccountKey" not in pickled
    assert PASSWORD.encode() not in pickled


part = st.text(
    st.one_of(st.sampled_from("ab-./0= "), st.characters(codec="utf-8")), min_size=1, max_size=4
).map(lambda text: text.replace("/", "_").replace("\0", "_"))
parts = part.filter(lambda text: text not in {".", ".."} and len(key_bytes(text)) < 200)
some_keys = st.sets(st.lists(parts, min_size=1, max_size=4).map("/".join), max_size=12)


def _without_conflicts(names: set[str]) -> list[str]:
    """A disk cannot have a file and a folder of one name."""
    folders = {
        "/".join(n.split("/")[:depth]) for n in names for depth in range(1, n.count("/") + 1)
    }
    return sorted(names - folders)


@settings(max_examples=60, deadline=None)
@given(some_keys, st.text(max_size=3), st.data())
def test_both_stores_list_alike(names, prefix, data):
    names = _without_conflicts(names)
    start_after = data.draw(st.sampled_from(["", *names]))
    memory = open_store(f"memory://{uuid.uuid4().hex}")
    with TemporaryDirectory() as folder:
        local = open_store(str(Path(folder) / "root"))
        for name in names:
            memory.put(name, b"x")
            local.put(name, b"x")
        expected = sorted(names, key=key_bytes)
        assert keys(local) == keys(memory) == expected
        after = [n for n in expected if key_bytes(n) > key_bytes(start_after)]
        assert keys(local, start_after=start_after) == after
        assert keys(memory, start_after=start_after) == after
        some = [n for n in after if n.startswith(prefix)]
        assert keys(local, prefix, start_after=start_after) == some
        assert keys(memory, prefix, start_after=start_after) == some
