"""Pod groups, updated by random events."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controllers.replicaset.pod_groups import OwnerPodGroups
from kubeloop.kube.objects.api_types import Pod, convert
from support.objects.pod_groups import group_pods

NOW = "2026-01-01T01:00:00Z"


def pod(name: str = "p", *, owner: str = "", ready: bool = False, **more: Any) -> Pod:
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": name, "labels": more.get("labels", {"a": "1"})}
    if owner:
        kind, uid = owner.split("/")
        metadata["ownerReferences"] = [{"kind": kind, "name": "rs", "uid": uid, "controller": True}]
    if more.get("deleted"):
        metadata["deletionTimestamp"] = NOW
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": more.get("since", NOW)}] if ready else []
    return convert(
        Pod, {"metadata": metadata, "status": {"phase": more.get("phase", "Running"), "conditions": conditions}}
    )


pods = st.builds(
    pod,
    st.sampled_from("pqrst"),
    owner=st.sampled_from(["", "ReplicaSet/u1", "ReplicaSet/u2", "Job/u3"]),
    ready=st.booleans(),
    deleted=st.booleans(),
    phase=st.sampled_from(["Pending", "Running", "Failed", "Succeeded"]),
    labels=st.sampled_from([{}, {"a": "1"}, {"a": "2"}]),
)


@given(events=st.lists(st.tuples(pods, st.booleans()), max_size=30))
def test_pod_groups_match_pods_after_any_events(events):
    groups = OwnerPodGroups("ReplicaSet")
    current: dict[str, Pod] = {}
    for new, removed in events:
        old = current.get(new.key)
        if removed:
            if old is not None:
                groups.remove(old)
                del current[new.key]
        elif old is None:
            groups.add(new)
            current[new.key] = new
        else:
            groups.update(old, new)
            current[new.key] = new
        groups.check(current.values())
        orphans = [orphan for orphan in current.values() if not orphan.metadata.owner_references]
        assert groups.get("ns") == group_pods(orphans)
