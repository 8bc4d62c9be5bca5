"""Which option names does the documentation know, and what do we do with each?

Only names, no parsing: `options.py` reads values. Names and meanings follow Auto Loader's option
reference; what this version does not offer is listed with the sentence the user gets.
"""

from __future__ import annotations

FORMATS = ("avro", "binaryFile", "csv", "json", "orc", "parquet", "text", "xml")
"""The formats Auto Loader documents; `SUPPORTED_FORMATS` are those this version reads."""

SUPPORTED_FORMATS = ("json",)

SUPPORTED = (
    "cloudFiles.format",
    "cloudFiles.schemaLocation",
    "cloudFiles.schemaHints",
    "cloudFiles.schemaEvolutionMode",
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
    "checkpointLocation",
    "columnNameOfCorruptRecord",
    "fileNamePattern",
    "ignoreMissingFiles",
    "mode",
    "modifiedAfter",
    "modifiedBefore",
    "path",
    "pathGlobFilter",
    "readerCaseSensitive",
    "recursiveFileLookup",
    "rescuedDataColumn",
)
"""What `CloudFilesOptions` parses and the engine obeys."""

INTERNAL = (
    "cloudFiles.internal.token",
    "cloudFiles.internal.upToEntry",
    "cloudFiles.internal.emit",
    "cloudFiles.internal.parallelism",
    "cloudFiles.internal.exclude",
)
"""Set by this package itself between its own rooms; never by users."""

FIXED = {
    "cloudFiles.cleanSource": "off",
    "cloudFiles.useManagedFileEvents": "false",
    "multiLine": "false",
    "ignoreCorruptFiles": "false",
    "encoding": "utf-8",
    "locale": "en-us",
    "primitivesAsString": "false",
    "prefersDecimal": "false",
    "dropFieldIfAllNull": "false",
    "inferTimestamp": "false",
    "allowComments": "false",
    "allowSingleQuotes": "true",
    "allowUnquotedFieldNames": "false",
    "allowNumericLeadingZeros": "false",
    "allowBackslashEscapingAnyCharacter": "false",
    "allowUnquotedControlChars": "false",
    "allowNonNumericNumbers": "true",
}
"""Documented switches that this version knows in one position only: that value is accepted, any
other refused. The values are compared in lower case."""

PLANNED = (
    "cloudFiles.cleanSource.retentionDuration",
    "cloudFiles.cleanSource.moveDestination",
    "cloudFiles.cleanSource.waitForCompletion",
    "badRecordsPath",
    "dateFormat",
    "lineSep",
    "singleVariantColumn",
    "timeZone",
    "timestampFormat",
    "timestampNTZFormat",
    "samplingRatio",
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

FORMAT_ONLY = {
    "attributePrefix": "xml",
    "avroSchema": "avro",
    "charToEscapeQuoteEscaping": "csv",
    "comment": "csv",
    "datetimeRebaseMode": "parquet, avro",
    "emptyValue": "csv",
    "enforceSchema": "csv",
    "escape": "csv",
    "excludeAttribute": "xml",
    "header": "csv",
    "ignoreLeadingWhiteSpace": "csv",
    "ignoreNamespace": "xml",
    "ignoreSurroundingSpaces": "xml",
    "ignoreTrailingWhiteSpace": "csv",
    "inferSchema": "csv, xml",
    "int96RebaseMode": "parquet",
    "maxCharsPerColumn": "csv",
    "maxColumns": "csv",
    "mergeSchema": "csv, parquet, avro, orc",
    "nanValue": "csv",
    "negativeInf": "csv",
    "nullValue": "csv, xml",
    "positiveInf": "csv",
    "preferDate": "csv",
    "quote": "csv",
    "rowTag": "xml",
    "rowValidationXSDPath": "xml",
    "sep": "csv",
    "delimiter": "csv",
    "skipRows": "csv",
    "unescapedQuoteHandling": "csv",
    "valueTag": "xml",
    "wholeText": "text",
}
"""Options of formats that this version does not read, with the formats they belong to."""


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
        *FORMAT_ONLY,
    )
    return {name.lower(): name for name in names}
