"""Where in a table are the rows that wait to be merged?"""

from __future__ import annotations

from typing import Final

STAGED: Final = "_cloudfiles_staged/"
"""A folder of the table that is hidden from readers. `cloudfiles table vacuum` removes what a
killed run has left there."""
