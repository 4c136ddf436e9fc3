"""Changes of EndpointSlices: packing, placeholders, labels, reuse of deleted slices."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controllers.endpointslice.pod_endpoints import DesiredEndpoints, PortGroup
from kubeloop.controllers.endpointslice.slice_changes import SliceChanges, new_slice, reuse_deleted, slice_changes
from kubeloop.controllers.runtime.services.endpoint_slices import endpoint_key, port_key
from kubeloop.kube.objects.api_types import Service, convert

PORTS = [{"name": "", "protocol": "TCP", "port": 80}]


def service(**labels: str) -> Service:
    metadata = {"name": "web", "namespace": "ns", "uid": "u", "labels": labels}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"clusterIP": "10.0.0.9"}}
    return convert(Service, body)


def endpoint(number: int, *, ready: bool = True) -> dict[str, Any]:
    return {"addresses": [f"10.1.0.{number}"], "conditions": {"ready": ready}}


def existing(name: str, *numbers: int, ports: list[Any] = PORTS) -> dict[str, Any]:
    current = new_slice(service(), "IPv4", ports)
    current["metadata"]["name"] = name
    return {**current, "endpoints": [endpoint(number) for number in numbers]}


def changes(slices: list[Any], *endpoints: dict[str, Any], labels: dict[str, str] | None = None) -> SliceChanges:
    group = PortGroup(PORTS, {endpoint_key(it): it for it in endpoints})
    desired = DesiredEndpoints({port_key(PORTS): group} if endpoints else {}, [])
    return slice_changes(service(**(labels or {})), slices, desired, "IPv4", 3)


def sizes(slices: list[Any]) -> list[tuple[str, int]]:
    return [(it["metadata"].get("name", ""), len(it["endpoints"])) for it in slices]


def test_new_endpoints_fill_new_slices():
    result = changes([], *(endpoint(number) for number in range(7)))
    assert sizes(result.create) == [("", 3), ("", 3), ("", 1)]
    created = result.create[0]
    assert created["metadata"]["generateName"] == "web-"
    assert created["metadata"]["labels"] == {
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    assert created["metadata"]["ownerReferences"][0]["uid"] == "u"


def test_unchanged_endpoints_need_no_write():
    result = changes([existing("a", 1, 2)], endpoint(1), endpoint(2))
    assert (result.create, result.update, result.delete, len(result.unchanged)) == ([], [], [], 1)


def test_changed_endpoint_updates_only_its_slice():
    slices = [existing("a", 1, 2), existing("b", 3)]
    result = changes(slices, endpoint(1, ready=False), endpoint(2), endpoint(3))
    assert sizes(result.update) == [("a", 2)]
    assert result.update[0]["endpoints"][0]["conditions"] == {"ready": False}
    assert sizes(result.unchanged) == [("b", 1)]
    assert slices[0]["endpoints"][0]["conditions"] == {"ready": True}


def test_new_endpoints_fill_changed_slices_before_unchanged_ones():
    slices = [existing("a", 1, 2), existing("b", 3, 4)]
    result = changes(slices, *(endpoint(number) for number in (1, 3, 4, 5, 6)))
    assert sizes(result.update) == [("a", 3)]
    assert sizes(result.unchanged) == [("b", 2)]
    assert result.create == []


def test_new_endpoints_fill_the_fullest_unchanged_slice_that_has_room():
    slices = [existing("a", 1), existing("b", 2, 3), existing("c", 4, 5, 6)]
    result = changes(slices, *(endpoint(number) for number in range(1, 8)))
    assert sizes(result.update) == [("b", 3)]
    assert len(result.unchanged) == 2


def test_slice_without_desired_endpoints_is_deleted():
    result = changes([existing("a", 1), existing("b", 2)], endpoint(2))
    assert sizes(result.delete) == [("a", 1)]


def test_service_without_endpoints_has_one_placeholder():
    created = changes([]).create
    assert [(it["endpoints"], it["ports"]) for it in created] == [([], [])]
    placeholder = {**existing("a"), "ports": None, "endpoints": None}
    result = changes([placeholder])
    assert (result.create, result.delete, result.unchanged) == ([], [], [placeholder])


def test_slice_with_other_ports_or_owner_is_deleted():
    other_owner = existing("b", 1)
    other_owner["metadata"]["ownerReferences"][0]["uid"] = "other"
    result = changes([existing("a", 1, ports=[]), other_owner], endpoint(1))
    assert sorted(it["metadata"]["name"] for it in result.delete) == ["a", "b"]
    reuse_deleted(result, service())
    assert sizes(result.update) == [("a", 1)]
    assert sizes(result.delete) == [("b", 1)]
    assert result.create == []


def test_labels_of_service_are_copied_without_reserved_ones():
    labels = {"team": "x", "kubernetes.io/service-name": "other"}
    result = changes([existing("a", 1)], endpoint(1), labels=labels)
    (updated,) = result.update
    assert updated["metadata"]["labels"]["team"] == "x"
    assert updated["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    assert changes([updated], endpoint(1), labels=labels).update == []


TWO_PORTS = [*PORTS, {"name": "dns", "protocol": "UDP", "port": 53}]
STORED = [
    existing("a", 1, 2, 3),
    existing("b", 4),
    existing("c", 5),
    existing("d", 4, 6),  # repeats an endpoint of "b"
    existing("e", 7, ports=TWO_PORTS),
    existing("f", ports=[]),
]


@given(
    slices=st.permutations(STORED),
    numbers=st.permutations([1, 3, 4, 5, 8, 9, 10, 11, 12]),
    other_ports_first=st.booleans(),
)
def test_slices_do_not_depend_on_the_order_of_caches(slices: list[Any], numbers: list[int], other_ports_first: bool):
    def changed(stored: list[Any], order: list[int], *, first: bool) -> SliceChanges:
        groups = {
            port_key(ports): PortGroup(ports, {endpoint_key(endpoint(number)): endpoint(number) for number in order})
            for ports in ((TWO_PORTS, PORTS) if first else (PORTS, TWO_PORTS))
        }
        result = slice_changes(service(), stored, DesiredEndpoints(groups, []), "IPv4", 3)
        reuse_deleted(result, service())
        return result

    assert changed(slices, numbers, first=other_ports_first) == changed(STORED, sorted(numbers), first=False)


def test_placeholder_with_other_labels_is_replaced():
    old, new = existing("a", ports=[]), {"team": "x"}
    result = changes([old], labels=new)
    assert (result.delete, result.unchanged) == ([old], [])
    assert [it["metadata"]["labels"]["team"] for it in result.create] == ["x"]


def test_last_slice_with_ports_is_replaced_by_a_placeholder():
    old = existing("a", 1)
    result = changes([old])
    assert (result.delete, result.unchanged, sizes(result.create)) == ([old], [], [("", 0)])


def test_changes_count_added_and_removed_endpoints_and_writes():
    slices = [existing("a", 1, 2, 3), existing("b", 4)]
    result = changes(slices, *(endpoint(number) for number in (1, 5, 6, 7, 8)))
    assert (result.added, result.removed) == (4, 3)
    assert (len(result.create), len(result.update), len(result.delete)) == (1, 1, 1)
    assert result.number == 3


def test_full_slices_get_no_more_endpoints():
    result = changes([existing("a", 1, 2, 3), existing("b", 4, 5)], *(endpoint(number) for number in range(1, 8)))
    assert sizes(result.update) == []
    assert (sizes(result.create), len(result.unchanged)) == ([("", 2)], 2)
    result = changes([existing("a", 1, 2, 3)], endpoint(1), endpoint(2), *(endpoint(number) for number in (4, 5)))
    assert (sizes(result.update), sizes(result.create)) == ([("a", 3)], [("", 1)])
