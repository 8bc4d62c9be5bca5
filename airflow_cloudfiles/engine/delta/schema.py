"""What must become of a table so that it can take the rows of a stream?

Nothing, as a rule. Columns it lacks are added; a column whose type the stream's has wider is
widened, where that was asked for (`widening`); everything else is refused. That is Delta's
enforcement, with Auto Loader's matrix of wider types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    VariantType,
)

from airflow_cloudfiles.engine.casing import CASE_INSENSITIVE
from airflow_cloudfiles.engine.delta.variant import delta_columns
from airflow_cloudfiles.engine.errors import SchemaMismatchError, SinkError
from airflow_cloudfiles.engine.formats.columnar.types import holds_variant
from airflow_cloudfiles.engine.naming import dotted, quoted
from airflow_cloudfiles.engine.schema.widening import wider_type
from airflow_cloudfiles.engine.shortened import cut, few

_COMPUTED = (
    "delta.generationExpression",
    "delta.identity.start",
    "delta.invariants",
    "CURRENT_DEFAULT",
)
_UNSUPPORTED = (
    "typeWidening",
    "typeWidening-preview",
    "rowTracking",
    "variantShredding",
    "variantShredding-preview",
)
"""Table features with which `deltalake` (1.6) neither reads nor writes rows, or loses what they
promise."""


@dataclass(frozen=True, slots=True)
class WidenedColumn:
    """A column, or a field inside one, whose type is to be wider.

    Attributes:
        path: Which: `a`, `a.b`, `a.element`, `a.value`.
        have: The table's type, as Spark writes it.
        want: The stream's type.
    """

    path: str
    have: str
    want: str


@dataclass(slots=True)
class TablePlan:
    """What must become of a table.

    Attributes:
        schema: The table's columns, in their order, with the wider types.
        widened: What is wider in it than in the table.
        missing: Columns to add then, or to which nested fields are to be added.
    """

    schema: StructType
    widened: list[WidenedColumn] = field(default_factory=list)
    missing: list[StructField] = field(default_factory=list)

    def check(self, target: str, *, merge_schema: bool, widens: bool) -> None:
        """Refuse what was not asked for.

        Raises:
            SchemaMismatchError: The table must change, and may not.
        """
        if self.widened and not (merge_schema and widens):
            widened = few(
                [
                    f"{each.path} is {each.have} but {each.want} in the stream"
                    for each in self.widened
                ],
                characters=200,
            )
            raise SchemaMismatchError(
                f"Failed to merge fields of {target}: {widened}. Set mergeSchema=true and "
                "typeWidening=true to have the table rewritten with the wider type, or give the "
                "column the table's type with a schema hint (cloudFiles.schemaHints) and "
                "`cloudfiles infer --again`, or choose another target."
            )
        if self.missing and not merge_schema:
            names = few([quoted(each.name) for each in self.missing])
            raise SchemaMismatchError(
                f"{target} lacks {names} (or fields below). Set mergeSchema=true to add them to "
                "the table."
            )


def schema_of(table: DeltaTable) -> StructType:
    """The columns of a table; Delta stores them as Spark's schema JSON."""
    return StructType.fromJson(json.loads(table.schema().to_json()))


def delta_fields(fields: list[StructField]) -> list[Field]:
    """Columns, as `deltalake` takes them."""
    return [Field.from_json(json.dumps(each.jsonValue())) for each in fields]


def delta_schema(columns: StructType) -> Schema:
    """The columns of a table, as `deltalake` takes them."""
    return Schema.from_json(json.dumps(columns.jsonValue()))


def new_table(schema: pa.Schema) -> Schema:
    """The columns of a table that is created for a stream."""
    return delta_schema(delta_columns(nullable(schema)))


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, which may all be null: a later file may lack one."""
    return pa.schema([each.with_nullable(True).remove_metadata() for each in schema])


def plan_of(table: DeltaTable, target: str, schema: pa.Schema) -> TablePlan:
    """Compare a table with what a stream writes; a column the stream lacks is no difference.

    Args:
        table: The table in its newest version.
        target: Where it is, for errors.
        schema: Schema of the stream's data files.

    Raises:
        SchemaMismatchError: A column has a type that neither is nor can become the stream's, or
            differs only in case from another.
        SinkError: The table has rules for its rows that are not checked here.
    """
    refuse_features(table, target)
    check_columns(schema, target)
    wanted = delta_columns(nullable(schema))
    have = schema_of(table)
    comparison = _Comparison(target)
    wide = comparison.struct(have, wanted, ())
    found = TablePlan(wide, comparison.widened)
    known = {each.name for each in have.fields}
    found.missing = [
        each for each in wanted.fields if each.name not in known or each.name in comparison.grown
    ]
    return found


def refuse_features(table: DeltaTable, target: str) -> None:
    """Refuse tables with rules for their rows that are not checked when files are added.

    Raises:
        SinkError: The table has such rules.
    """
    metadata = table.metadata()
    rules = [f"it is partitioned by {name}" for name in metadata.partition_columns]
    rules += [
        f"it has {key}={value}"
        for key, value in metadata.configuration.items()
        if key.startswith("delta.constraints.")
        or (key == "delta.columnMapping.mode" and value != "none")
    ]
    features = table.protocol().writer_features or []
    rules += [f"it has the table feature {name}" for name in _UNSUPPORTED if name in features]
    for each in table.schema().fields:
        if not each.nullable:
            rules.append(f"column {each.name} is NOT NULL")
        rules += [f"column {each.name} has {key}" for key in each.metadata if key in _COMPUTED]
    if rules:
        raise _refused(target, rules)


def _refused(target: str, rules: list[str]) -> SinkError:
    return SinkError(
        f"{target} cannot be written in this version, because {'; '.join(rules)}. Choose a table "
        "without them, or write to it with Delta's own jars (writeStream.format('delta'))."
    )


def check_columns(columns: Iterable[pa.Field], target: str, within: str = "") -> None:
    """Refuse columns that no Delta table can have.

    Args:
        columns: Of the stream.
        target: The table, for errors.
        within: The column they are inside of, with a dot behind it.

    Raises:
        SchemaMismatchError: One never had a value, so that it has no type (B129), or two differ
            only in case (B127), or a map has VARIANTs as keys.
    """
    # Whether or not the session is case-sensitive: to Delta, two spellings are always one column.
    seen: dict[str, str] = {}
    for column in columns:
        twin = seen.setdefault(CASE_INSENSITIVE.key(column.name), column.name)
        if twin != column.name:
            raise SchemaMismatchError(
                f"Columns {within}{twin} and {within}{column.name} differ only in case, so "
                f"{target} cannot have both. Rename one of them."
            )
        if pa.types.is_null(column.type):
            raise SchemaMismatchError(
                f"Column {within}{column.name} has no type (void), so {target} cannot take it. "
                "Give it one with a schema hint (cloudFiles.schemaHints) or a cast."
            )
        if pa.types.is_map(column.type) and holds_variant(column.type.key_type):
            raise SchemaMismatchError(
                f"Column {within}{column.name} is a map whose keys are VARIANTs, so {target} "
                "cannot take it: Spark has no such map. Leave the column out."
            )
        if pa.types.is_nested(column.type):
            inner = [column.type.field(index) for index in range(column.type.num_fields)]
            check_columns(inner, target, f"{within}{column.name}.")


class _Comparison:
    """Walks two schemas at once.

    Attributes:
        widened: What must be wider.
        grown: Columns to which nested fields must be added.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self.widened: list[WidenedColumn] = []
        self.grown: set[str] = set()

    def struct(self, have: StructType, want: StructType, at: tuple[str, ...]) -> StructType:
        """The columns of `have`, wide enough for `want`."""
        by_name = {each.name: each for each in want.fields}
        key = CASE_INSENSITIVE.key
        spelled = {key(each.name): each.name for each in have.fields}
        for name in by_name:
            twin = spelled.setdefault(key(name), name)
            if twin != name:
                raise SchemaMismatchError(
                    f"Column {'.'.join((*at, name))} differs only in case from {twin} of "
                    f"{self._target}. Name it {twin} with a schema hint (cloudFiles.schemaHints)."
                )
        for each in have.fields if at else ():  # whole columns: see `refuse_features`
            may_be_null = each.name not in by_name or by_name[each.name].nullable
            self._check_nulls(may_be_null, each.nullable, (*at, each.name))
        known = {each.name for each in have.fields}
        if at and not known.issuperset(by_name):
            self.grown.add(at[0])
        return StructType(
            [
                StructField(
                    each.name,
                    self._type(each.dataType, by_name[each.name].dataType, (*at, each.name)),
                    each.nullable,
                    each.metadata,
                )
                if each.name in by_name
                else each
                for each in have.fields
            ]
        )

    def _check_nulls(self, may_be: bool, is_allowed: bool, at: tuple[str, ...]) -> None:  # noqa: FBT001
        """Refuse nulls inside a column that allows none there."""
        if may_be and not is_allowed:
            raise _refused(self._target, [f"column {dotted(at)} is NOT NULL"])

    def _type(self, have: DataType, want: DataType, at: tuple[str, ...]) -> DataType:
        if have == want:
            return have
        if isinstance(have, StructType) and isinstance(want, StructType):
            return self.struct(have, want, at)
        if isinstance(have, ArrayType) and isinstance(want, ArrayType):
            self._check_nulls(want.containsNull, have.containsNull, (*at, "element"))
            element = self._type(have.elementType, want.elementType, (*at, "element"))
            return ArrayType(element, have.containsNull)
        if isinstance(have, MapType) and isinstance(want, MapType):
            self._check_nulls(want.valueContainsNull, have.valueContainsNull, (*at, "value"))
            key = self._type(have.keyType, want.keyType, (*at, "key"))
            value = self._type(have.valueType, want.valueType, (*at, "value"))
            return MapType(key, value, have.valueContainsNull)
        path, old, new = dotted(at), have.simpleString(), want.simpleString()
        if wider_type(have, want, is_parquet=True) == want:
            self.widened.append(WidenedColumn(path, old, new))
            return want
        repair = ""
        if wider_type(want, have, is_parquet=True) == have:
            repair = (
                "If the stream has it in its schema log, a promotion was killed, or the schema was "
                f"rolled back: cloudfiles promote --field {path}={old} makes them agree. "
            )
        way = (
            "Give the column the table's type with a schema hint (cloudFiles.schemaHints) and "
            "`cloudfiles infer --again`"
        )
        if isinstance(have, VariantType):
            way = "A hint cannot make a column a VARIANT: remove the hint for it"
        raise SchemaMismatchError(
            f"Failed to merge fields: {path} is {cut(old)} in {self._target} but "
            f"{cut(new)} in the stream. {repair}{way}, or choose another target."
        )
