"""What does every start of Spark print, and nobody can act on?"""

from __future__ import annotations

import re
from typing import Final

_BANNER: Final = re.compile(
    r"WARNING: Using incubator modules: "
    r"|Using Spark's default log4j profile: "
    r"|Setting default log level to "
    r"|To adjust logging level use sc\.setLogLevel"
    r"|\S+ \S+ WARN (?:NativeCodeLoader|Utils): "
    r"(?:Unable to load native-hadoop library|Your hostname, |Set SPARK_LOCAL_IP )"
)


def is_banner(line: str) -> bool:
    """Is this such a line of a job's log?"""
    return _BANNER.match(line) is not None
