"""The garbage collector's graph of owners and dependents, without an API server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.controllers.garbagecollector.graph import (
    AbsentOwnerCache,
    Graph,
    ObjectIdentity,
    _alternate_owner_identity,
)
from kubeloop.kube.objects.api_types import ObjectMeta, OwnerReference

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class RecordingGraph:
    """A graph that records its callbacks: deletion attempts since the last take_deletes(), orphans, bad namespaces."""

    def __init__(self) -> None:
        self.deletes: list[str] = []
        self.orphans: list[str] = []
        self.invalid_namespaces: list[tuple[str, str]] = []
        self.graph = Graph(
            attempt_to_delete=self.deletes.append,
            attempt_to_orphan=self.orphans.append,
            on_invalid_namespace=lambda dependent, owner: self.invalid_namespaces.append((dependent.uid, owner.uid)),
        )

    def observe(self, kind: str, new: ObjectMeta, old: ObjectMeta | None = None) -> None:
        self.graph.changed("v1", kind, old, new)
        self.graph.check()

    def observe_deletion(self, kind: str, metadata: ObjectMeta) -> None:
        self.graph.deleted("v1", kind, metadata)
        self.graph.check()

    def take_deletes(self) -> list[str]:
        deletes, self.deletes[:] = list(self.deletes), []
        return deletes


def meta(uid: str, *owners: OwnerReference, namespace: str = "ns", **fields: Any) -> ObjectMeta:
    return ObjectMeta(name=f"name-{uid}", namespace=namespace, uid=uid, owner_references=owners, **fields)


def ref(uid: str, kind: str = "Set", *, block: bool | None = None, name: str = "") -> OwnerReference:
    return OwnerReference(api_version="v1", kind=kind, name=name or f"name-{uid}", uid=uid, block_owner_deletion=block)


def identity(uid: str, kind: str = "Set", namespace: str = "ns", name: str = "") -> ObjectIdentity:
    return ObjectIdentity(kind, "v1", namespace, name or f"name-{uid}", uid)


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
    recorded = RecordingGraph()
    recorded.observe("Pod", meta("pod", ref("set")))
    assert recorded.take_deletes() == ["set"]
    owner = recorded.graph.get("set")
    assert owner is not None
    assert owner.virtual
    assert owner.identity == identity("set")


def test_virtual_owner_becomes_real_when_observed():
    recorded = RecordingGraph()
    recorded.observe("Pod", meta("pod", ref("set")))
    recorded.take_deletes()
    recorded.observe("Set", meta("set"))
    owner = recorded.graph.get("set")
    assert owner is not None
    assert not owner.virtual
    assert recorded.take_deletes() == []


def test_deleted_owner_enqueues_its_dependents():
    recorded = RecordingGraph()
    recorded.observe("Set", meta("set"))
    recorded.observe("Pod", meta("pod-1", ref("set")))
    recorded.observe("Pod", meta("pod-2", ref("set")))
    recorded.observe_deletion("Set", meta("set"))
    assert recorded.take_deletes() == ["pod-1", "pod-2"]
    assert identity("set") in recorded.graph.absent_owners


def test_dependent_added_after_owner_deletion_rechecks_owner():
    recorded = RecordingGraph()
    recorded.observe("Set", meta("set"))
    recorded.observe("Pod", meta("pod-1", ref("set")))
    recorded.observe_deletion("Set", meta("set"))
    recorded.take_deletes()
    recorded.observe("Pod", meta("pod-2", ref("set")))
    assert recorded.take_deletes() == ["set"]
    assert not recorded.graph.handle_absent(identity("set"))
    assert "pod-2" in recorded.take_deletes()


def test_foreground_deletion_enqueues_dependents_then_owner():
    recorded = RecordingGraph()
    owner, pod = meta("set"), meta("pod", ref("set", block=True))
    recorded.observe("Set", owner)
    recorded.observe("Pod", pod)
    recorded.observe("Set", deleting(owner, "foregroundDeletion"), owner)
    assert recorded.take_deletes() == ["pod", "set"]
    node = recorded.graph.get("set")
    assert node is not None
    assert node.deleting_dependents
    assert [dependent.identity.uid for dependent in node.blocking_dependents()] == ["pod"]
    recorded.observe_deletion("Pod", pod)
    assert recorded.take_deletes() == ["set"]


def test_orphan_finalizer_enqueues_owner_once():
    recorded = RecordingGraph()
    owner = meta("set")
    recorded.observe("Set", owner)
    owner_being_deleted = deleting(owner, "orphan")
    recorded.observe("Set", owner_being_deleted, owner)
    recorded.observe("Set", owner_being_deleted, owner_being_deleted)
    assert recorded.orphans == ["set"]
    assert recorded.take_deletes() == []


def test_object_first_observed_while_deleting_is_enqueued():
    recorded = RecordingGraph()
    recorded.observe("Set", deleting(meta("a"), "foregroundDeletion"))
    recorded.observe("Set", deleting(meta("b"), "orphan"))
    assert recorded.take_deletes() == ["a"]
    assert recorded.orphans == ["b"]


def test_reference_that_stops_blocking_enqueues_owner():
    recorded = RecordingGraph()
    recorded.observe("Set", meta("set"))
    blocking, free = meta("pod", ref("set", block=True)), meta("pod", ref("set", block=False))
    recorded.observe("Pod", blocking)
    recorded.take_deletes()
    recorded.observe("Pod", free, blocking)
    assert recorded.take_deletes() == ["set"]
    recorded.observe("Pod", blocking, free)
    recorded.take_deletes()
    recorded.observe("Pod", meta("pod"), blocking)
    assert recorded.take_deletes() == ["set"]


def test_changed_owner_reference_moves_dependent():
    recorded = RecordingGraph()
    recorded.observe("Set", meta("a"))
    recorded.observe("Set", meta("b"))
    recorded.observe("Pod", meta("pod", ref("a")))
    recorded.observe("Pod", meta("pod", ref("b")), meta("pod", ref("a")))
    a, b = recorded.graph.get("a"), recorded.graph.get("b")
    assert a is not None
    assert b is not None
    assert not a.dependents
    assert [dependent.identity.uid for dependent in b.dependents] == ["pod"]


def test_owner_in_other_namespace_enqueues_and_reports_dependent():
    recorded = RecordingGraph()
    recorded.observe("Set", meta("set", namespace="other"))
    recorded.observe("Pod", meta("pod", ref("set")))
    assert recorded.invalid_namespaces == [("pod", "set")]
    assert recorded.take_deletes() == ["pod"]


def test_owner_observed_later_in_other_namespace_is_reported():
    recorded = RecordingGraph()
    recorded.observe("Pod", meta("pod", ref("set")))
    recorded.take_deletes()
    recorded.observe("Set", meta("set", namespace="other"))
    assert recorded.invalid_namespaces == [("pod", "set")]
    assert recorded.take_deletes() == ["pod"]


def test_cluster_scoped_owner_is_valid_in_any_namespace():
    recorded = RecordingGraph()
    recorded.observe("Node", meta("node", namespace=""))
    recorded.observe("Pod", meta("pod", ref("node", "Node")))
    assert recorded.take_deletes() == []
    assert recorded.invalid_namespaces == []


def test_reference_with_wrong_name_enqueues_dependent():
    recorded = RecordingGraph()
    recorded.observe("Set", meta("set"))
    recorded.observe("Pod", meta("pod", ref("set", name="somebody")))
    assert recorded.take_deletes() == ["pod"]


def test_wrong_reference_does_not_remove_observed_owner():
    recorded = RecordingGraph()
    recorded.observe("Set", meta("set"))
    recorded.observe("Pod", meta("good", ref("set")))
    recorded.observe("Pod", meta("bad", ref("set", name="somebody")))
    recorded.take_deletes()
    assert not recorded.graph.handle_absent(identity("set", name="somebody"))
    assert recorded.graph.get("set") is not None
    assert recorded.take_deletes() == ["bad"]


def test_virtual_owner_is_checked_under_every_referenced_identity():
    recorded = RecordingGraph()
    recorded.observe("Pod", meta("bad", ref("set", name="somebody")))
    recorded.observe("Pod", meta("good", ref("set")))
    recorded.take_deletes()
    assert recorded.graph.handle_absent(identity("set", name="somebody"))
    assert recorded.take_deletes() == ["bad"]
    owner = recorded.graph.get("set")
    assert owner is not None
    assert owner.identity == identity("set")
    # Both identities are checked in turn until an informer shows the owner or no dependent refers to it.
    assert recorded.graph.handle_absent(identity("set"))
    assert recorded.take_deletes() == ["good"]
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


def test_text_of_an_identity_names_the_namespace_of_a_cluster_scoped_object_too():
    assert str(identity("1", kind="Node", namespace="", name="n")) == "[v1/Node, namespace: , name: n, uid: 1]"


def test_absent_object_without_a_node_needs_no_other_check():
    assert RecordingGraph().graph.handle_absent(identity("unknown")) is False


@pytest.mark.parametrize(
    ("references", "absent", "alternate"),
    [
        pytest.param([ref("o")], identity("o"), None, id="no other identity"),
        pytest.param([ref("o"), ref("o", "Zet")], identity("o"), identity("o", "Zet"), id="the next one"),
        pytest.param([ref("o", "A"), ref("o")], identity("o"), identity("o", "A"), id="the first one"),
        pytest.param(
            [ref("o", "A"), ref("o"), ref("o", "Y"), ref("o", "Z")], identity("o"), identity("o", "Y"), id="next of two"
        ),
        pytest.param([ref("other", "A"), ref("o", "Z")], identity("o"), identity("o", "Z"), id="another owner first"),
        pytest.param([ref("o")], identity("o", namespace=""), None, id="that kind is cluster-scoped"),
        pytest.param(
            [ref("o"), ref("o", "Zet")], identity("o", namespace=""), identity("o", "Zet"), id="another kind is not"
        ),
        pytest.param([ref("o")], identity("o", namespace="z"), identity("o"), id="another namespace"),
    ],
)
def test_alternate_identity_of_an_absent_owner(references, absent, alternate):
    observed = RecordingGraph()
    for number, reference in enumerate(references):
        observed.observe("Pod", meta(f"p{number}", reference))
    nodes = [node for number in range(len(references)) if (node := observed.graph.get(f"p{number}")) is not None]
    assert _alternate_owner_identity(nodes, absent) == alternate


# --- tables of decisions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deleted", "finalizers", "state", "deletes", "orphans"),
    [
        (False, (), (False, False), [], []),
        (False, ("foregroundDeletion",), (False, False), [], []),
        (False, ("orphan",), (False, False), [], []),
        (True, (), (True, False), [], []),
        (True, ("example.com/f",), (True, False), [], []),
        (True, ("foregroundDeletion",), (True, True), ["set"], []),
        (True, ("orphan",), (True, False), [], ["set"]),
        (True, ("orphan", "foregroundDeletion"), (True, True), [], ["set"]),
    ],
)
def test_first_state_of_an_object(deleted, finalizers, state, deletes, orphans):
    recorded = RecordingGraph()
    observed = deleting(meta("set"), *finalizers) if deleted else meta("set", finalizers=finalizers)
    recorded.observe("Set", observed)
    node = recorded.graph.get("set")
    assert node is not None
    assert (node.being_deleted, node.deleting_dependents) == state
    assert (recorded.take_deletes(), recorded.orphans) == (deletes, orphans)


@pytest.mark.parametrize(
    ("before", "after", "deletes", "orphans"),
    [
        pytest.param(None, ("foregroundDeletion",), ["pod", "set"], [], id="foreground deletion"),
        pytest.param((), ("foregroundDeletion",), ["pod", "set"], [], id="foreground after background deletion"),
        pytest.param(("orphan",), ("foregroundDeletion",), ["pod", "set"], [], id="foreground after orphan deletion"),
        pytest.param(("foregroundDeletion",), ("foregroundDeletion",), [], [], id="still in foreground deletion"),
        pytest.param(("foregroundDeletion",), ("orphan",), [], ["set"], id="orphan after foreground deletion"),
        pytest.param(None, ("orphan",), [], ["set"], id="orphan deletion"),
        pytest.param(("orphan",), ("orphan",), [], [], id="still in orphan deletion"),
        pytest.param(None, (), [], [], id="background deletion"),
    ],
)
def test_deletion_of_an_observed_owner(before, after, deletes, orphans):
    """before: finalizers of the deletion that was observed before, None: not deleted."""
    recorded, alive = RecordingGraph(), meta("set")
    old = alive if before is None else deleting(alive, *before)
    recorded.observe("Set", old)
    recorded.observe("Pod", meta("pod", ref("set")))
    recorded.take_deletes()
    recorded.orphans.clear()
    recorded.observe("Set", deleting(alive, *after), old)
    node = recorded.graph.get("set")
    assert node is not None
    assert node.being_deleted
    assert (recorded.take_deletes(), recorded.orphans) == (deletes, orphans)


def test_each_unknown_owner_is_checked():
    recorded = RecordingGraph()
    recorded.observe("Pod", meta("pod", ref("a"), ref("b"), ref("c")))
    assert recorded.take_deletes() == ["a", "b", "c"]
    assert all((node := recorded.graph.get(uid)) is not None and node.virtual for uid in "abc")


@pytest.mark.parametrize(
    ("owner_namespace", "dependent_namespace", "virtual", "reference", "deletes", "reported"),
    [
        pytest.param("ns", "ns", False, ref("o"), [], [], id="the same namespace"),
        pytest.param("other", "ns", False, ref("o"), ["new"], [("new", "o")], id="another namespace"),
        pytest.param("other", "ns", True, ref("o"), ["new"], [], id="another namespace, not observed yet"),
        pytest.param("", "ns", False, ref("o"), [], [], id="cluster-scoped owner"),
        pytest.param("", "ns", True, ref("o"), ["new"], [], id="owner of a cluster-scoped object, not observed yet"),
        pytest.param("ns", "ns", True, ref("o"), [], [], id="the same namespace, not observed yet"),
        pytest.param("", "", False, ref("o"), [], [], id="both cluster-scoped"),
        pytest.param("ns", "", False, ref("o"), ["new"], [("new", "o")], id="cluster-scoped dependent"),
        pytest.param("ns", "ns", False, ref("o", "Other"), ["new"], [], id="another kind"),
        pytest.param("ns", "ns", False, ref("o", name="x"), ["new"], [], id="another name"),
    ],
)
def test_new_dependent_of_a_known_owner(owner_namespace, dependent_namespace, virtual, reference, deletes, reported):
    recorded = RecordingGraph()
    if virtual:
        recorded.observe("Pod", meta("first", ref("o"), namespace=owner_namespace))
    else:
        recorded.observe("Set", meta("o", namespace=owner_namespace))
    recorded.take_deletes()
    recorded.observe("Pod", meta("new", reference, namespace=dependent_namespace))
    assert (recorded.take_deletes(), recorded.invalid_namespaces) == (deletes, reported)
    owner = recorded.graph.get("o")
    assert owner is not None
    assert [node.identity.uid for node in owner.dependents] == (["first", "new"] if virtual else ["new"])


def test_dependent_with_wrong_references_is_checked_and_reported_once():
    recorded = RecordingGraph()
    for uid in "abc":
        recorded.observe("Set", meta(uid, namespace="other"))
    recorded.observe("Pod", meta("pod", ref("a"), ref("b"), ref("c")))
    assert (recorded.take_deletes(), recorded.invalid_namespaces) == (["pod"], [("pod", "a")])
    assert all((node := recorded.graph.get(uid)) is not None and node.dependents for uid in "abc")


@pytest.mark.parametrize(
    ("namespace", "kind", "deletes", "reported"),
    [
        pytest.param("ns", "Set", [], [], id="as referred to"),
        pytest.param("ns", "Other", ["pod"], [], id="another kind"),
        pytest.param("other", "Set", ["pod"], [("pod", "o")], id="another namespace"),
        pytest.param("", "Set", [], [], id="cluster-scoped"),
        pytest.param("", "Other", ["pod"], [], id="cluster-scoped, another kind"),
    ],
)
def test_owner_that_is_observed_after_its_dependent(namespace, kind, deletes, reported):
    recorded = RecordingGraph()
    recorded.observe("Pod", meta("pod", ref("o")))
    recorded.take_deletes()
    recorded.observe(kind, meta("o", namespace=namespace))
    assert (recorded.take_deletes(), recorded.invalid_namespaces) == (deletes, reported)
    node = recorded.graph.get("o")
    assert node is not None
    assert (node.virtual, node.identity) == (False, identity("o", kind, namespace))


@pytest.mark.parametrize(
    ("before", "after", "deletes"),
    [
        pytest.param([ref("a", block=True)], [ref("a", block=True)], [], id="unchanged"),
        pytest.param([ref("a", block=True)], [ref("a", block=False)], ["a"], id="no longer blocks"),
        pytest.param([ref("a", block=False)], [ref("a", block=True)], [], id="blocks"),
        pytest.param([ref("a", block=True)], [], ["a"], id="blocking one removed"),
        pytest.param([ref("a", block=False)], [], [], id="other one removed"),
        pytest.param([ref("a"), ref("b")], [ref("b")], [], id="one of two removed"),
        pytest.param([ref("a", block=True), ref("b", block=True)], [ref("b")], ["a", "b"], id="removed and unblocked"),
        pytest.param([ref("a")], [ref("a"), ref("new")], ["new"], id="unknown owner added"),
        pytest.param([ref("a")], [ref("a"), ref("b")], [], id="known owner added"),
    ],
)
def test_changed_owner_references(before, after, deletes):
    recorded = RecordingGraph()
    for uid in "ab":
        recorded.observe("Set", meta(uid))
    recorded.observe("Pod", meta("pod", *before))
    recorded.take_deletes()
    recorded.observe("Pod", meta("pod", *after), meta("pod", *before))
    assert recorded.take_deletes() == deletes
    for uid in ("a", "b", "new"):
        node = recorded.graph.get(uid)
        dependents = [] if node is None else [dependent.identity.uid for dependent in node.dependents]
        assert dependents == (["pod"] if uid in {reference.uid for reference in after} else [])


@pytest.mark.parametrize(
    ("deleting_owner", "block", "deletes"), [(True, True, ["o"]), (True, False, ["o"]), (False, True, [])]
)
def test_deleted_dependent_unblocks_an_owner_in_foreground_deletion(deleting_owner, block, deletes):
    recorded = RecordingGraph()
    recorded.observe("Set", deleting(meta("o"), "foregroundDeletion") if deleting_owner else meta("o"))
    recorded.observe("Pod", meta("pod", ref("gone"), ref("o", block=block)))
    recorded.observe_deletion("Set", meta("gone"))
    recorded.take_deletes()
    recorded.observe_deletion("Pod", meta("pod", ref("o", block=block)))
    assert recorded.take_deletes() == deletes
    assert len(recorded.graph) == 1


def test_dependents_of_a_removed_owner_are_forgotten_with_the_last_one():
    recorded = RecordingGraph()
    recorded.observe("Set", meta("o"))
    for uid in ("p", "q"):
        recorded.observe("Pod", meta(uid, ref("o")))
    recorded.observe_deletion("Set", meta("o"))
    recorded.observe_deletion("Pod", meta("p", ref("o")))
    assert [node.identity.uid for node in recorded.graph._dependents("o")] == ["q"]
    recorded.observe_deletion("Pod", meta("q", ref("o")))
    assert recorded.graph._dependents_of_removed == {}
    assert len(recorded.graph) == 0


def test_absent_identity_of_an_observed_owner_is_cached():
    recorded = RecordingGraph()
    recorded.observe("Set", meta("o"))
    recorded.observe("Pod", meta("bad", ref("o", name="x")))
    recorded.observe("Pod", meta("good", ref("o")))
    recorded.take_deletes()
    assert recorded.graph.handle_absent(identity("o", name="unused")) is False
    assert (recorded.take_deletes(), identity("o", name="unused") in recorded.graph.absent_owners) == ([], False)
    assert recorded.graph.handle_absent(identity("o", name="x")) is False
    assert (recorded.take_deletes(), identity("o", name="x") in recorded.graph.absent_owners) == (["bad"], True)
    assert recorded.graph.handle_absent(identity("o")) is False
    assert (recorded.graph.get("o"), recorded.take_deletes()) == (None, ["bad", "good"])


@pytest.mark.parametrize(
    ("reference_block", "owner", "blocks"),
    [(True, "o", True), (False, "o", False), (None, "o", False), (True, "other", False)],
)
def test_dependents_that_block_a_foreground_deletion(reference_block, owner, blocks):
    recorded = RecordingGraph()
    for uid in ("o", "other"):
        recorded.observe("Set", meta(uid))
    recorded.observe("Pod", meta("pod", ref("o"), ref(owner, block=reference_block)))
    node = recorded.graph.get("o")
    assert node is not None
    assert bool(node.blocking_dependents()) is blocks


def test_absent_owner_that_is_added_again_is_the_most_recent():
    absent = AbsentOwnerCache(size=2)
    for uid in ("a", "b", "a", "c"):
        absent.add(identity(uid))
    assert [uid for uid in "abc" if identity(uid) in absent] == ["a", "c"]


def test_alternate_identity_ignores_other_owners_of_the_same_dependent():
    observed = RecordingGraph()
    observed.observe("Pod", meta("p", ref("x"), ref("o", "A")))
    node = observed.graph.get("p")
    assert node is not None
    assert _alternate_owner_identity([node], identity("o")) == identity("o", "A")


@pytest.mark.parametrize(("api_version", "kind"), [("v1", "Set"), ("v2", "Set"), ("v1", "OldSet")])
def test_object_that_is_observed_in_another_version_has_the_identity_of_the_last(api_version, kind):
    recorded = RecordingGraph()
    recorded.observe("Set", meta("o"))
    recorded.graph.changed(api_version, kind, meta("o"), meta("o"))
    node = recorded.graph.get("o")
    assert node is not None
    assert (node.identity.api_version, node.identity.kind) == (api_version, kind)
