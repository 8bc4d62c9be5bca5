"""Moving, importing, exporting and relocating that is killed in a cloud is repeated."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.errors import StateMovedError
from airflow_cloudfiles.engine.extensions.transfer.archived import export_state, import_state
from airflow_cloudfiles.engine.extensions.transfer.move import move_state
from airflow_cloudfiles.engine.extensions.transfer.relocate import relocate_source
from airflow_cloudfiles.engine.storage.access import to_environment
from tests.emulated.storage.test_storage_behaviors import EMULATORS
from tests.support.crash_points import EXPORT_POINTS, IMPORT_POINTS, MOVE_POINTS, RELOCATION_POINTS
from tests.support.laws import some
from tests.support.transferred import Stream, killed

pytestmark = [pytest.mark.emulator, pytest.mark.slow]
BOTH = ["2026/a.json", "2026/b.json"]


def _everywhere(points: tuple[str, ...], once: str) -> list[object]:
    """Some points in S3, and one in one of the other clouds."""
    s3 = some(points, 2, name=f"kills before {points[-1]}")
    others = some(("azure", "gcs"), 1, name=f"cloud of {points[-1]}")
    cases = [("s3", point) for point in s3] + [(cloud, once) for cloud in others]
    return [pytest.param(*case, id="-".join(case)) for case in cases]


@pytest.fixture
def root(kind, request, monkeypatch):
    """A folder of a cloud that this process and its children reach."""
    emulator = request.getfixturevalue(EMULATORS.get(kind, kind))
    for name, value in to_environment(emulator.access).items():
        monkeypatch.setenv(name, value)
    return f"{emulator.container() if kind == 'azure' else emulator.bucket()}/lake"


@pytest.fixture
def stream(root, tmp_path):
    return Stream(tmp_path, f"{root}/state")


@pytest.mark.parametrize(("kind", "point"), _everywhere(MOVE_POINTS, "after-fence"))
def test_a_move_is_repeated_and_exactly_one_state_works(stream, root, point):
    new = f"{root}/new"
    killed(point, "move", stream.state, new)
    is_old = MOVE_POINTS.index(point) < MOVE_POINTS.index("after-move-seal")
    assert (stream.works(stream.state), stream.works(new)) == (is_old, point == "after-move")
    if is_old:
        stream.zone.write("c.json")
        stream.ingest(stream.state)
    move_state(stream.state, new)
    assert (stream.works(stream.state), stream.works(new)) == (False, True)
    assert stream.recorded(new) == ([*BOTH, "c.json"] if is_old else BOTH)
    assert stream.ingest(new) == ()


@pytest.mark.parametrize(("kind", "point"), _everywhere(IMPORT_POINTS, "after-part-of-import"))
def test_an_import_leaves_no_state_and_is_repeated(stream, root, point):
    archive, new = f"{root}-archives/state.zip", f"{root}/new"
    export_state(stream.state, archive)
    killed(point, "import", archive, new)
    with pytest.raises(StateMovedError, match=r"brought here from .*state\.zip.* Repeat"):
        stream.open(new)
    import_state(archive, new)
    assert stream.recorded(new) == BOTH
    stream.zone.write("c.json")
    assert stream.ingest(new) == ("c.json",)


@pytest.mark.parametrize(("kind", "point"), _everywhere(EXPORT_POINTS, "before-export-ends"))
def test_an_export_leaves_no_archive_and_changes_no_state(stream, root, point):
    archive = f"{root}-archives/state.zip"
    killed(point, "export", stream.state, archive)
    stream.zone.write("c.json")
    assert stream.ingest(stream.state) == ("c.json",)
    export_state(stream.state, archive)
    import_state(archive, f"{root}/new")
    assert stream.recorded(f"{root}/new") == [*BOTH, "c.json"]


@pytest.mark.parametrize(("kind", "point"), _everywhere(RELOCATION_POINTS, "after-fence"))
def test_a_relocation_is_repeated(stream, tmp_path, point):
    new = stream.copied(tmp_path / "moved")
    killed(point, "relocate", stream.state, new.uri)
    for source in (stream.zone.uri, new.uri):
        with pytest.raises(StateMovedError, match=r"being relocated to .*moved.* Repeat"):
            stream.open(stream.state, source)
    relocate_source(stream.state, new.uri, allow_overwrites=True)
    new.write("c.json")
    assert stream.ingest(stream.state, new.uri, allow_overwrites=True) == ("c.json",)
