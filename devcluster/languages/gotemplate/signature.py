"""Signatures of template functions: number and types of the arguments, checked as by text/template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.devcluster.languages.gotemplate.syntax import Arity
from kubeloop.devcluster.languages.gotemplate.values import FunctionError, type_of

_ACCEPTED: dict[str, type] = {"string": str, "int": int}


class Function:
    """A function with its parameters, such as "int string" or "any ...any": any, string, int."""

    __slots__ = ("_call", "_fixed", "_rest")

    def __init__(self, call: Callable[..., Any], parameters: str) -> None:
        names = parameters.split()
        self._call = call
        self._rest = names.pop().removeprefix("...") if names and names[-1].startswith("...") else ""
        self._fixed = tuple(names)

    @property
    def arity(self) -> Arity:
        return len(self._fixed), None if self._rest else len(self._fixed)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function. Raises FunctionError, also for arguments of another type."""
        for at, argument in enumerate(arguments):
            expected = self._fixed[at] if at < len(self._fixed) else self._rest
            if expected != "any" and type(argument) is not _ACCEPTED[expected]:
                problem = "invalid value" if argument is None else "wrong type for value"
                got = "" if argument is None else f"; got {type_of(argument)}"
                raise FunctionError(f"{problem}; expected {expected}{got}")
        try:
            return self._call(*arguments)
        except ArithmeticError as error:  # of Python's numbers, where Go has infinity or another number
            raise FunctionError(f"a number is out of range: {error}") from None
