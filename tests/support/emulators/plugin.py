"""Which emulators can a test ask for?

Each starts when the first test asks for it and ends with the run. The fixtures themselves are in
the modules named here, one for each cloud; `tests/conftest.py` loads this one.
"""

from __future__ import annotations

pytest_plugins = [
    "tests.support.emulators.aws",
    "tests.support.emulators.azure",
    "tests.support.emulators.ceph",
    "tests.support.emulators.swift",
    "tests.support.emulators.gcp",
    "tests.support.emulators.gcs_xml",
    "tests.support.emulators.other_servers",
    "tests.support.sftp_servers",
]
