"""Object templates: YAML files with a subset of Go template actions.

An action is a pipeline of fields (`.Index`), numbers, strings, parentheses and the arithmetic functions that
scheduler_perf defines. Control structures (if, range, with) and variables are errors.
"""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml


class TemplateError(Exception):
    """An invalid template, or one that cannot be rendered; the text names the file."""


Value = int | float | str | bool
Environment = Mapping[str, Value]

_ACTION = re.compile(r"(?P<trim_left>\s*\{\{-\s|\{\{)(?P<text>.*?)(?P<trim_right>\s-\}\}\s*|\}\})", re.DOTALL)
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[-+]?\d+(?:\.\d+)?)|(?P<string>"(?:[^"\\]|\\.)*"|`[^`]*`)|(?P<field>\.[A-Za-z_]\w*)"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<mark>[()|]))"""
)

# maps with free keys or values, and with quantities: not converted
_QUANTITY_MAPS = frozenset({"requests", "limits", "capacity", "allocatable"})
_FREE_MAPS = _QUANTITY_MAPS | {"labels", "annotations", "matchLabels", "nodeSelector"}


def _float(value: Value) -> float:
    return float(value)


def _quotient(dividend: Value, divisor: Value) -> float:
    return float(dividend) / float(divisor)


def _go_remainder(dividend: Value, divisor: Value) -> int:
    return int(math.fmod(int(float(dividend)), int(float(divisor))))  # truncated, as Go's %


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "AddFloat": lambda *numbers: sum(map(_float, numbers)),
    "AddInt": lambda *numbers: int(sum(map(_float, numbers))),
    "DivideFloat": _quotient,
    "DivideInt": lambda dividend, divisor: int(_quotient(dividend, divisor)),
    "Mod": _go_remainder,
    "MultiplyFloat": lambda *numbers: math.prod(map(_float, numbers)),
    "MultiplyInt": lambda *numbers: int(math.prod(map(_float, numbers))),
    "SubtractFloat": lambda minuend, subtrahend: float(minuend) - float(subtrahend),
    "SubtractInt": lambda minuend, subtrahend: int(float(minuend) - float(subtrahend)),
}
"""Source: getTemplateFuncs in scheduler_perf/operations.go."""


class _Action:
    """One `{{ ... }}`: a pipeline of commands, each of operands; a call receives the piped value as its last
    operand."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        stripped = text.strip()
        while at < len(stripped):
            match = _TOKEN.match(stripped, at)
            if match is None or match.lastgroup is None:
                raise TemplateError(f"cannot read {{{{{text}}}}}")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        if not self._tokens:
            raise TemplateError("an empty action")
        self._text = text

    def value(self, environment: Environment) -> Value:
        value, end = self._pipeline(0, environment)
        if end != len(self._tokens):
            raise TemplateError(f"unmatched parenthesis in {{{{{self._text}}}}}")
        return value

    def _pipeline(self, at: int, environment: Environment) -> tuple[Value, int]:
        value, at = self._command(at, environment, ())
        while at < len(self._tokens) and self._tokens[at] == ("mark", "|"):
            value, at = self._command(at + 1, environment, (value,))
        return value, at

    def _command(self, at: int, environment: Environment, piped: tuple[Value, ...]) -> tuple[Value, int]:
        function: Callable[..., Value] | None = None
        operands: list[Value] = []
        if at < len(self._tokens) and self._tokens[at][0] == "name" and self._tokens[at][1] not in ("true", "false"):
            name = self._tokens[at][1]
            function = FUNCTIONS.get(name)
            if function is None:
                raise TemplateError(f"function {name!r} of {{{{{self._text}}}}} is not supported")
            at += 1
        while at < len(self._tokens) and self._tokens[at] not in (("mark", "|"), ("mark", ")")):
            operand, at = self._operand(at, environment)
            operands.append(operand)
        operands += piped
        if function is not None:
            try:
                return function(*operands), at
            except (TypeError, ValueError, ZeroDivisionError) as error:
                raise TemplateError(f"{{{{{self._text}}}}}: {error}") from None
        if len(operands) != 1:
            raise TemplateError(f"{{{{{self._text}}}}} is not a value")
        return operands[0], at

    def _operand(self, at: int, environment: Environment) -> tuple[Value, int]:
        kind, text = self._tokens[at]
        if kind == "number":
            return (float(text) if "." in text else int(text)), at + 1
        if kind == "string":
            return (text[1:-1] if text[0] == "`" else text[1:-1].encode().decode("unicode_escape")), at + 1
        if kind == "field":
            if text[1:] not in environment:
                raise TemplateError(f"{text} of {{{{{self._text}}}}} is not set")
            return environment[text[1:]], at + 1
        if kind == "name" and text in ("true", "false"):
            return text == "true", at + 1
        if (kind, text) == ("mark", "("):
            value, at = self._pipeline(at + 1, environment)
            if at >= len(self._tokens) or self._tokens[at] != ("mark", ")"):
                raise TemplateError(f"missing parenthesis in {{{{{self._text}}}}}")
            return value, at + 1
        raise TemplateError(f"{text!r} is unexpected in {{{{{self._text}}}}}")


def _go_text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


class GoTemplate:
    """A compiled text with actions. Raises TemplateError."""

    def __init__(self, text: str) -> None:
        self._parts: list[str | _Action] = []
        at = 0
        for match in _ACTION.finditer(text):
            self._parts += [text[at : match.start()], _Action(match["text"])]
            at = match.end()
        self._parts.append(text[at:])
        if any(isinstance(part, str) and "{{" in part for part in self._parts):
            raise TemplateError("an action has no end")
        self.constant = len(self._parts) == 1

    def render(self, environment: Environment) -> str:
        return "".join(part if isinstance(part, str) else _go_text(part.value(environment)) for part in self._parts)


class _StrictLoader(yaml.CSafeLoader):
    """YAML loader that rejects duplicate keys, as sigs.k8s.io/yaml's UnmarshalStrict."""


def _unique_mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in mapping:
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def load_yaml(text: str) -> Any:
    """Parse YAML. Raises yaml.YAMLError, also for duplicate keys."""
    return yaml.load(text, Loader=_StrictLoader)


def _as_typed_client_sends(value: Any, parent: str = "") -> Any:
    """Return what a Go client would send for this YAML: canonical case of fields, and quantities as strings."""
    if isinstance(value, list):
        return [_as_typed_client_sends(item, parent) for item in value]
    if not isinstance(value, dict):
        return value
    if parent in _QUANTITY_MAPS:
        return {key: _quantity_text(item) for key, item in value.items()}
    if parent in _FREE_MAPS:
        return value
    named = {key[:1].lower() + key[1:] if key[1:2].islower() else key: item for key, item in value.items()}
    return {key: _as_typed_client_sends(item, key) for key, item in named.items()}


def _quantity_text(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return format(Decimal(str(value)), "f")


class ObjectTemplate:
    """A file that renders API objects, one per index. Raises TemplateError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._template = GoTemplate(path.read_text())
        except OSError as error:
            raise TemplateError(f"{path}: {error.strerror}") from None
        except TemplateError as error:
            raise TemplateError(f"{path}: {error}") from None
        self.constant = self._template.constant
        self._fixed: dict[str, Any] | None = self._load({}) if self.constant else None

    def create(self, index: int = 0, count: int = 1, params: Environment | None = None) -> dict[str, Any]:
        """Return a new object; `index` of `count`."""
        if self._fixed is not None:
            return copy.deepcopy(self._fixed)
        return self._load({**(params or {}), "Index": index, "Count": count})

    def _load(self, environment: Environment) -> dict[str, Any]:
        try:
            mapping = load_yaml(self._template.render(environment))
        except (TemplateError, yaml.YAMLError) as error:
            raise TemplateError(f"{self.path}: {error}") from None
        if not isinstance(mapping, dict) or "kind" not in mapping or "apiVersion" not in mapping:
            raise TemplateError(f"{self.path}: not an API object (apiVersion, kind)")
        typed: dict[str, Any] = _as_typed_client_sends(mapping)
        return typed


@functools.cache
def object_template(path: Path) -> ObjectTemplate:
    """Return the template of a file; cached."""
    return ObjectTemplate(path)
