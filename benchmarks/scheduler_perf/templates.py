"""Object templates: YAML files with Go template actions and the arithmetic functions that scheduler_perf defines."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from kubeloop.devcluster.languages.gotemplate.signature import Function
from kubeloop.devcluster.languages.gotemplate.syntax import TemplateError
from kubeloop.devcluster.languages.gotemplate.template import Template
from kubeloop.devcluster.languages.gotemplate.values import FunctionError
from kubeloop.kube.user_error import UserError

Environment = Mapping[str, int | float | str | bool]

# maps with free keys or values, and with quantities: not converted
_QUANTITY_MAPS = frozenset({"requests", "limits", "capacity", "allocatable"})
_FREE_MAPS = _QUANTITY_MAPS | {"labels", "annotations", "matchLabels", "nodeSelector"}


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise FunctionError(f"cannot cast {value} to float64") from None


def _sum(*numbers: Any) -> float:
    return sum(map(_float, numbers))


def _difference(minuend: Any, subtrahend: Any) -> float:
    return _float(minuend) - _float(subtrahend)


def _product(*numbers: Any) -> float:
    return math.prod(map(_float, numbers))


def _quotient(dividend: Any, divisor: Any) -> float:
    return _float(dividend) / _float(divisor)


def _remainder(dividend: Any, divisor: Any) -> int:
    """Return the truncated remainder, as Go's %."""
    number, modulus = int(_float(dividend)), int(_float(divisor))
    return int(math.copysign(abs(number) % abs(modulus), number))


FUNCTIONS = {
    "AddFloat": Function(_sum, "...any"),
    "AddInt": Function(lambda *numbers: int(_sum(*numbers)), "...any"),
    "DivideFloat": Function(_quotient, "any any"),
    "DivideInt": Function(lambda dividend, divisor: int(_quotient(dividend, divisor)), "any any"),
    "Mod": Function(_remainder, "any any"),
    "MultiplyFloat": Function(_product, "...any"),
    "MultiplyInt": Function(lambda *numbers: int(_product(*numbers)), "...any"),
    "SubtractFloat": Function(_difference, "any any"),
    "SubtractInt": Function(lambda minuend, subtrahend: int(_difference(minuend, subtrahend)), "any any"),
}
"""Source: getTemplateFuncs in scheduler_perf/operations.go."""
_ARITIES = {name: function.arity for name, function in FUNCTIONS.items()}
_HINT = "a template is a YAML file of one API object; its parameters are Index, Count and templateParams"


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
    """A file that renders API objects, one per index. Raises UserError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = path.read_text()
            self._template = Template(text, context=_ARITIES)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}", hint=_HINT) from None
        except TemplateError as error:
            raise UserError(f"{path}: {error}", hint=_HINT) from None
        self.constant = "{{" not in text
        self._fixed: dict[str, Any] | None = self._load({}) if self.constant else None

    def create(self, index: int = 0, count: int = 1, params: Environment | None = None) -> dict[str, Any]:
        """Return a new object; `index` of `count`."""
        if self._fixed is not None:
            return copy.deepcopy(self._fixed)
        return self._load({**(params or {}), "Index": index, "Count": count})

    def _load(self, environment: Environment) -> dict[str, Any]:
        try:
            text = self._template.render(environment, FUNCTIONS)
            mapping = load_yaml(text)
        except (TemplateError, yaml.YAMLError) as error:
            raise UserError(f"{self.path}: {error}", hint=_HINT) from None
        if "<no value>" in text:
            raise UserError(f"{self.path}: a parameter is not set", hint=_HINT)
        if not isinstance(mapping, dict) or "kind" not in mapping or "apiVersion" not in mapping:
            raise UserError(f"{self.path}: not an API object (apiVersion, kind)", hint=_HINT)
        typed: dict[str, Any] = _as_typed_client_sends(mapping)
        return typed


@functools.cache
def object_template(path: Path) -> ObjectTemplate:
    """Return the template of a file; cached."""
    return ObjectTemplate(path)
