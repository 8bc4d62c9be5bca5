"""Import what an extra of this package brings, or say how it is installed.

The clients of the clouds are extras: a module that needs one is imported only when a location or
an option asks for it.
"""

from __future__ import annotations

import importlib
from typing import Any

from airflow_cloudfiles.engine.errors import OptionError


def import_with_extra(module: str, extra: str, *, needed_for: str) -> Any:
    """Import a module that needs an extra of this package.

    Args:
        module: Its full name.
        extra: `aws`, `azure` or `gcp`.
        needed_for: What asked for it, for the message: a location, or an option with its value.

    Raises:
        OptionError: The extra is not installed; names the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as failure:
        if (failure.name or "").startswith("airflow_cloudfiles"):
            raise
        raise OptionError(
            f"{needed_for} needs the package {failure.name}, which is not installed here. Run: "
            f"pip install 'airflow-provider-cloudfiles[{extra}]'"
        ) from failure
