"""Which emulators can a test ask for?

Each starts when the first test asks for it and ends with the run. The fixtures themselves are in
the modules named here, one for each cloud; `tests/conftest.py` loads this one.
"""

from __future__ import annotations

import importlib.util

_MODULES = ("aws", "azure", "gcp")

pytest_plugins = [
    name
    for name in (f"tests.emulators.{module}" for module in _MODULES)
    if importlib.util.find_spec(name) is not None
]
