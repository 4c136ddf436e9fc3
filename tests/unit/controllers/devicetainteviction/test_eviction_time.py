"""Times at which taints of devices evict the Pods of claims."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.controllers.devicetainteviction.eviction_time import (
    Eviction,
    RuleReference,
    claim_eviction,
    pod_eviction,
)
from kubeloop.controllers.devicetainteviction.tainted_devices import TaintedDevices
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.device_types import DeviceTaintRule, ResourceClaim
from kubeloop.kube.values.times import LATEST
from support.objects.devices import allocated, claim, device, device_slice, typed
from support.objects.resource_claims import consumer, pod_claim_status, pod_with_claims, resource_claim

T0 = datetime(2026, 3, 1, tzinfo=UTC)
SHARED = {"name": "gpu", "resourceClaimName": "shared"}
TEMPLATED = {"name": "gpu", "resourceClaimTemplateName": "gpus"}


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def taint(key: str = "broken", added: float = 0, **fields):
    return {"key": f"example.com/{key}", "effect": "NoExecute", "timeAdded": at(added), **fields}


def devices(*taints) -> TaintedDevices:
    """Return the devices a/gpu-0 with these taints and a/gpu-1 with another one, an hour later."""
    result = TaintedDevices()
    others = [device("gpu-0", taints=list(taints)), device("gpu-1", taints=[taint("other", 3600)])]
    result.change(None, typed(device_slice("a", *others)))
    return result


def allocated_claim(*names: str, tolerations=()) -> ResourceClaim:
    status = allocated(*(("a", name) for name in names or ("gpu-0",)), tolerations=list(tolerations))
    return typed(claim(status=status))


def toleration(seconds: int | None = None, **fields):
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"operator": "Exists", "effect": "NoExecute", **limit, **fields}


def rule(name: str = "all", *, added: float = 0, **selector: str) -> DeviceTaintRule:
    spec = {"deviceSelector": selector, "taint": taint(name, added)}
    return convert(DeviceTaintRule, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec})


@pytest.mark.parametrize(
    ("taints", "tolerations", "seconds"),
    [
        ([taint(added=5)], [], 5),
        ([taint(added=5), taint("hot", 3)], [], 3),
        ([taint()], [toleration()], None),
        ([taint()], [toleration(60)], 60),
        ([taint()], [toleration(60), toleration(30)], 30),
        ([taint()], [toleration(60), toleration()], None),
        ([taint()], [toleration(-5)], 0),
        ([taint()], [toleration(60, key="example.com/hot")], 0),
        ([taint()], [{"operator": "Exists"}], 0),  # tolerations of every effect do not prevent evictions
        ([taint(), taint("hot", 10)], [toleration(key="example.com/broken")], 10),
        ([], [], None),
    ],
)
def test_eviction_of_a_claim_is_the_earliest_of_its_taints(taints, tolerations, seconds):
    eviction = claim_eviction(allocated_claim(tolerations=tolerations), devices(*taints), [])
    assert (eviction.when if eviction is not None else None) == (None if seconds is None else at(seconds))


def test_every_allocated_device_counts():
    assert claim_eviction(allocated_claim("gpu-1", "gpu-0"), devices(taint(added=5)), []) == Eviction(at(5))
    assert claim_eviction(allocated_claim("gpu-1"), devices(taint(added=5)), []) == Eviction(at(3600))


def test_claim_without_allocation_and_taint_without_time_evict_nothing():
    assert claim_eviction(typed(claim()), devices(taint()), []) is None
    assert claim_eviction(allocated_claim(), devices({"key": "example.com/x", "effect": "NoExecute"}), []) is None


@pytest.mark.parametrize(
    ("added", "seconds", "when"),
    [
        pytest.param(T0, 2**63 - 1, T0 - timedelta(seconds=1), id="wraps around, as in Go"),
        pytest.param(datetime(9999, 12, 30, tzinfo=UTC), 9_000_000_000, LATEST, id="after the year 9999"),
    ],
)
def test_very_long_toleration_has_the_time_of_go(added, seconds, when):
    tainted = devices(taint(timeAdded=added))
    eviction = claim_eviction(allocated_claim(tolerations=[toleration(seconds)]), tainted, [])
    assert eviction == Eviction(when)


def test_rules_are_named_among_the_reasons():
    rules = [rule("all", added=7), rule("pool", added=9, pool="a"), rule("elsewhere", driver="nic.example.com")]
    names = frozenset(RuleReference(name, f"uid-{name}") for name in ("all", "pool"))
    assert claim_eviction(allocated_claim(), devices(), rules) == Eviction(at(7), names)
    assert claim_eviction(allocated_claim(tolerations=[toleration()]), devices(), rules) is None


def test_rule_without_selector_evicts_nothing():
    every_device = convert(DeviceTaintRule, {"metadata": {"name": "x"}, "spec": {"taint": taint()}})
    assert claim_eviction(allocated_claim(), devices(), [every_device]) is None


# --- pods -------------------------------------------------------------------------------------------------------------


def find_in(**claims):
    """Return a lookup of claims of the namespace ns: eviction by name of the claim, or claim and eviction."""
    reserved = {"reservedFor": [consumer()]}
    entries = {
        f"ns/{name}": entry
        if entry is not None and not isinstance(entry, Eviction)
        else (resource_claim(name, status=reserved), entry)
        for name, entry in claims.items()
    }
    return entries.get


def test_pod_is_evicted_at_the_earliest_time_of_its_claims():
    first, second = RuleReference("first", "1"), RuleReference("second", "2")
    find = find_in(shared=Eviction(at(9), frozenset({first})), other=Eviction(at(4), frozenset({second})), fine=None)
    not_created = {"name": "new", "resourceClaimTemplateName": "template"}
    entries = [{"name": name, "resourceClaimName": name} for name in ("shared", "other", "fine", "missing")]
    for order in itertools.permutations([not_created, *entries]):
        pod = pod_with_claims(*order, nodeName="a")
        assert pod_eviction(pod, find) == Eviction(at(4), frozenset({first, second}))


def test_pod_without_node_is_not_evicted():
    assert pod_eviction(pod_with_claims(SHARED), find_in(shared=Eviction(T0))) is None


def test_claim_that_is_reserved_for_others_does_not_count():
    claimed = resource_claim("shared", status={"reservedFor": [consumer("web", "other-uid")]})
    assert pod_eviction(pod_with_claims(SHARED, nodeName="a"), find_in(shared=(claimed, Eviction(T0)))) is None


@pytest.mark.parametrize(("owner", "evicted"), [("pod-uid", True), ("other-uid", False)])
def test_claim_of_a_template_counts_if_it_belongs_to_the_pod(owner, evicted):
    claimed = resource_claim("web-gpu", owner=owner, status={"reservedFor": [consumer()]})
    pod = pod_with_claims(TEMPLATED, nodeName="a", status=pod_claim_status(gpu="web-gpu"))
    find = {"ns/web-gpu": (claimed, Eviction(T0))}.get
    assert (pod_eviction(pod, find) is not None) == evicted


def test_claims_that_are_not_created_or_not_needed_do_not_count():
    assert pod_eviction(pod_with_claims(TEMPLATED, nodeName="a"), find_in()) is None
    pod = pod_with_claims(TEMPLATED, nodeName="a", status=pod_claim_status(gpu=None))
    assert pod_eviction(pod, find_in()) is None


@pytest.mark.parametrize("groups", [True, False])
def test_claim_of_the_pod_group_counts_with_its_gate(groups):
    reserved = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "workers", "uid": "group-uid"}
    claimed = resource_claim("shared", status={"reservedFor": [reserved]})
    pod = pod_with_claims(SHARED, nodeName="a", schedulingGroup={"podGroupName": "workers"})
    evicted = pod_eviction(pod, find_in(shared=(claimed, Eviction(T0))), groups=groups)
    assert (evicted is not None) == groups
