"""Subsets of Endpoints that are repacked."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.runtime.services.subset_packing import repacked_subsets

A, B = {"ip": "10.1.0.1"}, {"ip": "10.1.0.2"}
HTTP, DNS = {"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}


@pytest.mark.parametrize(
    ("subsets", "expected"),
    [
        pytest.param([], [], id="none"),
        pytest.param(
            [{"addresses": [A], "ports": [HTTP]}, {"addresses": [B], "ports": [HTTP]}],
            [{"addresses": [A, B], "ports": [HTTP]}],
            id="equal ports",
        ),
        pytest.param(
            [{"addresses": [A], "ports": [DNS]}, {"addresses": [A], "ports": [HTTP]}],
            [{"addresses": [A], "ports": [HTTP, DNS]}],
            id="equal addresses",
        ),
        pytest.param(
            [{"addresses": [A], "ports": [HTTP]}, {"notReadyAddresses": [A], "ports": [HTTP]}],
            [{"notReadyAddresses": [A], "ports": [HTTP]}],
            id="not ready wins",
        ),
        pytest.param([{"addresses": [A]}], [{"addresses": [A]}], id="without ports"),
        pytest.param(
            [{"addresses": [{**A, "hostname": "h"}, A], "ports": [HTTP]}],
            [{"addresses": [{**A, "hostname": "h"}], "ports": [HTTP]}],
            id="the first of equal addresses",
        ),
    ],
)
def test_subsets_list_each_address_once_per_port(subsets: Any, expected: Any):
    (repacked, wanted) = (
        [{**it, "ports": sorted(it.get("ports", ()), key=lambda port: port["port"])} for it in listed]
        for listed in (repacked_subsets(subsets), expected)
    )
    assert repacked == wanted
