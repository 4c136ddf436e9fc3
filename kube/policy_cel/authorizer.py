"""The variable `authorizer`: authorization checks in expressions.

Source: k8s.io/apiserver pkg/cel/library/{authz,cost}.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from kubeloop.cel.costs.runtime_costs import (
    LIST_CREATE_COST,
    STRING_TRAVERSAL_FACTOR,
    STRUCT_CREATE_COST,
    size_of,
)
from kubeloop.cel.declarations import Overload
from kubeloop.cel.types import BOOL, STRING, Type
from kubeloop.cel.values import CelError, ContainerValue, Opaque, no_overload
from kubeloop.kube.cel_library import KUBERNETES_LIBRARY
from kubeloop.kube.validation.name_checks import dns_label, dns_subdomain

_NAME = "kubernetes.authorization."
_PATH, _GROUP = Type("struct", f"{_NAME}PathCheck"), Type("struct", f"{_NAME}GroupCheck")
_RESOURCE, _DECISION = Type("struct", f"{_NAME}ResourceCheck"), Type("struct", f"{_NAME}Decision")
AUTHORIZER = Type("struct", f"{_NAME}Authorizer", fields={"requestResource": _RESOURCE})
_CHECK_COST = 350_000


Decide = Callable[[tuple[str, str] | None, Mapping[str, str]], tuple[bool, str]]
"""Returns whether a request is allowed, and the reason.

First argument: namespace and name of a ServiceAccount, None for the user of the request. Second: the attributes, by the
names of CEL's functions ("group", "resource", ...) with "verb", or "path".
"""


class Authorizer(ContainerValue):
    """Value of `authorizer`. Its only field is the check of the request's own resource, with these attributes."""

    __slots__ = ("_account", "_decide", "_request")
    is_map = True
    type_name = AUTHORIZER.name

    def __init__(
        self, decide: Decide, request: Mapping[str, str] | None = None, account: tuple[str, str] | None = None
    ) -> None:
        self._decide = decide
        self._request = request or {}
        self._account = account

    def __len__(self) -> int:
        return 1

    def find(self, key: Any) -> tuple[Any, bool]:
        return (_Check("ResourceCheck", self, self._request), True) if key == "requestResource" else (None, False)

    def equals(self, other: Any) -> bool:
        return other is self

    def of_account(self, namespace: str, name: str) -> Authorizer:
        """Return the authorizer of a ServiceAccount."""
        return Authorizer(self._decide, self._request, (namespace, name))

    def decide(self, attributes: Mapping[str, str]) -> tuple[bool, str]:
        return self._decide(self._account, attributes)


class _Check(Opaque):
    """A check that is being built; `kind` is the last part of the type's name."""

    __slots__ = ("attributes", "authorizer", "kind")

    def __init__(self, kind: str, authorizer: Authorizer, attributes: Mapping[str, str]) -> None:
        self.kind = kind
        self.authorizer = authorizer
        self.attributes = attributes

    @property
    def type_name(self) -> str:  # type: ignore[override] # depends on the value
        return _NAME + self.kind

    def equals(self, other: Any) -> bool:
        return other is self


class _Decision(Opaque):
    __slots__ = ("allowed", "reason")
    type_name = _DECISION.name

    def __init__(self, allowed: bool, reason: str) -> None:
        self.allowed = allowed
        self.reason = reason

    def equals(self, other: Any) -> bool:
        return other is self


def _require_string(value: Any) -> str:
    if type(value) is not str:
        raise no_overload()
    return value


def _builder(name: str, kind: str, *, of: str, required: bool = False) -> Callable[..., _Check]:
    """Return the function that extends a value of kind `of` to a check of kind `kind` with the attribute `name`."""

    def step(_context: Any, receiver: Any, argument: Any) -> _Check:
        if of == "Authorizer":
            if not isinstance(receiver, Authorizer):
                raise no_overload()
            authorizer, attributes = receiver, dict[str, str]()
        elif isinstance(receiver, _Check) and receiver.kind == of:
            authorizer, attributes = receiver.authorizer, dict(receiver.attributes)
        else:
            raise no_overload()
        if not _require_string(argument).strip() and required:
            raise CelError(f"{name} must not be empty")
        return _Check(kind, authorizer, {**attributes, name: argument})

    return step


def _service_account(_context: Any, authorizer: Any, namespace: Any, name: Any) -> Authorizer:
    if not isinstance(authorizer, Authorizer):
        raise no_overload()
    if dns_subdomain(_require_string(name)):
        raise CelError("Invalid service account name")
    if dns_label(_require_string(namespace)):
        raise CelError("Invalid service account namespace")
    return authorizer.of_account(namespace, name)


def _check(_context: Any, check: Any, verb: Any) -> _Decision:
    if not isinstance(check, _Check) or check.kind not in ("PathCheck", "ResourceCheck"):
        raise no_overload()
    return _Decision(*check.authorizer.decide({**check.attributes, "verb": _require_string(verb)}))


def _decision_value(value: Callable[[_Decision], Any]) -> Callable[..., Any]:
    def get(_context: Any, decision: Any) -> Any:
        if not isinstance(decision, _Decision):
            raise no_overload()
        return value(decision)

    return get


def _overload(identifier: str, result: Type, *arguments: Type) -> Overload:
    return Overload(identifier, arguments, result, True, frozenset())


def _selector_cost(args: tuple[Any, ...], _result: Any) -> int:
    """Return the cost of parsing a selector and creating its requirements."""
    size = size_of(args[1])
    return (
        LIST_CREATE_COST
        + ceil(size * STRING_TRAVERSAL_FACTOR)
        + ceil(size / 2) * (LIST_CREATE_COST + STRUCT_CREATE_COST)
    )


AUTHORIZATION_LIBRARY = KUBERNETES_LIBRARY.extended(
    {
        "path": [_overload("authorizer_path", _PATH, AUTHORIZER, STRING)],
        "group": [_overload("authorizer_group", _GROUP, AUTHORIZER, STRING)],
        "serviceAccount": [_overload("authorizer_serviceaccount", AUTHORIZER, AUTHORIZER, STRING, STRING)],
        "resource": [_overload("groupcheck_resource", _RESOURCE, _GROUP, STRING)],
        "subresource": [_overload("resourcecheck_subresource", _RESOURCE, _RESOURCE, STRING)],
        "namespace": [_overload("resourcecheck_namespace", _RESOURCE, _RESOURCE, STRING)],
        "name": [_overload("resourcecheck_name", _RESOURCE, _RESOURCE, STRING)],
        "fieldSelector": [_overload("authorizer_fieldselector", _RESOURCE, _RESOURCE, STRING)],
        "labelSelector": [_overload("authorizer_labelselector", _RESOURCE, _RESOURCE, STRING)],
        "check": [
            _overload("pathcheck_check", _DECISION, _PATH, STRING),
            _overload("resourcecheck_check", _DECISION, _RESOURCE, STRING),
        ],
        "errored": [_overload("decision_errored", BOOL, _DECISION)],
        "error": [_overload("decision_error", STRING, _DECISION)],
        "allowed": [_overload("decision_allowed", BOOL, _DECISION)],
        "reason": [_overload("decision_reason", STRING, _DECISION)],
    },
    {
        "path": _builder("path", "PathCheck", of="Authorizer", required=True),
        "group": _builder("group", "GroupCheck", of="Authorizer"),
        "serviceAccount": _service_account,
        "resource": _builder("resource", "ResourceCheck", of="GroupCheck", required=True),
        **{
            name: _builder(name, "ResourceCheck", of="ResourceCheck")
            for name in ("subresource", "namespace", "name", "fieldSelector", "labelSelector")
        },
        "check": _check,
        "errored": _decision_value(lambda _: False),
        "error": _decision_value(lambda _: ""),
        "allowed": _decision_value(lambda decision: decision.allowed),
        "reason": _decision_value(lambda decision: decision.reason),
    },
    {
        "check": lambda _args, _result: _CHECK_COST,
        "fieldSelector": _selector_cost,
        "labelSelector": _selector_cost,
    },
)
"""Declared in every expression, also in those without the variable `authorizer`."""
