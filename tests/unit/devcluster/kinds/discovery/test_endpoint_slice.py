"""Validation of EndpointSlices."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.discovery.endpoint_slice import (
    validate_endpoint_slice,
    validate_endpoint_slice_update,
    validate_fully_qualified_domain_name,
)
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


def endpoint_slice(kind: str = "IPv4", *addresses: str, ports: list[JSON] | None = None, **endpoint: Any) -> JSON:
    return {
        "addressType": kind,
        "ports": ports or [],
        "endpoints": [{"addresses": [*(addresses or ("10.0.0.1",))], **endpoint}],
    }


@pytest.mark.parametrize(
    ("obj", "causes"),
    [
        pytest.param(endpoint_slice(ports=[{"protocol": "TCP"}], nodeName="n"), [], id="valid"),
        pytest.param({}, ["addressType: Required value"], id="no address type"),
        pytest.param(
            endpoint_slice("IPX"),
            ['addressType: Unsupported value: "IPX": supported values: "FQDN", "IPv4", "IPv6"'],
            id="unknown address type",
        ),
        pytest.param(
            {"addressType": "IPv4", "endpoints": [{}]},
            ["endpoints[0].addresses: Required value: must contain at least 1 address"],
            id="no address",
        ),
        pytest.param(
            endpoint_slice("IPv4", "fd00::1"),
            ['endpoints[0].addresses: Invalid value: "fd00::1": must be an IPv4 address'],
            id="address of another family",
        ),
        pytest.param(
            endpoint_slice("IPv6", "fe80::1"),
            [
                'endpoints[0].addresses[0]: Invalid value: "fe80::1": '
                "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
            ],
            id="link-local address",
        ),
        pytest.param(
            endpoint_slice(ports=[{"protocol": "TCP"}, {"name": ""}]),
            ['ports[1].name: Duplicate value: ""', "ports[1].protocol: Required value"],
            id="two ports without name",
        ),
        pytest.param(
            endpoint_slice("IPv4", *(f"10.0.0.{i}" for i in range(101))),
            ["endpoints[0].addresses: Too many: 101: must have at most 100 items"],
            id="101 addresses",
        ),
        pytest.param(
            endpoint_slice(hints={"forZones": [{"name": "a"}, {"name": "a"}]}),
            ['endpoints[0].hints.forZones[1].name: Duplicate value: "a"'],
            id="duplicate hint",
        ),
    ],
)
def test_endpoint_slice_causes(obj: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_endpoint_slice, obj) == causes


def test_address_type_is_immutable() -> None:
    new, old = ({"addressType": kind, "endpoints": []} for kind in ("IPv6", "IPv4"))
    assert validator_causes(validate_endpoint_slice_update, new, old) == [
        'addressType: Invalid value: "IPv6": field is immutable'
    ]


def test_unchanged_endpoints_are_not_validated() -> None:
    old = endpoint_slice("IPv4", "127.0.0.1")
    assert validator_causes(validate_endpoint_slice_update, {**old, "ports": [{"protocol": "TCP"}]}, old) == []


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        pytest.param("example.com.", [], id="with the final dot"),
        pytest.param("", ["name: Required value"], id="empty"),
        pytest.param(
            "localhost",
            ['name: Invalid value: "localhost": should be a domain with at least two segments separated by dots'],
            id="one segment",
        ),
        pytest.param(
            f"{'a' * 64}.com",
            [f'name: Invalid value: "{"a" * 64}": must be no more than 63 characters'],
            id="long segment",
        ),
    ],
)
def test_fully_qualified_domain_name_causes(name: str, causes: list[str]) -> None:
    assert validator_causes(validate_fully_qualified_domain_name, "name", name) == causes
