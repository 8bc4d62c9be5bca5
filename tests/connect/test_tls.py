"""A Spark Connect server behind a proxy that speaks TLS."""

from __future__ import annotations

import pytest

from airflow_cloudfiles.engine.errors import SparkServerError
from airflow_cloudfiles.engine.job.connect.session import ROOTS
from tests.support.connect_server import each_once, ids, land
from tests.support.tls import Authority, TlsProxy

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_run_speaks_tls_with_a_server_whose_authority_it_trusts_and_with_no_other(
    server, stream, tmp_path, monkeypatch
):
    land(stream, 2)
    authority = Authority(tmp_path / "authority")
    with TlsProxy(authority.context(), server.port) as proxy:
        secure = f"{server.at(proxy.port)};use_ssl=true"
        monkeypatch.delenv(ROOTS, raising=False)
        with pytest.raises(SparkServerError, match="a certificate that is not trusted") as caught:
            stream.run(secure)
        assert ROOTS in caught.value.message
        assert not caught.value.is_retryable
        with pytest.raises(SparkServerError, match=r"speaks TLS\. Set use_ssl=true"):
            stream.run(server.at(proxy.port))
        monkeypatch.setenv(ROOTS, str(authority.file))
        with pytest.raises(SparkServerError, match="does not speak TLS"):
            stream.run(f"{server.remote};use_ssl=true")
        assert not stream.target.exists()

        # With TLS, PySpark sends the token to any host.
        assert stream.run(secure)["rows"] == 6
        land(stream, 1, first=2)
        with pytest.raises(SparkServerError, match="refuses this client"):
            stream.run(secure.replace(server.token, "wrongtoken"))
        stream.run(secure)
    assert ids(stream) == each_once(3)
    assert not any(server.token in line for line in stream.log)
