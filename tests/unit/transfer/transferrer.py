"""A real process: `python transferrer.py move|export|import|relocate|start-over ONE OTHER`."""

from __future__ import annotations

import sys

from airflow_cloudfiles.engine.extensions.start_over import start_over
from airflow_cloudfiles.engine.extensions.transfer.archived import export_state, import_state
from airflow_cloudfiles.engine.extensions.transfer.move import move_state
from airflow_cloudfiles.engine.extensions.transfer.relocate import relocate_source

if __name__ == "__main__":
    _, what, one, other = sys.argv
    if what == "move":
        move_state(one, other)
    elif what == "export":
        export_state(one, other)
    elif what == "import":
        import_state(one, other)
    elif what == "start-over":
        start_over(one, target=other)
    else:
        relocate_source(one, other, allow_overwrites=True)
