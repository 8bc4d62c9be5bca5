"""Which option names does the documentation know, and what do we do with each?

Only names, no parsing: `cloud_files.py` reads values. Names and meanings follow Auto Loader's
option reference; what this version does not offer is listed with the sentence the user gets.
"""

from __future__ import annotations

FORMATS = ("avro", "binaryFile", "csv", "json", "orc", "parquet", "text", "xml")
"""The formats Auto Loader documents."""
FIXED_FORMATS = ("binaryFile", "text")
"""Formats whose columns are always the same, so that nothing is inferred but partitions."""

SUPPORTED = (
    "cloudFiles.format",
    "cloudFiles.schemaLocation",
    "cloudFiles.schemaHints",
    "cloudFiles.schemaEvolutionMode",
    "cloudFiles.evolveAhead",
    "cloudFiles.rescueInexactNumbers",
    "cloudFiles.inferColumnTypes",
    "cloudFiles.maxFilesPerTrigger",
    "cloudFiles.maxBytesPerTrigger",
    "cloudFiles.partitionColumns",
    "cloudFiles.validateOptions",
    "cloudFiles.useIncrementalListing",
    "cloudFiles.backfillInterval",
    "cloudFiles.includeExistingFiles",
    "cloudFiles.allowOverwrites",
    "cloudFiles.maxFileAge",
    "cloudFiles.useStrictGlobber",
    "cloudFiles.useNotifications",
    "cloudFiles.listOnStart",
    "cloudFiles.fetchParallelism",
    "cloudFiles.pathRewrites",
    "cloudFiles.queueUrl",
    "cloudFiles.region",
    "cloudFiles.queueName",
    "cloudFiles.subscription",
    "cloudFiles.projectId",
    "cloudFiles.schemaInference.sampleSize.numBytes",
    "cloudFiles.schemaInference.sampleSize.numFiles",
    "badRecordsPath",
    "checkpointLocation",
    "columnNameOfCorruptRecord",
    "fileNamePattern",
    "ignoreCorruptFiles",
    "ignoreMissingFiles",
    "mode",
    "modifiedAfter",
    "modifiedBefore",
    "path",
    "pathGlobFilter",
    "readerCaseSensitive",
    "recursiveFileLookup",
    "rescuedDataColumn",
    "singleVariantColumn",
)
"""What `CloudFilesOptions` parses and the engine obeys."""

OF_SINK = ("mergeSchema", "typeWidening", "typeWideningMaxBytes")
"""Options of the Delta sink that a task takes among those of the stream."""

INTERNAL = (
    "cloudFiles.internal.token",
    "cloudFiles.internal.upToEntry",
    "cloudFiles.internal.splitToken",
    "cloudFiles.internal.parallelism",
    "cloudFiles.internal.exclude",
    "cloudFiles.internal.caseSensitive",
)
"""Set by this package itself between its own packages; never by users."""

FIXED = {
    "cloudFiles.cleanSource": (
        "off",
        (
            "files of the source are neither deleted nor moved in this version. Set it to OFF or "
            "leave it out, and let a lifecycle rule of the storage, or a task of yours, remove "
            "them."
        ),
    ),
    "cloudFiles.useManagedFileEvents": (
        "false",
        (
            "managed file events are a service of Databricks. Leave it out, and set "
            "cloudFiles.useNotifications=true to be notified of new files by a queue."
        ),
    ),
}
"""Documented switches that this version knows in one position only: that value (compared in lower
case) is accepted, any other refused with the reason."""

DEFAULTS_OF_REFUSED = {
    ("csv", "inferSchema"): ("false",),
    ("csv", "parserCaseSensitive"): ("true",),
    ("csv", "samplingRatio"): ("1", "1.0"),
    ("csv", "enableDateTimeParsingFallback"): ("false",),
    ("xml", "wildcardColName"): ("xs_any",),
}
"""Options that a format refuses, with the documented default, which changes nothing and may be
written out."""

PLANNED = (
    "cloudFiles.cleanSource.retentionDuration",
    "cloudFiles.cleanSource.moveDestination",
    "cloudFiles.cleanSource.waitForCompletion",
)
"""Documented, not in this version: refused by name, never ignored."""

CREDENTIALS = (
    "cloudFiles.awsAccessKey",
    "cloudFiles.awsSecretKey",
    "cloudFiles.tenantId",
    "cloudFiles.clientId",
    "cloudFiles.clientSecret",
    "cloudFiles.connectionString",
    "cloudFiles.client",
    "cloudFiles.clientEmail",
    "cloudFiles.privateKey",
    "cloudFiles.privateKeyId",
)
"""Credentials never travel as options: options are logged, rendered and stored."""

IN_CONNECTION = (
    "cloudFiles.roleArn",
    "cloudFiles.roleExternalId",
    "cloudFiles.roleSessionName",
    "cloudFiles.stsEndpoint",
)
"""Who is asking: said by the connection, not by the stream."""

IN_SET_UP = (
    "cloudFiles.resourceTag",
    "cloudFiles.resourceGroup",
    "cloudFiles.subscriptionId",
    "cloudFiles.restrictNotificationSetupToSameAWSAccountId",
)
"""Of the notification resources: said when they are set up, not by the stream."""

PLATFORM = ("databricks.serviceCredential", "cloudFiles.databricks.serviceCredential")
"""Options of Databricks' own platform."""

TEXT_FORMATS = ("csv", "json", "xml")
ONLY_FOR = {
    "badRecordsPath": TEXT_FORMATS,
    "cloudFiles.rescueInexactNumbers": TEXT_FORMATS,
    "columnNameOfCorruptRecord": TEXT_FORMATS,
    "mode": TEXT_FORMATS,
    "readerCaseSensitive": (*TEXT_FORMATS, "avro", "orc", "parquet"),
    "singleVariantColumn": ("json", "xml"),
}
"""Options of several formats, with the formats that have them; for others they are refused."""


def documented() -> dict[str, str]:
    """Every name a user may have meant, keyed by its lower-case form."""
    names = (
        *SUPPORTED,
        *FIXED,
        *PLANNED,
        *CREDENTIALS,
        *IN_CONNECTION,
        *IN_SET_UP,
        *PLATFORM,
    )
    return {name.lower(): name for name in names}
