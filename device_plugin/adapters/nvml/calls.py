"""One call of NVML: what can come of it, in one exception.

pynvml raises an exception for each code of NVML, and whatever Python raises when an answer is nonsense. Both
become `CallError` here, while the call is still under its deadline: their texts come from the library, too.
"""

from collections.abc import Callable
from typing import Any

import pynvml

NO_SUCH_FACT = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND})
"""The GPU or the driver does not have what was asked for."""

GPU_GONE = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
    }
)
"""Nothing can be asked of this GPU."""

DRIVER_GONE = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""Nothing can be asked of any GPU."""

NONSENSE = -1
"""The code of an answer that cannot be read; none of NVML's."""


class CallError(Exception):
    """A call failed: `function` is NVML's, `code` its error or `NONSENSE`, `reason` says it in words."""

    def __init__(self, function: str, code: int, reason: str) -> None:
        super().__init__(f"{function}: {reason}")
        self.function = function
        self.code = code
        self.reason = reason


class Calls:
    """Calls of NVML, one after the other; `now` names the one that runs."""

    def __init__(self) -> None:
        self.now = "the driver"

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer; `CallError` if there is none."""
        self.now = function.__name__
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            raise CallError(self.now, error.value, _in_words(error)) from None
        except Exception as error:
            raise CallError(self.now, NONSENSE, f"gave an answer that cannot be read ({error})") from error

    def optional(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer, None where GPU or driver do not have it; `CallError` for any other error."""
        try:
            return self.ask(function, *arguments)
        except CallError as error:
            if error.code in NO_SUCH_FACT:
                return None
            raise

    def fact(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer, None if there is none; `CallError` only if GPU or driver are gone."""
        try:
            return self.ask(function, *arguments)
        except CallError as error:
            if error.code in GPU_GONE or error.code in DRIVER_GONE:
                raise
            return None

    def text(self, function: Callable[..., Any], *arguments: Any) -> str:
        """Return a text; bytes that are not UTF-8, and what cannot be printed, are replaced by U+FFFD."""
        try:
            answer = self.ask(function, *arguments)
        except CallError as error:
            if not isinstance(error.__cause__, UnicodeDecodeError):
                raise
            answer = error.__cause__.object
        return printable(answer)


def printable(answer: str | bytes) -> str:
    """Return `answer` as text; what is no UTF-8 or cannot be printed is replaced by U+FFFD."""
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    return "".join(letter if letter.isprintable() else "�" for letter in text).strip()


def text_field(structure: Any, name: str) -> str:
    """Return a text that a structure of pynvml has, as `printable`; empty if there is no such field.

    pynvml decodes it when it is looked at, which is after the call.
    """
    try:
        return printable(getattr(structure, name, ""))
    except UnicodeDecodeError as error:
        return printable(error.object)


def number_between(value: Any, least: int, most: int) -> int | None:
    """Return `value` if it is a number that can be true, else None."""
    return value if isinstance(value, int) and least <= value <= most else None


def _in_words(error: pynvml.NVMLError) -> str:
    try:
        return str(error)
    except Exception:  # the text comes from the library, and is only a text
        return f"NVML error {error.value}"
