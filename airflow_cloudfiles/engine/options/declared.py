"""Declare options.

Once, as a field of a frozen dataclass: `option("cloudFiles.maxFilesPerTrigger", positive,
default=1000)`, with its documentation in the docstring below. Its declaration is in the metadata of
the field. From the declarations come parsing, the names that are known, the refusal for other
formats (`names.py`) and the reference (`docs/generate_options.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast, overload

from airflow_cloudfiles.engine.errors import OptionError
from airflow_cloudfiles.engine.messages import cut
from airflow_cloudfiles.engine.options.values import Value, ValueKind

_METADATA: Final = "option"
_INTERNAL: Final = "cloudfiles.internal."
Default = TypeVar("Default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(Generic[Value]):
    """The declaration of one option."""

    name: str
    """As users write it."""
    kind: ValueKind[Value]
    """How its values are written."""
    default: object = None
    """Its value where it is not given; `None` also where another option decides."""
    also: tuple[str, ...] = ()
    """Its other names."""
    formats: tuple[str, ...] = ()
    """The formats that have it; empty: those of its class, for the source's options all."""
    required: str = ""
    """The error where it is not given; empty: it may be left out."""
    shown: str = ""
    """Its default in words, where the reference cannot show the value."""
    doc: str = ""
    """Its documentation, where no field has it."""
    read_all: Callable[[Mapping[str, str]], Value] | None = None
    """Reads the options of a name that ends in a word of the user's, which `<...>` stands for, from
    their texts by name; `None` for an option of one name."""

    @property
    def names(self) -> tuple[str, ...]:
        """All its names, the first one first."""
        return (self.name, *self.also)

    @property
    def begins(self) -> str:
        """What the names of options begin with that end in a word of the user's, in lower case."""
        return self.name.partition("<")[0].lower()

    @property
    def is_internal(self) -> bool:
        """Whether it is set by this package itself, between its own processes."""
        return self.name.lower().startswith(_INTERNAL)

    def strings(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return what was given for it, by the name it was given under.

        Args:
            given: The strings of options, by their names in lower case.
        """
        if self.read_all is not None:
            return {name: text for name, text in given.items() if name.startswith(self.begins)}
        found = {name: given[name.lower()] for name in self.names if name.lower() in given}
        return {name: text for name, text in found.items() if text or not self.kind.ignores_empty}

    def value_in(self, given: Mapping[str, str]) -> Value:
        """Read its value, or return its default.

        Args:
            given: As in `strings`.

        Raises:
            OptionError: A value of the wrong kind, two names with two values, or no value where one
                is required.
        """
        strings = self.strings(given)
        if not strings:
            if self.required:
                raise OptionError(self.required)
            return cast("Value", self.default)
        if self.read_all is not None:
            return self.read_all(strings)
        values = {name: self.kind.read(name, text) for name, text in strings.items()}
        first, *others = values
        for name in others:
            if values[name] != values[first]:
                raise OptionError(
                    f"{first}={cut(strings[first])!r} and {name}={cut(strings[name])!r} are two "
                    "names of one option. Give one."
                )
        return values[first]


@overload
def option(
    name: str,
    kind: ValueKind[Value],
    *,
    required: str = "",
    also: tuple[str, ...] = (),
    formats: tuple[str, ...] = (),
) -> Value: ...


@overload
def option(
    name: str,
    kind: ValueKind[Value],
    *,
    default: Default,
    also: tuple[str, ...] = (),
    formats: tuple[str, ...] = (),
    shown: str = "",
    secret: bool = False,
    read_all: Callable[[Mapping[str, str]], Value] | None = None,
) -> Value | Default: ...


def option(
    name: str,
    kind: ValueKind[Any],
    *,
    default: Any = MISSING,
    secret: bool = False,
    **others: Any,
) -> Any:
    """Declare the option that a field of a dataclass holds.

    Args:
        name: As users write it.
        kind: How its values are written.
        default: Its value where it is not given; without one it is required.
        secret: Whether its value is left out of the representation of the class.
        others: As in `Option`.
    """
    shown_default = None if default is MISSING else default
    declaration = Option(name=name, kind=kind, default=shown_default, **others)
    return field(default=default, repr=not secret, metadata={_METADATA: declaration})


def options_of(group: type[Any]) -> Mapping[str, Option[Any]]:
    """List the declarations of a dataclass, by field."""
    return {each.name: each.metadata[_METADATA] for each in fields(group)
            if _METADATA in each.metadata}  # fmt: skip


def values_of(group: type, given: Mapping[str, str]) -> dict[str, Any]:
    """Read the values that were given for the options of a dataclass, by field.

    Args:
        group: The dataclass.
        given: The strings of options, by their names in lower case.

    Raises:
        OptionError: A value of the wrong kind, or a required option that was not given.
    """
    return {
        name: each.value_in(given)
        for name, each in options_of(group).items()
        if each.required or each.strings(given)
    }


class OptionGroup:
    """A frozen dataclass whose fields are options."""

    __slots__ = ()
    WITHOUT_FIELD: ClassVar[tuple[Option[Any], ...]] = ()
    """Options that are checked, and change nothing."""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Validate the options of this class.

        Args:
            given: The strings of options, by their names in lower case.

        Raises:
            OptionError: A value of the wrong kind, or options that contradict each other.
        """
        for each in cls.WITHOUT_FIELD:
            each.value_in(given)
        values = values_of(cls, given)
        cls._complete(values, given)
        found = cls(**values)
        found._check()
        return found

    @classmethod
    def _complete(cls, values: dict[str, Any], given: Mapping[str, str]) -> None:
        """Add the defaults that depend on other options."""

    def _check(self) -> None:
        """Refuse options that contradict each other."""
