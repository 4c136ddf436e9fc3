"""Type checking: the kinds that a policy matches, the types of OpenAPI schemas, and the warnings."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.cel.types import DYN, INT, STRING
from kubeloop.controllers.validatingadmissionpolicystatus.type_checking import (
    MatchedKind,
    TypedKind,
    _has_object_meta,
    expression_warnings,
    kinds_to_check,
    object_type,
    params_kind,
)
from kubeloop.kube.objects.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
)

JSON = dict[str, Any]
CORE = (PODS, SERVICES, SECRETS, CONFIG_MAPS, NODES, NAMESPACES, EVENTS, REPLICATION_CONTROLLERS)
SERVED = (*CORE, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, REPLICA_SETS)


def rule(groups: str, versions: str, resources: str) -> JSON:
    return {"apiGroups": groups.split(","), "apiVersions": versions.split(), "resources": resources.split()}


@pytest.mark.parametrize(
    ("rules", "kinds"),
    [
        pytest.param([rule("apps", "v1", "deployments")], ["apps/v1, Kind=Deployment"], id="one"),
        pytest.param(
            [rule("apps", "v1", "statefulsets deployments")],
            ["apps/v1, Kind=Deployment", "apps/v1, Kind=StatefulSet"],
            id="sorted",
        ),
        pytest.param([rule("apps", "v1", "deployment")], ["apps/v1, Kind=Deployment"], id="singular"),
        pytest.param([rule("", "v1", "deployments")], ["apps/v1, Kind=Deployment"], id="core group stands for any"),
        pytest.param([rule("apps", "v1", "*")], [], id="all resources"),
        pytest.param([rule("*", "v1", "deployments")], [], id="all groups"),
        pytest.param([rule("apps", "*", "deployments")], [], id="all versions"),
        pytest.param(
            [rule("apps", "v1", "deployments/scale */status pods")], [], id="subresources and resources of other groups"
        ),
        pytest.param([rule("apps", "v2", "deployments")], [], id="version that is not served"),
        pytest.param(
            [rule("apps", "v1", "deployments"), rule("apps", "v1", "deployments daemonsets")],
            ["apps/v1, Kind=DaemonSet", "apps/v1, Kind=Deployment"],
            id="two rules",
        ),
        pytest.param(None, [], id="no rules"),
    ],
)
def test_kinds_that_a_policy_names(rules: Any, kinds: list[str]):
    spec = {"matchConstraints": {"resourceRules": rules}} if rules else {}
    assert list(map(str, kinds_to_check(spec, SERVED))) == kinds


def test_at_most_ten_kinds_are_checked():
    names = " ".join(resource.plural for resource in SERVED)
    kinds = kinds_to_check({"matchConstraints": {"resourceRules": [rule("", "v1", names)]}}, SERVED)
    by_name = sorted(SERVED, key=lambda resource: resource.plural)[:10]
    assert sorted(kind.kind for kind in kinds) == sorted(resource.kind for resource in by_name)


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        (None, None),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, MatchedKind("", "v1", "ConfigMap")),
        ({"apiVersion": "example.com/v1", "kind": "Limit"}, MatchedKind("example.com", "v1", "Limit")),
        ({"apiVersion": "a/b/c", "kind": "Limit"}, None),
    ],
)
def test_kind_of_the_parameters(reference: Any, kind: MatchedKind | None):
    assert params_kind({"paramKind": reference}) == kind


WIDGET = MatchedKind("example.com", "v1", "Widget")
META: JSON = {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}}
SCHEMAS: dict[str, JSON] = {
    "Meta": {**META, "properties": {**META["properties"], "labels": {"type": "object"}}},
    "Tree": {
        "type": "object",
        "properties": {
            "size": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
        },
    },
    "Widget": {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": "#/components/schemas/Meta"}], "default": {}},
            "port": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
            "tree": {"$ref": "#/components/schemas/Tree"},
            "trees": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Tree"}},
            "anything": {"description": "no type"},
        },
        "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}],
    },
    "Bare": {
        "type": "object",
        "properties": {"metadata": {"type": "object"}},
        "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Bare"}],
    },
}


def fields(type_: Any) -> Any:
    return type_.fields


def test_type_of_a_schema_with_references():
    type_ = object_type(SCHEMAS, WIDGET, 7)
    assert type_ is not None
    assert type_.name == "Widget7"
    assert set(fields(type_)) == {"apiVersion", "kind", "metadata", "port", "tree", "trees"}
    assert fields(type_)["port"] == DYN
    assert "labels" in fields(fields(type_)["metadata"])
    assert fields(fields(type_)["tree"])["size"] == INT
    nested = fields(fields(type_)["tree"])["children"].parameters[0]
    assert fields(nested) == {}  # the schema recurs
    assert fields(type_)["trees"].parameters[1].name == "Widget7.trees.@elem"


def test_every_kind_has_metadata_and_a_missing_one_no_type():
    type_ = object_type(SCHEMAS, MatchedKind("example.com", "v1", "Bare"), 0)
    assert fields(type_)["apiVersion"] == STRING
    assert set(fields(fields(type_)["metadata"])) == {"name", "generateName"}
    assert object_type(SCHEMAS, MatchedKind("example.com", "v1", "Missing"), 0) is None


def warnings(*validations: JSON, params: Any = None, **spec: Any) -> list[tuple[str, str]]:
    type_ = object_type(SCHEMAS, WIDGET, 0)
    assert type_ is not None
    matched = [TypedKind(WIDGET, type_)]
    found = expression_warnings({"validations": validations, **spec}, matched, params)
    return [(warning["fieldRef"], warning["warning"].partition("\n")[0]) for warning in found]


PREFIX = "example.com/v1, Kind=Widget: ERROR: <input>:1:"


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("object.tree.size == 1", None),
        ("object.tree.siz == 1", "12: undefined field 'siz'"),
        ("oldObject.tree.siz == 1", "15: undefined field 'siz'"),
        ("object.port == 'x' || object.port == 1", None),
        ("object.metadata.name", None),
        ("params.x == 1", "1: undeclared reference to 'params' (in container '')"),
        ("int('x') == 1", None),
    ],
)
def test_warning_about_an_expression(expression: str, error: str | None):
    assert warnings({"expression": expression}) == (
        [("spec.validations[0].expression", PREFIX + error)] if error else []
    )


def test_warnings_name_each_field_and_kind():
    type_ = object_type(SCHEMAS, WIDGET, 0)
    assert type_ is not None
    matched = [
        TypedKind(WIDGET, type_),
        TypedKind(MatchedKind("", "v1", "Pod"), DYN),
        TypedKind(MatchedKind("", "v1", "Other"), type_),
    ]
    validations = [{"expression": "true"}, {"expression": "true", "messageExpression": "object.x"}]
    text = "ERROR: <input>:1:7: undefined field 'x'\n | object.x\n | ......^\n"
    assert expression_warnings({"validations": validations}, matched, None) == [
        {
            "fieldRef": "spec.validations[1].messageExpression",
            "warning": f"example.com/v1, Kind=Widget: {text}\n/v1, Kind=Other: {text}",
        }
    ]


def test_parameters_and_variables_have_types():
    variables = [{"name": "size", "expression": "object.tree.size"}, {"name": "wrong", "expression": "object.x"}]
    validations = [
        {"expression": text}
        for text in ("variables.size == 'x'", "variables.wrong.y == 1", "params.tree.siz == 1", "params.tree.size == 1")
    ]
    found = warnings(*validations, params=object_type(SCHEMAS, WIDGET, 1), variables=variables)
    assert [path for path, _ in found] == ["spec.validations[0].expression", "spec.validations[2].expression"]
    assert "no matching overload for '_==_' applied to '(int, string)'" in found[0][1]
    assert "undefined field 'siz'" in found[1][1]


def test_parameters_of_an_unknown_kind_have_any_type():
    assert warnings({"expression": "params.x.y == 1"}, params=DYN) == []


@pytest.mark.parametrize(
    ("metadata", "declared"),
    [
        pytest.param({"type": "object", "properties": {"name": {"type": "string"}}}, False, id="without generateName"),
        pytest.param({"type": "string"}, False, id="not an object"),
        pytest.param(
            {"type": "string", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}},
            False,
            id="its properties are not those of an object",
        ),
        pytest.param(
            {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}},
            True,
            id="metadata of an object",
        ),
    ],
)
def test_schema_declares_the_metadata_of_an_object(metadata: JSON, declared: bool):
    strings = {name: {"type": "string"} for name in ("kind", "apiVersion")}
    assert _has_object_meta({"properties": {**strings, "metadata": metadata}}) is declared
    assert not _has_object_meta({"properties": {"kind": {"type": "string"}, "metadata": metadata}})
    assert not _has_object_meta({})
