"""Warnings about kinds without pod templates, and about statuses."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import (
    ENDPOINT_SLICES,
    INGRESSES,
    RUNTIME_CLASSES,
    VALIDATING_ADMISSION_POLICIES,
)
from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.validation.validate import write_warnings
from kubeloop.kube.objects.resources import (
    CONFIG_MAPS,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SECRETS,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)

JSON = dict[str, Any]

OLD_LABEL = {"node-role.kubernetes.io/master": "a"}

DEPRECATION = 'use "node-role.kubernetes.io/control-plane" instead'

TERM = {"matchExpressions": [{"key": next(iter(OLD_LABEL)), "operator": "In", "values": ["-"]}]}


@pytest.mark.parametrize(
    ("resource", "body", "warnings"),
    [
        (RUNTIME_CLASSES, {"scheduling": {"nodeSelector": OLD_LABEL}}, [f"scheduling.nodeSelector: {DEPRECATION}"]),
        (STORAGE_CLASSES, {"allowedTopologies": [{"matchLabelExpressions": TERM["matchExpressions"]}]},
            [f"allowedTopologies[0].matchLabelExpressions[0].key: {DEPRECATION}"]),
        (CSI_STORAGE_CAPACITIES, {"nodeTopology": {**TERM, "matchLabels": OLD_LABEL}},
            [f"nodeTopology.matchExpressions[0].key: {next(iter(OLD_LABEL))} is {DEPRECATION}",
             f"nodeTopology.matchLabels.{next(iter(OLD_LABEL))}: {DEPRECATION}"]),
        (RESOURCE_QUOTAS, {"spec": {"hard": {"memory": "1024Mi", "limits.memory": "2", "requests.cpu": "1",
            "limits.cpu": "1"}}}, ["ResourceQuota memory (1Gi) should be less than limits.memory (2)"]),
        (RESOURCE_SLICES, {"spec": {"driver": "A.b"}},
            ['spec.driver: driver names should be lowercase; "A.b" contains uppercase characters']),
    ],
)  # fmt: skip
def test_warnings_about_deprecated_labels_and_odd_values(resource: Resource[Any], body: JSON, warnings: list[str]):
    assert write_warnings(strategy_of(resource), {"metadata": {"name": "a"}, **body}) == warnings


ADDRESS = 'IPv6 address "1::00" should be in RFC 5952 canonical format ("1::")'


@pytest.mark.parametrize(
    ("resource", "status", "warnings"),
    [
        (SERVICES, {"loadBalancer": {"ingress": [{"hostname": "a"}, {"ip": "1::00"}]}},
            [f"status.loadBalancer.ingress[1]: {ADDRESS}"]),
        (INGRESSES, {"loadBalancer": {"ingress": [{"ip": "1::00"}]}}, [f"status.loadBalancer.ingress[0]: {ADDRESS}"]),
        (PODS, {"podIPs": [{"ip": "1::00"}], "hostIPs": [{"ip": "1.2.3.4"}]}, [f"status.podIPs[0].ip: {ADDRESS}"]),
        (NODES, {}, []),
    ],
)  # fmt: skip
def test_status_warnings(resource: Resource[Any], status: JSON, warnings: list[str]):
    obj = {"metadata": {"name": "a"}, "spec": {"externalID": "x"}, "status": status}
    assert write_warnings(strategy_of(resource), obj, obj, subresource="status") == warnings


INGRESS_CLASS = {"metadata": {"annotations": {"kubernetes.io/ingress.class": "nginx"}}, "spec": {}}


def test_ingress_class_annotation_warns_on_create_only():
    assert write_warnings(strategy_of(INGRESSES), INGRESS_CLASS) == [
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
    ]
    assert write_warnings(strategy_of(INGRESSES), INGRESS_CLASS, INGRESS_CLASS) == []


@pytest.mark.parametrize(
    ("data", "warnings"),
    [
        ({}, ["tls: failed to find any PEM data in certificate input"]),
        (
            {"tls.crt": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"},  # -----BEGIN CERTIFICATE-----
            ["tls: failed to find any PEM data in key input"],
        ),
    ],
)
def test_tls_secret_without_pem_data_warns(data: JSON, warnings: list[str]):
    assert write_warnings(strategy_of(SECRETS), {"type": "kubernetes.io/tls", "data": data}) == warnings
    assert write_warnings(strategy_of(SECRETS), {"type": "Opaque", "data": data}) == []


def test_kinds_without_rules_have_no_warnings():
    assert write_warnings(strategy_of(CONFIG_MAPS), INGRESS_CLASS) == []
    assert write_warnings(strategy_of(NODES), {"status": {"podIPs": [{"ip": "1::00"}]}}, subresource="status") == []


@pytest.mark.parametrize(
    ("resource", "obj", "warning"),
    [
        pytest.param(
            NODES,
            {"spec": {"externalID": "x"}},
            "spec.externalID: this field is deprecated, and is unused by Kubernetes",
            id="external ID of a node",
        ),
        pytest.param(
            ENDPOINT_SLICES,
            {"metadata": {}, "addressType": "FQDN"},
            "spec.addressType: FQDN endpoints are deprecated",
            id="names as addresses",
        ),
        pytest.param(
            VALIDATING_ADMISSION_POLICIES,
            {"metadata": {"name": "a.static.k8s.io"}},
            'metadata.name: names ending with ".static.k8s.io" are reserved for static manifest-based configurations '
            "and cannot be managed via the API",
            id="reserved name of a policy",
        ),
    ],
)
def test_warning_about_a_new_object(resource: Resource[Any], obj: JSON, warning: str):
    assert write_warnings(strategy_of(resource), obj) == [warning]


def test_csi_tokens_warn_only_when_requests_change():
    obj = {"spec": {"tokenRequests": [{"audience": "a"}]}}
    [warning] = write_warnings(strategy_of(CSI_DRIVERS), obj, {"spec": {}})
    assert warning.startswith("spec.serviceAccountTokenInSecrets is unset")
    assert write_warnings(strategy_of(CSI_DRIVERS), obj, obj) == []
