"""Find where a range of keys can be cut, so that another thread reads its upper part.

Nobody knows how the keys of a range are spread. A cut is tried at a string in the middle, and
trying is a request: the first page after that string. If the page has keys of the range, it is also
the first page of the upper part, so nothing was asked in vain; the lower part may read some of
those keys again, one page at most. If it has none, the range is known to end earlier. Either way a
try costs one request more than not trying, which is what `Readers` counts.

What is recorded already shows at no cost where keys are. It need not be true any more, so only the
store's answer makes a cut.

Nothing is known about how keys are spread. Texts are taken as fractions in a number system whose
digits are characters: printable ASCII where the keys are ASCII, else all of Unicode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cloudfiles.engine.storage.base import UnorderedListingError

if TYPE_CHECKING:
    from airflow_cloudfiles.engine.discovery.base import KnownKeys
    from airflow_cloudfiles.engine.discovery.listing.edges import KeyOrder
    from airflow_cloudfiles.engine.storage import ObjectStore


_DIGITS = 4
_FIRST, _LAST = 0x20, 0x7E
_SURROGATES = (0xD800, 0xDFFF)
_BEYOND = "\U0010ffff"


def midpoint(low: str, high: str) -> str | None:
    """Give a text half-way between two; `None` when there is none worth using."""
    shared = common(low, high)
    lows, highs = low[shared : shared + _DIGITS], high[shared : shared + _DIGITS]
    if not highs:
        return None
    if ord(highs[0]) <= _LAST + 1:
        found = _middle_of_ascii(lows, highs)
    elif not lows or ord(lows[0]) <= _LAST:
        found = chr(_LAST + 1)
    else:
        found = _character((ord(lows[0]) + ord(highs[0])) // 2)
    text = high[:shared] + found
    return text if low < text < high else None


def common(first: str, second: str) -> int:
    """How many characters two strings begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))


def behind(prefix: str) -> str:
    """A text behind everything that has a prefix, but for what nobody would call a file."""
    return prefix + _BEYOND


def above(low: str, shared: int) -> str:
    """A text behind the keys that begin as `low` does, if they go on with a character of its kind.

    Its kind is that of the character after the shared ones: a digit, a letter of ASCII, or any.
    """
    character = low[shared : shared + 1]
    if "0" <= character <= "9":
        return low[:shared] + ":"
    if " " <= character <= "~":
        return low[:shared] + ("[" if "A" <= character <= "Z" else chr(_LAST + 1))
    return behind(low[:shared])


def _middle_of_ascii(lows: str, highs: str) -> str:
    """Half-way between up to four characters; others than printable ones count as the nearest."""
    base = _LAST + 2 - _FIRST + 1

    def value(text: str) -> int:
        found = 0
        for place in range(_DIGITS):
            code = ord(text[place]) if place < len(text) else _FIRST - 1
            found = found * base + min(max(code - _FIRST + 1, 0), base - 1)
        return found

    rest = (value(lows) + value(highs)) // 2
    digits = []
    for _ in range(_DIGITS):
        rest, digit = divmod(rest, base)
        digits.append(digit)
    found = ""
    for digit in reversed(digits):
        if digit == 0:
            break
        found += chr(min(digit + _FIRST - 1, _LAST + 1))
    return found


def _character(code: int) -> str:
    """The character of a code; surrogates are none."""
    return chr(_SURROGATES[0] - 1) if _SURROGATES[0] <= code <= _SURROGATES[1] else chr(code)


_GUESSES = 100
"""So often the known keys are asked, which costs no request, before the store is."""


class Middle:
    """Guesses where a range may be cut.

    Args:
        known: What is recorded.
        prefix: With which all keys start.
        order: The order of the store.
    """

    def __init__(self, known: KnownKeys, prefix: str, order: KeyOrder) -> None:
        self._known = known
        self._prefix = prefix
        self._order = order

    def guess(self, first: str, position: str, end: str, high: str) -> str | None:
        """Give a string to cut at; `None` when there is none worth using.

        Args:
            first: The least key of the whole listing.
            position: The last key that was read of the range.
            end: Where the range ends; empty for no end.
            high: A string behind all keys of the range, as far as earlier tries have shown; empty
                when none was made.
        """
        low = max(position, self._prefix)
        if not self._is_known_after(position, end):
            return self._next(first, low, end, high)
        last = self._known.last(self._prefix)
        high = high or end or behind(last or low)
        for _ in range(_GUESSES):
            text = midpoint(low, high)
            if text is None or self._is_known_after(text, end):
                return text
            high = text
        return None

    def _next(self, first: str, low: str, end: str, high: str) -> str | None:
        """Guess without known keys.

        Where a range has no end, the first guess is that all keys begin with what those so far have
        in common, and go on with a character of the same kind. A cut there parts the others.
        """
        if not high and not end:
            return above(low, max(common(first, low), len(self._prefix)))
        return midpoint(low, high or end)

    def _is_known_after(self, text: str, end: str) -> bool:
        """Whether a known key of the range comes after a string."""
        key = self._known.first_after(text)
        if key is None or not key.startswith(self._prefix):
            return False
        return not end or bool(self._order(key) < self._order(end))


def check_order(source: ObjectStore, key: str, *, is_there: bool) -> bool:
    """See with one request whether a store lists by the bytes of keys, or folder by folder.

    What is in the folder `a` comes after `a.` by the bytes, and before it folder by folder.

    Args:
        source: The store.
        key: Of an object in a folder.
        is_there: Whether it was listed just now.

    Returns:
        Whether that could be decided.

    Raises:
        UnorderedListingError: It lists in another order.
    """
    folder, slash, _ = key.partition("/")
    if not folder or not slash:
        return False
    found = source.key_after(behind(folder + "."))
    if found is not None and found.startswith(folder + "/"):
        return True
    if is_there:
        raise UnorderedListingError(
            f"The store does not list keys in the order of their bytes, as S3 does: nothing in the "
            f"folder {folder!r} comes after {folder + '.'!r}. Some servers list folder by folder."
        )
    return False
