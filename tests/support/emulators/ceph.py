"""Ceph's S3, the gateway `radosgw`, before one monitor and one disk in memory."""

from __future__ import annotations

import subprocess
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.emulators.aws import Aws
from tests.support.emulators.processes import Server, answers, free_port, listens, program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CONF = """[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{monitor}]
public_addr = 127.0.0.1
ms_bind_ipv6 = false
auth_allow_insecure_global_id_reclaim = true
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_data_avail_crit = 1
osd_objectstore = memstore
memstore_device_bytes = 1G
setuser_match_path = /nothing
run_dir = {folder}
keyring = {folder}/keyring
log_file = {folder}/$name.log
admin_socket = {folder}/$name.asok
pid_file = {folder}/$name.pid
mon_data = {folder}/mon
osd_data = {folder}/osd
[client]
rgw_frontends = beast endpoint=127.0.0.1:{port}
"""


class _Cluster:
    """A cluster below a folder whose name is short: sockets have names of at most 107 bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._monitor = free_port(), free_port()

    def start(self, stack: ExitStack) -> None:
        """Start all of it; the stack ends it."""
        fsid, disk = str(uuid.uuid4()), str(uuid.uuid4())
        conf = {"folder": self.folder, "fsid": fsid, "port": self.port, "monitor": self._monitor}
        (self.folder / "ceph.conf").write_text(_CONF.format(**conf))
        for name in ("mon", "osd"):
            (self.folder / name).mkdir()
        keys = ["keyring", "--gen-key", "-n"]
        self._run("ceph-authtool", "-C", *keys, "mon.", "--cap", "mon", "allow *")
        caps = [word for name in ("mon", "osd", "mgr") for word in ("--cap", name, "allow *")]
        self._run("ceph-authtool", *keys, "client.admin", *caps)
        address = f"[v2:127.0.0.1:{self._monitor}]"
        self._run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, "map")
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", "map", "--keyring", "keyring")
        self._serve(stack, self._monitor, "ceph-mon", "-i", "a")
        self._run("ceph", "osd", "new", disk)
        caps = ["mon", "allow profile osd", "osd", "allow *"]
        key = self._run("ceph", "auth", "get-or-create", "osd.0", *caps)
        with (self.folder / "keyring").open("a") as keyring:
            keyring.write(key)
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        self._serve(stack, None, "ceph-osd", "-i", "0")
        user = ["--uid=test", "--display-name=test", "--access-key=test"]
        self._run("radosgw-admin", "user", "create", *user, "--secret-key=test-secret")
        self._run("radosgw-admin", "user", "modify", "--uid=test", "--max-buckets=0")
        self._serve(stack, self.port, "radosgw", "-n", "client.admin")

    def _run(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [program(name), *arguments],
            cwd=self.folder,
            env={"CEPH_CONF": str(self.folder / "ceph.conf")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def _serve(self, stack: ExitStack, port: int | None, name: str, *arguments: str) -> None:
        command = [program(name), "-c", str(self.folder / "ceph.conf"), *arguments, "-f"]
        if name == "radosgw":
            ready = lambda: answers(f"http://127.0.0.1:{self.port}")  # noqa: E731
        else:
            ready = lambda: port is None or listens(port)  # noqa: E731
        server = Server(command, ready, self.folder / f"{name}.out")
        stack.callback(server.stop)
        server.start()


@pytest.fixture(scope="session")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """One gateway of Ceph for the whole run."""
    cluster = _Cluster(tmp_path_factory.mktemp("ceph"))
    with ExitStack() as stack:
        cluster.start(stack)
        yield Aws(f"http://127.0.0.1:{cluster.port}")
