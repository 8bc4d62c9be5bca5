"""Parse a piece of Spark DDL, before it is turned into types.

Reads column lists as `cloudFiles.schemaHints` has them (`tags map<string,string>, user.id INT`)
without a JVM, and without importing Spark: Airflow parses a DAG every few seconds. The grammar is
Spark's for `StructType.fromDDL`, and besides a column's name may be a dotted path. Character types
become `string`, as Spark's readers treat them. Types are read as Spark's schema JSON has
them, of which `ddl` makes Spark's types.

```
columns     = column {"," column}
column      = name {"." name} [":"] type ["NOT" "NULL"] ["COMMENT" text]
type        = word ["(" number ["," number] ")"]
            | "ARRAY" "<" type ">" | "MAP" "<" type "," type ">"
            | "STRUCT" "<" [field {"," field}] ">"
field       = name [":"] type ["NOT" "NULL"] ["COMMENT" text]
name        = letters, digits and "_", or anything between backquotes (a backquote doubled)
```
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, NoReturn, TypeVar

from airflow_cloudfiles.engine.errors import SchemaHintError
from airflow_cloudfiles.engine.names import CASE_INSENSITIVE, CASE_SENSITIVE, NameMatcher, dotted

Type = TypeVar("Type")
Json = Any
"""A type or a field in Spark's schema JSON."""

_ATOMIC: Final = {
    **{each: each for each in ("boolean", "float", "double", "date", "timestamp", "timestamp_ntz")},
    **{each: each for each in ("string", "binary")},
    **dict.fromkeys(("tinyint", "byte"), "byte"),
    **dict.fromkeys(("smallint", "short"), "short"),
    **dict.fromkeys(("int", "integer"), "integer"),
    **dict.fromkeys(("bigint", "long"), "long"),
    "real": "float",
    "timestamp_ltz": "timestamp",
}
"""The names of types without parts, each with the one of Spark's schema JSON."""

_DECIMAL: Final = ("decimal", "dec", "numeric")
_CHARACTERS: Final = ("char", "character", "varchar")
_NESTED: Final = ("array", "map", "struct")
_NAMES: Final = (*_ATOMIC, *_DECIMAL, *_CHARACTERS, *_NESTED)
_REFUSED: Final = ("interval", "variant", "void", "null", "time", "geometry", "geography", "object")
"""Types Spark has (some only since lately) that JSON is not read into here."""

_OPENING: Final = ("<", "(")
_CLOSING: Final = (">", ")")
_MOST_NESTED: Final = 100
_MOST_DIGITS: Final = 38
_AROUND: Final = 60
"""Characters on either side of a mistake that a message has."""
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<quoted>`(?:[^`]|``)*`)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<word>\w+)
      | (?P<sign>[<>(),.:])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Column(Generic[Type]):
    """One column of a DDL text.

    Attributes:
        path: Its name; more than one part when it is dotted.
        data_type: Its type, in Spark's schema JSON or as Spark's.
        nullable: False when the text says `NOT NULL`.
        comment: What the text says after `COMMENT`.
        position: Where in the text it begins, counted from 1.
    """

    path: tuple[str, ...]
    data_type: Type
    nullable: bool
    comment: str | None
    position: int


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    value: str
    position: int


def read_columns(text: str, matcher: NameMatcher = CASE_INSENSITIVE) -> list[Column[Json]]:
    """Read a list of columns whose names may be dotted paths; empty text gives none.

    Args:
        text: The list.
        matcher: How the names of a struct's fields are compared, none of which may come twice.

    Raises:
        SchemaHintError: The text is not such a list; the message has the position, and what was
            probably meant.
    """
    return _DdlParser(text, matcher).columns()


def names_and_types(text: str) -> list[tuple[str, str]]:
    """Take the columns of a schema apart, of which each type stays a text.

    Args:
        text: A schema as DDL, with types of any kind.

    Returns:
        Name and type of each column, without `NOT NULL`.

    Raises:
        SchemaHintError: The text has a character that DDL does not have.
    """
    tokens, columns, depth, begin = _tokens(text), [], 0, 0
    for number, token in enumerate(tokens):
        depth += (token.value in _OPENING) - (token.value in _CLOSING)
        if token.kind != "end" and (token.value != "," or depth):
            continue
        if number > begin + 1:
            name = tokens[begin]
            kind = text[tokens[begin + 1].position - 1 : token.position - 1]
            columns.append((_plain_name(name), kind.strip().removesuffix(" NOT NULL")))
        begin = number + 1
    return columns


def check_hints(text: str) -> None:
    """Refuse hints that cannot be applied, whatever the files hold.

    Args:
        text: `cloudFiles.schemaHints`. Names that differ in case only may be two: whether they are,
            the session decides.

    Raises:
        SchemaHintError: It is not a list of columns, or names one twice.
    """
    refuse_repeated(read_columns(text, CASE_SENSITIVE), CASE_SENSITIVE)


def refuse_repeated(hints: Iterable[Column[Any]], matcher: NameMatcher) -> None:
    """Refuse hints that name something twice.

    Raises:
        SchemaHintError: They do.
    """
    seen: dict[tuple[str, ...], Column[Any]] = {}
    for hint in hints:
        first = seen.setdefault(tuple(map(matcher.key, hint.path)), hint)
        if first is not hint:
            raise SchemaHintError(
                f"cloudFiles.schemaHints names {dotted(hint.path)} twice, at characters "
                f"{first.position} and {hint.position}. Keep one."
            )


class _DdlParser:
    """Reads one text by recursive descent."""

    def __init__(self, text: str, matcher: NameMatcher) -> None:
        self._text = text
        self._matcher = matcher
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def columns(self) -> list[Column[Json]]:
        if self._next.kind == "end":
            return []
        found = [self._column()]
        while self._accept(","):
            found.append(self._column())
        if self._next.kind != "end":
            self._expected("a comma or the end")
        return found

    def _column(self) -> Column[Json]:
        position = self._next.position
        path = [self._name("a column name")]
        while self._accept("."):
            path.append(self._name("a field name after the dot"))
        self._accept(":")
        kind = self._type()
        return Column(tuple(path), kind, self._nullable(), self._comment(), position)

    def _field(self) -> Json:
        name = self._name("a field name")
        self._accept(":")
        return {
            "name": name,
            "type": self._type(),
            "nullable": self._nullable(),
            "metadata": metadata_of(self._comment()),
        }

    def _type(self) -> Json:
        token = self._next
        if token.kind != "word":
            self._expected("a type")
        self._at += 1
        word = token.value.lower()
        if word in _NESTED:
            return self._nested(word)
        if word in _ATOMIC:
            return _ATOMIC[word]
        if word in _DECIMAL:
            return self._decimal(token)
        if word in _CHARACTERS:
            self._numbers(1)
            return "string"
        return self._no_type(token)

    def _nested(self, word: str) -> Json:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            fail(self._text, self._next.position, f"types are nested over {_MOST_NESTED} deep")
        self._require("<", f"'<' after {word.upper()}")
        if word == "array":
            inside = {"elementType": self._type(), "containsNull": True}
        elif word == "map":
            key = self._type()
            self._require(",", "a comma after the key type of a MAP")
            inside = {"keyType": key, "valueType": self._type(), "valueContainsNull": True}
        else:
            inside = {"fields": self._fields()}
        self._require(">", f"'>' at the end of {word.upper()}")
        self._depth -= 1
        return {"type": word, **inside}

    def _fields(self) -> list[Json]:
        if self._next.value == ">":
            return []
        fields: dict[str, Json] = {}
        while not fields or self._accept(","):
            position = self._next.position
            field = self._field()
            if fields.setdefault(self._matcher.key(field["name"]), field) is not field:
                fail(self._text, position, f"the field {field['name']} is there twice")
        return [*fields.values()]

    def _decimal(self, token: _Token) -> str:
        numbers = self._numbers(2) or [10]
        precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
        if not 0 < precision <= _MOST_DIGITS or scale > precision:
            fail(
                self._text,
                token.position,
                f"DECIMAL({precision},{scale}) is not a type: the precision is 1 to "
                f"{_MOST_DIGITS}, the scale 0 to the precision",
            )
        return f"decimal({precision},{scale})"

    def _numbers(self, most: int) -> list[int]:
        """Parse up to `most` numbers in parentheses, or nothing."""
        numbers: list[int] = []
        if not self._accept("("):
            return numbers
        while len(numbers) < most:
            token = self._next
            if not re.fullmatch(r"[0-9]{1,9}", token.value):
                self._expected("a number")
            self._at += 1
            numbers.append(int(token.value))
            if not self._accept(","):
                break
        self._require(")", "')'")
        return numbers

    def _nullable(self) -> bool:
        if not self._accept("not", "word"):
            return True
        if not self._accept("null", "word"):
            self._expected("NULL after NOT")
        return False

    def _comment(self) -> str | None:
        if not self._accept("comment", "word"):
            return None
        if self._next.kind != "text":
            self._expected("a quoted text after COMMENT")
        return re.sub(r"\\(.)", r"\1", self._take().value[1:-1], flags=re.DOTALL)

    def _name(self, what: str) -> str:
        token = self._next
        if token.kind == "quoted" and len(token.value) > len("``"):
            return _plain_name(self._take())
        if token.kind != "word" or token.value.isdigit():
            self._expected(f"{what} (other names than letters, digits and _ go in backquotes)")
        return self._take().value

    def _no_type(self, token: _Token) -> NoReturn:
        if token.value.lower() in _REFUSED:
            fail(
                self._text,
                token.position,
                f"files cannot be read into the type {token.value.upper()} here; use STRING",
            )
        near = difflib.get_close_matches(token.value.lower(), _NAMES, n=1)
        hint = f"; did you mean {near[0].upper()}?" if near else f"; types are {', '.join(_NAMES)}"
        fail(self._text, token.position, f"{token.value!r} is not a type{hint}")

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, value: str, kind: str = "sign") -> bool:
        accepted = self._next.kind == kind and self._next.value.lower() == value
        self._at += accepted
        return accepted

    def _require(self, sign: str, what: str) -> None:
        if not self._accept(sign):
            self._expected(what)

    def _expected(self, what: str) -> NoReturn:
        found = repr(self._next.value) if self._next.kind != "end" else "the end"
        fail(self._text, self._next.position, f"expected {what}, found {found}")


def metadata_of(comment: str | None) -> dict[str, str]:
    """Build the metadata of a field, as Spark keeps its comment."""
    return {} if comment is None else {"comment": comment}


def _plain_name(token: _Token) -> str:
    """Strip a name of its backquotes."""
    is_quoted = token.kind == "quoted"
    return token.value[1:-1].replace("``", "`") if is_quoted else token.value


def _tokens(text: str) -> list[_Token]:
    """Cut a text into tokens, the last of which is its end."""
    tokens: list[_Token] = []
    at = 0
    while not tokens or tokens[-1].kind != "end":
        found = _TOKEN.match(text, at)
        if found is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            fail(text, at + 1, f"{text[at]!r} cannot stand here")
        kind = str(found.lastgroup)
        tokens.append(_Token(kind, found[kind], found.start(kind) + 1))
        at = found.end()
    return tokens


def fail(text: str, position: int, what: str) -> NoReturn:
    """Refuse a text.

    Raises:
        SchemaHintError: Always.
    """
    end = "" if what.endswith("?") else "."
    first, last = max(0, position - _AROUND), position + _AROUND
    before, behind = "..." if first else "", "..." if last < len(text) else ""
    raise SchemaHintError(
        f"cloudFiles.schemaHints cannot be read: at character {position}, {what}{end} The text "
        f"there: {before}{text[first:last]}{behind}"
    )
