"""How does a function over micro-batches reach a driver that is not on this machine?

As an argument of the submitted program. Whoever can submit a program to a cluster runs code there
in any case; whoever can write a state may not, so the function is never taken from there.

Importing this module imports no Spark.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from airflow_cloudfiles.engine.errors import OptionError, TransformError

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.job.spec import JobSpec

MOST_CHARACTERS: Final = 100_000
"""Linux takes 131,072 bytes in one argument."""


def as_argument(function: Mapping[str, Any]) -> str:
    """Write a function (`BatchFunction.to_json`) as one word.

    Raises:
        OptionError: It is too long for a command line.
    """
    text = json.dumps(function, ensure_ascii=True)
    word = base64.urlsafe_b64encode(zlib.compress(text.encode("ascii"))).decode("ascii")
    if len(word) > MOST_CHARACTERS:
        raise OptionError(
            f"The function {function.get('name')} has {len(word):,} characters with its arguments, "
            f"and an argument of spark-submit takes {MOST_CHARACTERS:,}. Put it into a module of "
            "the cluster's Python or of py_files, and name it as 'package.module:function'."
        )
    return word


def with_function(spec: JobSpec, word: str) -> JobSpec:
    """Give a specification, which has the name of its function only, the function.

    Raises:
        TransformError: It is of another function, or cannot be read.
    """
    try:
        function = json.loads(zlib.decompress(base64.urlsafe_b64decode(word)))
    except (ValueError, zlib.error) as failure:
        raise TransformError(
            f"The function of run {spec.run_id} did not reach the driver as it was sent: {failure}."
        ) from failure
    wanted = (spec.transform or {}).get("name")
    if function.get("name") != wanted:
        raise TransformError(
            f"Run {spec.run_id} is specified with the function {wanted}, and was submitted with "
            f"{function.get('name')}. Start it again."
        )
    return replace(spec, transform=function)
