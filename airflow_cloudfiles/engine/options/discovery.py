"""Which files does a source want, and how are they found?

The part of the options that discovery obeys, as one frozen value. `cloud_files.py` reads it from
`cloudFiles.*` keys; it holds no credentials.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

IncrementalListing = Literal["auto", "true", "false"]

SECONDS_A_DAY = 86400
MIN_FILE_AGE_SECONDS = 14 * SECONDS_A_DAY
RECOMMENDED_FILE_AGE_SECONDS = 90 * SECONDS_A_DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryOptions:
    """What discovery is asked to do; the defaults are those of the options."""

    use_incremental_listing: IncrementalListing = "auto"
    """`cloudFiles.useIncrementalListing`: `auto` looks only where full listings have shown that
    new files come, with a full listing after seven such ones; `true` always looks at the end of
    each folder that grows, and is refused where a store does not list in order; `false` never."""
    backfill_interval_seconds: float | None = None
    """`cloudFiles.backfillInterval`: a full listing when the last one is longer ago than this
    (`1 day`, `6 hours`). Finds what incremental listings and lost notifications have missed."""
    include_existing_files: bool = True
    """`cloudFiles.includeExistingFiles`: whether files that are there before the very first start
    are ingested. Looked at on that start only (B88)."""
    allow_overwrites: bool = False
    """`cloudFiles.allowOverwrites`: whether a file is ingested again when it was overwritten (its
    modification time, size or etag is another one). The whole file is (B104)."""
    max_file_age_seconds: float | None = None
    """`cloudFiles.maxFileAge`: files modified longer ago than this are left out, and counted. At
    least 14 days (B108); 90 are recommended."""
    modified_after_us: int | None = None
    """`modifiedAfter`: only files modified after this time, exclusive (B92). ISO 8601, UTC where no
    zone is given."""
    modified_before_us: int | None = None
    """`modifiedBefore`: only files modified before this time, exclusive (B92)."""
    path_glob_filter: str | None = None
    """`pathGlobFilter`: a pattern for the name of the file, without its folders; also under the
    name `fileNamePattern` (B89)."""
    use_strict_globber: bool = False
    """`cloudFiles.useStrictGlobber`: whether `*` in the source path stays within one folder name,
    as in Spark (B90)."""
    use_notifications: bool = False
    """`cloudFiles.useNotifications`: whether new files are learnt from a queue of notifications
    instead of by listing."""
    list_on_start: bool = False
    """`cloudFiles.listOnStart`: a full listing at the start of this run, besides the queue."""
    fetch_parallelism: int = 1
    """`cloudFiles.fetchParallelism`: how many threads read the queue."""
    path_rewrites: tuple[tuple[str, str], ...] = field(default=())
    """`cloudFiles.pathRewrites`: a JSON object from prefixes of paths in notifications to what they
    are replaced with (B98); for buckets whose events name another location."""
    queue_url: str | None = None
    """`cloudFiles.queueUrl`: the SQS queue that notifications arrive in."""
    queue_name: str | None = None
    """`cloudFiles.queueName`: the Azure Storage queue that notifications arrive in."""
    subscription: str | None = None
    """`cloudFiles.subscription`: the Pub/Sub subscription that notifications arrive in; its name,
    or `projects/<project>/subscriptions/<name>`."""
    project_id: str | None = None
    """`cloudFiles.projectId`: the Google Cloud project of the subscription."""
    region: str | None = None
    """`cloudFiles.region`: the AWS region of the queue."""
