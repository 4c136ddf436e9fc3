"""Release of claims: ended reservations, deallocation, finalizer, deletion."""

from __future__ import annotations

import pytest

from kubeloop.controllers.resourceclaim.claim_release import consumer_state, is_unused, plan_release
from kubeloop.kube.objects.api_types import convert
from kubeloop.kube.objects.device_types import ResourceClaimConsumerReference
from kubeloop.kube.objects.workload_types import PodGroup
from support.objects.resource_claims import ALLOCATION, FINALIZER, consumer, pod_with_claims, resource_claim

NOW = "2026-01-02T03:04:05Z"
RUNNING = pod_with_claims(nodeName="n", status={"phase": "Running"})
FINISHED = pod_with_claims(nodeName="n", status={"phase": "Succeeded"})


def reference(**fields: str) -> ResourceClaimConsumerReference:
    return convert(ResourceClaimConsumerReference, {**consumer(), **fields})


@pytest.mark.parametrize(
    ("fields", "pod", "deleted", "state"),
    [
        pytest.param({}, RUNNING, [], "active", id="running"),
        pytest.param({}, FINISHED, [], "ended", id="finished"),
        pytest.param({"uid": "replaced"}, RUNNING, [], "ended", id="replaced"),
        pytest.param({}, None, [], "unknown", id="not cached"),
        pytest.param({}, None, ["pod-uid"], "ended", id="deleted"),
        pytest.param({"apiGroup": "x", "resource": "things"}, None, ["pod-uid"], "active", id="another kind"),
        pytest.param({"resource": "things"}, None, ["pod-uid"], "active", id="another core kind"),
    ],
)
def test_state_of_a_consumer(fields, pod, deleted, state):
    pods = {} if pod is None else {"web": pod}
    assert consumer_state(reference(**fields), pods.get, deleted.__contains__) == state


@pytest.mark.parametrize(
    ("groups", "deleted", "state"),
    [
        pytest.param({"gang": "group-uid"}, [], "active", id="cached"),
        pytest.param({"gang": "replaced"}, [], "ended", id="replaced"),
        pytest.param({}, [], "unknown", id="not cached"),
        pytest.param({}, ["group-uid"], "ended", id="deleted"),
        pytest.param(None, ["group-uid"], "active", id="groups share no claims"),
    ],
)
def test_state_of_a_group_as_consumer(groups, deleted, state):
    reservation = reference(apiGroup="scheduling.k8s.io", resource="podgroups", name="gang", uid="group-uid")
    find_group = None
    if groups is not None:
        cached = {name: convert(PodGroup, {"metadata": {"name": name, "uid": uid}}) for name, uid in groups.items()}
        find_group = cached.get
    assert consumer_state(reservation, {}.get, deleted.__contains__, find_group) == state


USED = {"allocation": ALLOCATION, "reservedFor": [consumer(), consumer("other", "o")]}
UNUSED = {"allocation": ALLOCATION}
OTHER = reference(name="other", uid="o")


@pytest.mark.parametrize(
    ("status", "remaining", "metadata", "written", "removes_finalizer"),
    [
        pytest.param(USED, [reference(), OTHER], {}, {}, False, id="all reservations active"),
        pytest.param(USED, [OTHER], {}, {"reservedFor": [consumer("other", "o")]}, False, id="one ended"),
        pytest.param(USED, [], {}, {"reservedFor": None, "allocation": None}, True, id="all ended"),
        pytest.param(USED, [], {"finalizers": ()}, {"reservedFor": None}, False, id="not allocated by a scheduler"),
        pytest.param(UNUSED, [], {}, {}, False, id="never reserved"),
        pytest.param(UNUSED, [], {"deletionTimestamp": NOW}, {"allocation": None}, True, id="deleted, allocated"),
        pytest.param({}, [], {"deletionTimestamp": NOW}, {}, True, id="deleted"),
        pytest.param(USED, [reference(), OTHER], {"deletionTimestamp": NOW}, {}, False, id="deleted, in use"),
        pytest.param({}, [], {"deletionTimestamp": NOW, "finalizers": ("x",)}, {}, False, id="deleted, no finalizer"),
    ],
)
def test_release_of_a_claim(status, remaining, metadata, written, removes_finalizer):
    claim = resource_claim(status=status, **{"finalizers": (FINALIZER, "other"), **metadata})
    release = plan_release(claim, remaining)
    assert (release.status, release.removes_finalizer) == (written, removes_finalizer)


@pytest.mark.parametrize(
    ("owner", "pod", "unused"),
    [
        pytest.param("pod-uid", FINISHED, True, id="finished"),
        pytest.param("pod-uid", RUNNING, False, id="running"),
        pytest.param("replaced", RUNNING, True, id="replaced"),
        pytest.param("pod-uid", None, False, id="unknown"),
        pytest.param("", FINISHED, False, id="without owner"),
    ],
)
def test_claim_of_a_pod_is_unused_when_the_pod_is_done(owner, pod, unused):
    assert is_unused(resource_claim(owner=owner), {"web": pod}.get) is unused
