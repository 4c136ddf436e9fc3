"""What a comparison with kube-apiserver v1.36.2 showed of other kinds, pinned where no kube-apiserver is at hand."""

from __future__ import annotations

from typing import Any

import pytest
from unit.devcluster.test_validation import created, updated

from kubeloop.kube.resources import LEASES, NODES, PERSISTENT_VOLUMES, SERVICES, Resource

JSON = dict[str, Any]
PORTS = "must be between 1 and 65535, inclusive"


@pytest.mark.parametrize(
    ("resource", "spec", "told"),
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
def test_a_new_object_is_refused_in_kubernetes_words(resource: Resource[Any], spec: JSON, told: list[str]):
    assert created(resource, {"metadata": {"name": "a"}, "spec": spec}) == told


def test_a_node_keeps_its_addresses_and_its_provider():
    old, new = (
        {"metadata": {"name": "a"}, "spec": {"podCIDR": cidr, "podCIDRs": [cidr], "providerID": provider}}
        for cidr, provider in (("10.0.0.0/24", "x"), ("10.0.1.0/24", "y"))
    )
    assert updated(NODES, old, new) == [
        'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid',
        'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid',
    ]
