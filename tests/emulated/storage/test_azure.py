"""What is particular to Azure: order, folders, conditions, and a network that fails."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.core.exceptions import HttpResponseError

from airflow_cloudfiles.engine.clouds.azure.access import AzureAccess
from airflow_cloudfiles.engine.clouds.azure.client import account_of, open_account
from airflow_cloudfiles.engine.clouds.azure.store import FLAT, TREE, AzureStore
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.base import UnorderedListingError

SIGNATURE = "SharedAccessSignature=sv=1&sig=x%3D"
BUSY = (
    "HTTP/1.1 503 Server Busy\r\nx-ms-error-code: ServerBusy\r\n"
    "Content-Length: 0\r\nConnection: close\r\n\r\n"
)
HALF_A_PAGE = '<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs><Blob><Name>k0'
ENDS_EARLY = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n"
    f"Content-Length: {len(HALF_A_PAGE)}\r\nConnection: close\r\n\r\n{HALF_A_PAGE}"
)


def keys(store, *args, **kwargs):
    return [entry.path for entry in store.list(*args, **kwargs)]


@pytest.fixture
def uri(azurite):
    return azurite.container()


@pytest.fixture
def store(azurite, uri):
    return AzureStore(uri, azurite.access)


# ── conditions ───────────────────────────────────────────────────────────────────────────────────


def test_of_eight_writers_of_fifty_keys_one_each_wins(store):
    def write(number: int) -> bool:
        return store.put_if_absent(f"race/{number // 8}", b"%d" % number)

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(write, range(400)))
    assert [sum(won[first : first + 8]) for first in range(0, 400, 8)] == [1] * 50


def test_a_conflict_is_a_no_and_a_failed_precondition_too(store):
    assert store.put_if_absent("a", b"1")  # else 409
    assert not store.put_if_absent("a", b"2")
    first = store.head("a").etag
    assert store.put_if_match("a", b"3", first)  # else 412
    assert not store.put_if_match("a", b"4", first)
    assert not store.put_if_match("gone", b"5", first)
    assert store.get("a") == b"3"


def test_an_etag_is_never_used_twice(store):
    etags = set()
    for _ in range(5):
        store.put("a", b"same")
        etags.add(store.head("a").etag)
    assert len(etags) == 5


# ── folders ──────────────────────────────────────────────────────────────────────────────────────


def test_the_folders_of_a_hierarchical_namespace_are_no_files(azurite, uri, store):
    with azurite.container_client(uri) as container:
        for name in ("in", "in/empty", "in/day"):
            container.upload_blob(name, b"", metadata={"hdi_isfolder": "true"})
        container.upload_blob("in/other", b"", metadata={"owner": "me"})
    store.put("in/day/a", b"1")
    store.put("in/nothing", b"")
    assert keys(store) == ["in/day/a", "in/nothing", "in/other"]
    assert store.head("in/day") is None
    with pytest.raises(LookupError):
        store.get("in/day")
    assert store.requests["list"] == 1  # the metadata came with the page


class Tree:
    """A container as an account with a hierarchical namespace lists it.

    azurite has no such accounts; the order is that of Azure/azure-sdk-for-go issue 24210.
    """

    def __init__(self, container, *, honors_start: bool = True) -> None:
        self._container = container
        self._honors_start = honors_start
        self.starts: list[str | None] = []

    def list_blobs(self, *, name_starts_with, include, results_per_page, start_from=None):
        self.starts.append(start_from)
        blobs = list(self._container.list_blobs(name_starts_with, include))
        blobs.sort(key=lambda blob: TREE.of(blob.name))
        if start_from is not None and self._honors_start:
            blobs = [blob for blob in blobs if TREE.of(blob.name) >= TREE.of(start_from)]
        return Pages(blobs, results_per_page)

    def get_account_information(self):
        return {"is_hns_enabled": True}


class Pages:
    def __init__(self, blobs, size: int) -> None:
        self._blobs, self._size = blobs, size
        self._at = 0
        self.continuation_token = None

    def by_page(self, mark):
        self._at = int(mark or 0)
        return self

    def __next__(self):
        end = self._at + self._size
        self.continuation_token = str(end) if end < len(self._blobs) else None
        return iter(self._blobs[self._at : end])


class Secretive(Tree):
    """An account that does not tell what it is, to this identity."""

    def get_account_information(self):
        failure = HttpResponseError("not for you")
        failure.status_code = 403
        raise failure


class Elsewhere(AzureStore):
    """A store whose container is another one."""

    def __init__(self, uri, container, **arguments) -> None:
        super().__init__(uri, None, **arguments)
        self.container = container

    def _client(self):
        return self.container


NAMES = ["A", "A-B", "A-B-C", "A-B/dat2", "A.C/dat3", "A/dat1", "A/dat2", "AB.txt", "AB/AB", "ABC"]


@pytest.mark.parametrize("kind", [Tree, Secretive])
def test_a_listing_between_bounds_follows_the_order_of_the_account(azurite, uri, store, kind):
    for name in NAMES:
        store.put(name, b"x")
    with azurite.container_client(uri) as container:
        tree = Elsewhere(uri, kind(container), page_size=2)
        order = TREE if kind is Tree else FLAT
        assert sorted(keys(tree)) == NAMES
        in_order = sorted(NAMES, key=order.of)
        for number, name in enumerate(in_order):
            assert sorted(keys(tree, start_after=name), key=order.of) == in_order[number + 1 :]
            assert sorted(keys(tree, end_before=name), key=order.of) == in_order[:number]
            assert tree.key_after(name) == next(iter(in_order[number + 1 :]), None)
        assert tree.key_order is (TREE.of if kind is Tree else None)


@pytest.mark.parametrize("kind", [Tree, Secretive])
def test_ranges_lose_nothing_whatever_the_order(azurite, uri, store, kind):
    for name in NAMES:
        store.put(name, b"x")
    with azurite.container_client(uri) as container:
        tree = Elsewhere(uri, kind(container), page_size=3)
        found: set[str] = set()
        edges = ["", "A-B", "A/dat1", "AB", ""]  # in byte order, which is not the account's
        for first, last in itertools.pairwise(edges):
            found |= {*keys(tree, start_after=first, end_before=last)}
        assert found | {*edges} >= {*NAMES}


@pytest.mark.parametrize("kind", [Tree, Secretive])
def test_a_folder_that_is_left_out_hides_nothing_else(azurite, uri, store, kind):
    for name in NAMES:
        store.put(name, b"x")
    with azurite.container_client(uri) as container:
        tree = Elsewhere(uri, kind(container), page_size=2)
        found = keys(tree, skip=lambda key, is_folder: is_folder and key == "A")
    assert sorted(found) == [name for name in NAMES if not name.startswith("A/")]


def test_onelake_starts_only_at_the_beginning(azurite, uri, store):
    for name in ("a", "b", "c"):
        store.put(name, b"x")
    lake = "abfss://workspace@onelake.dfs.fabric.microsoft.com"
    with azurite.container_client(uri) as container:
        tree = Tree(container)
        assert keys(Elsewhere(lake, tree), start_after="a") == ["b", "c"]
    assert tree.starts == [None]


# ── order ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ignores_start", [False, True])
def test_characters_beyond_the_basic_plane_are_not_lost(azurite, uri, store, ignores_start):
    names = ["a", "z", "\u00e9", "\ud7a3", "\ue000", "\uffee", "\U0001f600", "\U0001f600/x"]
    for name in names:
        store.put(name, b"x")
    with azurite.container_client(uri) as container:
        if ignores_start:  # as azurite before 3.37 does
            real = container.list_blobs

            def without_start(start_from=None, **arguments):
                return real(**arguments)

            container.list_blobs = without_start
        looked = Elsewhere(uri, container, page_size=2)
        everything = sorted(names, key=FLAT.of)
        assert keys(looked) == everything
        for number, name in enumerate(everything):
            assert keys(looked, end_before=name) == everything[:number]
            if ignores_start and number >= looked.page_size:
                with pytest.raises(UnorderedListingError, match="does not start a listing"):
                    keys(looked, start_after=name)
                with pytest.raises(UnorderedListingError, match="does not start a listing"):
                    looked.key_after(name)
                continue
            assert keys(looked, start_after=name) == everything[number + 1 :]
            assert looked.key_after(name) == next(iter(everything[number + 1 :]), None)


def test_a_listing_that_starts_late_reads_one_page(store):
    for number in range(30):
        store.put(f"k{number:02}", b"")
    small = AzureStore(store.uri, store._access, page_size=10)
    assert keys(small, start_after="k24") == ["k25", "k26", "k27", "k28", "k29"]
    assert small.requests["list"] == 1


# ── a network that fails ─────────────────────────────────────────────────────────────────────────


@pytest.fixture
def behind(azurite, uri, store, microburst):
    """Thirty objects, and a store of small pages that reaches them through a proxy."""
    for number in range(30):
        store.put(f"k{number:02}", b"")
    proxy = microburst(f"127.0.0.1:{azurite.blob_port}", "tcp")

    def open_behind(retries: int = 2) -> AzureStore:
        access = azurite.access_through(proxy.port)
        return AzureStore(uri, access, page_size=10, retries=retries)

    open_behind.proxy = proxy
    return open_behind


def rule(**what):
    return {"service": "tcp", "operation": "conn", "payload": "comp=list", **what}


@pytest.mark.parametrize(
    "fault",
    [
        {"respond": {"data": BUSY, "then": "close"}},
        {"respond": {"data": ENDS_EARLY, "then": "close"}},
        {"cut_reply": {"after_bytes": 700}},
        {"reset": True},
    ],
    ids=["throttled", "not XML", "cut off", "reset"],
)
def test_a_page_that_fails_once_is_asked_for_again(behind, fault):
    behind.proxy.rules([rule(**fault, times=1)])
    assert keys(behind()) == [f"k{number:02}" for number in range(30)]
    assert behind.proxy.fired()


@pytest.mark.parametrize(
    "fault",
    [
        {"respond": {"data": BUSY, "then": "close"}},
        {"respond": {"data": ENDS_EARLY, "then": "close"}},
        {"reset": True},
    ],
    ids=["throttled", "not XML", "reset"],
)
def test_a_page_that_keeps_failing_ends_the_listing_with_a_sentence(behind, fault):
    behind.proxy.rules([rule(**fault)])
    with pytest.raises(ConnectionError, match=r"^abfss://\S+ could not be listed: .*[Tt]ry again"):
        keys(behind(retries=0))


def test_what_is_not_allowed_or_not_there_is_said_in_a_sentence(azurite, uri):
    access = AzureAccess(sas_token="sv=1&sig=secret", blob_endpoint=azurite.blob_endpoint)
    with pytest.raises(PermissionError, match=r"is denied.*Storage Blob Data Reader") as caught:
        keys(AzureStore(uri, access))
    assert "secret" not in str(caught.value)
    nowhere = AzureStore(uri.replace("//c-", "//none-"), azurite.access)
    with pytest.raises(FileNotFoundError, match="no such container"):
        keys(nowhere)
    assert not nowhere.is_folder()
    with pytest.raises(OSError, match="backslash"):
        AzureStore(uri, azurite.access).get("in/../secret")


# ── credentials ──────────────────────────────────────────────────────────────────────────────────


def test_a_credential_of_another_account_is_refused(azurite, monkeypatch):
    with pytest.raises(OptionError, match=r"of the Azure account 'devstoreaccount1'.*'mine'"):
        open_account("mine", azurite.access, "blob")
    of_others = AzureAccess(account_key="a2V5", blob_endpoint="https://other.blob.core.windows.net")
    with pytest.raises(OptionError, match=r"'other'.*'mine'"):
        open_account("mine", of_others, "blob")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection_string)
    assert open_account("mine", None, "blob").endpoint == "https://mine.blob.core.windows.net"
    found = open_account(azurite.account, None, "queue")
    assert found.endpoint == azurite.queue_endpoint
    assert azurite.key not in repr(found)


@pytest.mark.parametrize(
    ("access", "kind"),
    [
        (AzureAccess(sas_token="?sv=1"), "AzureSasCredential"),
        (AzureAccess(tenant_id="t", client_id="c", client_secret="s"), "ClientSecretCredential"),
        (AzureAccess(client_id="c"), "DefaultAzureCredential"),
        (AzureAccess(account_key="a2V5"), "dict"),
        (
            AzureAccess(connection_string="AccountName=mine;SharedAccessSignature=sv=1"),
            "AzureSasCredential",
        ),
    ],
)
def test_each_kind_of_access_gives_its_credential(access, kind):
    found = open_account("mine", access, "blob")
    assert type(found.credential).__name__ == kind
    assert found.endpoint == "https://mine.blob.core.windows.net"


def test_an_address_names_its_account():
    assert account_of("https://mine.blob.core.windows.net") == "mine"
    assert account_of("https://mine-secondary.blob.core.windows.net/") == "mine"
    assert account_of("https://mine.z12.blob.storage.azure.net") == "mine"
    assert account_of("https://mine.privatelink.blob.core.windows.net") == "mine"
    assert account_of("http://127.0.0.1:10000/devstoreaccount1") == "devstoreaccount1"
    assert account_of("https://data.example.com") is None
