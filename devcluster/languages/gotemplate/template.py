"""Rendering of parsed Go templates with JSON data.

A missing field of a map is nil, and so are the fields of nil. Source: text/template's exec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubeloop.devcluster.languages.go_text import go_print
from kubeloop.devcluster.languages.gotemplate import syntax
from kubeloop.devcluster.languages.gotemplate.functions import ARITIES, FUNCTIONS, REFUSED
from kubeloop.devcluster.languages.gotemplate.syntax import Arity, TemplateError
from kubeloop.devcluster.languages.gotemplate.values import FunctionError, type_of

_MAX_PIECES = 1_000_000  # of output: a range that does not end fails before it exhausts the memory


class _Left(Exception):
    """Unwinds a {{break}} or {{continue}} to its range."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


class Template:
    """A parsed template. `context`: arities of the additional functions that each rendering passes."""

    def __init__(self, text: str, *, context: Mapping[str, Arity] | None = None) -> None:
        """Raises TemplateError for an invalid or unsupported template."""
        self._nodes = syntax.parse(text, {**ARITIES, **(context or {})}, REFUSED)

    def render(self, data: Any, context: Mapping[str, Callable[..., Any]] | None = None) -> str:
        """Return the output. Raises TemplateError if the data does not fit."""
        run = _Rendering(data, context or {})
        run.nodes(self._nodes, data)
        return "".join(run.pieces)


class _Rendering:
    def __init__(self, data: Any, context: Mapping[str, Callable[..., Any]]) -> None:
        self.pieces: list[str] = []
        self._context = context
        self._variables: list[tuple[str, Any]] = [("$", data)]

    def nodes(self, nodes: list[syntax.Node], dot: Any) -> None:
        for node in nodes:
            if len(self.pieces) > _MAX_PIECES:
                raise TemplateError(1, "the template does not come to an end")
            match node:
                case syntax.Text(text):
                    self.pieces.append(text)
                case syntax.Action(pipeline):
                    value = self._pipeline(pipeline, dot)
                    if not pipeline.sets:
                        self.pieces.append("<no value>" if value is None else go_print(value))
                case syntax.Leave(_, word):
                    raise _Left(word)
                case syntax.Branch():
                    in_sight = len(self._variables)
                    self._branch(node, dot)
                    del self._variables[in_sight:]

    def _branch(self, branch: syntax.Branch, dot: Any) -> None:
        if branch.word == "range":
            self._range(branch, dot)
            return
        value = self._pipeline(branch.pipeline, dot)
        inner = value if branch.word == "with" else dot
        if value:
            self.nodes(branch.body, inner)
        else:
            self.nodes(branch.otherwise, dot)

    def _range(self, branch: syntax.Branch, dot: Any) -> None:
        pipeline = branch.pipeline
        plain = syntax.Pipeline(pipeline.line, pipeline.commands)
        value = self._pipeline(plain, dot)
        empty = True
        for key, item in _items(value, pipeline.line):
            empty = False
            in_sight = len(self._variables)
            values = (item,) if len(pipeline.sets) == 1 else (key, item)
            for name, value in zip(pipeline.sets, values, strict=False):
                self._set(name, value, declare=pipeline.declares, line=pipeline.line)
            try:
                self.nodes(branch.body, item)
            except _Left as left:
                if left.word == "break":
                    break
            finally:
                del self._variables[in_sight:]
        if empty:
            self.nodes(branch.otherwise, dot)

    def _set(self, name: str, value: Any, *, declare: bool, line: int) -> None:
        if declare:
            self._variables.append((name, value))
            return
        for number in range(len(self._variables) - 1, -1, -1):
            if self._variables[number][0] == name:
                self._variables[number] = (name, value)
                return
        raise TemplateError(line, f"undefined variable {name}")

    def _pipeline(self, pipeline: syntax.Pipeline, dot: Any) -> Any:
        value: Any = None
        for number, command in enumerate(pipeline.commands):
            if number and isinstance(command, syntax.FunctionCall):
                value = self._call(command, dot, (value,))
            else:
                value = self._value(command, dot)
        for name in pipeline.sets:
            self._set(name, value, declare=pipeline.declares, line=pipeline.line)
        return value

    def _value(self, operand: syntax.Operand, dot: Any) -> Any:
        match operand:
            case syntax.Constant(_, value):
                return value
            case syntax.Dot():
                return dot
            case syntax.Variable(line, name):
                for variable, value in reversed(self._variables):
                    if variable == name:
                        return value
                raise TemplateError(line, f"undefined variable {name}")
            case syntax.Fields(line, of, names):
                value = self._value(of, dot)
                for name in names:
                    value = _field(value, name, line)
                return value
            case syntax.FunctionCall():
                return self._call(operand, dot, ())
            case syntax.Pipeline():
                return self._pipeline(operand, dot)

    def _call(self, call: syntax.FunctionCall, dot: Any, last: tuple[Any, ...]) -> Any:
        if call.name in ("and", "or"):  # short-circuit: arguments after the deciding one are not evaluated
            value: Any = None
            for argument in call.arguments:
                value = self._value(argument, dot)
                if bool(value) == (call.name == "or"):
                    return value
            return last[0] if last else value
        arguments = [*(self._value(argument, dot) for argument in call.arguments), *last]
        try:
            return (self._context.get(call.name) or FUNCTIONS[call.name])(*arguments)
        except FunctionError as error:
            raise TemplateError(call.line, f"{call.name}: {error}") from None


def _field(value: Any, name: str, line: int) -> Any:
    if isinstance(value, dict):
        return value.get(name)
    if value is None:
        return None
    raise TemplateError(line, f"can't evaluate field {name} in type {type_of(value)}")


def _items(value: Any, line: int) -> Iterator[tuple[Any, Any]]:
    match value:
        case None:
            return iter(())
        case list():
            return iter(enumerate(value))
        case dict():
            return iter(sorted(value.items()))
        case int() if not isinstance(value, bool):
            return iter((number, number) for number in range(value))
    raise TemplateError(line, f"range can't iterate over type {type_of(value)}")
