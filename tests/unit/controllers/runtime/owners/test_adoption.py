"""Claims of a controller: adoption and release of objects by selector and controller reference."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.runtime.owners.adoption import (
    CannotAdopt,
    Claim,
    ClaimErrors,
    adoption_patch,
    check_can_adopt,
    claim_cached,
    claim_objects,
    decide_claim,
    possible_owners,
    release_patch,
)
from kubeloop.kube.errors import Conflict, NotFound
from kubeloop.kube.objects.api_types import ApiStatus, LabelSelector, Pod, ReplicaSet, convert
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.objects.resources import PODS, REPLICA_SETS
from kubeloop.kube.selectors.selectors import selector_from

SELECTOR = selector_from(LabelSelector(match_labels={"app": "web"}))
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
OURS = {"ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "uid": "rs-uid", "controller": True}]}
OTHER = {"ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "uid": "other", "controller": True}]}
NOT_CONTROLLER = {"ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "uid": "other"}]}


def replica_set(**metadata: Any) -> ReplicaSet:
    return convert(
        ReplicaSet, {"kind": "ReplicaSet", "metadata": {"name": "rs", "namespace": "ns", "uid": "rs-uid", **metadata}}
    )


def pod(name: str = "p", *, app: str = "web", **metadata: Any) -> Pod:
    labels = {"app": app}
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": labels, **metadata}
    return convert(Pod, {"kind": "Pod", "metadata": metadata})


@pytest.mark.parametrize(
    ("owner", "obj", "claim"),
    [
        pytest.param(replica_set(), pod(**OURS), Claim.OWNED, id="owned and selected"),
        pytest.param(replica_set(), pod(app="db", **OURS), Claim.RELEASE, id="owned, not selected"),
        pytest.param(replica_set(**DELETED), pod(app="db", **OURS), Claim.IGNORE, id="deleted owner releases nothing"),
        pytest.param(replica_set(), pod(**OTHER), Claim.IGNORE, id="owned by another UID of the same name"),
        pytest.param(replica_set(), pod(), Claim.ADOPT, id="orphan"),
        pytest.param(replica_set(), pod(**NOT_CONTROLLER), Claim.ADOPT, id="owner that is no controller"),
        pytest.param(replica_set(), pod(app="db"), Claim.IGNORE, id="orphan, not selected"),
        pytest.param(replica_set(), pod(**DELETED), Claim.IGNORE, id="orphan being deleted"),
        pytest.param(replica_set(**DELETED), pod(), Claim.IGNORE, id="deleted owner adopts nothing"),
        pytest.param(replica_set(), pod(namespace="other"), Claim.IGNORE, id="orphan of another namespace"),
    ],
)
def test_decide_claim(owner, obj, claim):
    assert decide_claim(owner, obj, SELECTOR) is claim


def test_object_that_is_no_member_is_released_and_not_adopted():
    assert decide_claim(replica_set(), pod(**OURS), SELECTOR, is_member=False) is Claim.RELEASE
    assert decide_claim(replica_set(), pod(), SELECTOR, is_member=False) is Claim.IGNORE


@pytest.mark.parametrize(
    ("fresh", "message"),
    [
        pytest.param(replica_set(uid="new"), "got uid new, wanted rs-uid", id="recreated"),
        pytest.param(replica_set(**DELETED), "has just been deleted", id="deleted"),
    ],
)
def test_check_can_adopt_refuses_changed_owner(fresh, message):
    check_can_adopt(replica_set(), replica_set())
    with pytest.raises(CannotAdopt, match=message):
        check_can_adopt(replica_set(), fresh)


async def claim(pods: list[Pod], fresh: ReplicaSet, failures: dict[str, Exception] | None = None) -> tuple[Any, ...]:
    """Claim these Pods. Returns the result or its ClaimErrors, the patches by name, and the number of owner reads."""
    patches: dict[str, Any] = {}
    reads = 0

    async def read_fresh() -> ReplicaSet:
        nonlocal reads
        reads += 1
        return fresh

    async def patch(obj: Pod, body: Any, claim: Claim) -> None:
        patches[obj.metadata.name] = body
        if failures and obj.metadata.name in failures:
            raise failures[obj.metadata.name]

    try:
        claimed = await claim_objects(replica_set(), pods, SELECTOR, read_fresh=read_fresh, patch=patch)
        return [obj.metadata.name for obj in claimed], patches, reads
    except ClaimErrors as errors:
        return errors, patches, reads


async def test_claim_objects_patches_orphans_and_released_pods():
    orphans, released = [pod("a"), pod("b")], pod("c", app="db", **OURS)
    claimed, patches, reads = await claim([*orphans, released, pod("d", **OURS)], replica_set())
    assert claimed == ["a", "b", "d"]
    assert patches == {
        "a": adoption_patch(replica_set(), orphans[0]),
        "b": adoption_patch(replica_set(), orphans[1]),
        "c": release_patch(replica_set(), released),
    }
    assert reads == 1


async def test_claim_objects_adopts_nothing_for_recreated_owner():
    errors, patches, reads = await claim([pod("a"), pod("b"), pod("c", **OURS)], replica_set(uid="new"))
    assert [obj.metadata.name for obj in errors.claimed] == ["c"]
    assert [str(error).split(":")[0] for error in errors.errors] == [
        "can't adopt Pod ns/a (a)",
        "can't adopt Pod ns/b (b)",
    ]
    assert (patches, reads) == ({}, 1)


async def test_claim_objects_ignores_not_found_and_collects_conflicts():
    status = ApiStatus(message="the object changed")
    failures = {"a": NotFound(status), "b": Conflict(status), "c": NotFound(status)}
    errors, _, _ = await claim([pod("a"), pod("b"), pod("c", app="db", **OURS), pod("d")], replica_set(), failures)
    assert errors.errors == (failures["b"],)
    assert [obj.metadata.name for obj in errors.claimed] == ["d"]


@pytest.mark.parametrize(
    ("labels", "selector", "selects"),
    [
        pytest.param({"app": "web"}, LabelSelector(match_labels={"app": "web"}), True, id="matching labels"),
        pytest.param({"app": "db"}, LabelSelector(match_labels={"app": "web"}), False, id="other labels"),
        pytest.param({}, LabelSelector(match_labels={"app": "web"}), False, id="no labels"),
        pytest.param({"app": "web"}, LabelSelector(), False, id="empty selector"),
        pytest.param({"app": "web"}, None, False, id="no selector"),
        pytest.param({"app": "web"}, LabelSelector(match_labels={"app": "-"}), False, id="invalid selector"),
    ],
)
def test_possible_owners(labels, selector, selects):
    owners, orphan = [replica_set()], pod(labels=labels)
    assert list(possible_owners(orphan, owners, lambda owner: selector)) == (owners if selects else [])


def test_owner_with_an_invalid_selector_hides_no_other():
    invalid = convert(LabelSelector, {"matchExpressions": [{"key": "app", "operator": "Nonsense"}]})
    selectors = {"invalid": invalid, "valid": LabelSelector(match_labels={"app": "web"})}
    owners = [replica_set(name=name) for name in selectors]
    selecting = possible_owners(pod(), owners, lambda owner: selectors[owner.metadata.name])
    assert [owner.metadata.name for owner in selecting] == ["valid"]


@pytest.mark.parametrize(
    ("finalizer", "added", "removed"),
    [
        pytest.param("", {}, {}, id="no finalizer"),
        pytest.param(
            "f", {"finalizers": ["f"]}, {"$deleteFromPrimitiveList/finalizers": ["f"]}, id="with the finalizer of Jobs"
        ),
    ],
)
def test_patches_of_adoption_and_release(finalizer, added, removed):
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "rs",
        "uid": "rs-uid",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    owner = convert(
        ReplicaSet,
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs", "namespace": "ns", "uid": "rs-uid"}},
    )
    assert adoption_patch(owner, pod(), finalizer) == {
        "metadata": {"ownerReferences": [reference], "uid": "p", **added}
    }
    assert release_patch(owner, pod(), finalizer) == {
        "metadata": {"uid": "p", "ownerReferences": [{"$patch": "delete", "uid": "rs-uid"}], **removed}
    }


@pytest.mark.virtual_time
async def test_claim_cached_adopts_by_patches_and_reports_the_responses(fake_apiserver):
    fake_apiserver.add(REPLICA_SETS, "rs")
    for name, labels in (("orphan", {"app": "web"}), ("other", {"app": "db"})):
        fake_apiserver.add(PODS, name, labels=labels)
    owner = await fake_apiserver.client.get(REPLICA_SETS, "rs", "ns")
    pods = (await fake_apiserver.client.list_all(PODS, "ns")).items
    written: list[tuple[str, bool, Claim]] = []
    claimed = await claim_cached(
        fake_apiserver.client,
        REPLICA_SETS,
        owner,
        PODS,
        pods,
        SELECTOR,
        fake_apiserver.context.traces.reconcile("replicaset", owner.key, ""),
        wrote=lambda pod, claim: written.append((pod.metadata.name, controller_of(pod.metadata) is not None, claim)),
    )
    assert [pod.metadata.name for pod in claimed] == ["orphan"]
    assert written == [("orphan", True, Claim.ADOPT)]


async def test_refused_adoption_is_an_error_of_its_object():
    refusal = Conflict(ApiStatus(message="the object changed"))
    errors, patches, _ = await claim([pod("a"), pod("b")], replica_set(), {"a": refusal})
    assert errors.errors == (refusal,)
    assert [obj.metadata.name for obj in errors.claimed] == ["b"]
    assert list(patches) == ["a", "b"]


async def test_refused_release_is_an_error_of_its_object():
    refusal = Conflict(ApiStatus(message="the object changed"))
    errors, patches, reads = await claim([pod("a", app="db", **OURS), pod("b")], replica_set(), {"a": refusal})
    assert errors.errors == (refusal,)
    assert [obj.metadata.name for obj in errors.claimed] == ["b"]
    assert (list(patches), reads) == (["a", "b"], 1)
