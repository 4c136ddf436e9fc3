"""Owners of volume claims by persistentVolumeClaimRetentionPolicy."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.statefulset.claim_owners import (
    awaits_former_pod,
    has_other_controller,
    owner_references_by_policy,
    owners_match_policy,
)
from kubeloop.kube.objects.api_types import Pod, StatefulSet, convert
from kubeloop.kube.objects.storage_types import PersistentVolumeClaim
from support.objects.stateful_sets import stateful_set

Json = dict[str, Any]


def reference(api_version: str, kind: str, name: str, uid: str, *, controller: bool = True) -> Json:
    common = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}
    return {**common, "controller": True, "blockOwnerDeletion": True} if controller else common


STS = reference("apps/v1", "StatefulSet", "web", "sts-uid")
FORMER_STS = reference("apps/v1", "StatefulSet", "web", "former")
POD, FORMER_POD = reference("v1", "Pod", "web-0", "pod-uid"), reference("v1", "Pod", "web-0", "former")
OTHER = reference("example.com/v1", "Backup", "nightly", "backup")
OTHER_OWNER = reference("example.com/v1", "Backup", "nightly", "backup", controller=False)


def web(deleted: str, scaled: str, replicas: int = 1) -> StatefulSet:
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    body = stateful_set(replicas=replicas, claims=("data",), persistentVolumeClaimRetentionPolicy=policy)
    body["metadata"].update(namespace="ns", uid="sts-uid")
    return convert(StatefulSet, body)


PRESENT = convert(Pod, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "uid": "pod-uid"}})


def claim(*owners: Json) -> PersistentVolumeClaim:
    return convert(PersistentVolumeClaim, {"metadata": {"name": "data-web-0", "ownerReferences": list(owners)}})


@pytest.mark.parametrize("current", [(), (STS,), (POD,), (STS, POD)], ids=["none", "set", "pod", "both"])
@pytest.mark.parametrize(
    ("deleted", "scaled", "replicas", "owners"),
    [
        pytest.param("Retain", "Retain", 1, [], id="retain"),
        pytest.param("Delete", "Retain", 1, [STS], id="whenDeleted"),
        pytest.param("Delete", "Retain", 0, [STS], id="whenDeleted, scaled down"),
        pytest.param("Retain", "Delete", 1, [], id="whenScaled"),
        pytest.param("Retain", "Delete", 0, [POD], id="whenScaled, scaled down"),
        pytest.param("Delete", "Delete", 1, [STS], id="both"),
        pytest.param("Delete", "Delete", 0, [POD], id="both, scaled down"),
    ],
)
def test_owners_by_policy(deleted, scaled, replicas, owners, current):
    sts = web(deleted, scaled, replicas)
    assert owners_match_policy(claim(*current), sts, PRESENT) == (list(current) == owners)
    assert owner_references_by_policy(claim(*current, OTHER_OWNER), sts, PRESENT) == [OTHER_OWNER, *owners]


@pytest.mark.parametrize(
    ("owners", "policy", "conflicts", "matches", "after"),
    [
        pytest.param((OTHER,), "Delete", True, True, [OTHER], id="other controller keeps the claim"),
        pytest.param((OTHER, STS), "Delete", True, False, [OTHER], id="conflicting owner is removed"),
        pytest.param((OTHER,), "Retain", False, True, [OTHER], id="retain has no conflict"),
        pytest.param((FORMER_STS,), "Delete", True, True, [], id="claim of a former StatefulSet is left alone"),
        pytest.param((FORMER_POD,), "Delete", True, True, [], id="claim of a former Pod is left alone"),
        pytest.param((FORMER_STS, POD), "Delete", True, True, [], id="former StatefulSet, current Pod"),
        pytest.param((STS, FORMER_POD), "Delete", True, True, [], id="current StatefulSet, former Pod"),
    ],
)
def test_claims_with_other_owners(owners, policy, conflicts, matches, after):
    sts = web(policy, policy)
    assert has_other_controller(claim(*owners), sts, PRESENT) == conflicts
    assert owners_match_policy(claim(*owners), sts, PRESENT) == matches
    assert owner_references_by_policy(claim(*owners), sts, PRESENT) == after


def test_owner_that_is_no_controller_becomes_the_controller():
    plain = reference("apps/v1", "StatefulSet", "web", "sts-uid", controller=False)
    sts = web("Delete", "Retain")
    assert not owners_match_policy(claim(plain), sts, PRESENT)
    assert owner_references_by_policy(claim(plain), sts, PRESENT) == [STS]


@pytest.mark.parametrize(
    ("owners", "scaled", "awaits"),
    [
        ((FORMER_POD,), "Delete", True),
        ((FORMER_POD,), "Retain", False),
        ((STS,), "Delete", False),
        ((), "Delete", False),
    ],
)
def test_new_pod_waits_for_deletion_of_a_former_pods_claim(owners, scaled, awaits):
    assert awaits_former_pod(claim(*owners), web("Retain", scaled), "web-0") == awaits


def test_claims_of_a_set_without_policy_are_retained():
    body = stateful_set(replicas=0, claims=("data",))
    body["metadata"].update(namespace="ns", uid="sts-uid")
    sts = convert(StatefulSet, {**body, "spec": {**body["spec"], "persistentVolumeClaimRetentionPolicy": None}})
    assert owners_match_policy(claim(), sts, PRESENT)
    assert owner_references_by_policy(claim(STS, OTHER_OWNER), sts, PRESENT) == [OTHER_OWNER]
    assert not has_other_controller(claim(OTHER), sts, PRESENT)
