"""The graph of owners and dependents, without a server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kubeloop.controllers.garbagecollector.graph import AbsentOwnerCache, Graph, Identity
from kubeloop.kube.objects.api_types import ObjectMeta, OwnerReference

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Recorded:
    """A graph, and what it asked for since the last time somebody looked."""

    def __init__(self) -> None:
        self.deletes: list[str] = []
        self.orphans: list[str] = []
        self.misplaced: list[tuple[str, str]] = []
        self.graph = Graph(
            attempt_to_delete=self.deletes.append,
            attempt_to_orphan=self.orphans.append,
            on_invalid_namespace=lambda dependent, owner: self.misplaced.append((dependent.uid, owner.uid)),
        )

    def show(self, kind: str, new: ObjectMeta, old: ObjectMeta | None = None) -> None:
        self.graph.changed("v1", kind, old, new)
        self.graph.check()

    def end(self, kind: str, metadata: ObjectMeta) -> None:
        self.graph.deleted("v1", kind, metadata)
        self.graph.check()

    def asked(self) -> list[str]:
        asked, self.deletes[:] = list(self.deletes), []
        return asked


def meta(uid: str, *owners: OwnerReference, namespace: str = "ns", **fields: Any) -> ObjectMeta:
    return ObjectMeta(name=f"name-{uid}", namespace=namespace, uid=uid, owner_references=owners, **fields)


def ref(uid: str, kind: str = "Set", *, block: bool | None = None, name: str = "") -> OwnerReference:
    return OwnerReference(api_version="v1", kind=kind, name=name or f"name-{uid}", uid=uid, block_owner_deletion=block)


def identity(uid: str, kind: str = "Set", namespace: str = "ns", name: str = "") -> Identity:
    return Identity(kind, "v1", namespace, name or f"name-{uid}", uid)


def deleting(metadata: ObjectMeta, *finalizers: str) -> ObjectMeta:
    return ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        owner_references=metadata.owner_references,
        deletion_timestamp=NOW,
        finalizers=finalizers,
    )


def test_unknown_owner_becomes_virtual_node_and_is_checked():
    seen = Recorded()
    seen.show("Pod", meta("pod", ref("set")))
    assert seen.asked() == ["set"]
    owner = seen.graph.get("set")
    assert owner is not None
    assert owner.virtual
    assert owner.identity == identity("set")


def test_virtual_owner_becomes_real_when_observed():
    seen = Recorded()
    seen.show("Pod", meta("pod", ref("set")))
    seen.asked()
    seen.show("Set", meta("set"))
    owner = seen.graph.get("set")
    assert owner is not None
    assert not owner.virtual
    assert seen.asked() == []


def test_deleted_owner_enqueues_its_dependents():
    seen = Recorded()
    seen.show("Set", meta("set"))
    seen.show("Pod", meta("pod-1", ref("set")))
    seen.show("Pod", meta("pod-2", ref("set")))
    seen.end("Set", meta("set"))
    assert seen.asked() == ["pod-1", "pod-2"]
    assert identity("set") in seen.graph.absent_owners


def test_dependent_added_after_owner_deletion_rechecks_owner():
    seen = Recorded()
    seen.show("Set", meta("set"))
    seen.show("Pod", meta("pod-1", ref("set")))
    seen.end("Set", meta("set"))
    seen.asked()
    seen.show("Pod", meta("pod-2", ref("set")))
    assert seen.asked() == ["set"]
    assert not seen.graph.handle_absent(identity("set"))
    assert "pod-2" in seen.asked()


def test_foreground_deletion_enqueues_dependents_then_owner():
    seen = Recorded()
    owner, pod = meta("set"), meta("pod", ref("set", block=True))
    seen.show("Set", owner)
    seen.show("Pod", pod)
    seen.show("Set", deleting(owner, "foregroundDeletion"), owner)
    assert seen.asked() == ["pod", "set"]
    node = seen.graph.get("set")
    assert node is not None
    assert node.deleting_dependents
    assert [each.identity.uid for each in node.blocking_dependents()] == ["pod"]
    seen.end("Pod", pod)
    assert seen.asked() == ["set"]


def test_orphan_finalizer_enqueues_owner_once():
    seen = Recorded()
    owner = meta("set")
    seen.show("Set", owner)
    going = deleting(owner, "orphan")
    seen.show("Set", going, owner)
    seen.show("Set", going, going)
    assert seen.orphans == ["set"]
    assert seen.asked() == []


def test_object_first_observed_while_deleting_is_enqueued():
    seen = Recorded()
    seen.show("Set", deleting(meta("a"), "foregroundDeletion"))
    seen.show("Set", deleting(meta("b"), "orphan"))
    assert seen.asked() == ["a"]
    assert seen.orphans == ["b"]


def test_reference_that_stops_blocking_enqueues_owner():
    seen = Recorded()
    seen.show("Set", meta("set"))
    blocking, free = meta("pod", ref("set", block=True)), meta("pod", ref("set", block=False))
    seen.show("Pod", blocking)
    seen.asked()
    seen.show("Pod", free, blocking)
    assert seen.asked() == ["set"]
    seen.show("Pod", blocking, free)
    seen.asked()
    seen.show("Pod", meta("pod"), blocking)
    assert seen.asked() == ["set"]


def test_changed_owner_reference_moves_dependent():
    seen = Recorded()
    seen.show("Set", meta("a"))
    seen.show("Set", meta("b"))
    seen.show("Pod", meta("pod", ref("a")))
    seen.show("Pod", meta("pod", ref("b")), meta("pod", ref("a")))
    a, b = seen.graph.get("a"), seen.graph.get("b")
    assert a is not None
    assert b is not None
    assert not a.dependents
    assert [each.identity.uid for each in b.dependents] == ["pod"]


def test_owner_in_other_namespace_enqueues_and_reports_dependent():
    seen = Recorded()
    seen.show("Set", meta("set", namespace="other"))
    seen.show("Pod", meta("pod", ref("set")))
    assert seen.misplaced == [("pod", "set")]
    assert seen.asked() == ["pod"]


def test_owner_observed_later_in_other_namespace_is_reported():
    seen = Recorded()
    seen.show("Pod", meta("pod", ref("set")))
    seen.asked()
    seen.show("Set", meta("set", namespace="other"))
    assert seen.misplaced == [("pod", "set")]
    assert seen.asked() == ["pod"]


def test_cluster_scoped_owner_is_valid_in_any_namespace():
    seen = Recorded()
    seen.show("Node", meta("node", namespace=""))
    seen.show("Pod", meta("pod", ref("node", "Node")))
    assert seen.asked() == []
    assert seen.misplaced == []


def test_reference_with_wrong_name_enqueues_dependent():
    seen = Recorded()
    seen.show("Set", meta("set"))
    seen.show("Pod", meta("pod", ref("set", name="somebody")))
    assert seen.asked() == ["pod"]


def test_wrong_reference_does_not_remove_observed_owner():
    seen = Recorded()
    seen.show("Set", meta("set"))
    seen.show("Pod", meta("good", ref("set")))
    seen.show("Pod", meta("bad", ref("set", name="somebody")))
    seen.asked()
    assert not seen.graph.handle_absent(identity("set", name="somebody"))
    assert seen.graph.get("set") is not None
    assert seen.asked() == ["bad"]


def test_virtual_owner_is_checked_under_every_referenced_identity():
    seen = Recorded()
    seen.show("Pod", meta("bad", ref("set", name="somebody")))
    seen.show("Pod", meta("good", ref("set")))
    seen.asked()
    assert seen.graph.handle_absent(identity("set", name="somebody"))
    assert seen.asked() == ["bad"]
    owner = seen.graph.get("set")
    assert owner is not None
    assert owner.identity == identity("set")
    assert seen.graph.handle_absent(identity("set"))  # and round again, until an informer shows it or nobody names it
    assert seen.asked() == ["good"]
    assert owner.identity.name == "somebody"


def test_absent_owner_cache_evicts_least_recently_used():
    absent = AbsentOwnerCache(size=2)
    for uid in ("a", "b"):
        absent.add(identity(uid))
    assert identity("a") in absent
    absent.add(identity("c"))
    assert identity("b") not in absent
    assert identity("a") in absent
    assert identity("c") in absent
