"""Validation of Ingresses and IngressClasses."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.networking.ingress import (
    validate_ingress,
    validate_ingress_status_update,
    validate_ingress_update,
)
from kubeloop.devcluster.kinds.networking.ingress_class import (
    validate_ingress_class,
    validate_ingress_class_update,
)
from kubeloop.devcluster.validation.common.error_list import error_list_type
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

BACKEND = {"service": {"name": "s", "port": {"number": 80}}}
PATH = "spec.rules[0].http.paths[0]"


def rule(path: str = "/", path_type: str | None = "Prefix", backend: JSON = BACKEND, **fields: Any) -> JSON:
    http_path = {"path": path, "backend": backend, **({"pathType": path_type} if path_type else {})}
    return {"rules": [{"http": {"paths": [http_path]}, **fields}]}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({**rule(host="*.a.com"), "tls": [{"hosts": ["a.com"], "secretName": "s"}]}, [], id="valid"),
        pytest.param(
            {}, ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"], id="empty"
        ),
        pytest.param(
            rule(host="10.0.0.1"),
            ['spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address'],
            id="address as a host",
        ),
        pytest.param(
            rule(path_type=None), [f"{PATH}.pathType: Required value: pathType must be specified"], id="no path type"
        ),
        pytest.param(
            rule("a", "Exact"), [f'{PATH}.path: Invalid value: "a": must be an absolute path'], id="relative path"
        ),
        pytest.param(rule("", "ImplementationSpecific"), [], id="implementation-specific empty path"),
        pytest.param(
            rule("/a/../b/.."),
            [
                f"{PATH}.path: Invalid value: \"/a/../b/..\": must not contain '/../'",
                f"{PATH}.path: Invalid value: \"/a/../b/..\": cannot end with '/..'",
            ],
            id="path with parent segments",
        ),
        pytest.param(
            rule(backend={}),
            [f'{PATH}.backend: Invalid value: "": resource or service backend is required'],
            id="no backend",
        ),
        pytest.param(
            rule(backend={"service": {"name": "s", "port": {"name": "http", "number": 80}}}),
            [f'{PATH}.backend: Invalid value: "": cannot set both port name & port number'],
            id="port name and number",
        ),
        pytest.param(
            {"defaultBackend": {"resource": {"name": "r"}}},
            ["spec.defaultBackend.resource.kind: Required value"],
            id="resource without kind",
        ),
    ],
)
def test_ingress_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_ingress, {"metadata": {}, "spec": spec}) == causes


def test_class_annotation_matches_the_class_name() -> None:
    annotations = {"kubernetes.io/ingress.class": "a"}
    obj = {"metadata": {"annotations": annotations}, "spec": {**rule(), "ingressClassName": "b"}}
    assert validator_causes(validate_ingress, obj) == [
        'annotations.kubernetes.io/ingress.class: Invalid value: "a": '
        "must match `ingressClassName` when both are specified"
    ]


def test_ingress_status_host_is_not_an_address() -> None:
    status = {"loadBalancer": {"ingress": [{"ip": "10.0.0.1", "hostname": "a.com"}, {"hostname": "10.0.0.1"}]}}
    assert validator_causes(validate_ingress_status_update, {"status": status}, {}) == [
        'status.loadBalancer.ingress[1].hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address'
    ]


PARAMETERS = {"kind": "Settings", "name": "s"}


@pytest.mark.parametrize(
    ("parameters", "causes"),
    [
        pytest.param({**PARAMETERS, "scope": "Cluster"}, [], id="valid"),
        pytest.param(PARAMETERS, ["spec.parameters.scope: Required value"], id="no scope"),
        pytest.param(
            {**PARAMETERS, "scope": "Namespace"},
            ["spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"],
            id="no namespace",
        ),
        pytest.param(
            {**PARAMETERS, "scope": "Cluster", "namespace": "n"},
            ["spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"],
            id="namespace of cluster-wide parameters",
        ),
    ],
)
def test_ingress_class_parameter_causes(parameters: JSON, causes: list[str]) -> None:
    obj = {"spec": {"controller": "a.b/c", "parameters": parameters}}
    assert validator_causes(validate_ingress_class, obj) == causes


def test_ingress_class_controller_is_immutable() -> None:
    new, old = ({"spec": {"controller": controller}} for controller in ("a.b/d", "a.b/c"))
    assert validator_causes(validate_ingress_class_update, new, old) == [
        'spec.controller: Invalid value: "a.b/d": field is immutable'
    ]


@pytest.mark.parametrize(
    "spec",
    [
        {"defaultBackend": {"service": {"name": "1a", "port": {"number": 80}}}},
        rule(backend={"service": {"name": "1a", "port": {"number": 80}}}),
    ],
    ids=["default backend", "rule"],
)
def test_update_may_keep_the_relaxed_name_of_a_service(spec: JSON) -> None:
    error_list = error_list_type(FeatureGates({"RelaxedServiceNameValidation": False}))
    new: JSON = {"metadata": {}, "spec": {**spec, "ingressClassName": "c"}}
    validate_ingress_update(errors := error_list(), new, {"spec": spec})
    assert errors == []
    validate_ingress_update(errors, new, {"spec": rule()})
    assert len(errors) == 1


def test_stored_address_of_a_load_balancer_may_have_another_notation() -> None:
    def ingress(address: str) -> JSON:
        return {"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}

    assert validator_causes(validate_ingress_status_update, ingress("010.0.0.1"), ingress("010.0.0.1")) == []
    assert validator_causes(validate_ingress_status_update, ingress("010.0.0.1"), ingress("10.0.0.1")) != []
