"""Type checking of a policy's expressions against the OpenAPI schemas of the kinds that it matches. Pure functions.

Source: v1.36 k8s.io/apiserver pkg/admission/plugin/policy/validating/typechecking.go, pkg/cel/openapi/resolver/refs.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kubeloop.cel.types import DYN, Schema, Type, schema_decl_type
from kubeloop.kube.objects.api_types import JSONValue
from kubeloop.kube.objects.resources import Resource
from kubeloop.kube.policy_cel.environment import ANY_RESULT, Environment

_MAX_TYPES = 10
_COMPILATION_FAILED = "compilation failed: "
_REF_PREFIX = "#/components/schemas/"
_GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"


class MatchedKind(NamedTuple):
    """A kind of objects; compared by group, version and kind."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


# --- kinds ------------------------------------------------------------------------------------------------------------


def kinds_to_check(spec: JSONValue, served: Sequence[Resource[Any]]) -> list[MatchedKind]:
    """Return the kinds that the rules of a policy name without wildcards, sorted; served: the server's resources."""
    kinds: set[MatchedKind] = set()
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        for count, resource in enumerate(_named_resources(rule, served), 1):
            kinds.add(MatchedKind(resource.group, resource.version, resource.kind))
            if count == _MAX_TYPES:
                return sorted(kinds)
    return sorted(kinds)


def _named_resources(rule: JSONValue, served: Sequence[Resource[Any]]) -> Iterable[Resource[Any]]:
    groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
    if any("*" in name for name in (*groups, *versions)):
        return
    names = sorted(name for name in rule.get("resources") or () if "*" not in name and "/" not in name)
    for group in sorted(groups):
        for version in sorted(versions):
            for name in names:
                for resource in served:
                    # a RESTMapper takes the core group "" for any group
                    in_group = not group or resource.group == group
                    if in_group and resource.version == version and name in (resource.plural, resource.singular):
                        yield resource


def params_kind(spec: JSONValue) -> MatchedKind | None:
    """Return the kind of a policy's parameters; None if it has none."""
    reference = spec.get("paramKind")
    if reference is None:
        return None
    group, _, version = reference.get("apiVersion", "").rpartition("/")
    kind = MatchedKind(group, version, reference.get("kind", ""))
    return kind if any(kind) and "/" not in group else None


# --- types ------------------------------------------------------------------------------------------------------------


def object_type(schemas: Mapping[str, Schema], kind: MatchedKind, unique: int) -> Type | None:
    """Return the CEL type of a kind in the schemas of an OpenAPI v3 document; None if it is not declared there.

    unique: makes the name of the type unique.
    """
    identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    name = next((name for name, schema in schemas.items() if identity in schema.get(_GROUP_VERSION_KIND, ())), None)
    if name is None:
        return None
    schema = _resolved(schemas, schemas[name], frozenset({name}))
    decl_type = schema_decl_type(schema, root=not _has_object_meta(schema), name=f"{kind.kind}{unique}")
    return decl_type.type if decl_type is not None else DYN


def _has_object_meta(schema: Schema) -> bool:
    """Return True if the schema declares what every object has."""
    properties = schema.get("properties") or {}
    metadata = properties.get("metadata", {})
    names = metadata.get("properties") or {}
    return (
        all(properties.get(name, {}).get("type") == "string" for name in ("kind", "apiVersion"))
        and metadata.get("type") == "object"
        and all(names.get(name, {}).get("type") == "string" for name in ("name", "generateName"))
    )


def _resolved(schemas: Mapping[str, Schema], schema: Schema, visited: frozenset[str]) -> Schema:
    """Return the schema with references replaced by what they refer to, and by an empty object where they recur."""
    name = _reference(schema)
    if name is not None:
        if name in visited:
            return {"type": "object"}
        visited |= {name}
        schema = schemas[name]
    resolved = dict(schema)
    if schema.get("format") == "int-or-string":
        resolved["x-kubernetes-int-or-string"] = True
    if properties := schema.get("properties"):
        resolved["properties"] = {name: _resolved(schemas, nested, visited) for name, nested in properties.items()}
    for field in ("additionalProperties", "items"):
        if isinstance(nested := schema.get(field), dict):
            resolved[field] = _resolved(schemas, nested, visited)
    return resolved


def _reference(schema: Schema) -> str | None:
    """Return the name that a schema refers to; allOf wraps a reference that has a description."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REF_PREFIX)
    return next((name for part in schema.get("allOf", ()) if (name := _reference(part)) is not None), None)


# --- expressions ------------------------------------------------------------------------------------------------------


class TypedKind(NamedTuple):
    """A matched kind and the type of its objects."""

    kind: MatchedKind
    type: Type


def expression_warnings(
    spec: JSONValue, matched: Sequence[TypedKind], params_type: Type | None
) -> list[dict[str, JSONValue]]:
    """Return the expressionWarnings of a policy's status. params_type: None for a policy without parameters."""
    environments = [(kind, _environment(spec, type_, params_type)) for kind, type_ in matched]
    warnings: list[dict[str, JSONValue]] = []
    for index, validation in enumerate(spec.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            text = validation.get(field, "")
            if not text and field == "messageExpression":
                continue
            messages = [
                f"{kind}: {error}\n" for kind, environment in environments if (error := _error(environment, text))
            ]
            if messages:
                path = f"spec.validations[{index}].{field}"
                warnings.append({"fieldRef": path, "warning": "\n".join(messages)})
    return warnings


def _environment(spec: JSONValue, type_: Type, params_type: Type | None) -> Environment:
    environment = Environment(params_type is not None, object_type=type_, params_type=params_type or DYN)
    for variable in spec.get("variables") or ():
        environment.declare(variable["name"], variable["expression"])
    return environment


def _error(environment: Environment, text: str) -> str:
    """Return the errors of the type checker; "" if there are none."""
    expression = environment.compile(text, ANY_RESULT)
    if expression.program is not None or expression.is_valid_expression:
        return ""
    return expression.error.removeprefix(_COMPILATION_FAILED)
