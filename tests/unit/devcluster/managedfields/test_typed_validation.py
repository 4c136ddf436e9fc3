"""Errors of applied configurations and of strategic merge results that do not fit their type."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.managedfields.go_types import value_type_of
from kubeloop.devcluster.managedfields.typed_validation import conversion_error, type_error
from kubeloop.kube import schema
from kubeloop.kube.objects.resources import DEPLOYMENTS

DEPLOYMENT = schema.type_for("apps", "v1", "Deployment")
IN = '.spec.template.spec.containers[name="c"]'


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "c", **fields}]}}}}


@pytest.mark.parametrize(("configuration", "message"), [
    (container(image="i"), ""),
    (container(image=1), f"{IN}.image: expected string, got &value.valueUnstructured{{Value:1}}"),
    (container(stdin="x"), f"{IN}.stdin: expected boolean, got &{{x}}"),
    (container(stdin=1e6), f"{IN}.stdin: expected boolean, got &{{1e+06}}"),
    (container(foo=1), f"{IN}.foo: field not declared in schema"),
    (container(env={}), f"{IN}.env: expected list, got &{{map[]}}"),
    (container(ports=[{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP"}]),
     f'{IN}.ports: duplicate entries for key [containerPort=1,protocol="TCP"]'),
    (container(env=[None]), f"{IN}.env: element 0: associative list with keys may not have a null element"),
    ({"spec": {"replicas": "x"}}, ".spec.replicas: expected numeric (int or float), got string"),
    ({"metadata": {"finalizers": ["a", "a"]}}, '.metadata.finalizers: duplicate entries for key [="a"]'),
    ({"metadata": {"labels": []}, "spec": []},
     "errors:\n  .metadata.labels: expected map, got &{[]}\n  .spec: expected map, got &{[]}"),
])  # fmt: skip
def test_type_errors_of_a_configuration(configuration: dict[str, Any], message: str):
    assert type_error(value_type_of(DEPLOYMENTS), configuration) == message


@pytest.mark.parametrize(("patched", "message"), [
    ({"spec": {"replicas": "x"}}, "unrecognized type: int32"),
    ({"spec": {"replicas": 1.5}}, "cannot convert float64 to int32"),
    ({"spec": []}, "cannot restore struct from: slice"),
    ({"metadata": {"labels": []}}, "cannot restore map from slice"),
    ({"metadata": {"name": 1}}, "cannot convert int64 to string"),
    (container(env="x"), "cannot restore slice from string"),
    (container(image="i"), ""),
])  # fmt: skip
def test_conversion_errors_of_a_strategic_merge_result(patched: dict[str, Any], message: str):
    assert DEPLOYMENT is not None
    assert conversion_error(schema.TypeRef("", "struct", named=DEPLOYMENT.name), patched) == message
