"""Another process asks for credentials, and gets those of now, or learns why there are none."""

from __future__ import annotations

import stat
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cloudfiles.engine.clouds.aws.access import AwsAccess
from airflow_cloudfiles.engine.clouds.aws.session import aws_credentials
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.storage.identities import ServedIdentity, ask, register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_cloudfiles.engine.storage.identities import Source


@pytest.fixture
def serve() -> Iterator[Callable[[Source], str]]:
    """Serve a source, and give the path of its socket, which is what others know."""
    open_ones: list[ServedIdentity] = []

    def served(source: Source) -> str:
        open_ones.append(ServedIdentity(register(uuid.uuid4().hex, source)))
        return open_ones[-1].path

    yield served
    for each in open_ones:
        each.close()


def test_each_question_is_answered_anew(serve: Callable[[Source], str]) -> None:
    asked: list[str] = []

    def source(purpose: str) -> dict[str, Any]:
        asked.append(purpose)
        return {"token": f"token {len(asked)}"}

    path = serve(source)
    assert [ask(path, "scope"), ask(path)] == [{"token": "token 1"}, {"token": "token 2"}]
    assert asked == ["scope", ""]


def test_only_this_user_can_ask(serve: Callable[[Source], str]) -> None:
    folder = Path(serve(lambda _: {})).parent
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IRWXU


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (TimeoutError("away"), ConnectionError),
        (ConnectionResetError("away"), ConnectionError),
        (PermissionError("no"), PermissionError),
        (OptionError("wrong"), OptionError),
        (KeyError("wrong"), OptionError),
    ],
)
def test_a_failure_is_the_same_for_who_asks(
    serve: Callable[[Source], str], failure: Exception, expected: type[Exception]
) -> None:
    def source(_: str) -> dict[str, Any]:
        raise failure

    with pytest.raises(expected, match=str(failure.args[0])):
        ask(serve(source))


def test_nobody_answers_when_the_run_is_over() -> None:
    served = ServedIdentity(register(uuid.uuid4().hex, lambda _: {}))
    served.close()
    assert not Path(served.path).parent.exists()
    with pytest.raises(ConnectionError, match="does not answer"):
        ask(served.path)


def test_a_long_temporary_folder_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("a" * 100)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    served = ServedIdentity(register(uuid.uuid4().hex, lambda _: {"token": "t"}))
    assert ask(served.path) == {"token": "t"}
    served.close()
    assert not list(folder.iterdir())


def test_keys_that_end_are_asked_for_again_by_aws(serve: Callable[[Source], str]) -> None:
    given: list[int] = []

    def source(_: str) -> dict[str, Any]:
        given.append(len(given))
        ends = "2999-01-01T00:00:00Z" if len(given) > 1 else "2000-01-01T00:00:00Z"
        keys = {"access_key": f"KEY{len(given)}", "secret_key": "s", "token": "t"}
        return {**keys, "expiry_time": ends}

    access = AwsAccess(identity=serve(source))
    assert access.identity is not None
    assert isinstance(access, AwsAccess)
    found = [aws_credentials(access) for _ in range(3)]
    assert [each.access_key for each in found if each] == ["KEY2", "KEY2", "KEY2"]
