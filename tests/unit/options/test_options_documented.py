"""Every default that Auto Loader's reference documents may be written out, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from airflow_cloudfiles.engine.errors import (
    OptionError,
    UnknownFieldException,
    UnknownOptionError,
    UnsupportedOptionError,
)
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions
from airflow_cloudfiles.engine.options.discovery import CleaningOptions
from airflow_cloudfiles.engine.schema.ddl import parse_schema
from airflow_cloudfiles.engine.schema.diff import paths_of
from airflow_cloudfiles.engine.schema.history import SchemaHistory
from airflow_cloudfiles.engine.stream.definition import check_readable, given_schema
from tests.unit.stream.test_every_format import Landing

COMMON = {
    "cloudFiles.allowOverwrites": "false",
    "cloudFiles.cleanSource": "OFF",
    "cloudFiles.includeExistingFiles": "true",
    "cloudFiles.inferColumnTypes": "false",
    "cloudFiles.maxFilesPerTrigger": "1000",
    "cloudFiles.schemaEvolutionMode": "addNewColumns",
    "cloudFiles.useStrictGlobber": "false",
    "cloudFiles.validateOptions": "true",
    "cloudFiles.schemaInference.sampleSize.numBytes": "50gb",
    "cloudFiles.schemaInference.sampleSize.numFiles": "1000",
    "cloudFiles.useIncrementalListing": "auto",
    "cloudFiles.useNotifications": "false",
    "cloudFiles.useManagedFileEvents": "false",
    "cloudFiles.listOnStart": "false",
    "cloudFiles.fetchParallelism": "1",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "recursiveFileLookup": "false",
}
TEXT = {
    "columnNameOfCorruptRecord": "_corrupt_record",
    "dateFormat": "yyyy-MM-dd",
    "encoding": "UTF-8",
    "locale": "US",
    "mode": "PERMISSIVE",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSS]",
    "readerCaseSensitive": "true",
}
DOCUMENTED = {
    "json": TEXT
    | {
        "allowBackslashEscapingAnyCharacter": "false",
        "allowComments": "false",
        "allowNonNumericNumbers": "true",
        "allowNumericLeadingZeros": "false",
        "allowSingleQuotes": "true",
        "allowUnquotedControlChars": "false",
        "allowUnquotedFieldNames": "false",
        "dropFieldIfAllNull": "false",
        "inferTimestamp": "false",
        "multiLine": "false",
        "prefersDecimal": "false",
        "primitivesAsString": "false",
        "samplingRatio": "1.0",
    },
    "csv": TEXT
    | {
        "charToEscapeQuoteEscaping": "\\0",
        "comment": "\\u0000",
        "emptyValue": "",
        "enforceSchema": "true",
        "escape": "\\",
        "header": "false",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "inferSchema": "false",
        "maxCharsPerColumn": "-1",
        "maxColumns": "20480",
        "mergeSchema": "true",
        "multiLine": "false",
        "nanValue": "NaN",
        "negativeInf": "-Inf",
        "nullValue": "",
        "parserCaseSensitive": "true",
        "positiveInf": "Inf",
        "preferDate": "true",
        "quote": '"',
        "samplingRatio": "1.0",
        "sep": ",",
        "skipRows": "0",
        "unescapedQuoteHandling": "STOP_AT_DELIMITER",
        "enableDateTimeParsingFallback": "false",
    },
    "xml": TEXT
    | {
        "attributePrefix": "_",
        "excludeAttribute": "false",
        "ignoreNamespace": "false",
        "ignoreSurroundingSpaces": "true",
        "inferSchema": "true",
        "prefersDecimal": "false",
        "samplingRatio": "1.0",
        "valueTag": "_VALUE",
        "nullValue": "null",
        "wildcardColName": "xs_any",
    },
    "parquet": {
        "datetimeRebaseMode": "LEGACY",
        "int96RebaseMode": "LEGACY",
        "mergeSchema": "false",
        "readerCaseSensitive": "true",
    },
    "avro": {
        "datetimeRebaseMode": "LEGACY",
        "mergeSchema": "false",
        "readerCaseSensitive": "true",
    },
    "orc": {"mergeSchema": "false"},
    "text": {"encoding": "UTF-8", "wholeText": "false"},
    "binaryFile": {},
}


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        (name, option, value)
        for name, own in DOCUMENTED.items()
        for option, value in (COMMON | own).items()
    ],
)
@pytest.mark.parametrize("write", [str, str.upper])
def test_a_documented_default_is_accepted(
    name: str, option: str, value: str, write: Callable[[str], str]
) -> None:
    given: dict[str, object] = {"cloudFiles.format": name}
    if name == "xml":
        given["rowTag"] = "row"
    is_word = value.lower() in {"true", "false"}
    given[option] = write(value) if is_word else value
    options = CloudFilesOptions.parse(given, path="/in")
    columns = {"text": "value STRING", "binaryFile": "path STRING, content BINARY"}
    schema = parse_schema(columns.get(name, "a TIMESTAMP, b DATE, c STRING"))
    check_readable(given_schema(schema, options), options)


@pytest.mark.parametrize("option", [*COMMON, *TEXT])
def test_what_is_documented_for_csv_changes_nothing(option: str) -> None:
    plain = CloudFilesOptions.parse({"cloudFiles.format": "csv"}, path="/in")
    value = (COMMON | TEXT)[option]
    found = CloudFilesOptions.parse({"cloudFiles.format": "csv", option: value}, path="/in")
    if option not in {"dateFormat", "timestampFormat", "timestampNTZFormat", "locale", "timeZone"}:
        assert found == plain


def _cleaning(**given: str) -> CleaningOptions:
    names = {
        "mode": "",
        "retention": ".retentionDuration",
        "to": ".moveDestination",
        "others": ".otherCheckpoints",
    }
    options = {f"cloudFiles.cleanSource{names[name]}": value for name, value in given.items()}
    return CloudFilesOptions.parse({"cloudFiles.format": "json", **options}, path="/in").cleaning


def test_clean_source_is_off_and_keeps_files_for_thirty_days() -> None:
    assert _cleaning() == _cleaning(mode="off", retention="30 days") == CleaningOptions()
    assert not _cleaning().is_on
    assert _cleaning(others="s3://a/b, /c").other_checkpoints == ("s3://a/b", "/c")


@pytest.mark.parametrize("retention", ["1 minute", "168 hours", "interval 7 days", "0 days"])
def test_deleting_takes_more_than_seven_days(retention: str) -> None:  # B119
    with pytest.raises(OptionError, match="more than 7 days"):
        _cleaning(mode="delete", retention=retention)
    assert _cleaning(mode="MOVE", retention=retention, to="/archive").is_on  # B120
    assert _cleaning(mode="DELETE", retention="8 days").retention_seconds == 8 * 86400


def test_moving_needs_a_destination() -> None:
    with pytest.raises(OptionError, match=r"MOVE needs cloudFiles\.cleanSource\.moveDestination"):
        _cleaning(mode="MOVE")
    with pytest.raises(OptionError, match="fixed length"):
        _cleaning(mode="MOVE", retention="1 month", to="/archive")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cloudFiles.readChangeFeed", "no change feed"),
        ("databricks.connection", "Airflow connection"),
        ("cloudFiles.databricks.connection", "Airflow connection"),
        ("ignoredPathSegmentRegex", "pathGlobFilter"),
        ("timeFormat", "no type TIME"),
    ],
)
@pytest.mark.parametrize("validate", ["true", "false"])
def test_what_auto_loader_documents_and_is_not_offered_is_no_typo(
    name: str, says: str, validate: str
) -> None:
    for given in (name, name.upper()):
        options = {
            "cloudFiles.format": "csv",
            "cloudFiles.validateOptions": validate,
            given: "true",
        }
        with pytest.raises(UnsupportedOptionError, match=says) as refused:
            CloudFilesOptions.parse(options, path="/in")
        assert f"{name}" in refused.value.message
        assert "Unknown option" not in refused.value.message


def test_a_project_has_two_names() -> None:
    options = {"cloudFiles.format": "json", "cloudFiles.project": "p"}
    assert CloudFilesOptions.parse(options, path="/in").discovery.project_id == "p"


def test_a_location_that_a_blank_or_line_end_ends_is_refused_with_its_option() -> None:
    for name in ("cloudFiles.schemaLocation", "checkpointLocation", "badRecordsPath"):
        for location in ("/s ", "/s\n", " /s", "s3://b/s\r\n"):
            with pytest.raises(OptionError, match=rf"{name}: .*blank or a line end"):
                CloudFilesOptions.parse({"cloudFiles.format": "json", name: location}, path="/in")
    with pytest.raises(OptionError, match=r"path: .*blank or a line end"):
        CloudFilesOptions.parse({"cloudFiles.format": "json"}, path="/in\n")
    assert CloudFilesOptions.parse({"cloudFiles.format": "json"}, path="/in /").path == "/in /"


def test_an_unknown_option_is_named_as_it_was_typed() -> None:
    options = {"cloudFiles.format": "json", "cloudFiles.maxFilePerTrigger": "1"}
    with pytest.raises(UnknownOptionError, match=r"'cloudFiles[.]maxFilePerTrigger'"):
        CloudFilesOptions.parse(options, path="/in")


@pytest.mark.parametrize("name", ["json", "csv", "xml"])
def test_fractions_are_inferred_as_decimals_where_types_widen(tmp_path: Path, name: str) -> None:
    landing = Landing(name, tmp_path)
    landing.drop("1", [{"a": 1.5, "b": 1, "c": 2.25}, {"a": 22.75, "b": 2, "c": 3}])
    mode = {"cloudFiles.schemaEvolutionMode": "addNewColumnsWithTypeWidening"}
    stream = landing.stream(**mode, **{"cloudFiles.inferColumnTypes": "true"})
    [first, _] = stream.run()
    assert (first["a"], first["c"]) == (Decimal("1.50"), Decimal("2.25"))
    shown = paths_of(SchemaHistory(str(landing.state)).show().data_schema)
    assert shown["a"] == "decimal(4,2)"
    assert shown["c"].startswith("decimal(")
    assert not shown["b"].startswith("decimal(")
    landing.drop("2", [{"a": 333.125, "b": 1, "c": 1}])
    with pytest.raises(UnknownFieldException, match="automatic retry: true"):
        stream.run()
    [row] = stream.run()
    assert (row["a"], row["_rescued_data"]) == (Decimal("333.125"), None)


@pytest.mark.parametrize("name", ["json", "csv", "xml"])
def test_doubles_are_refused_where_types_widen(name: str) -> None:  # B64
    options = {
        "cloudFiles.format": name,
        "rowTag": "row",
        "cloudFiles.schemaEvolutionMode": "addNewColumnsWithTypeWidening",
        "prefersDecimal": "false",
    }
    if name != "xml":
        del options["rowTag"]
    with pytest.raises(OptionError, match="prefersDecimal=false is not allowed"):
        CloudFilesOptions.parse(options, path="/in")
