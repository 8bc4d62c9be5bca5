"""Choose the rows of a batch that are merged, by the rule of the merge.

By keys: a row of the batch updates, or deletes, the row of the table that has the same keys; a row
with new keys is inserted.

The tasks have written the rows to files that no version of the table has (`staged.STAGED`).
Their keys are read first, and of several rows with the same keys one is chosen. Then the rows are
read file by file. Memory holds the keys of a batch, and of its rows one data file at most.

Nested values of a batch get the type of the table's column, as `deltalake` wants them.

It casts values, but neither adds a field that rows lack to a struct, nor changes the order of its
fields, nor takes a field that may be null for one that is NOT NULL (tried with 1.6).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType

from airflow_cloudfiles.engine.errors import OptionError, SinkError
from airflow_cloudfiles.engine.formats.columnar.types import holds_variant, with_inner
from airflow_cloudfiles.engine.messages import counted, cut, few, plural
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, quoted
from airflow_cloudfiles.engine.tables.delta.data_files import DataFile, opened
from airflow_cloudfiles.engine.tables.delta.location import DeltaLocation
from airflow_cloudfiles.engine.tables.delta.merge_schema import partners
from airflow_cloudfiles.engine.tables.delta.predicates import Predicate, holds, parse_predicate
from airflow_cloudfiles.engine.tables.delta.read.columns import delta_schema, rows_columns
from airflow_cloudfiles.engine.tables.delta.write.layout import FileLayout
from airflow_cloudfiles.engine.tables.delta.write.rows import require_values

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.options.sink import TableOptions


@dataclass(frozen=True, slots=True)
class Shape:
    """What a nested column of a batch becomes.

    Attributes:
        rows: Its type in the rows.
        table: Its type in the table, which has all of its fields.
        wanted: The same in Arrow.
    """

    rows: DataType
    table: DataType
    wanted: pa.DataType

    def of(self, array: pa.Array) -> pa.Array:
        """Convert the values to the type of the table."""
        return _shaped(array, self.rows, self.table, self.wanted)


_SHAPED: Final = (StructType, ArrayType, MapType, NullType)
NO_SHAPES: Final[Mapping[str, Shape]] = {}


def shapes_of(schema: pa.Schema, table: StructType) -> dict[str, Shape]:
    """Find what becomes of the nested columns of rows whose type is not that of the table.

    Args:
        schema: Of the rows.
        table: The columns of the table, which has all of theirs.
    """
    kinds = rows_columns(schema)
    in_table = pa.schema(delta_schema(table))
    found = {}
    for kind, place in zip(kinds.fields, partners(table, kinds), strict=True):
        if place is None or not isinstance(kind.dataType, _SHAPED):
            continue
        wanted = in_table.field(place).type
        if schema.field(kind.name).type != wanted:
            found[kind.name] = Shape(kind.dataType, table.fields[place].dataType, wanted)
    return found


def _shaped(array: pa.Array, rows: DataType, table: DataType, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if isinstance(rows, StructType) and isinstance(table, StructType):
        parts = [pa.nulls(len(array), each.type) for each in wanted]
        for at, place in enumerate(partners(table, rows)):
            if place is not None:
                kinds = rows.fields[at].dataType, table.fields[place].dataType
                parts[place] = _shaped(array.field(at), *kinds, wanted.field(place).type)
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=array.is_null())
    if isinstance(rows, ArrayType) and isinstance(table, ArrayType):
        kinds = rows.elementType, table.elementType
        inner = _shaped(array.values, *kinds, wanted.value_type)
    elif isinstance(rows, MapType) and isinstance(table, MapType):
        fields = [wanted.key_field, wanted.item_field]
        keys = _shaped(array.keys, rows.keyType, table.keyType, fields[0].type)
        values = _shaped(array.items, rows.valueType, table.valueType, fields[1].type)
        inner = pa.StructArray.from_arrays([keys, values], fields=fields)
    else:
        return array.cast(wanted)
    return with_inner(array, wanted, inner)


_BATCH_ROWS: Final = 64 * 1024


def read_rows(
    location: DeltaLocation,
    files: Sequence[DataFile],
    schema: pa.Schema,
    names: Mapping[str, str],
    table: pa.Schema,
) -> pa.RecordBatchReader:
    """Read all rows of some files that are not in any version of a table, once.

    Args:
        location: Of the table.
        files: The files.
        schema: Of the rows.
        names: The table's name of each column of them.
        table: The columns of the table; those that the rows lack are null.
    """
    schema = _nullable(schema)
    places = {names[each.name]: place for place, each in enumerate(schema)}
    fields = [
        schema.field(places[each.name]).with_name(each.name) if each.name in places else each
        for each in _nullable(table)
    ]
    whole = pa.schema(fields)
    return pa.RecordBatchReader.from_batches(
        whole,
        (
            pa.RecordBatch.from_arrays(
                [
                    batch.column(places[each.name])
                    if each.name in places
                    else pa.nulls(batch.num_rows, each.type)
                    for each in whole
                ],
                schema=whole,
            )
            for file in files
            for batch in _read(location, file.name, schema)
        ),
    )


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Make all columns of rows nullable, as `deltalake` is given them.

    Where a column of the rows is, `deltalake` (1.6) takes it that the table's has no null either,
    and `column IS NULL` is false for each row of the table.
    """
    return pa.schema([each.with_nullable(True) for each in schema])


def _read(location: DeltaLocation, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read some columns of a file."""
    with opened(location, name) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=schema.names):
            arrays = [batch.column(each.name).cast(each.type) for each in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class SourceRows:
    """The rows of a batch, of each key the newest.

    Args:
        location: Of the table.
        files: The files of the batch, in the order of its tasks.
        schema: Of their rows.
        rule: How they are merged.

    Attributes:
        rule: How they are merged.
        superseded: Rows that are not merged, because the batch has a newer one of the same keys.
        bounds: Of each key the least and the greatest value; `None` where all are null.

    Raises:
        SinkError: A key is null, or several rows have the same keys and nothing says which is the
            newest.
    """

    def __init__(
        self,
        location: DeltaLocation,
        files: Sequence[DataFile],
        schema: pa.Schema,
        rule: BoundRule,
    ) -> None:
        self._location = location
        self._files = list(files)
        self._schema = _nullable(schema)
        self.rule = rule
        self.superseded = 0
        self.bounds: dict[str, tuple[pa.Scalar, pa.Scalar] | None] = {}
        self._chosen = self._choose()

    @property
    def deletes(self) -> str:
        """Name of the column that says whether a row deletes; none of the batch has it."""
        name = "_cloudfiles_deletes"
        while name in self._schema.names:
            name += "_"
        return name

    def reader(self, shapes: Mapping[str, Shape] = NO_SHAPES) -> pa.RecordBatchReader:
        """Read the rows, once; the column `deletes` comes behind the others.

        Args:
            shapes: What nested columns become.
        """
        marked = self._schema.append(pa.field(self.deletes, pa.bool_()))
        schema = pa.schema(
            [
                each.with_type(shapes[each.name].wanted) if each.name in shapes else each
                for each in marked
            ]
        )
        rows = (
            pa.RecordBatch.from_arrays(
                [
                    shapes[name].of(array) if name in shapes else array
                    for name, array in zip(schema.names, batch.columns, strict=True)
                ],
                schema=schema,
            )
            for batch in self._marked(marked)
        )
        return pa.RecordBatchReader.from_batches(schema, rows)

    def require_values(self, layout: FileLayout) -> None:
        """Refuse nulls where the table has NOT NULL, and texts, but for rows that delete.

        Where it depends on the table which rows are written, `deltalake` looks for nulls, and only
        what it does not know is refused here.

        Args:
            layout: Of these rows in the table, as it will be.

        Raises:
            SchemaMismatchError: There are some.
        """
        for batch in self.reader() if layout.checks_values else ():
            rows = batch.filter(pc.invert(batch.column(self.deletes)))
            own, target = rows.drop_columns([self.deletes]), self._location.target
            require_values(own, layout, target, checks_nulls=self.rule.rule.writes_all)

    def _marked(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        predicate = self.rule.delete_when
        for number, file in enumerate(self._files):
            at = 0
            for batch in _read(self._location, file.name, self._schema):
                rows = batch
                if self._chosen is not None:
                    mask = self._chosen[number][at : at + batch.num_rows]
                    rows = batch.filter(pa.array(mask))
                at += batch.num_rows
                if predicate is None:
                    deletes = pa.array(np.zeros(rows.num_rows, dtype=bool))
                else:
                    deletes = holds(predicate, rows)
                yield pa.RecordBatch.from_arrays([*rows.columns, deletes], schema=schema)

    def _keys(self) -> pa.Table:
        """Read keys and order of all rows, under names of their own, and where each row is."""
        order = self.rule.order_by
        columns = [*self.rule.keys, *([order] if order is not None else [])]
        wanted = pa.schema([self._schema.field(name) for name in dict.fromkeys(columns)])
        names = [f"c{place}" for place in range(len(columns))]
        parts = []
        for number, file in enumerate(self._files):
            at = 0
            for batch in _read(self._location, file.name, wanted):
                places = {
                    "file": pa.array(np.full(batch.num_rows, number, dtype=np.int32)),
                    "row": pa.array(np.arange(at, at + batch.num_rows, dtype=np.int64)),
                }
                at += batch.num_rows
                values = {n: batch.column(c) for n, c in zip(names, columns, strict=True)}
                parts.append(pa.table({**values, **places}))
        return pa.concat_tables(parts)

    def _choose(self) -> list[npt.NDArray[np.bool_]] | None:
        """Choose which rows of each file are merged; `None` for all."""
        table = self._keys()
        keys = table.column_names[: len(self.rule.keys)]
        for name, column in zip(self.rule.keys, keys, strict=True):
            self._check_nulls(name, table[column].null_count)
            found = pc.min_max(table[column])
            least, greatest = found["min"], found["max"]
            self.bounds[name] = (least, greatest) if least.is_valid else None
        if self.rule.order_by is not None:  # a row without a time is the oldest
            has_order = table[f"c{len(keys)}"].is_valid()
            table = table.add_column(len(keys), "has_order", has_order)
        order = [(name, "ascending") for name in table.column_names]
        table = table.take(pc.sort_indices(table, sort_keys=order))
        again = np.ones(max(0, table.num_rows - 1), dtype=bool)
        for column in keys:
            same = pc.equal(table[column].slice(0, len(again)), table[column].slice(1))
            again &= pc.fill_null(same, False).to_numpy()
        self.superseded = int(again.sum())
        if not self.superseded:
            return None
        if self.rule.order_by is None:
            self._refuse_several(table, keys, int(np.flatnonzero(again)[0]))
        chosen = [np.zeros(file.rows, dtype=bool) for file in self._files]
        last = np.append(~again, True)
        numbers, rows = table["file"].to_numpy()[last], table["row"].to_numpy()[last]
        for number, mask in enumerate(chosen):
            mask[rows[numbers == number]] = True
        return chosen

    def _check_nulls(self, name: str, count: int) -> None:
        if count and self.rule.rule.null_keys == "fail":
            raise SinkError(
                f"{counted(count, 'row')} of the batch {plural(count, 'has', 'have')} no {name}, "
                f"which is a key of the merge into {self._location.target}: nothing is merged. "
                "Remove or repair such rows in the source, or set mergeNullKeys=insert to insert "
                "them; they never match."
            )

    def _refuse_several(self, table: pa.Table, keys: Sequence[str], first: int) -> None:
        example = ", ".join(
            f"{name}={cut(str(table[column][first].as_py()))}"
            for name, column in zip(self.rule.keys, keys, strict=True)
        )
        raise SinkError(
            f"{counted(self.superseded, 'row')} of the batch "
            f"{plural(self.superseded, 'has', 'have')} the keys of another one ({example}), and "
            f"nothing says which is the newest: nothing is merged into "
            f"{self._location.target}. Set mergeOrderBy to the column that does, such as a time."
        )


WhenMatched = Literal["update", "delete", "ignore"]
WhenNotMatched = Literal["insert", "ignore"]
NullKeys = Literal["fail", "insert"]


@dataclass(frozen=True, slots=True)
class MergeRule:
    """How a batch is merged.

    Attributes:
        keys: Columns that identify a row.
        order_by: Column whose greatest value is the newest state of a row: of several rows of a
            batch with the same keys it chooses one, and an older row changes nothing in the table.
            `None`: a batch with two rows of the same keys is refused.
        delete_when: Predicate on the rows of the batch; those for which it is true delete.
        when_matched: What the other rows do to a row with the same keys.
        when_not_matched: What they do where there is none.
        null_keys: Whether a row with a null among its keys is refused, or inserted: it never
            matches.
    """

    keys: tuple[str, ...]
    order_by: str | None = None
    delete_when: str | None = None
    when_matched: WhenMatched = "update"
    when_not_matched: WhenNotMatched = "insert"
    null_keys: NullKeys = "fail"

    @property
    def writes_some(self) -> bool:
        """Whether rows may get into the table."""
        return self.when_matched == "update" or self.when_not_matched == "insert"

    @property
    def writes_all(self) -> bool:
        """Whether each row that does not delete is to be in the table, so that it must fit."""
        return (self.when_matched, self.when_not_matched) == ("update", "insert")

    @classmethod
    def of(cls, options: TableOptions) -> MergeRule | None:
        """Read the rule from a sink's options; `None` where rows are appended."""
        if not options.merge_keys:
            return None
        return cls(
            options.merge_keys,
            options.merge_order_by,
            options.merge_delete_when,
            options.merge_when_matched,
            options.merge_when_not_matched,
            options.merge_null_keys,
        )

    def bound_to(self, schema: pa.Schema, target: str) -> BoundRule:
        """Bind the rule to rows of a schema.

        Raises:
            OptionError: A column is missing, or of a type that is not compared; or the predicate
                cannot be used.
            SinkError: The rows have VARIANTs.
        """
        variants = [each.name for each in schema if holds_variant(each.type)]
        if variants:
            raise SinkError(
                f"{few(variants)} has VARIANTs, which are not merged into a table in this version. "
                f"Append to {target}, or leave the column out."
            )
        keys = tuple(_column(schema, "mergeKeys", name) for name in self.keys)
        if len(set(keys)) < len(keys):
            raise OptionError(f"mergeKeys names a column twice: {few(keys)}. Name each once.")
        order = None if self.order_by is None else _column(schema, "mergeOrderBy", self.order_by)
        delete = self.delete_when
        return BoundRule(
            self,
            keys,
            order,
            None if delete is None else parse_predicate("mergeDeleteWhen", delete, schema),
        )


@dataclass(frozen=True, slots=True)
class BoundRule:
    """A rule whose columns are known.

    Attributes:
        rule: The rule.
        keys: Its keys, as the schema spells them.
        order_by: As the schema spells it.
        delete_when: As a tree.
    """

    rule: MergeRule
    keys: tuple[str, ...]
    order_by: str | None
    delete_when: Predicate | None


def _column(schema: pa.Schema, option: str, name: str) -> str:
    """Find a column of the schema, whose values must have one order everywhere."""
    wanted = CASE_INSENSITIVE.key(name)
    found = next((each for each in schema if CASE_INSENSITIVE.key(each.name) == wanted), None)
    if found is None:
        raise OptionError(
            f"{option} names {quoted(name)}, which is no column of the batch; it has "
            f"{few(schema.names)}. Name one of them."
        )
    if not any(is_kind(found.type) for is_kind in _COMPARED):
        raise OptionError(
            f"{option} names {quoted(name)}, which is of the type {found.type}. Name a column of "
            "whole numbers, decimals, strings, dates, timestamps or booleans."
        )
    return str(found.name)


_COMPARED = (
    pa.types.is_signed_integer,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_boolean,
)
"""Types whose values Arrow, DataFusion and Spark compare alike: floats (NaN) are not among them."""
