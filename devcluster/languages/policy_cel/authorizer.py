"""The variable `authorizer`: may somebody do something? Here everybody may do everything, so every check is allowed.

Source: k8s.io/apiserver pkg/cel/library/{authz,cost}.go.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from kubeloop.devcluster.api.name_checks import dns_label, dns_subdomain
from kubeloop.devcluster.languages.cel.declarations import Overload
from kubeloop.devcluster.languages.cel.program import Library
from kubeloop.devcluster.languages.cel.runtime_costs import (
    LIST_CREATE_COST,
    STRING_TRAVERSAL_FACTOR,
    STRUCT_CREATE_COST,
    size_of,
)
from kubeloop.devcluster.languages.cel.types import BOOL, STRING, Type
from kubeloop.devcluster.languages.cel.values import CelError, Container, Opaque, no_overload

_NAME = "kubernetes.authorization."
_PATH, _GROUP = Type("struct", f"{_NAME}PathCheck"), Type("struct", f"{_NAME}GroupCheck")
_RESOURCE, _DECISION = Type("struct", f"{_NAME}ResourceCheck"), Type("struct", f"{_NAME}Decision")
AUTHORIZER = Type("struct", f"{_NAME}Authorizer", fields={"requestResource": _RESOURCE})
_CHECK_COST = 350_000


class Authorizer(Container):
    """Answers what a user may do; its one field is the check of the request's own resource."""

    __slots__ = ()
    is_map = True
    type_name = AUTHORIZER.name

    def __len__(self) -> int:
        return 1

    def find(self, key: Any) -> tuple[Any, bool]:
        return (_Question("ResourceCheck"), True) if key == "requestResource" else (None, False)

    def equals(self, other: Any) -> bool:
        return other is self


class _Question(Opaque):
    """What is asked about, as far as it has been said; `about` is the last word of its type's name."""

    __slots__ = ("about",)

    def __init__(self, about: str) -> None:
        self.about = about

    @property
    def type_name(self) -> str:  # type: ignore[override] # depends on the value
        return _NAME + self.about

    def equals(self, other: Any) -> bool:
        return other is self


def _text(value: Any) -> str:
    if type(value) is not str:
        raise no_overload()
    return value


def _asked(about: str, *, of: str, required: str = "") -> Callable[..., _Question]:
    """A step from one question to the next."""

    def step(_context: Any, question: Any, text: Any) -> _Question:
        if of == "Authorizer":
            if not isinstance(question, Authorizer):
                raise no_overload()
        elif not isinstance(question, _Question) or question.about != of:
            raise no_overload()
        if not _text(text).strip() and required:
            raise CelError(f"{required} must not be empty")
        return _Question(about)

    return step


def _service_account(_context: Any, authorizer: Any, namespace: Any, name: Any) -> Authorizer:
    if not isinstance(authorizer, Authorizer):
        raise no_overload()
    if dns_subdomain(_text(name)):
        raise CelError("Invalid service account name")
    if dns_label(_text(namespace)):
        raise CelError("Invalid service account namespace")
    return authorizer


def _check(_context: Any, question: Any, verb: Any) -> _Question:
    if not isinstance(question, _Question) or question.about not in ("PathCheck", "ResourceCheck"):
        raise no_overload()
    _text(verb)
    return _Question("Decision")


def _decided(value: Any) -> Callable[..., Any]:
    def tell(_context: Any, decision: Any) -> Any:
        if not isinstance(decision, _Question) or decision.about != "Decision":
            raise no_overload()
        return value

    return tell


def _method(identifier: str, result: Type, *arguments: Type) -> Overload:
    return Overload(identifier, arguments, result, True, frozenset())


def _selector_cost(args: tuple[Any, ...], _result: Any) -> int:
    """Of reading a selector, and of making requirements of it."""
    size = size_of(args[1])
    return (
        LIST_CREATE_COST
        + ceil(size * STRING_TRAVERSAL_FACTOR)
        + ceil(size / 2) * (LIST_CREATE_COST + STRUCT_CREATE_COST)
    )


AUTHORIZATION = Library(
    {
        "path": [_method("authorizer_path", _PATH, AUTHORIZER, STRING)],
        "group": [_method("authorizer_group", _GROUP, AUTHORIZER, STRING)],
        "serviceAccount": [_method("authorizer_serviceaccount", AUTHORIZER, AUTHORIZER, STRING, STRING)],
        "resource": [_method("groupcheck_resource", _RESOURCE, _GROUP, STRING)],
        "subresource": [_method("resourcecheck_subresource", _RESOURCE, _RESOURCE, STRING)],
        "namespace": [_method("resourcecheck_namespace", _RESOURCE, _RESOURCE, STRING)],
        "name": [_method("resourcecheck_name", _RESOURCE, _RESOURCE, STRING)],
        "fieldSelector": [_method("authorizer_fieldselector", _RESOURCE, _RESOURCE, STRING)],
        "labelSelector": [_method("authorizer_labelselector", _RESOURCE, _RESOURCE, STRING)],
        "check": [
            _method("pathcheck_check", _DECISION, _PATH, STRING),
            _method("resourcecheck_check", _DECISION, _RESOURCE, STRING),
        ],
        "errored": [_method("decision_errored", BOOL, _DECISION)],
        "error": [_method("decision_error", STRING, _DECISION)],
        "allowed": [_method("decision_allowed", BOOL, _DECISION)],
        "reason": [_method("decision_reason", STRING, _DECISION)],
    },
    {
        "path": _asked("PathCheck", of="Authorizer", required="path"),
        "group": _asked("GroupCheck", of="Authorizer"),
        "serviceAccount": _service_account,
        "resource": _asked("ResourceCheck", of="GroupCheck", required="resource"),
        **{
            name: _asked("ResourceCheck", of="ResourceCheck")
            for name in ("subresource", "namespace", "name", "fieldSelector", "labelSelector")
        },
        "check": _check,
        "errored": _decided(False),
        "error": _decided(""),
        "allowed": _decided(True),
        "reason": _decided(""),
    },
    {
        "check": lambda _args, _result: _CHECK_COST,
        "fieldSelector": _selector_cost,
        "labelSelector": _selector_cost,
    },
)
"""Known in every expression, also in those that have no variable `authorizer`."""
