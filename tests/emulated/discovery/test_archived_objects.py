"""Objects that have to be restored fail, wait or are skipped, as asked, however they are found."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from airflow_cloudfiles import cloud_files_state
from airflow_cloudfiles.engine.clouds.aws.store import archived_in as archived_by_amazon
from airflow_cloudfiles.engine.errors import FileUnreadableError, SchemaInferenceError
from airflow_cloudfiles.engine.extensions.file_operations.operate import OperationRequest, operate
from airflow_cloudfiles.engine.inference import infer_source
from airflow_cloudfiles.engine.intake.opening import locate
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.storage import open_store
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.support.discovery.ways import Landing, landing, recorded

pytestmark = pytest.mark.emulator
WAYS = ("s3", "s3 notified", "s3 logged", "azure", "azure notified", "azure logged")


class Archive:
    """A place whose objects are archived and restored."""

    def __init__(self, place: Landing, getfixturevalue: Any) -> None:
        self.place = place
        self._is_amazon = place.source.startswith("s3:")
        emulator = getfixturevalue("aws" if self._is_amazon else "azurite")
        self._emulator = emulator

    def archive(self, key: str, storage_class: str = "GLACIER") -> None:
        """Archive an object."""
        self._move(key, storage_class if self._is_amazon else "Archive")

    def restore(self, key: str) -> None:
        """Put it where it can be read, as whoever restores an object for good."""
        self._move(key, "STANDARD" if self._is_amazon else "Hot")

    def _move(self, key: str, storage_class: str) -> None:
        if not self._is_amazon:
            container = self._emulator.container_client(self.place.source.removesuffix("/in"))
            container.get_blob_client(f"in/{key}").set_standard_blob_tier(storage_class)
            return
        bucket = self.place.source.removeprefix("s3://").partition("/")[0]
        self._emulator.client("s3").copy_object(
            Bucket=bucket,
            Key=f"in/{key}",
            CopySource={"Bucket": bucket, "Key": f"in/{key}"},
            StorageClass=storage_class,
            MetadataDirective="COPY",
        )


@pytest.fixture(params=WAYS)
def place(request, tmp_path):
    """A place of each kind that has archives."""
    return landing(request.param, tmp_path, request.getfixturevalue)


@pytest.fixture
def cold(place, request):
    """The same, with an archived object between two others."""
    for name in ("a.json", "b.json", "c.json"):
        place.put(name)
    found = Archive(place, request.getfixturevalue)
    found.archive("b.json")
    return found


def discover(place: Landing, state: object, policy: str, **options: Any) -> Any:
    with contextlib.closing(place.open(state, on_archived_file=policy, **options)) as intake:
        return intake.discover()


def ingested(place: Landing, state: object) -> list[str]:
    """The files that are to be ingested, as often as they are recorded."""
    with contextlib.closing(place.open(state)) as intake:
        return sorted(recorded(intake))


def test_it_waits_is_counted_and_is_taken_when_it_was_restored(cold, tmp_path):
    place, state = cold.place, tmp_path / "state"
    for _ in range(2):
        found = discover(place, state, "wait")
        assert (found.waiting.files, found.waiting.sample) == (1, ["b.json"])
        assert found.waiting.reasons == {"onArchivedFile": 1}
        assert "1 for cloudFiles.onArchivedFile (b.json)" in str(found.waiting)
        assert found.to_json()["waiting_files"] == 1
    assert ingested(place, state) == ["a.json", "c.json"]
    with contextlib.closing(place.open(state, on_archived_file="wait")) as intake:
        assert not intake.arrivals().unrecorded
    cold.restore("b.json")
    with contextlib.closing(place.open(state, on_archived_file="wait")) as intake:
        assert intake.arrivals().unrecorded
    found = discover(place, state, "wait")
    assert (found.files, found.waiting.files) == (1, 0)
    assert discover(place, state, "wait").files == 0
    assert ingested(place, state) == ["a.json", "b.json", "c.json"]
    assert not list(open_store(str(state)).list("_source/waiting/"))


def test_one_that_is_deleted_does_not_wait_any_more(cold, tmp_path):
    place, state = cold.place, tmp_path / "state"
    assert discover(place, state, "wait").waiting.files == 1
    place.store.delete("b.json")
    assert discover(place, state, "wait").waiting.files == 0
    assert ingested(place, state) == ["a.json", "c.json"]


def test_it_waits_with_other_reasons(cold, tmp_path):
    place, state = cold.place, tmp_path / "state"
    options = {"completion_marker": "{name}.done"}
    found = discover(place, state, "wait", **options)
    assert (found.files, found.waiting.files) == (0, 3)
    for name in ("a.json", "b.json"):
        place.put(f"{name}.done")
    found = discover(place, state, "wait", **options)
    assert (found.files, found.waiting.reasons["onArchivedFile"]) == (1, 1)
    cold.restore("b.json")
    found = discover(place, state, "wait", **options)
    assert (found.files, found.waiting.reasons["onArchivedFile"]) == (1, 0)
    assert ingested(place, state) == ["a.json", "b.json"]


def test_it_is_skipped_recorded_and_released(cold, tmp_path):
    place, state = cold.place, tmp_path / "state"
    found = discover(place, state, "skip")
    assert (found.files, found.archived, found.to_json()["archived_files"]) == (2, 1, 1)
    cold.restore("b.json")
    again = discover(place, state, "skip")
    assert (again.files, again.archived) == (0, 0), "it was skipped, for good"
    assert ingested(place, state) == ["a.json", "c.json"]
    rows = cloud_files_state(str(state)).read_all().to_pylist()
    told = {row["path"].rpartition("/")[2]: row["status"] for row in rows}
    assert told == {"a.json": "discovered", "b.json": "skipped", "c.json": "discovered"}
    with to_environment_of(place):
        operate(str(state), OperationRequest(action="release", paths=("b.json",)), NoTable())
    assert ingested(place, state) == ["a.json", "b.json", "c.json"]


class NoTable:
    """No table."""

    def has_batch(self, batch: int) -> bool:
        return False

    def path_column(self, paths: object) -> tuple[str, ...]:
        return ()


@contextlib.contextmanager
def to_environment_of(place: Landing):
    with pytest.MonkeyPatch.context() as patched:
        for name, value in to_environment(place.access).items():
            patched.setenv(name, value)
        yield


@pytest.mark.parametrize("place", ["s3", "azure"], indirect=True)
@pytest.mark.parametrize("policy", ["wait", "skip"])
def test_what_was_there_before_the_first_start_is_existing(cold, tmp_path, policy):
    place, state = cold.place, tmp_path / "state"
    place.let_time_pass()
    found = discover(place, state, policy, include_existing_files=False)
    assert (found.files, found.existing, found.archived) == (0, 3, 0)
    assert found.waiting is None or found.waiting.files == 0
    cold.restore("b.json")
    assert discover(place, state, policy, include_existing_files=False).files == 0


@pytest.mark.parametrize("place", ["s3", "azure"], indirect=True)
@pytest.mark.parametrize("policy", ["wait", "skip"])
def test_where_files_are_known_by_content_it_is_not_read(cold, tmp_path, policy):
    place, state = cold.place, tmp_path / "state"
    place.store.put("a.json", b'{"a": 1}\n')
    place.store.put("c.json", b'{"a": 2}\n')
    found = discover(place, state, policy, file_identity="content")
    assert found.files == 2
    cold.restore("b.json")
    found = discover(place, state, policy, file_identity="content")
    assert found.files == (policy == "wait")


@pytest.mark.parametrize("place", ["s3", "azure"], indirect=True)
def test_batches_and_inferences_leave_it_out_or_name_it(cold, tmp_path):
    place = cold.place
    for name in ("a.json", "c.json"):
        place.store.put(name, b'{"a": 1}\n')

    def infer(policy: str) -> list[str]:
        options = CloudFilesOptions.parse(
            {"cloudFiles.format": "json", "cloudFiles.onArchivedFile": policy}, path=place.source
        )
        return infer_source(options, locate(place.source), ()).data_schema.names

    with to_environment_of(place):
        assert infer("wait") == infer("skip") == ["a"]
        with pytest.raises(FileUnreadableError, match=r"b\.json.*archived.*onArchivedFile=wait"):
            infer("fail")
        for name in ("a.json", "c.json"):
            place.store.delete(name)
        with pytest.raises(SchemaInferenceError, match="onArchivedFile"):
            infer("skip")


@pytest.mark.parametrize("place", ["s3"], indirect=True)
@pytest.mark.parametrize("storage_class", ["DEEP_ARCHIVE", "GLACIER_IR", "STANDARD_IA"])
def test_only_some_classes_are_archives(place, request, tmp_path, storage_class):
    place.put("b.json")
    Archive(place, request.getfixturevalue).archive("b.json", storage_class)
    found = discover(place, tmp_path / "state", "wait")
    assert found.waiting.files == (storage_class == "DEEP_ARCHIVE")


@pytest.mark.parametrize(
    ("answer", "archived_in"),
    [
        ({"StorageClass": "GLACIER"}, "GLACIER"),
        ({"StorageClass": "GLACIER", "RestoreStatus": {"IsRestoreInProgress": True}}, "GLACIER"),
        ({"StorageClass": "GLACIER", "RestoreStatus": {"RestoreExpiryDate": "…"}}, ""),
        ({"StorageClass": "DEEP_ARCHIVE", "Restore": 'ongoing-request="true"'}, "DEEP_ARCHIVE"),
        ({"StorageClass": "GLACIER", "Restore": 'ongoing-request="false", expiry-date="…"'}, ""),
        (
            {"StorageClass": "INTELLIGENT_TIERING", "ArchiveStatus": "ARCHIVE_ACCESS"},
            "INTELLIGENT_TIERING, ARCHIVE_ACCESS",
        ),
        ({"StorageClass": "INTELLIGENT_TIERING"}, ""),
        ({}, ""),
    ],
)
def test_what_amazon_says_of_an_object(answer, archived_in):
    assert archived_by_amazon(answer) == archived_in
