"""Show the progress of this package in processes that Spark starts."""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

PACKAGE: Final = "airflow_cloudfiles"
"""Name of the logger of this package."""


def log_to_stderr() -> None:
    """Show this package's progress: Spark passes on what its Python processes print to stderr."""
    logger = logging.getLogger(PACKAGE)
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(os.environ.get("CLOUDFILES_LOG_LEVEL", "INFO"))
