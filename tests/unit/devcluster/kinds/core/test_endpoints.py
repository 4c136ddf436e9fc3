"""Validation of Endpoints."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kinds.core.endpoints import STRATEGY, validate_endpoints
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes

ADDRESS = {"ip": "10.0.0.1"}
PORT = {"port": 80, "protocol": "TCP"}


@pytest.mark.parametrize(
    ("subset", "causes"),
    [
        pytest.param({"addresses": [ADDRESS], "ports": [PORT]}, [], id="valid: one port without name"),
        pytest.param({}, ["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"], id="empty"),
        pytest.param(
            {"notReadyAddresses": [{"ip": "127.0.0.1", "nodeName": "a"}]},
            [
                'subsets[0].notReadyAddresses[0].ip: Invalid value: "127.0.0.1": '
                "may not be in the loopback range (127.0.0.0/8, ::1/128)"
            ],
            id="loopback address",
        ),
        pytest.param(
            {"addresses": [ADDRESS], "ports": [{**PORT, "name": "a"}, {"port": 0}]},
            [
                "subsets[0].ports[1].name: Required value",
                "subsets[0].ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "subsets[0].ports[1].protocol: Required value",
            ],
            id="second port without name, number and protocol",
        ),
        pytest.param(
            {"addresses": [{**ADDRESS, "hostname": "a.b"}], "ports": [{**PORT, "protocol": "HTTP"}]},
            [
                'subsets[0].addresses[0].hostname: Invalid value: "a.b": must not contain dots',
                'subsets[0].ports[0].protocol: Unsupported value: "HTTP": supported values: "SCTP", "TCP", "UDP"',
            ],
            id="host name and protocol",
        ),
    ],
)
def test_endpoints_causes(subset: JSON, causes: list[str]) -> None:
    obj = {"subsets": [subset]}
    assert validator_causes(validate_endpoints, obj) == causes
    assert validator_causes(STRATEGY.validate_update, obj, {}) == causes
    assert validator_causes(STRATEGY.validate_update, obj, obj) == []
