"""Write the golden bytes of every format of today: `make golden`.

A version that is released stays as it is. So after a release, a test that finds other bytes than
these asks for a new version of the format: raise its number in the package, keep the reader of the
old one, add the new one to `in_state` or `elsewhere`, and run this. It writes the files of the
versions that are written today, and never touches another one.
"""

from __future__ import annotations

import sys

from tests.golden.elsewhere import ELSEWHERE
from tests.golden.in_state import IN_STATE
from tests.golden.kinds import FOLDER, Format

FORMATS: list[Format] = [*IN_STATE, *ELSEWHERE]


def main() -> None:
    """Write what has changed, and say so."""
    FOLDER.mkdir(exist_ok=True)
    for each in FORMATS:
        content = each.write()
        if not each.path.exists() or each.path.read_bytes() != content:
            each.path.write_bytes(content)
            sys.stdout.write(f"wrote {each.path.name}\n")
    from tests.golden import triggers

    for name, content in triggers.written().items():
        (triggers.FOLDER / name).write_text(content, encoding="ascii")


if __name__ == "__main__":
    main()
