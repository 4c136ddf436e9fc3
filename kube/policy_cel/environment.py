"""CEL environment of a policy: the variables of its expressions, their types, and compilation.

The request, its namespace and the policy's own variables have declared types; objects and parameters have them only
when a policy is type-checked. Source: k8s.io/apiserver pkg/admission/plugin/cel/{compile,composition}.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kubeloop.cel.program import CelProgram, Library
from kubeloop.cel.syntax import ExpressionError, InstantiationError
from kubeloop.cel.types import BOOL, DYN, INT, NULL, STRING, TIMESTAMP, Type, list_of, map_of
from kubeloop.kube.policy_cel.authorizer import AUTHORIZATION_LIBRARY, AUTHORIZER


def struct(name: str, fields: Mapping[str, Type]) -> Type:
    return Type("struct", name, fields=fields)


def _request_type() -> Type:
    kind = struct("kubernetes.GroupVersionKind", dict.fromkeys(("group", "version", "kind"), STRING))
    resource = struct("kubernetes.GroupVersionResource", dict.fromkeys(("group", "version", "resource"), STRING))
    strings = list_of(STRING)
    user = {"username": STRING, "uid": STRING, "groups": strings, "extra": map_of(STRING, strings)}
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
    strings, string_map = list_of(STRING), map_of(STRING, STRING)
    condition = {**dict.fromkeys(("status", "type", "message", "reason"), STRING), "lastTransitionTime": TIMESTAMP}
    conditions = list_of(struct("kubernetes.NamespaceCondition", condition))
    metadata = {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), STRING),
        **dict.fromkeys(("labels", "annotations"), string_map),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), INT),
        "finalizers": strings,
    }
    return struct(
        "kubernetes.Namespace",
        {
            "metadata": struct("kubernetes.NamespaceMetadata", metadata),
            "spec": struct("kubernetes.NamespaceSpec", {"finalizers": strings}),
            "status": struct("kubernetes.NamespaceStatus", {"conditions": conditions, "phase": STRING}),
        },
    )


_COMMON_VARIABLES = {"namespaceObject": _namespace_type(), "request": _request_type()}

# --- compiling --------------------------------------------------------------------------------------------------------

Results = tuple[Type, ...]
BOOL_RESULT: Results = (BOOL,)
STRING_RESULT: Results = (STRING,)
STRING_OR_NULL_RESULT: Results = (STRING, NULL)
ANY_RESULT: Results = ()


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression. `error`: why it does not compile, or ""; `program`: None in case of an error.

    is_valid_expression: it type-checks, although it could not be compiled to a program.
    """

    text: str
    program: CelProgram | None
    error: str = ""
    is_valid_expression: bool = False


@dataclass(slots=True)
class Environment:
    """Variables of a policy's expressions. variable_types: types of the policy's variables compiled so far.

    object_type, params_type: types of object and oldObject, and of params.
    """

    has_params: bool
    variable_types: dict[str, Type] | None = field(default_factory=dict)
    library: Library = AUTHORIZATION_LIBRARY
    object_type: Type = DYN
    params_type: Type = DYN

    def compile(self, text: str, results: Results, *, authorizer: bool = True) -> Expression:
        """Compile an expression. results: allowed types, ANY_RESULT for all. authorizer: declare that variable."""
        variables = {"object": self.object_type, "oldObject": self.object_type, **_COMMON_VARIABLES}
        if self.has_params:
            variables["params"] = self.params_type
        if authorizer:
            variables["authorizer"] = AUTHORIZER
        if self.variable_types is not None:
            variables["variables"] = struct("kubernetes.variables", self.variable_types)
        try:
            program = CelProgram(text, variables, self.library)
        except ExpressionError as error:
            return Expression(text, None, f"compilation failed: {error}")
        except InstantiationError as error:
            return Expression(text, None, f"program instantiation failed: {error}", is_valid_expression=True)
        if results and program.type not in results:
            expected = _name(results[0]) if len(results) == 1 else f"one of [{' '.join(map(_name, results))}]"
            return Expression(text, None, f"must evaluate to {expected} but got {_name(program.type)}")
        return Expression(text, program)

    def declare(self, name: str, text: str) -> Expression:
        """Compile a variable of the policy and declare it for later expressions."""
        assert self.variable_types is not None
        expression = self.compile(text, ANY_RESULT)
        self.variable_types[name] = DYN if expression.program is None else _variable_type(expression.program.type)
        return expression


def _name(type_: Type) -> str:
    """Return a type's full name; messages of the type checker abbreviate some."""
    inner = f"({', '.join(map(_name, type_.parameters))})" if type_.parameters else ""
    return type_.name + inner


_SCALAR_KINDS = frozenset({"any", "bool", "bytes", "double", "duration", "int", "null", "string", "timestamp", "uint"})


def _variable_type(type_: Type) -> Type:
    """Return the declared type of a variable: scalars, lists and maps keep their type, all others become dyn."""
    if type_.kind in _SCALAR_KINDS:
        return type_
    if type_.kind == "list":
        return list_of(_variable_type(type_.parameters[0]))
    if type_.kind == "map":
        return map_of(_variable_type(type_.parameters[0]), _variable_type(type_.parameters[1]))
    return DYN
