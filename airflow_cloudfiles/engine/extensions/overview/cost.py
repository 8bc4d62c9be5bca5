"""Estimate the requests that the runs of a stream make, as it is configured.

The numbers are those that were counted between a run and an emulator of each store, with source,
state and table in that store, and `docs/concepts/discovery-by-listing.md` explains them. Locks are
left out: a run renews its two every five seconds, with three requests each. So is what Azure and
Google are asked besides, once for each place: what kind of account or bucket it is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from airflow_cloudfiles.engine.discovery.listing.ranges import PAGES_PER_CUT
from airflow_cloudfiles.engine.discovery.queues.draining import EMPTY_RECEIVES
from airflow_cloudfiles.engine.discovery.queues.notifications import RECORDED_FILES
from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.extensions.event_log.collector import THREADS
from airflow_cloudfiles.engine.files import printable_path
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.storage import normalize_uri
from airflow_cloudfiles.engine.storage.vendors import BY_SCHEME, VENDORS, Vendor

KINDS: Final = ("LIST", "GET", "HEAD", "PUT", "QUEUE")
"""What is priced: requests to stores by what they do, and all of those to a queue."""

LISTED, QUEUED, LOGGED = "listing", "queue", "event log"
"""How files are found."""
STATE: Final = {
    LISTED: {"LIST": 7, "GET": 8, "HEAD": 1, "PUT": 3},
    QUEUED: {"LIST": 7, "GET": 10, "HEAD": 1, "PUT": 3},
    LOGGED: {"LIST": 7, "GET": 12, "HEAD": 1, "PUT": 3},
}
"""Of a run that finds nothing new."""
STATE_OF_FILES: Final = {
    LISTED: {"LIST": 11, "GET": 14, "HEAD": 1, "PUT": 10},
    QUEUED: {"LIST": 11, "GET": 16, "HEAD": 1, "PUT": 9},
    LOGGED: {"LIST": 11, "GET": 17, "HEAD": 1, "PUT": 10},
}
"""Of a run with a micro-batch."""
STATE_OF_ONE_MORE: Final = {"GET": 6, "PUT": 4}
"""Of each further micro-batch."""

TABLE: Final = {"LIST": 5, "GET": 1}
"""Of a run that finds nothing new."""
TABLE_OF_FILES: Final = {"LIST": 8, "GET": 3, "HEAD": 1, "PUT": 2}
"""Of a run with a micro-batch of one data file."""
TABLE_OF_ONE_MORE: Final = {"LIST": 3, "GET": 3, "HEAD": 1, "PUT": 2}
"""Of each further one."""
GETS_A_COMMIT: Final = 3
"""For each commit since the last checkpoint of the table besides; one for a further micro-batch."""

EVENT_LOG: Final = {"LIST": 4, "GET": 3, "PUT": 1}
"""Of a run that drains the queue into its event log; a PUT and a GET for each entry besides."""

GROWTH_LISTS: Final = 5
"""Of an incremental listing, at most, besides the pages of new files."""
_FULL_EVERY: Final = 8
"""Of `useIncrementalListing=auto`, one listing of so many is a full one (B81)."""
_BLOCK_BYTES: Final = 16 * 2**20
_SAMPLED_FILES: Final = 1000
COMMITS: Final = 50
"""Of a table, since its last checkpoint: half of the hundred after which there is one."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a stream has to do.

    Attributes:
        files: How many files its source has.
        new: How many of them are new to a run that finds some.
        file_bytes: Of one file.
    """

    files: int = 1_000_000
    new: int = 1000
    file_bytes: int = 2**20


def estimated(source: str, options: CloudFilesOptions, load: Load) -> dict[str, Counter[str]]:
    """Estimate the requests of a stream, by kind.

    Args:
        source: Its folder, of which state and table are taken to be neighbors.
        options: Its options.
        load: What it has to do.

    Returns:
        Of `first`, the run that finds all files; `new`, a run that finds some; and `nothing`.

    Raises:
        OptionError: No request to this kind of source has a price.
    """
    cloud = BY_SCHEME.get(normalize_uri(source).partition("://")[0])
    if cloud is None or not cloud.page:
        known = ", ".join(f"{each.scheme}://" for each in VENDORS if each.page)
        raise OptionError(
            f"Requests are priced by clouds, and {printable_path(source)} is in none of them. "
            f"Give a source of {known}."
        )
    listed = _listed(options, load, cloud)
    first = _run(options, load, load.files, cloud, is_first=True)
    first["LIST"] += _pages(load.files, cloud)
    first["GET"] += min(load.files, _SAMPLED_FILES) * _blocks(load)
    found = {"first": first}
    for name, new in (("new", load.new), ("nothing", 0)):
        found[name] = _run(options, load, new, cloud)
        found[name]["LIST"] += listed
    return found


def _run(
    options: CloudFilesOptions,
    load: Load,
    new: int,
    cloud: Vendor,
    *,
    is_first: bool = False,
) -> Counter[str]:
    """Count all but the listing."""
    found, limit = options.discovery, options.read_limit
    batches = -(-new // (limit.max_files or max(1, new)))
    if limit.max_bytes is not None:
        batches = max(batches, -(-new * load.file_bytes // limit.max_bytes))
    more, commits = max(0, batches - 1), 0 if is_first else COMMITS
    announced = 0 if is_first else new  # what was there before is listed
    way = _way(options)
    total = Counter((STATE_OF_FILES if new else STATE)[way])
    total.update(TABLE_OF_FILES if new else TABLE)
    for kind, count in (Counter(STATE_OF_ONE_MORE) + Counter(TABLE_OF_ONE_MORE)).items():
        total[kind] += more * count
    reads = 2 if found.identity == "content" else 1
    total["GET"] += GETS_A_COMMIT * commits + more * COMMITS + reads * new * _blocks(load)
    if way == LISTED or cloud.queue is None:
        return total
    total["HEAD"] += announced  # a message is not believed
    receivers = found.fetch_parallelism
    if way == LOGGED:
        receivers = THREADS
        entries = -(-announced // RECORDED_FILES)
        total += Counter(EVENT_LOG) + Counter(GET=entries, PUT=entries)
    queue = cloud.queue
    receives = -(-announced // queue.received) * (1 + queue.hides)
    deletions = -(-announced // queue.deleted)
    total["QUEUE"] = queue.sizes + EMPTY_RECEIVES * receivers + receives + deletions
    return total


def _way(options: CloudFilesOptions) -> str:
    found = options.discovery
    if found.use_managed_file_events:
        return LOGGED
    return QUEUED if found.use_notifications else LISTED


def _listed(options: CloudFilesOptions, load: Load, cloud: Vendor) -> int:
    """Compute how many pages a run lists, on average."""
    if _way(options) != LISTED:
        return 0
    found = options.discovery
    full = _pages(load.files, cloud)
    if found.sees_overwrites or found.use_incremental_listing == "false":
        return full
    grown = min(full, GROWTH_LISTS + load.new // cloud.page)
    if found.use_incremental_listing == "true":
        return grown
    return ((_FULL_EVERY - 1) * grown + full) // _FULL_EVERY


def _pages(files: int, cloud: Vendor) -> int:
    """Compute how many requests a full listing makes; threads that share it make some more."""
    pages = max(1, -(-files // cloud.page))
    return pages + pages // PAGES_PER_CUT


def _blocks(load: Load) -> int:
    return max(1, -(-load.file_bytes // _BLOCK_BYTES))
