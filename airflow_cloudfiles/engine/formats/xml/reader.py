"""Read the rows of XML files.

Rows are cut out of the file (`rows`); those that look alike are read as columns
(`columns`), the others are explained one by one (`explain`). A row is in exactly one place
afterwards: its columns and its rescued data, the corrupt record column, or, as the options say,
dropped and counted, `badRecordsPath`, or the error.

The life of one `XmlBlock`:

1. Rows that look alike are read as columns (`columns`); what is left over is odd.
2. Odd rows are explained one by one.
3. What did not find its column is put into the rescued data column, the corrupt record column,
   or wherever else the mode says.

With `rowValidationXSDPath` rows are checked one by one, as documents of their own, with the
namespaces that the elements around them declare. Nothing is fetched: neither for the rows nor for
the schema, whose imports are files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.formats.base import (
    ENOUGH_RECORDS,
    OpenedFile,
    UnknownFields,
    path_end,
)
from airflow_cloudfiles.engine.formats.record_policy import (
    MISFIT_REASON,
    NumberRule,
    RecordOutcomes,
    RecordReader,
    require_variant_column,
)
from airflow_cloudfiles.engine.formats.xml.columns import Columns, ReadRows
from airflow_cloudfiles.engine.formats.xml.explain import VariantExplainer, XmlExplainer
from airflow_cloudfiles.engine.formats.xml.rows import RowScanner, XmlRows, printable
from airflow_cloudfiles.engine.formats.xml.shape import TextCasts, compile_struct
from airflow_cloudfiles.engine.formats.xml.tree import Fields, NotXmlError, parse
from airflow_cloudfiles.engine.messages import install
from airflow_cloudfiles.engine.options.cloud_files import CloudFilesOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cloudfiles.engine.formats.base import Positions
    from airflow_cloudfiles.engine.options.formats.nested import XmlOptions

_NAME: Final = re.compile(rb"\s(xmlns(?::[^\s=<>/]+)?)\s*=")
_START: Final = re.compile(rb"<[^\s/>]+")


class RowValidator:
    """Checks rows against the schema of `rowValidationXSDPath`.

    Args:
        path: Where the schema is: a local path, or a `file:` URI.

    Raises:
        OptionError: It is not there, or no XML schema; or the extra `xml` is not installed.
    """

    def __init__(self, path: str) -> None:
        try:
            from lxml import etree  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise OptionError(f"rowValidationXSDPath needs lxml. {install('xml')}") from error
        self._etree: Any = etree
        self._parser = etree.XMLParser(
            resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True
        )
        self._schema = self._load(path)

    def check(self, rows: XmlRows) -> None:
        """Mark the rows that are not valid as broken."""
        for position, text in enumerate(rows.texts):
            if position not in rows.broken:
                problem = self._problem(text, rows.namespaces)
                if problem is not None:
                    rows.broken[position] = problem

    def _problem(self, text: bytes, namespaces: list[bytes]) -> str | None:
        """Say what is wrong with a row; `None` for nothing."""
        try:
            row = self._etree.fromstring(_declared(text, namespaces), self._parser)
        except self._etree.XMLSyntaxError as error:
            return str(error)
        if self._schema.validate(row):
            return None
        return f"not valid: {self._schema.error_log.last_error.message}"

    def _load(self, path: str) -> Any:
        place = unquote(urlsplit(path).path) if path.lower().startswith("file:") else path
        if not Path(place).is_file():
            raise OptionError(
                f"rowValidationXSDPath={path!r} is no file here. Give the path of an XML schema "
                "that every machine which reads has."
            )
        parser = self._etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        try:
            return self._etree.XMLSchema(self._etree.parse(place, parser))
        except (self._etree.XMLSyntaxError, self._etree.XMLSchemaParseError, OSError) as error:
            raise OptionError(
                f"rowValidationXSDPath={path!r} is no XML schema: {error}. Correct the file."
            ) from error


def _declared(text: bytes, namespaces: list[bytes]) -> bytes:
    """Put around a row the declarations that it does not make itself."""
    start = _START.match(text)
    if start is None or not namespaces:
        return text
    own = set(_NAME.findall(text[: text.find(b">")]))
    missing = {
        name[1]: each for each in namespaces if (name := _NAME.match(b" " + each)) is not None
    }
    added = b"".join(b" " + each for name, each in missing.items() if name not in own)
    return text[: start.end()] + added + text[start.end() :]


@dataclass(slots=True)
class XmlBlock:
    """Consecutive rows of one file, read once.

    Attributes:
        outcomes: What becomes of the rows, still empty.
        columns: Read rows that are alike; `None`: every row is explained.
        explainer: Of single rows.
        rows: The rows.
        file_uri: Their file.
    """

    outcomes: RecordOutcomes
    columns: Columns | None
    explainer: XmlExplainer | VariantExplainer
    rows: XmlRows
    file_uri: str
    _explained: list[dict[str, object]] = field(default_factory=list)

    def read(self) -> pa.RecordBatch:
        """Read everything.

        Raises:
            UnknownFields: There are new fields, in a mode that must know.
            CorruptRecordError: A row is no record, in mode `FAILFAST`.
        """
        taken = [] if self.columns is None else self.columns.read(self.rows)
        is_odd = np.ones(len(self.rows.texts), np.bool_)
        for part in taken:
            is_odd[part.rows] = False
            self.outcomes.rescued |= part.rescued
        odd = np.flatnonzero(is_odd)
        since_new_fields = 0
        for row in odd.tolist():
            self._read_odd_row(row)
            # Others will be thrown away, once enough of them show what is new.
            since_new_fields += bool(self.explainer.new_fields)
            if since_new_fields >= ENOUGH_RECORDS:
                break
        if self.explainer.new_fields:
            raise UnknownFields(self.explainer.new_fields, self.file_uri)
        arrays = self._arrays(taken, odd)
        count, rescued = len(self.rows.texts), None
        if self.outcomes.policy.rescues:
            end = path_end(self.file_uri).encode()
            rescued = self.outcomes.rescued_column(count, lambda _: end)
        return self.outcomes.batch(arrays, count, rescued)

    # 2. One by one ------------------------------------------------------------------------

    def _read_odd_row(self, row: int) -> None:
        text = self.rows.texts[row]
        reason = self.rows.broken.get(row)
        values: dict[str, object] = {}
        if reason is None:
            try:
                values = self._explain(row, text)
            except NotXmlError as error:
                reason = str(error)
        if reason is not None:
            self._drop_or_keep(row, text, reason)
        self._explained.append(values)

    def _explain(self, row: int, text: bytes) -> dict[str, object]:
        found = self.explainer.explain(parse(text))
        if self.outcomes.policy.rescues:
            if found.rescued:
                self.outcomes.rescued[row] = found.rescued.encode()
        elif not found.fits:
            # As in Spark: without rescued data, a value that does not fit makes a bad record.
            self._drop_or_keep(row, text, MISFIT_REASON)
        return found.row

    def _drop_or_keep(self, row: int, text: bytes, reason: str) -> None:
        self.outcomes.drop_or_keep(self.file_uri, printable(text), reason, [row], place=row)

    # 3. The batch -------------------------------------------------------------------------

    def _arrays(self, taken: list[ReadRows], odd: Positions) -> list[pa.Array]:
        """Build the columns of all rows, in the order of the rows."""
        parts = [part for part in taken if len(part.rows)]
        if len(odd) or not parts:
            explained = pa.array(self._explained, self.outcomes.policy.parsed_type).flatten()
            parts.append(ReadRows(odd, list(explained)))
        if len(parts) == 1:
            return parts[0].arrays
        order = pa.array(np.argsort(np.concatenate([part.rows for part in parts])))
        columns = zip(*(part.arrays for part in parts), strict=True)
        return [pa.concat_arrays(column).take(order) for column in columns]


_LARGEST_BATCH: Final = 16_384
"""Rows in a batch: Spark keeps a few of them in memory."""


class XmlReader(RecordReader):
    """Reads XML files with one schema; see `RecordReader`.

    Args:
        data_schema: The columns to fill.
        options: Of the source.
        is_thorough: Whether every row is explained one by one, which is slow and gives the same.

    Raises:
        IncompatibleSchemaError: A column has a type that XML cannot be read into.
        OptionError: A date pattern, a time zone or a locale is none; the extra `xml` is missing.
    """

    def __init__(
        self, data_schema: StructType, options: CloudFilesOptions, *, is_thorough: bool = False
    ) -> None:
        super().__init__(data_schema, options)
        own = cast("XmlOptions", options.format_options)
        self._own = own
        parsed = self._policy.parsed
        casts = TextCasts(own, NumberRule.of(options), exact=self._policy.rescues)
        self._locale = casts.locale
        single = options.single_variant_column
        if single is not None:
            require_variant_column(parsed, single)
        columns = parsed if single is None else StructType([])
        self._shape = compile_struct(columns, casts.converter, options.matcher)
        self._fields = Fields(own)
        self._columns = (
            None
            if is_thorough or single is not None
            else Columns(
                self._shape,
                self._policy.parsed_type,
                own,
                casts,
                case_sensitive=options.reader_case_sensitive,
                ignores_unknown=self._ignores_unknown,
                rescues=self._policy.rescues,
                rescues_unknown=self._policy.rescues and not self.watches,
            )
        )
        self._scanner = RowScanner(own.row_tag, ignore_namespace=own.ignore_namespace)
        path = own.row_validation_xsd_path
        self._validator = None if path is None else RowValidator(path)

    def read_file(
        self, file: OpenedFile, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read one file.

        Reading it again gives the same batches; only `counts` and `bad_records` go on growing.

        Args:
            file: The file.
            start: 0: a file is read whole.
            end: `None`.

        Raises:
            UnknownFields: There are new fields, in a mode that must know.
            CorruptRecordError: A row is no record, in mode `FAILFAST`.
            FileUnreadableError: The file is damaged, or a row is larger than `MAX_ROW_BYTES`.
        """
        if start or end is not None:
            raise ValueError("an XML file is read whole")
        for rows in self._scanner.rows(file, self._own.encoding):
            if self._validator is not None:
                self._validator.check(rows)
            for part in rows.parts(_LARGEST_BATCH):
                yield self._read(part, file.uri)

    def _read(self, rows: XmlRows, file_uri: str) -> pa.RecordBatch:
        single = self._options.single_variant_column
        explainer: XmlExplainer | VariantExplainer = (
            VariantExplainer(single, self._fields, self._locale)
            if single is not None
            else XmlExplainer(
                self._shape,
                self._fields,
                case_sensitive=self._options.reader_case_sensitive,
                collects_new=self.watches,
                reserved=self._reserved,
                left_out=self._left_out,
            )
        )
        outcomes = RecordOutcomes(self._policy)
        batch = XmlBlock(outcomes, self._columns, explainer, rows, file_uri).read()
        found = outcomes.first_error(int)
        if found is not None and self.first_error is None:
            self.first_error = replace(found[1], line=rows.line_of(found[0]))
        return self._counted(batch, outcomes)
