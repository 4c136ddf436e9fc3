"""The variables of a policy's expressions, their types, and what comes of compiling one.

Objects and parameters have no types; the request, its namespace and the policy's own variables do. Source:
k8s.io/apiserver pkg/admission/plugin/cel/{compile,composition}.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubeloop.devcluster.languages.cel.program import Library, Program
from kubeloop.devcluster.languages.cel.syntax import ExpressionError, InstantiationError
from kubeloop.devcluster.languages.cel.types import BOOL, DYN, INT, NULL, STRING, TIMESTAMP, Type, list_of, map_of
from kubeloop.devcluster.languages.policy_cel.authorizer import AUTHORIZATION, AUTHORIZER


def struct(name: str, fields: Mapping[str, Type]) -> Type:
    return Type("struct", name, fields=fields)


def _request_type() -> Type:
    kind = struct("kubernetes.GroupVersionKind", dict.fromkeys(("group", "version", "kind"), STRING))
    resource = struct("kubernetes.GroupVersionResource", dict.fromkeys(("group", "version", "resource"), STRING))
    texts = list_of(STRING)
    user = {"username": STRING, "uid": STRING, "groups": texts, "extra": map_of(STRING, texts)}
    return struct(
        "kubernetes.AdmissionRequest",
        {
            "kind": kind,
            "resource": resource,
            "subResource": STRING,
            "requestKind": kind,
            "requestResource": resource,
            "requestSubResource": STRING,
            "name": STRING,
            "namespace": STRING,
            "operation": STRING,
            "userInfo": struct("kubernetes.UserInfo", user),
            "dryRun": BOOL,
            "options": DYN,
        },
    )


def _namespace_type() -> Type:
    texts, words = list_of(STRING), map_of(STRING, STRING)
    condition = {**dict.fromkeys(("status", "type", "message", "reason"), STRING), "lastTransitionTime": TIMESTAMP}
    conditions = list_of(struct("kubernetes.NamespaceCondition", condition))
    metadata = {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), STRING),
        **dict.fromkeys(("labels", "annotations"), words),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), INT),
        "finalizers": texts,
    }
    return struct(
        "kubernetes.Namespace",
        {
            "metadata": struct("kubernetes.NamespaceMetadata", metadata),
            "spec": struct("kubernetes.NamespaceSpec", {"finalizers": texts}),
            "status": struct("kubernetes.NamespaceStatus", {"conditions": conditions, "phase": STRING}),
        },
    )


_ALWAYS = {"object": DYN, "oldObject": DYN, "namespaceObject": _namespace_type(), "request": _request_type()}

# --- compiling --------------------------------------------------------------------------------------------------------

Results = tuple[Type, ...]
BOOLEAN: Results = (BOOL,)
TEXT: Results = (STRING,)
TEXT_OR_NULL: Results = (STRING, NULL)
ANYTHING: Results = ()


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression. error: why it could not be compiled, "" if it could; program: None if not.

    is_right: is it an expression, though it cannot be made a program of?
    """

    text: str
    program: Program | None
    error: str = ""
    is_right: bool = False


@dataclass(slots=True)
class Environment:
    """What expressions of one policy know. own: the types of the policy's variables that have been compiled so far."""

    has_params: bool
    own: dict[str, Type] | None = field(default_factory=dict)
    library: Library = AUTHORIZATION

    def compile(self, text: str, results: Results, *, authorizer: bool = True) -> Expression:
        """results: the types that it may have, ANYTHING for all. authorizer: may it ask who may do what?"""
        variables = dict(_ALWAYS)
        if self.has_params:
            variables["params"] = DYN
        if authorizer:
            variables["authorizer"] = AUTHORIZER
        if self.own is not None:
            variables["variables"] = struct("kubernetes.variables", self.own)
        try:
            program = Program(text, variables, self.library)
        except ExpressionError as error:
            return Expression(text, None, f"compilation failed: {error}")
        except InstantiationError as error:
            return Expression(text, None, f"program instantiation failed: {error}", is_right=True)
        if results and program.type not in results:
            wanted = _name(results[0]) if len(results) == 1 else f"one of [{' '.join(map(_name, results))}]"
            return Expression(text, None, f"must evaluate to {wanted} but got {_name(program.type)}")
        return Expression(text, program)

    def declare(self, name: str, text: str) -> Expression:
        """Compile a variable, which the expressions after it may use."""
        assert self.own is not None
        found = self.compile(text, ANYTHING)
        self.own[name] = DYN if found.program is None else _remembered(found.program.type)
        return found


def _name(type_: Type) -> str:
    """A type as its own text has it; messages of the checker shorten some."""
    inner = f"({', '.join(map(_name, type_.parameters))})" if type_.parameters else ""
    return type_.name + inner


_KEPT = frozenset({"any", "bool", "bytes", "double", "duration", "int", "null", "string", "timestamp", "uint"})


def _remembered(type_: Type) -> Type:
    """What is known of a variable's type: nothing of those that are no scalars, lists and maps."""
    if type_.kind in _KEPT:
        return type_
    if type_.kind == "list":
        return list_of(_remembered(type_.parameters[0]))
    if type_.kind == "map":
        return map_of(_remembered(type_.parameters[0]), _remembered(type_.parameters[1]))
    return DYN
