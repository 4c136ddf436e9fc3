"""YAML of requests, read as sigs.k8s.io/yaml reads it: YAML 1.1's scalars as in Go, text for keys, one document.

Differences to PyYAML's own reading: `y` and `n` are booleans, `1e3` is a number, `1:30` and dates are text, keys that
are numbers or booleans become text, and a key that is there twice is told and not an error. Source: go.yaml.in/yaml/v2
resolve.go, sigs.k8s.io/yaml yaml.go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable
from typing import Any

import yaml

from kubeloop.devcluster.patching import go_syntax

_MAX_VALUES = 1_000_000
_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(?:0[bB][01_]+|0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]*|[1-9][0-9_]*)")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_RESOLVERS = {
    "bool": (r"y|Y|yes|Yes|YES|on|On|ON|true|True|TRUE|n|N|no|No|NO|off|Off|OFF|false|False|FALSE", "yYnNtTfFoO"),
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "int": (_INTEGER.pattern, "-+0123456789"),
    "float": (_FLOAT.pattern, "-+0123456789."),
    "merge": (r"<<", "<"),
}
_TRUE = frozenset({"y", "yes", "on", "true"})


class _Loader(yaml.SafeLoader):
    """`repeated`: what is told of keys that a mapping has twice."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self.repeated: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    self.repeated.append(f'line {key.start_mark.line + 1}: key "{key.value}" already set in map')
                seen.add(key.value)
        self.flatten_mapping(node)
        result: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = _key(self.construct_object(key_node, deep=True))
            result[key] = self.construct_object(value_node, deep=deep)
        return result


_Loader.yaml_implicit_resolvers = {}
for _name, (_pattern, _first) in _RESOLVERS.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def _integer(text: str) -> int:
    plain = text.replace("_", "").lower()
    sign = -1 if plain.startswith("-") else 1
    digits = plain.lstrip("+-")
    for prefix, base in (("0x", 16), ("0b", 2), ("0o", 8), ("0", 8)):
        if digits.startswith(prefix) and digits != "0":
            return sign * int(digits[len(prefix) :], base)
    return sign * int(digits)


def _float(text: str) -> float:
    return float(text.replace(".inf", "inf").replace(".nan", "nan")) if "n" in text.lower() else float(text)


def _reads(read: Callable[[str], Any]) -> Callable[[_Loader, Any], Any]:
    return lambda loader, node: read(str(loader.construct_scalar(node)))


_Loader.add_constructor(f"{_TAG}bool", _reads(lambda text: text.lower() in _TRUE))
_Loader.add_constructor(f"{_TAG}int", _reads(_integer))
_Loader.add_constructor(f"{_TAG}float", _reads(lambda text: _whole(_float(text.lower()))))


def _whole(number: float) -> float | int:
    """JSON of a whole number has no point: 1e3 is written as 1000."""
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def read_yaml(body: bytes) -> tuple[Any, list[str]]:
    """The first document as JSON, and what is told of repeated keys: 'line 3: key "name" already set in map'.

    Raises ValueError in words near to Go's, beginning with "yaml: ".
    """
    try:
        loader = _Loader(body)
        value = loader.get_data() if loader.check_data() else None  # type: ignore[no-untyped-call]
    except yaml.YAMLError as error:
        raise ValueError(f"yaml: {_told(error)}") from error
    if b"*" in body and _written_out(value, {}) > _MAX_VALUES:
        raise ValueError("yaml: document contains excessive aliasing")
    return _json(value), loader.repeated


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_json(each) for each in value]
    if isinstance(value, bytes):  # !!binary
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"json: unsupported value: {str(value).replace('inf', 'Inf').replace('nan', 'NaN')}")
    return value


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    raise ValueError(f"yaml: invalid map key: {go_syntax(key)}")


def _told(error: yaml.YAMLError) -> str:
    """What PyYAML says, with the line as Go's decoder tells it, and without the excerpt."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error).partition("\n")[0]
    problem, mark = error.problem or error.context or "", error.problem_mark or error.context_mark
    for ours, theirs in _WORDS:
        if found := re.search(ours, problem):
            problem = found.expand(theirs)
            break
    if mark is None or problem.startswith(("mapping values", "unknown anchor", "!!binary")):
        return problem
    return f"line {mark.line + 1}: {problem}"


_WORDS = (
    (r"^found undefined alias '(.*)'", r"unknown anchor '\1' referenced"),
    (r"^found character '.*' that cannot start any token", "found character that cannot start any token"),
    (r"^mapping values are not allowed here", "mapping values are not allowed in this context"),
    (r"^expected the node content, but found .*", "did not find expected node content"),
    (r"^expected <block end>, but found .*", "did not find expected key"),
    (r"^could not find expected ':'", "could not find expected ':'"),
    (r"^failed to decode base64 data.*", "!!binary value contains invalid base64 data"),
)


def _written_out(value: Any, known: dict[int, int]) -> int:
    """How many values `value` is once its aliases are written out; `known` are those of containers seen, by id."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = _MAX_VALUES  # for one that holds itself
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_written_out(each, known) for each in parts)
    return known[id(value)]
