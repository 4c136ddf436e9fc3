"""Slices that mirror Endpoints: endpoints, metadata, limit, and the writes that reach them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controllers.endpointslicemirroring.mirrored_slices import MirrorChanges, is_mirrored, mirror_changes

PORTS = [{"name": "http", "port": 80, "protocol": "TCP"}]
DNS = {"name": "dns", "port": 53, "protocol": "UDP"}


def endpoints(*subsets: Any, uid: str = "u", **metadata: Any) -> Any:
    return {"metadata": {"name": "web", "namespace": "ns", "uid": uid, **metadata}, "subsets": [*subsets]}


def subset(*ready: str, not_ready: tuple[str, ...] = (), ports: Any = PORTS) -> Any:
    return {
        "addresses": [{"ip": ip} for ip in ready],
        "notReadyAddresses": [{"ip": ip} for ip in not_ready],
        "ports": ports,
    }


def changes_of(source: Any, existing: Any = (), limit: int = 1000) -> MirrorChanges:
    return mirror_changes(source, existing, limit)


def created(source: Any) -> list[Any]:
    """Return the slices of a first sync, as the API server stores them."""
    slices = changes_of(source).create
    for number, new in enumerate(slices):
        new["metadata"]["name"] = f"web-{number}"
    return slices


def addresses(current: Any) -> list[tuple[str, bool]]:
    return [(it["addresses"][0], it["conditions"]["ready"]) for it in current["endpoints"]]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, True),
        ({"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}, False),
        ({"labels": {"endpointslice.kubernetes.io/skip-mirror": "false"}}, True),
        ({"annotations": {"control-plane.alpha.kubernetes.io/leader": ""}}, False),
    ],
)
def test_label_and_leader_election_exclude_endpoints(metadata, expected):
    assert is_mirrored(endpoints(**metadata)) is expected


def test_new_slice_has_endpoints_ports_labels_and_annotations():
    annotations = {
        "team": "x",
        "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    target = {"kind": "Pod", "namespace": "ns", "name": "p"}
    source = endpoints(
        {"addresses": [{"ip": "010.1.0.1", "hostname": "h", "nodeName": "n", "targetRef": target}],
         "ports": [{"port": 80, "protocol": "TCP", "appProtocol": "h2c"}]},
        labels={"app": "web"},
        annotations=annotations,
    )  # fmt: skip
    (new,) = changes_of(source).create
    assert new["metadata"] == {
        "generateName": "web-",
        "namespace": "ns",
        "labels": {
            "app": "web",
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
        },
        "annotations": {"team": "x"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Endpoints", "name": "web", "uid": "u", "controller": True,
             "blockOwnerDeletion": True}
        ],
    }  # fmt: skip
    assert new["ports"] == [{"name": "", "port": 80, "protocol": "TCP", "appProtocol": "h2c"}]
    assert new["endpoints"] == [
        {"addresses": ["10.1.0.1"], "conditions": {"ready": True}, "hostname": "h", "nodeName": "n",
         "targetRef": target}
    ]  # fmt: skip


def test_each_address_type_and_set_of_ports_has_a_slice():
    source = endpoints(subset("10.1.0.1", "fd00::1", not_ready=("10.1.0.2",)), subset("10.1.0.3", ports=[DNS]))
    slices = {(it["addressType"], it["ports"][0]["name"]): addresses(it) for it in changes_of(source).create}
    assert slices == {
        ("IPv4", "http"): [("10.1.0.1", True), ("10.1.0.2", False)],
        ("IPv6", "http"): [("fd00::1", True)],
        ("IPv4", "dns"): [("10.1.0.3", True)],
    }


def test_subsets_with_equal_ports_share_a_slice():
    (new,) = changes_of(endpoints(subset("10.1.0.1"), subset("10.1.0.2"))).create
    assert addresses(new) == [("10.1.0.1", True), ("10.1.0.2", True)]


def test_addresses_above_the_limit_and_invalid_ones_are_skipped():
    changes = changes_of(endpoints(subset("10.1.0.1", "10.1.0.2", "x", not_ready=("10.1.0.3",))), limit=2)
    assert addresses(changes.create[0]) == [("10.1.0.1", True), ("10.1.0.2", True)]
    assert (changes.invalid, changes.skipped) == (0, 2)
    changes = changes_of(endpoints(subset("0", "10.1.0.1")))
    assert (changes.invalid, changes.skipped, addresses(changes.create[0])) == (1, 1, [("10.1.0.1", True)])


@pytest.mark.parametrize(
    ("after", "counts"),
    [
        pytest.param(endpoints(subset("10.1.0.1", "10.1.0.2")), (0, 0, 0), id="equal"),
        pytest.param(endpoints(subset("10.1.0.1", "10.1.0.2"), uid="v"), (0, 0, 0), id="created again"),
        pytest.param(endpoints(subset("10.1.0.1", "10.1.0.2"), labels={"a": "b"}), (0, 0, 0), id="label"),
        pytest.param(endpoints(subset("10.1.0.1", "10.1.0.2"), annotations={"a": "b"}), (0, 0, 0), id="annotation"),
        pytest.param(endpoints(subset("10.1.0.1", not_ready=("10.1.0.2",))), (0, 1, 0), id="readiness"),
        pytest.param(endpoints(subset("10.1.0.1", "10.1.0.3")), (1, 0, 1), id="other address"),
    ],
)
def test_present_slice_is_updated_for_a_difference_only(after, counts):
    existing = created(endpoints(subset("10.1.0.1", "10.1.0.2")))
    changes = changes_of(after, existing)
    is_equal = after == endpoints(subset("10.1.0.1", "10.1.0.2"))
    assert (len(changes.unchanged), [it["metadata"]["name"] for it in changes.update]) == (
        (1, []) if is_equal else (0, ["web-0"])
    )
    assert (changes.added, changes.updated, changes.removed) == counts
    assert not changes.create
    assert not changes.delete


def test_slice_of_other_ports_is_reused_for_the_new_ports():
    existing = created(endpoints(subset("10.1.0.1", "fd00::1")))
    changes = changes_of(endpoints(subset("10.1.0.1", ports=[DNS])), existing)
    assert [(it["metadata"]["name"], it["addressType"]) for it in changes.update] == [("web-0", "IPv4")]
    assert [it["addressType"] for it in changes.delete] == ["IPv6"]
    assert not changes.create


def test_endpoints_without_addresses_have_no_slice():
    existing = created(endpoints(subset("10.1.0.1", "10.1.0.2")))
    changes = changes_of(endpoints(subset()), existing)
    assert (len(changes.delete), changes.update, changes.create) == (1, [], [])
    assert changes_of(endpoints(), existing).delete == existing
    duplicate = {**existing[0], "metadata": {**existing[0]["metadata"], "name": "web-9"}}
    source = endpoints(subset("10.1.0.1", "10.1.0.2"))
    assert changes_of(source, [*existing, duplicate]).delete == [duplicate]


@given(order=st.permutations(range(5)))
def test_slices_do_not_depend_on_the_order_of_the_cache(order: list[int]):
    source = endpoints(subset("10.0.0.1", "fd00::1"), subset("10.0.0.2", ports=[DNS]))
    stored = [
        *created(endpoints(subset("10.0.0.1", "10.0.0.9"))),
        *created(endpoints(subset("10.0.0.1"))),  # a second slice with the same ports
        *created(endpoints(subset("10.0.0.3", ports=[{**DNS, "port": 54}]))),
        *created(endpoints(subset("10.0.0.4", ports=[{**DNS, "port": 55}]))),
        *created(endpoints(subset("fd00::4", ports=[{**DNS, "port": 55}]))),
    ]
    for name, current in zip("abcde", stored, strict=True):
        current["metadata"]["name"] = name
    assert changes_of(source, [stored[index] for index in order]) == changes_of(source, stored)


@pytest.mark.parametrize(
    ("first", "second", "sizes", "counts"),
    [
        pytest.param([], [subset("10.0.0.1")], {(0, 0), (1, 1)}, (1, 0, 0), id="created"),
        pytest.param([subset("10.0.0.1")], [subset("10.0.0.1")], {(0, 0), (1, 1)}, (0, 0, 0), id="unchanged"),
        pytest.param([subset("10.0.0.1")], [subset("10.0.0.2")], {(0, 0), (1, 1)}, (1, 0, 1), id="replaced"),
        pytest.param(
            [subset("10.0.0.1")], [subset(not_ready=("10.0.0.1",))], {(0, 0), (1, 1)}, (0, 1, 0), id="not ready"
        ),
        pytest.param([subset("10.0.0.1", "10.0.0.2")], [subset()], set(), (0, 0, 0), id="without subsets"),
        pytest.param([subset("10.0.0.1")], [subset("10.0.0.1", "fd00::1")], {(1, 1)}, (1, 0, 0), id="two families"),
    ],
)
def test_changes_count_endpoints_and_slices(first, second, sizes, counts):
    """sizes: (endpoints, slices) of the groups afterwards. counts: endpoints added, updated and removed."""
    changes = changes_of(endpoints(*second), created(endpoints(*first)))
    assert set(changes.sizes) == sizes
    assert (changes.added, changes.updated, changes.removed) == counts


def test_addresses_above_the_limit_are_skipped():
    source = endpoints(subset("10.0.0.1", "1", "10.0.0.2", "10.0.0.3", not_ready=("10.0.0.4",)))
    changes = changes_of(source, limit=2)
    assert [addresses(new) for new in changes.create] == [[("10.0.0.1", True), ("10.0.0.2", True)]]
    assert (changes.skipped, changes.invalid) == (3, 1)
