"""Identity of ports and endpoints of EndpointSlices."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.runtime.services.endpoint_slices import (
    endpoint_key,
    port_key,
    same_endpoint,
    service_key,
    slice_name_prefix,
    sorted_ports,
)

POD = {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u"}
ENDPOINT: dict[str, Any] = {"addresses": ["10.1.0.1"], "conditions": {"ready": True}, "targetRef": POD}


def test_port_key_ignores_order():
    http, dns = {"name": "http", "port": 80}, {"name": "dns", "port": 53}
    assert port_key([http, dns]) == port_key([dns, http])
    assert port_key([http]) != port_key([dns])
    assert port_key(None) == port_key([])


def test_ports_are_in_the_order_of_kube_controller_manager():
    http = {"name": "http", "port": 80, "protocol": "TCP"}
    dns = {"name": "dns", "port": 53, "protocol": "UDP", "appProtocol": "x.example/dns"}
    assert sorted_ports([dns, http]) == sorted_ports([http, dns]) == [http, dns]


@pytest.mark.parametrize(
    ("changes", "same_key", "same"),
    [
        ({"hints": {"forZones": [{"name": "a"}]}}, True, True),
        ({"targetRef": {**POD, "resourceVersion": "7"}}, True, True),
        ({"targetRef": {**POD, "uid": "v"}}, True, False),
        ({"targetRef": {**POD, "name": "q"}}, False, False),
        ({"conditions": {"ready": False}}, True, False),
        ({"zone": "a"}, True, False),
        ({"nodeName": "n"}, True, False),
        ({"hostname": "h"}, False, True),
        ({"addresses": ["10.1.0.2"]}, False, True),
    ],
)
def test_identity_and_equality_of_endpoints(changes: Any, same_key: bool, same: bool):
    other = {**ENDPOINT, **changes}
    assert (endpoint_key(ENDPOINT) == endpoint_key(other), same_endpoint(ENDPOINT, other)) == (same_key, same)


def test_service_of_a_slice_is_that_of_its_label():
    metadata = {"namespace": "ns", "labels": {"kubernetes.io/service-name": "web"}}
    assert service_key({"metadata": metadata}) == "ns/web"
    assert service_key({"metadata": {"namespace": "ns"}}) == "ns/"


def test_name_of_a_slice_has_room_for_its_suffix():
    assert slice_name_prefix("web") == "web-"
    assert slice_name_prefix("w" * 252) == "w" * 252
