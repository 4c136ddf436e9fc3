"""Who depends on whom: a graph of all objects, built from informers, that tells which of them to look at.

A node stands for an object, known by its uid. An owner that is referred to before it was seen is a virtual node, until
an informer shows it or the collector finds that it does not exist. Nothing here talks to the API server: the graph
names uids to delete (perhaps) and to orphan through two functions given to it. May import `kubeloop.kube` alone.
Source: pkg/controller/garbagecollector/graph_builder.go and graph.go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from kubeloop.kube.objects.api_types import ObjectMeta, OwnerReference

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Identity(msgspec.Struct, frozen=True, order=True):
    """Where an object is. `namespace` is "" for what lives in none."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        place = f", namespace: {self.namespace}" if self.namespace else ""
        return f"[{self.api_version}/{self.kind}{place}, name: {self.name}, uid: {self.uid}]"


def owner_identity(reference: OwnerReference, namespace: str) -> Identity:
    return Identity(reference.kind, reference.api_version, namespace, reference.name, reference.uid)


def refers_to(reference: OwnerReference, identity: Identity) -> bool:
    """Whether the reference names this object; a reference has no namespace."""
    return (reference.uid, reference.name, reference.kind, reference.api_version) == (
        identity.uid,
        identity.name,
        identity.kind,
        identity.api_version,
    )


class Node(msgspec.Struct, eq=False):
    """One object. `dependents` are the nodes that have it among their owners (a dict for its order).

    `being_deleted` and `deleting_dependents` never become false again: a deletion cannot be taken back.
    """

    identity: Identity
    owners: tuple[OwnerReference, ...] = ()
    dependents: dict[Node, None] = msgspec.field(default_factory=dict)
    virtual: bool = False
    being_deleted: bool = False
    deleting_dependents: bool = False  # in the foreground
    checks: int = 0  # of a virtual node: how often the API server was asked for it

    def blocking_dependents(self) -> list[Node]:
        """Dependents without whose end a foreground deletion of this object cannot end."""
        uid = self.identity.uid
        return [
            dependent
            for dependent in self.dependents
            if any(owner.uid == uid and owner.block_owner_deletion for owner in dependent.owners)
        ]


class AbsentOwnerCache:
    """Identities of owners that do not exist, the latest 500."""

    def __init__(self, size: int = 500) -> None:
        self._size = size
        self._known: OrderedDict[Identity, None] = OrderedDict()

    def add(self, identity: Identity) -> None:
        self._known[identity] = None
        self._known.move_to_end(identity)
        if len(self._known) > self._size:
            self._known.popitem(last=False)

    def __contains__(self, identity: Identity) -> bool:
        if identity not in self._known:
            return False
        self._known.move_to_end(identity)
        return True


class Graph:
    """The nodes by uid, and what follows from each change of an object.

    `to_delete`: look whether the object of this uid is garbage. `to_orphan`: take this uid out of its dependents.
    `misplaced`: a dependent refers to an owner in another namespace.
    """

    def __init__(
        self,
        *,
        to_delete: Callable[[str], None],
        to_orphan: Callable[[str], None],
        misplaced: Callable[[Identity, OwnerReference], None],
    ) -> None:
        self._to_delete = to_delete
        self._to_orphan = to_orphan
        self._misplaced = misplaced
        self._nodes: dict[str, Node] = {}
        self._left: dict[str, dict[Node, None]] = {}  # dependents of owners that have no node any more, by the uid
        self.absent = AbsentOwnerCache()

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, uid: str) -> Node | None:
        return self._nodes.get(uid)

    def check(self) -> None:
        """Assert what always holds."""
        for uid, node in self._nodes.items():
            assert node.identity.uid == uid
            for dependent in node.dependents:
                assert any(owner.uid == uid for owner in dependent.owners)
            for owner in node.owners:
                assert node in self._dependents(owner.uid)
        assert not self._left.keys() & self._nodes.keys()
        assert all(self._left.values())

    # --- what informers show ---------------------------------------------------------------------------------------

    def changed(self, api_version: str, kind: str, old: ObjectMeta | None, new: ObjectMeta) -> None:
        """An object was added, or has changed. `old` is its state before, as far as known."""
        node = self._nodes.get(new.uid)
        identity = Identity(kind, api_version, new.namespace, new.name, new.uid)
        deleted = new.deletion_timestamp is not None
        if node is None:
            node = Node(
                identity,
                new.owner_references,
                being_deleted=deleted,
                deleting_dependents=deleted and FOREGROUND in new.finalizers,
                dependents=self._left.pop(new.uid, {}),
            )
            self._nodes[new.uid] = node
            self._add_to_owners(node, node.owners)
        else:
            if node.virtual:
                self._observed(node, identity)
            elif (node.identity.api_version, node.identity.kind) != (api_version, kind):
                node.identity = identity
            if node.owners != new.owner_references:
                self._change_owners(node, new.owner_references)
            if deleted:
                node.being_deleted = True
        if _begins(old, new, ORPHAN):
            self._to_orphan(new.uid)
        elif _begins(old, new, FOREGROUND):
            node.deleting_dependents = True  # a node that was virtual does not have it yet
            for dependent in node.dependents:
                self._to_delete(dependent.identity.uid)
            self._to_delete(new.uid)

    def deleted(self, api_version: str, kind: str, metadata: ObjectMeta) -> None:
        """An informer showed the end of an object."""
        node = self._nodes.get(metadata.uid)
        if node is not None:
            node.virtual = False
            self._remove(node, Identity(kind, api_version, metadata.namespace, metadata.name, metadata.uid))

    # --- what the collector finds ----------------------------------------------------------------------------------

    def found_absent(self, identity: Identity) -> bool:
        """The API server knows no object of this identity. True: the uid may be another object; look again, later.

        The references that led to it may be wrong: what an informer has shown under the uid, or what other dependents
        call it, is kept.
        """
        node = self._nodes.get(identity.uid)
        if node is None:
            return False
        if node.virtual:
            matching, others = _by_reference(node.dependents, identity)
            if not others:
                self._remove(node, identity)
                return False
            self._absent_for(matching, identity)
            if node.identity == identity:
                other = _alternative(others, identity)
                if other is not None:
                    node.identity = other
                    return True
        elif node.identity != identity:
            matching, _ = _by_reference(node.dependents, identity)
            self._absent_for(matching, identity)
        else:
            self._remove(node, identity)
        return False

    def _absent_for(self, dependents: Sequence[Node], identity: Identity) -> None:
        if dependents:
            self.absent.add(identity)
            for dependent in dependents:
                self._to_delete(dependent.identity.uid)

    # --- the graph itself ------------------------------------------------------------------------------------------

    def _observed(self, node: Node, identity: Identity) -> None:
        """A virtual node turns out to be this object."""
        if node.identity != identity:
            _, others = _by_reference(node.dependents, identity)
            for dependent in others:
                if identity.namespace and dependent.identity.namespace != identity.namespace:
                    self._report_misplaced(dependent, identity.uid)
                self._to_delete(dependent.identity.uid)
            node.identity = identity
        node.virtual = False

    def _change_owners(self, node: Node, owners: tuple[OwnerReference, ...]) -> None:
        before = {owner.uid: owner for owner in node.owners}
        now = {owner.uid: owner for owner in owners}
        removed = [owner for uid, owner in before.items() if uid not in now]
        for owner in removed:
            if owner.block_owner_deletion and owner.uid in self._nodes:
                self._to_delete(owner.uid)
        for uid, owner in now.items():
            if uid in before and before[uid].block_owner_deletion and not owner.block_owner_deletion:
                self._to_delete(uid)
        node.owners = owners
        self._add_to_owners(node, [owner for uid, owner in now.items() if uid not in before])
        self._remove_from_owners(node, removed)

    def _add_to_owners(self, node: Node, owners: Iterable[OwnerReference]) -> None:
        doubtful = False
        for reference in owners:
            owner = self._nodes.get(reference.uid)
            if owner is None:
                identity = owner_identity(reference, node.identity.namespace)
                owner = Node(identity, dependents=self._left.pop(reference.uid, {}), virtual=True)
                self._nodes[reference.uid] = owner
                owner.dependents[node] = None
                self._to_delete(reference.uid)  # asks the API server whether it exists
                continue
            owner.dependents[node] = None
            if doubtful:
                continue
            elsewhere = owner.identity.namespace != node.identity.namespace
            if owner.identity.namespace and elsewhere:
                if not owner.virtual:
                    self._report_misplaced(node, reference.uid)
                doubtful = True
            elif not refers_to(reference, owner.identity) or (elsewhere and owner.virtual):
                # A virtual owner without namespace may be a namespaced one that a cluster-scoped object refers to.
                doubtful = True
        if doubtful:
            self._to_delete(node.identity.uid)

    def _report_misplaced(self, node: Node, owner_uid: str) -> None:
        for reference in node.owners:
            if reference.uid == owner_uid:
                self._misplaced(node.identity, reference)
                return

    def _remove_from_owners(self, node: Node, owners: Iterable[OwnerReference]) -> None:
        for reference in owners:
            dependents = self._dependents(reference.uid)
            dependents.pop(node, None)
            if not dependents:
                self._left.pop(reference.uid, None)

    def _dependents(self, uid: str) -> dict[Node, None]:
        owner = self._nodes.get(uid)
        return self._left.get(uid, {}) if owner is None else owner.dependents

    def _remove(self, node: Node, identity: Identity) -> None:
        """The object is gone: its dependents may be garbage, and owners that waited for it may go on."""
        del self._nodes[node.identity.uid]
        self._remove_from_owners(node, node.owners)
        if node.dependents:
            self.absent.add(identity)
            self._left[node.identity.uid] = node.dependents
        for dependent in node.dependents:
            self._to_delete(dependent.identity.uid)
        for reference in node.owners:
            owner = self._nodes.get(reference.uid)
            if owner is not None and owner.deleting_dependents:
                self._to_delete(reference.uid)


def _begins(old: ObjectMeta | None, new: ObjectMeta, finalizer: str) -> bool:
    """Whether the object is being deleted under `finalizer`, and was not before."""
    if new.deletion_timestamp is None or finalizer not in new.finalizers:
        return False
    return old is None or old.deletion_timestamp is None or finalizer not in old.finalizers


def _by_reference(dependents: Iterable[Node], identity: Identity) -> tuple[list[Node], list[Node]]:
    """Dependents that refer to this identity, and those that refer to its uid as something else; some do both."""
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


def _alternative(dependents: Iterable[Node], absent: Identity) -> Identity | None:
    """What else the owner may be, as these dependents name it: the next after `absent` in order, or else the first."""
    found: set[Identity] = set()
    for dependent in dependents:
        for reference in dependent.owners:
            if reference.uid != absent.uid:
                continue
            identity = owner_identity(reference, dependent.identity.namespace)
            if not absent.namespace and (identity.api_version, identity.kind) == (absent.api_version, absent.kind):
                identity = owner_identity(reference, "")  # that kind is known to live in no namespace
            if identity != absent:
                found.add(identity)
    following = [identity for identity in found if identity > absent]
    return min(following or found, default=None)
