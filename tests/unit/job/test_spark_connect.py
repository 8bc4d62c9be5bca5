"""The address of a Spark Connect server: what it may be, and that its token stays hidden."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.batches.task_process import check_client, explained
from airflow_cloudfiles.engine.errors import OptionError, SparkUnreachableError
from airflow_cloudfiles.engine.job.connect.session import ConnectStart
from airflow_cloudfiles.engine.job.spark_command import REMOTE, SparkConnect, server_of_driver
from airflow_cloudfiles.engine.job.spec import JobSpec

SECRET = "sc://host:15003/;token=s%2Fsecret;use_ssl=true;x-key=other"


def test_the_token_goes_to_the_driver_by_its_environment_only(monkeypatch):
    server = SparkConnect(SECRET)
    assert server.environment()[REMOTE] == SECRET
    shown = (*server.command("/state", "1"), repr(server), server.address)
    assert not any("secret" in word or "s%2F" in word for word in shown)

    monkeypatch.setenv(REMOTE, SECRET)
    assert server_of_driver() == server
    with pytest.raises(KeyError):
        server_of_driver()


def test_an_error_is_scrubbed_of_what_may_be_secret():
    text = SparkConnect(SECRET).scrubbed("s%2Fsecret, s/secret, other, true and host")
    assert text == "***, ***, ***, true and host"


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("sc://host", "host:15002"),
        ("sc://host:1/", "host:1"),
        ("sc://[::1]:15003/;user_id=me", "[::1]:15003"),
    ],
)
def test_a_message_names_host_and_port(remote, address):
    assert SparkConnect(remote).address == address


@pytest.mark.parametrize(
    ("remote", "message"),
    [
        ("spark://host:7077", "begins with sc://"),
        ("sc:///;token=secret", "begins with sc://"),
        ("sc://host:port/;token=secret", "port"),
        ("sc://me:secret@host", "has no user"),
        ("sc://host/path;token=secret", "has no path"),
        ("sc://host/;secret", "lacks a value"),
    ],
)
def test_an_address_that_is_none_is_refused_without_showing_it(remote, message):
    with pytest.raises(OptionError, match=message) as caught:
        SparkConnect(remote)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    "text",
    [
        "[NO_ACTIVE_SESSION] No active Spark session found.",
        "[INVALID_HANDLE.SESSION_CHANGED] The handle 1 is invalid.",
        "[INVALID_HANDLE.OPERATION_NOT_FOUND] The handle 1 is invalid.",
        "StatusCode.UNAVAILABLE: Socket closed",
    ],
)
def test_a_server_that_was_restarted_is_worth_a_retry(text, monkeypatch):
    monkeypatch.setenv(REMOTE, "sc://host")
    spec = JobSpec(
        kind="infer", source="/landing", format="json", checkpoint_location="/state", run_id="1"
    )
    error = ConnectStart(spec).as_ours(RuntimeError(text))
    assert isinstance(error, SparkUnreachableError)
    assert error.is_retryable


def test_a_client_of_the_same_version_and_a_session_with_a_jvm_pass():
    from airflow_cloudfiles import __version__

    check_client({})
    check_client({"CloudFiles.Internal.clientversion": __version__})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "No module named 'airflow_cloudfiles'",
            "has no airflow_cloudfiles. It has to be there in version",
        ),
        ("No module named 'airflow_cloudfiles.engine.spark.new'", "another version of"),
        ("Can't get attribute 'X' on <module 'airflow_cloudfiles.engine'", "another version of"),
        ("No module named 'deltalake'", "has no module deltalake"),
    ],
)
def test_what_the_server_s_python_lacks_is_said_with_its_remedy(text, message):
    found = explained(text, "host:1")
    assert found is not None
    assert message in found.message
    assert "pip install '<path>[spark,delta]'" in found.message


def test_another_error_is_left_alone():
    assert explained("No such file", "host:1") is None
    assert explained("No module named 'my_functions'", "host:1") is None
