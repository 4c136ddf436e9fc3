"""Validation of kinds without a test module of their own."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import NETWORK_POLICIES, ROLES, RUNTIME_CLASSES, SERVICE_CIDRS
from kubeloop.devcluster.api.strategy import NO_BEHAVIOUR, strategy_of
from kubeloop.kube.objects.resources import (
    CONFIG_MAPS,
    CSI_STORAGE_CAPACITIES,
    EVENTS,
    LEASES,
    NODES,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)
from support.objects.validation_causes import create_causes, update_causes, validator_causes

JSON = dict[str, Any]


@pytest.mark.parametrize(
    ("resource", "body", "causes"),
    [
        pytest.param(
            NODES,
            {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}] * 2}},
            [
                'metadata.taints[1]: Duplicate value: {"Key":"k","Value":"","Effect":"NoSchedule","TimeAdded":null}: '
                "taints must be unique by key and effect pair"
            ],
            id="duplicate taint of a node",
        ),
        pytest.param(
            NODES,
            {"spec": {"podCIDRs": ["10.0.0.0/24", "10.1.0.0/24"]}},
            [
                'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: '
                "may specify no more than one CIDR for each IP family"
            ],
            id="two pod CIDRs of one family",
        ),
        pytest.param(SERVICES, {"spec": {}}, ["spec.ports: Required value"], id="a service without ports"),
        pytest.param(
            CONFIG_MAPS,
            {"data": {"a": "x"}, "binaryData": {"a": "AA=="}},
            ['data[a]: Invalid value: "a": duplicate of key present in binaryData'],
            id="key in data and binaryData",
        ),
        pytest.param(
            CONFIG_MAPS,
            {"data": {"a": "x" * ((1 << 20) + 1)}},
            ["[]: Too long: may not be more than 1048576 bytes"],
            id="a config map of more than 1 MiB",
        ),
        pytest.param(
            SECRETS,
            {"type": "kubernetes.io/tls", "data": {"tls.crt": "AA=="}},
            ["data[tls.key]: Required value"],
            id="TLS secret without a key",
        ),
        pytest.param(
            POD_DISRUPTION_BUDGETS,
            {"spec": {"minAvailable": 1, "maxUnavailable": "50%"}},
            [
                'spec: Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":"50%",'
                '"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set'
            ],
            id="both bounds of a disruption budget",
        ),
        pytest.param(
            LEASES,
            {"spec": {"leaseDurationSeconds": 0}},
            ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
            id="lease duration of zero",
        ),
        pytest.param(
            PRIORITY_CLASSES,
            {"value": 1_000_000_001},
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
            id="priority above the user maximum",
        ),
        pytest.param(
            EVENTS,
            {"involvedObject": {"namespace": "elsewhere"}},
            ['involvedObject.namespace: Invalid value: "elsewhere": does not match event.namespace'],
            id="an event about another namespace",
        ),
        pytest.param(
            EVENTS, {"involvedObject": {"kind": "Node"}}, [], id="an event about a node, in the default namespace"
        ),
    ],
)
def test_new_object_causes(resource: Resource[Any], body: JSON, causes: list[str]) -> None:
    assert create_causes(resource, body) == causes


@pytest.mark.parametrize(
    ("resource", "old", "new", "causes"),
    [
        pytest.param(
            NODES,
            {"spec": {"podCIDRs": ["10.0.0.0/24"]}},
            {"spec": {"podCIDRs": ["10.1.0.0/24"]}},
            ['spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid'],
            id="pod CIDR of a node",
        ),
        pytest.param(
            SECRETS,
            {"type": "a"},
            {"type": "b"},
            ['type: Invalid value: "b": field is immutable'],
            id="the type of a secret",
        ),
        pytest.param(
            CONFIG_MAPS,
            {"data": {"a": "1"}, "immutable": True},
            {"data": {"a": "2"}, "immutable": True},
            ["data: Forbidden: field is immutable when `immutable` is set"],
            id="the data of an immutable config map",
        ),
        pytest.param(
            PRIORITY_CLASSES,
            {"value": 1},
            {"value": 2},
            ["value: Forbidden: may not be changed in an update."],
            id="the value of a priority class",
        ),
        pytest.param(
            STORAGE_CLASSES,
            {"provisioner": "a", "volumeBindingMode": "Immediate"},
            {"provisioner": "b", "volumeBindingMode": "WaitForFirstConsumer"},
            [
                'provisioner: Invalid value: "b": field is immutable',
                'volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable',
            ],
            id="provisioner and binding mode of a storage class",
        ),
    ],
)
def test_immutable_fields_of_an_update(resource: Resource[Any], old: JSON, new: JSON, causes: list[str]) -> None:
    assert update_causes(resource, old, new) == causes


PORTS = "must be between 1 and 65535, inclusive"


@pytest.mark.parametrize(
    ("resource", "spec", "causes"),
    [
        (
            LEASES,
            {"leaseDurationSeconds": 0, "leaseTransitions": -1},
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            PERSISTENT_VOLUMES,
            {
                "capacity": {"storage": "1"},
                "accessModes": ["ReadWriteOnce"],
                "iscsi": {"targetPortal": "p", "iqn": "x"},
            },
            ['spec.iscsi.iqn: Invalid value: "x": must be valid format'],
        ),
        (
            SERVICES,
            {"type": "ExternalName", "externalName": "a", "ports": [{"port": 0}]},
            [
                f"spec.ports[0].port: Invalid value: 0: {PORTS}",
                f"spec.ports[0].targetPort: Invalid value: 0: {PORTS}",
            ],
        ),
        (
            SERVICES,
            {"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "a"}], "sessionAffinity": "x"},
            [
                'spec.ports[1].name: Duplicate value: "a"',
                'spec.sessionAffinity: Unsupported value: "x": supported values: "ClientIP", "None"',
            ],
        ),
    ],
    ids=["lease", "volume", "external-name", "ports"],
)
def test_new_spec_causes(resource: Resource[Any], spec: JSON, causes: list[str]):
    assert create_causes(resource, {"metadata": {"name": "a"}, "spec": spec}) == causes


@pytest.mark.parametrize(
    ("resource", "old", "new", "causes"),
    [
        (SERVICE_CIDRS, {"cidrs": ["10.0.0.0/24", "fd00::/64"]}, {},
            ["spec.cidrs: Invalid value: null: field is immutable"]),
        (NETWORK_POLICIES, {"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]},
            {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": [""]}}]}]},
            ['spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: "": must be a valid CIDR value,']),
    ],
)  # fmt: skip
def test_update_causes(resource: Resource[Any], old: JSON, new: JSON, causes: list[str]):
    assert update_causes(resource, {"spec": old}, {"spec": new}) == causes


def test_update_is_validated_like_a_new_object_in_some_kinds():
    spread = {"scheduling": {"tolerations": [{"operator": "Equal"}]}}
    assert update_causes(RUNTIME_CLASSES, {"handler": "h"}, {"handler": "h", **spread}) == [
        'scheduling.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, '
        'which means "match all values and all keys"'
    ]
    causes = update_causes(CSI_STORAGE_CAPACITIES, {"storageClassName": "s"}, {"storageClassName": "S"})
    assert [cause.partition(" (e.g.")[0].rpartition(": ")[2] for cause in causes] == [
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        "and end with an alphanumeric character",
        "field is immutable",
    ]


def test_strategy_without_behaviour_accepts_all():
    assert NO_BEHAVIOUR.validate is None
    assert validator_causes(NO_BEHAVIOUR.validate_update, {}, {"spec": {}}) == []
    assert list(NO_BEHAVIOUR.warnings({}, None)) == []


def test_role_update_is_validated_only_when_rules_change() -> None:
    update = strategy_of(ROLES).validate_update
    invalid = {"metadata": {}, "rules": [{"nonResourceURLs": ["/"], "verbs": ["get"]}]}
    assert validator_causes(update, {**invalid, "metadata": {"labels": {"a": "b"}}}, invalid) == []
    assert validator_causes(update, invalid, {"metadata": {}}) == [
        'rules[0].nonResourceURLs: Invalid value: ["/"]: namespaced rules cannot apply to non-resource URLs'
    ]
