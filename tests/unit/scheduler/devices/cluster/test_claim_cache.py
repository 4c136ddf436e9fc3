"""Claim cache: writes that the informer does not show yet, and pending allocations."""

from __future__ import annotations

from kubeloop.kube.objects.api_types import ObjectMeta, Pod
from kubeloop.scheduler.devices.cluster.claim_cache import ClaimCache
from support.objects.devices import FilledDevices, allocated, claim, typed

USED = allocated(("a", "d"))
POD, OTHER = (Pod(metadata=ObjectMeta(name=name, uid=name)) for name in "pq")


def in_use(devices):
    return devices.usage.pool(("gpu.example.com", "a")).is_allocated("d")


def test_assumed_claim_is_used_until_the_informer_shows_it():
    devices = FilledDevices(claim("c", version="5"))
    assert isinstance(devices.claims, ClaimCache)
    devices.claims.assume(typed(claim("c", version="7", status=USED)))
    assert devices.claims.get("default/c").metadata.resource_version == "7"
    devices.apply(claim("c", version="6"))  # an older state, which arrives late
    assert in_use(devices)
    devices.apply(claim("c", version="8"))
    assert devices.claims.get("default/c").metadata.resource_version == "8"
    assert not in_use(devices)


def test_older_response_and_other_claim_are_not_assumed():
    devices = FilledDevices(claim("c", version="5"))
    devices.claims.assume(typed(claim("c", version="4", status=USED)))
    devices.claims.assume(typed(claim("c", version="9", status=USED, metadata={"uid": "other"})))
    assert devices.claims.get("default/c").metadata.resource_version == "5"
    assert not in_use(devices)


def test_pending_allocation_uses_devices_until_it_is_removed():
    devices = FilledDevices(claim("c"))
    entry = devices.claims.get("default/c")
    devices.claims.add_pending(entry.metadata.uid, typed(claim("c", status=USED)).status.allocation, POD)
    devices.apply(claim("c", version="2"))
    assert in_use(devices)
    devices.claims.release_pending(entry, POD)
    assert not in_use(devices)


def test_shared_pending_allocation_uses_devices_until_the_last_pod_releases_it():
    devices = FilledDevices(claim("c"))
    entry = devices.claims.get("default/c")
    first, second = (typed(claim("c", status=allocated(("a", name)))).status.allocation for name in "de")
    devices.claims.add_pending(entry.metadata.uid, first, POD)
    devices.claims.add_pending(entry.metadata.uid, second, OTHER)
    assert devices.claims.pending_allocation(entry.metadata.uid) is first
    devices.claims.release_pending(entry, POD)
    devices.claims.release_pending(entry, POD)
    assert in_use(devices)  # the other pod has not released it
    devices.claims.release_pending(entry, OTHER)
    assert not in_use(devices)
    assert devices.claims.pending_allocation(entry.metadata.uid) is None


def test_written_allocation_stays_when_the_pending_one_is_removed():
    devices = FilledDevices(claim("c"))
    written = typed(claim("c", version="2", status=USED))
    devices.claims.add_pending(written.metadata.uid, written.status.allocation, POD)
    devices.claims.assume(written)
    devices.claims.remove_pending(written)
    assert in_use(devices)


def test_deleted_and_replaced_claims_free_their_devices():
    devices = FilledDevices(claim("c", status=USED))
    assert in_use(devices)
    devices.delete(claim("c", version="2", status=USED))
    assert not in_use(devices)
    devices.apply(claim("c", version="3", status=USED))
    devices.apply(claim("c", version="4", metadata={"uid": "other"}))
    assert not in_use(devices)


def test_special_claim_of_a_pod(pod):
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    special = claim("special", owner="uid-p", metadata={"annotations": annotations})
    devices = FilledDevices(claim("c", owner="uid-p"))
    owner = pod("p", uid="uid-p")
    assert devices.claims.special_claim_of(owner) is None
    devices.apply(special)
    assert devices.claims.special_claim_of(owner).metadata.name == "special"
    assert devices.claims.special_claim_of(pod("q")) is None
    devices.delete(special)
    assert devices.claims.special_claim_of(owner) is None
