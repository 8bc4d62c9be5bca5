"""OpenStack's Swift, whose proxy speaks S3: four servers on this machine, and one disk."""

from __future__ import annotations

import getpass
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.emulators.aws import REGION, Aws
from tests.support.emulators.processes import Server, free_port, listens, program, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STORING = ("account", "container", "object")
_COMMON = """\
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
user = {user}
workers = 0
"""
_FILTERS = {
    "catch_errors": {},
    "cache": {"use": "egg:swift#memcache"},
    "s3api": {"location": REGION},
    "tempauth": {"user_test_tester": "test-secret .admin"},
    "slo": {},
    "symlink": {},
    "copy": {},
    "versioned_writes": {"allow_object_versioning": "true"},
}


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    """S3 of OpenStack, in Python."""
    folder = tmp_path_factory.mktemp("swift")
    ports = {each: free_port() for each in (*STORING, "proxy")}
    (folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = tests\n")
    (folder / "devices" / "disk").mkdir(parents=True)
    with ExitStack() as stack:
        for name, port in ports.items():
            if name in STORING:
                _ring(folder, name, port)
            command = [program(f"swift-{name}-server"), str(_configure(folder, name, port))]
            log = folder / f"{name}.log"
            stack.enter_context(running(Server(command, lambda port=port: listens(port), log)))
        found = Aws(f"http://127.0.0.1:{ports['proxy']}")
        found.access = replace(found.access, access_key_id="test:tester")
        yield found


def _ring(folder: Path, name: str, port: int) -> None:
    """Say that one server has all of a kind, in one copy."""
    for words in (
        ["create", "4", "1", "0"],
        ["add", f"r1z1-127.0.0.1:{port}/disk", "1"],
        ["rebalance"],
    ):
        command = [program("swift-ring-builder"), str(folder / f"{name}.builder"), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _configure(folder: Path, name: str, port: int) -> Path:
    lines = [_COMMON.format(folder=folder, port=port, user=getpass.getuser()), "[pipeline:main]"]
    if name == "proxy":
        lines += [f"pipeline = {' '.join(_FILTERS)} proxy-server", "[app:proxy-server]"]
        lines += ["use = egg:swift#proxy", "account_autocreate = true"]
        for each, values in _FILTERS.items():
            given = {"use": f"egg:swift#{each}", **values}
            lines += [f"[filter:{each}]", *(f"{key} = {value}" for key, value in given.items())]
    else:
        lines += [f"pipeline = {name}-server", f"[app:{name}-server]", f"use = egg:swift#{name}"]
        lines += [f"recon_cache_path = {folder}"]
    path = folder / f"{name}.conf"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path
