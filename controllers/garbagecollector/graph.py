"""Graph of owners and dependents, built from informers; it names the objects that the garbage collector must check.

A node represents an object, by UID. An owner that is referred to before any informer has shown it is a virtual node,
until an informer shows it or the collector finds that it does not exist. The graph sends no requests: it passes UIDs
to two functions, for deletion attempts and for orphaning. May import msgspec and `kubeloop.kube` only. Source:
pkg/controller/garbagecollector/graph_builder.go and graph.go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from kubeloop.kube.objects.api_types import ObjectMeta, OwnerReference

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class ObjectIdentity(msgspec.Struct, frozen=True, order=True):
    """Identity of an object. `namespace` is "" for a cluster-scoped object."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        place = f"namespace: {self.namespace}, name: {self.name}"
        return f"[{self.api_version}/{self.kind}, {place}, uid: {self.uid}]"


def owner_identity(reference: OwnerReference, namespace: str) -> ObjectIdentity:
    return ObjectIdentity(reference.kind, reference.api_version, namespace, reference.name, reference.uid)


def refers_to(reference: OwnerReference, identity: ObjectIdentity) -> bool:
    """Return True if the reference names this object; a reference has no namespace."""
    return (reference.uid, reference.name, reference.kind, reference.api_version) == (
        identity.uid,
        identity.name,
        identity.kind,
        identity.api_version,
    )


class GraphNode(msgspec.Struct, eq=False):
    """One object. `dependents` are the nodes that have it among their owners (a dict, to keep their order).

    `being_deleted` and `deleting_dependents` never become false again: a deletion cannot be undone.
    """

    identity: ObjectIdentity
    owners: tuple[OwnerReference, ...] = ()
    dependents: dict[GraphNode, None] = msgspec.field(default_factory=dict)
    virtual: bool = False
    being_deleted: bool = False
    deleting_dependents: bool = False  # foreground deletion in progress
    rechecks: int = 0  # repeated checks on the API server, for the backoff

    def blocking_dependents(self) -> list[GraphNode]:
        """Return the dependents that block the foreground deletion of this object."""
        uid = self.identity.uid
        return [
            dependent
            for dependent in self.dependents
            if any(owner.uid == uid and owner.block_owner_deletion for owner in dependent.owners)
        ]


class AbsentOwnerCache:
    """Cache of identities of owners that do not exist, the most recent 500."""

    def __init__(self, size: int = 500) -> None:
        self._size = size
        self._identities: OrderedDict[ObjectIdentity, None] = OrderedDict()

    def add(self, identity: ObjectIdentity) -> None:
        self._identities[identity] = None
        self._identities.move_to_end(identity)
        if len(self._identities) > self._size:
            self._identities.popitem(last=False)

    def __contains__(self, identity: ObjectIdentity) -> bool:
        if identity not in self._identities:
            return False
        self._identities.move_to_end(identity)
        return True


class Graph:
    """Nodes by UID, and the checks that follow from each change of an object.

    attempt_to_delete: called with the UID of an object that may be garbage. attempt_to_orphan: called with the UID of
    an owner whose dependents must be orphaned. on_invalid_namespace: called for a dependent that refers to an owner in
    another namespace.
    """

    def __init__(
        self,
        *,
        attempt_to_delete: Callable[[str], None],
        attempt_to_orphan: Callable[[str], None],
        on_invalid_namespace: Callable[[ObjectIdentity, OwnerReference], None],
    ) -> None:
        self._attempt_to_delete = attempt_to_delete
        self._attempt_to_orphan = attempt_to_orphan
        self._on_invalid_namespace = on_invalid_namespace
        self._nodes: dict[str, GraphNode] = {}
        self._dependents_of_removed: dict[
            str, dict[GraphNode, None]
        ] = {}  # by UID of an owner that has no node any more
        self.absent_owners = AbsentOwnerCache()

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, uid: str) -> GraphNode | None:
        return self._nodes.get(uid)

    def check(self) -> None:
        """Assert the invariants."""
        for uid, node in self._nodes.items():
            assert node.identity.uid == uid
            for dependent in node.dependents:
                assert any(owner.uid == uid for owner in dependent.owners)
            for owner in node.owners:
                assert node in self._dependents(owner.uid)
        assert not self._dependents_of_removed.keys() & self._nodes.keys()
        assert all(self._dependents_of_removed.values())

    # --- events of informers ---------------------------------------------------------------------------------------

    def changed(self, api_version: str, kind: str, old: ObjectMeta | None, new: ObjectMeta) -> None:
        """Handle an object that was added or changed. `old` is its previous state, if known."""
        node = self._nodes.get(new.uid)
        identity = ObjectIdentity(kind, api_version, new.namespace, new.name, new.uid)
        deleted = new.deletion_timestamp is not None
        if node is None:
            node = GraphNode(
                identity,
                new.owner_references,
                being_deleted=deleted,
                deleting_dependents=deleted and FOREGROUND in new.finalizers,
                dependents=self._dependents_of_removed.pop(new.uid, {}),
            )
            self._nodes[new.uid] = node
            self._add_to_owners(node, node.owners)
        else:
            if node.virtual:
                self._mark_observed(node, identity)
            elif (node.identity.api_version, node.identity.kind) != (api_version, kind):
                node.identity = identity
            if node.owners != new.owner_references:
                self._change_owners(node, new.owner_references)
            if deleted:
                node.being_deleted = True
        if _starts_deletion_with(old, new, ORPHAN):
            self._attempt_to_orphan(new.uid)
        elif _starts_deletion_with(old, new, FOREGROUND):
            node.deleting_dependents = True  # not set yet on a node that was virtual
            for dependent in node.dependents:
                self._attempt_to_delete(dependent.identity.uid)
            self._attempt_to_delete(new.uid)

    def deleted(self, api_version: str, kind: str, metadata: ObjectMeta) -> None:
        """Handle the deletion of an object."""
        node = self._nodes.get(metadata.uid)
        if node is not None:
            self._remove(node, ObjectIdentity(kind, api_version, metadata.namespace, metadata.name, metadata.uid))

    # --- results of the collector ----------------------------------------------------------------------------------

    def handle_absent(self, identity: ObjectIdentity) -> bool:
        """Handle that the API server has no object of this identity. Returns True if the UID must be checked again.

        The references with this identity may be wrong: a node that an informer has shown under the UID, or that other
        dependents refer to by another identity, is kept.
        """
        node = self._nodes.get(identity.uid)
        if node is None:
            return False
        if node.virtual:
            matching, others = _partition_dependents(node.dependents, identity)
            if not others:
                self._remove(node, identity)
                return False
            self._mark_absent_for(matching, identity)
            if node.identity == identity:
                other = _alternate_owner_identity(others, identity)
                if other is not None:
                    node.identity = other
                    return True
        elif node.identity != identity:
            matching, _ = _partition_dependents(node.dependents, identity)
            self._mark_absent_for(matching, identity)
        else:
            self._remove(node, identity)
        return False

    def _mark_absent_for(self, dependents: Sequence[GraphNode], identity: ObjectIdentity) -> None:
        if dependents:
            self.absent_owners.add(identity)
            for dependent in dependents:
                self._attempt_to_delete(dependent.identity.uid)

    # --- graph updates ---------------------------------------------------------------------------------------------

    def _mark_observed(self, node: GraphNode, identity: ObjectIdentity) -> None:
        """Turn a virtual node into a node of this object."""
        if node.identity != identity:
            _, others = _partition_dependents(node.dependents, identity)
            for dependent in others:
                if identity.namespace and dependent.identity.namespace != identity.namespace:
                    self._report_invalid_namespace(dependent, identity.uid)
                self._attempt_to_delete(dependent.identity.uid)
            node.identity = identity
        node.virtual = False

    def _change_owners(self, node: GraphNode, owners: tuple[OwnerReference, ...]) -> None:
        before = {owner.uid: owner for owner in node.owners}
        after = {owner.uid: owner for owner in owners}
        removed = [owner for uid, owner in before.items() if uid not in after]
        for owner in removed:
            if owner.block_owner_deletion and owner.uid in self._nodes:
                self._attempt_to_delete(owner.uid)
        for uid, owner in after.items():
            if uid in before and before[uid].block_owner_deletion and not owner.block_owner_deletion:
                self._attempt_to_delete(uid)
        node.owners = owners
        self._add_to_owners(node, [owner for uid, owner in after.items() if uid not in before])
        self._remove_from_owners(node, removed)

    def _add_to_owners(self, node: GraphNode, owners: Iterable[OwnerReference]) -> None:
        mismatch = False
        for reference in owners:
            owner = self._nodes.get(reference.uid)
            if owner is None:
                identity = owner_identity(reference, node.identity.namespace)
                owner = GraphNode(identity, dependents=self._dependents_of_removed.pop(reference.uid, {}), virtual=True)
                self._nodes[reference.uid] = owner
                owner.dependents[node] = None
                self._attempt_to_delete(reference.uid)  # checks on the API server whether the owner exists
                continue
            owner.dependents[node] = None
            if mismatch:
                continue
            other_namespace = owner.identity.namespace != node.identity.namespace
            if owner.identity.namespace and other_namespace:
                if not owner.virtual:
                    self._report_invalid_namespace(node, reference.uid)
                mismatch = True
            elif not refers_to(reference, owner.identity) or (other_namespace and owner.virtual):
                # A virtual owner without namespace may be a namespaced object that a cluster-scoped one refers to.
                mismatch = True
        if mismatch:
            self._attempt_to_delete(node.identity.uid)

    def _report_invalid_namespace(self, node: GraphNode, owner_uid: str) -> None:
        for reference in node.owners:
            if reference.uid == owner_uid:
                self._on_invalid_namespace(node.identity, reference)
                return

    def _remove_from_owners(self, node: GraphNode, owners: Iterable[OwnerReference]) -> None:
        for reference in owners:
            dependents = self._dependents(reference.uid)
            dependents.pop(node, None)
            if not dependents:
                self._dependents_of_removed.pop(reference.uid, None)

    def _dependents(self, uid: str) -> dict[GraphNode, None]:
        owner = self._nodes.get(uid)
        return self._dependents_of_removed.get(uid, {}) if owner is None else owner.dependents

    def _remove(self, node: GraphNode, identity: ObjectIdentity) -> None:
        """Remove the node; its dependents may be garbage, and owners in foreground deletion may be unblocked."""
        del self._nodes[node.identity.uid]
        self._remove_from_owners(node, node.owners)
        if node.dependents:
            self.absent_owners.add(identity)
            self._dependents_of_removed[node.identity.uid] = node.dependents
        for dependent in node.dependents:
            self._attempt_to_delete(dependent.identity.uid)
        for reference in node.owners:
            owner = self._nodes.get(reference.uid)
            if owner is not None and owner.deleting_dependents:
                self._attempt_to_delete(reference.uid)


def _starts_deletion_with(old: ObjectMeta | None, new: ObjectMeta, finalizer: str) -> bool:
    """Return True if the object is being deleted with `finalizer` and was not before."""
    if new.deletion_timestamp is None or finalizer not in new.finalizers:
        return False
    return old is None or old.deletion_timestamp is None or finalizer not in old.finalizers


def _partition_dependents(
    dependents: Iterable[GraphNode], identity: ObjectIdentity
) -> tuple[list[GraphNode], list[GraphNode]]:
    """Return the dependents that refer to this identity, and those that use its UID otherwise; some are in both."""
    matching, others = [], []
    for dependent in dependents:
        match = mismatch = False
        if identity.namespace and identity.namespace != dependent.identity.namespace:
            mismatch = True
        else:
            for reference in dependent.owners:
                if reference.uid == identity.uid:
                    if refers_to(reference, identity):
                        match = True
                    else:
                        mismatch = True
        if match:
            matching.append(dependent)
        if mismatch:
            others.append(dependent)
    return matching, others


def _alternate_owner_identity(dependents: Iterable[GraphNode], absent_owners: ObjectIdentity) -> ObjectIdentity | None:
    """Return another identity that dependents give the owner: the next one after `absent`, or else the first."""
    candidates: set[ObjectIdentity] = set()
    for dependent in dependents:
        for reference in dependent.owners:
            if reference.uid != absent_owners.uid:
                continue
            identity = owner_identity(reference, dependent.identity.namespace)
            if not absent_owners.namespace and (identity.api_version, identity.kind) == (
                absent_owners.api_version,
                absent_owners.kind,
            ):
                identity = owner_identity(reference, "")  # that kind is cluster-scoped
            if identity != absent_owners:
                candidates.add(identity)
    following = [identity for identity in candidates if identity > absent_owners]
    return min(following or candidates, default=None)
