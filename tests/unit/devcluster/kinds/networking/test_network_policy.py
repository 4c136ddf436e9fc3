"""Validation of NetworkPolicies."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.networking.network_policy import STRATEGY, validate_network_policy
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


def policy(peer: JSON | None = None, port: JSON | None = None, **spec: Any) -> JSON:
    egress = {"to": [] if peer is None else [peer], "ports": [] if port is None else [port]}
    return {"spec": {"podSelector": {}, "egress": [egress], **spec}}


PEER, PORT = "spec.egress[0].to[0]", "spec.egress[0].ports[0]"


@pytest.mark.parametrize(
    ("obj", "causes"),
    [
        pytest.param(
            policy({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}, {"port": 1, "endPort": 2}),
            [],
            id="valid",
        ),
        pytest.param(policy({}), [f"{PEER}: Required value: must specify a peer"], id="empty peer"),
        pytest.param(
            policy({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}),
            [f"{PEER}: Forbidden: may not specify both ipBlock and another peer"],
            id="two peers",
        ),
        pytest.param(
            policy({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}}),
            [f'{PEER}.ipBlock.except[0]: Invalid value: "10.0.0.0/8": must be a strict subset of `cidr`'],
            id="exception of the whole range",
        ),
        pytest.param(
            policy(port={"endPort": 2}),
            [f"{PORT}.endPort: Invalid value: 2: may not be specified when `port` is not specified"],
            id="last port without a first one",
        ),
        pytest.param(
            policy(port={"port": "http", "endPort": 2, "protocol": "HTTP"}),
            [
                f'{PORT}.protocol: Unsupported value: "HTTP": supported values: "TCP", "UDP", "SCTP"',
                f"{PORT}.endPort: Invalid value: 2: may not be specified when `port` is non-numeric",
            ],
            id="last port after a named one",
        ),
        pytest.param(
            policy(port={"port": 3, "endPort": 2}),
            [f"{PORT}.endPort: Invalid value: 3: must be greater than or equal to `port`"],
            id="reversed port range",
        ),
        pytest.param(
            policy(policyTypes=["Both"]),
            ['spec.policyTypes[0]: Unsupported value: "Both": supported values: "Ingress", "Egress"'],
            id="unknown policy type",
        ),
        pytest.param(
            policy(policyTypes=["Egress"] * 3),
            [
                'spec.policyTypes: Invalid value: ["Egress","Egress","Egress"]: '
                "may not specify more than two policyTypes"
            ],
            id="three policy types",
        ),
    ],
)
def test_network_policy_causes(obj: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_network_policy, obj) == causes


def test_update_may_keep_a_range_with_leading_zeros() -> None:
    old = policy({"ipBlock": {"cidr": "010.0.0.0/8"}})
    new = policy({"ipBlock": {"cidr": "010.0.0.0/8"}}, {"port": 1})
    assert validator_causes(STRATEGY.validate_update, new, old) == []
    [cause] = validator_causes(STRATEGY.validate_update, new, policy())
    assert cause.startswith(f'{PEER}.ipBlock.cidr: Invalid value: "010.0.0.0/8": must not have leading 0s')
