"""The values of a tensor: one list in a document, one of several packed lists in a message.

The message that protobuf has for a list of JSON, `google.protobuf.ListValue`, would cost 10 bytes and an
object for each number.
"""

import math
from typing import Any

WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""What answers in JSON have where it has no number."""

_LISTS = ("numbers", "integers", "unsigned_integers", "booleans", "strings")
_ONE_KIND = "numbers, booleans or texts, all of one kind"


def list_of(values: Any, *, answer: bool) -> list[Any]:
    """Return the values of the message `values` as a document has them.

    Raises:
        ValueError: two lists have elements, or a number is not finite and it is no answer. Its arguments are
            the place in the list, what is wrong, and what would be right.

    """
    filled = [name for name in _LISTS if getattr(values, name)]
    if len(filled) > 1:
        raise ValueError((), f"has {' and '.join(filled)}", "elements in at most one of the lists")
    if not filled:
        return []
    found = list(getattr(values, filled[0]))
    if filled[0] != "numbers" or math.isfinite(sum(found)):
        return found
    for index, value in enumerate(found):
        if not math.isfinite(value):
            if not answer:
                raise ValueError((index,), f"{value} is not accepted", "a finite number")
            found[index] = next(word for word, meant in WORDS.items() if str(meant) == str(value))
    return found


def values_of(elements: list[Any], values: Any, *, numbers: bool) -> None:
    """Write `elements`, each a number, a boolean or a text, into the message `values`.

    With `numbers`, texts that stand for NaN and infinities are these; beside numbers they always are.

    Raises:
        ValueError: they are not of one kind, or one is too large for any list. Its arguments are what is
            wrong, and what would be right.

    """
    kinds = {type(element) for element in elements}
    if kinds <= {bool}:
        values.booleans.extend(elements)
        return
    if kinds == {str} and not (numbers and WORDS.keys() >= set(elements)):
        values.strings.extend(elements)
        return
    if kinds == {int}:
        low, high = min(elements), max(elements)
        if low >= -(2**63) and high < 2**63:
            values.integers.extend(elements)
            return
        if low >= 0 and high < 2**64:
            values.unsigned_integers.extend(elements)
            return
    if bool in kinds or not WORDS.keys() >= {element for element in elements if isinstance(element, str)}:
        raise ValueError("has values of several kinds", _ONE_KIND)
    try:
        values.numbers.extend([float(WORDS.get(element, element)) for element in elements])
    except OverflowError:
        raise ValueError("holds a number too large for a float64", "finite numbers") from None
