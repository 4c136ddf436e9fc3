"""Addresses of Services: --resolve, annotation, local endpoints, cluster IP; errors."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.outgoing.service_addresses import (
    ServiceAddresses,
    UnresolvedService,
    is_local,
    parse_addresses,
)
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from kubeloop.kube.user_error import UserError

LOCAL, REMOTE = "127.0.0.1", "192.0.2.1"


def _addresses(resolve: tuple[str, ...] = (), service: JSON | None = None) -> ServiceAddresses:
    store = ObjectStore(seconds=lambda: 0.0)
    annotations = {} if service is None else service.pop("annotations", {})
    if service is not None:
        spec = {"type": "ClusterIP", "clusterIP": "10.0.0.9", "ports": [{"name": "https", "port": 443}], **service}
        metadata = {"name": "web", "namespace": "a", "annotations": annotations}
        store.create(SERVICES, {"kind": "Service", "metadata": metadata, "spec": spec})
    return ServiceAddresses(store, parse_addresses(resolve))


def _with_slice(addresses: ServiceAddresses, *ips: str, ready: bool | None = None, port_name: str = "https") -> None:
    endpoints = [{"addresses": [ip], "conditions": {} if ready is None else {"ready": ready}} for ip in ips]
    addresses._store.create(
        ENDPOINT_SLICES,
        {
            "metadata": {"name": "s", "namespace": "a", "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": endpoints,
            "ports": [{"name": "other", "port": 1}, {"name": port_name, "port": 9443}],
        },
    )


def test_resolve_option_takes_precedence():
    addresses = _addresses(
        ("web.a.svc=localhost:1", "web.a.svc:8443=127.0.0.1:2", "x.example=[::1]:3"),
        {"annotations": {"kubeloop.dev/local-address": "127.0.0.1:5"}},
    )
    assert addresses.of_service("a", "web", 443) == ("localhost", 1)
    assert addresses.of_service("a", "web", 8443) == ("127.0.0.1", 2)
    assert addresses.of_host("x.example", 443) == ("::1", 3)
    assert addresses.of_host("y.example", 443) == ("y.example", 443)
    assert _addresses(("web.a.svc=h:1",)).of_service("a", "web", 443) == ("h", 1)  # without a Service


def test_annotation_of_the_service_is_used():
    addresses = _addresses(service={"annotations": {"kubeloop.dev/local-address": "127.0.0.1:5"}})
    assert addresses.of_service("a", "web", 443) == ("127.0.0.1", 5)
    invalid = _addresses(service={"annotations": {"kubeloop.dev/local-address": "nonsense"}})
    assert invalid.of_service("a", "web", 443) == ("10.0.0.9", 443)


def test_endpoint_on_this_machine_is_used():
    addresses = _addresses(service={})
    _with_slice(addresses, REMOTE, LOCAL)
    assert addresses.of_service("a", "web", 443) == (LOCAL, 9443)


@pytest.mark.parametrize("options", [{"ready": False}, {"port_name": "http"}])
def test_endpoint_that_is_not_ready_or_of_another_port_is_not_used(options: JSON):
    addresses = _addresses(service={})
    _with_slice(addresses, LOCAL, **options)
    assert addresses.of_service("a", "web", 443) == ("10.0.0.9", 443)


def test_endpoints_object_is_used_without_slices():
    addresses = _addresses(service={"ports": [{"port": 443}]})
    subsets = [{"addresses": [{"ip": LOCAL}], "ports": [{"port": 7}]}]
    addresses._store.create(ENDPOINTS, {"metadata": {"name": "web", "namespace": "a"}, "subsets": subsets})
    assert addresses.of_service("a", "web", 443) == (LOCAL, 7)


def test_service_without_local_endpoint_is_reached_as_in_kubernetes():
    assert _addresses(service={}).of_service("a", "web", 443) == ("10.0.0.9", 443)
    external = {"type": "ExternalName", "externalName": "web.example"}
    assert _addresses(service=external).of_service("a", "web", 443) == ("web.example", 443)


@pytest.mark.parametrize(
    ("service", "error"),
    [
        (None, 'service "web" not found'),
        ({"ports": [{"port": 80}]}, 'no service port 443 found for service "web"'),
        ({"clusterIP": "None"}, 'cannot route to service with ClusterIP "None"'),
    ],
)
def test_unresolved_service_has_the_error_of_kube_apiserver(service: JSON | None, error: str):
    with pytest.raises(UnresolvedService) as raised:
        _addresses(service=service).of_service("a", "web", 443)
    assert str(raised.value) == error


@pytest.mark.parametrize("entry", ["web.a.svc", "=127.0.0.1:1", "a=b", "a=b:0", "a=b:65536", "a=:1", "a=b:x"])
def test_invalid_resolve_option_is_a_user_error(entry: str):
    with pytest.raises(UserError, match="--resolve"):
        parse_addresses([entry])


def test_local_addresses_are_those_of_this_machine():
    assert is_local("127.0.0.1")
    assert not is_local(REMOTE)
    assert not is_local("no address")
