"""The scheduler's cache: nodes with their pods, including assumed pods, whose binding is not confirmed yet.

States of a pod and their transitions (Expired and Deleted pods are no longer in the cache):

                      +---------- add_pod ----------+     +---- update_pod
                      |                             v     v    |
    Initial ---- assume_pod --> Assumed -- add_pod --> Added --+
       ^                         |    |                  |
       +------ forget_pod -------+    | (time to live)   | remove_pod
                                      v                  v
                                   Expired            Deleted

An assumed pod expires some time after finish_binding if the cache has a time to live for it: 30 s in the classic
scheduler, none in v1.36. Sources: pkg/scheduler/backend/cache of v1.36, pkg/scheduler/internal/cache of v1.20.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Set
from weakref import WeakKeyDictionary

from kubeloop.kube.objects.api_types import Node, Pod
from kubeloop.scheduler.cache.node_info import ImageState, NodeInfo, PodInfo
from kubeloop.scheduler.cache.node_tree import NodeTree
from kubeloop.scheduler.cache.pod_groups import PodGroupStates
from kubeloop.scheduler.cache.pod_requests import DEFAULT_REQUEST_RULES, RequestRules
from kubeloop.scheduler.cache.snapshot import Snapshot

log = logging.getLogger(__name__)


class CacheError(Exception):
    """The call is invalid in the state of the pod or node. The cache is unchanged."""


class _CachedPod:
    __slots__ = ("assumed", "deadline", "info", "node_name")

    def __init__(self, info: PodInfo, assumed: bool) -> None:
        self.info = info
        self.node_name = info.pod.spec.node_name
        self.assumed = assumed
        self.deadline: float | None = None  # time of expiry, in seconds of the cache's clock


class SchedulerCache:
    """Nodes and pods of the scheduler.

    now: a monotonic clock in seconds, for the expiry of assumed pods after assumed_pod_ttl_seconds (None: never).
    request_rules: which requests of a pod count. pod_groups: receives the pods with their states; None: pods are
    scheduled one by one.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        assumed_pod_ttl_seconds: float | None = None,
        request_rules: RequestRules = DEFAULT_REQUEST_RULES,
        pod_groups: PodGroupStates | None = None,
    ) -> None:
        self._now = now
        self.pod_groups = pod_groups
        self.request_rules = request_rules
        self._ttl_seconds = assumed_pod_ttl_seconds
        self._pods: dict[str, _CachedPod] = {}  # by UID
        self._assumed: dict[str, _CachedPod] = {}
        self._nodes: OrderedDict[str, NodeInfo] = OrderedDict()  # least recently changed first
        self._tree = NodeTree()
        self._images: dict[str, ImageState] = {}
        self._snapshot_generations: WeakKeyDictionary[Snapshot, int] = WeakKeyDictionary()  # of its newest node

    # --- Pods ------------------------------------------------------------------------------------------------------

    def assume_pod(self, info: PodInfo) -> None:
        """Count the pod on the node of its spec before the binding is confirmed. Raises CacheError if it is cached."""
        if info.uid in self._pods:
            raise CacheError(f"pod {info.uid}({info.key}) is in the cache, so can't be assumed")
        self._add(info, assumed=True)
        if self.pod_groups is not None:
            self.pod_groups.assume(info.pod)

    def finish_binding(self, pod: Pod) -> None:
        """Start the time to live of an assumed pod. No effect if the pod is confirmed already."""
        cached = self._assumed.get(pod.metadata.uid)
        if cached is not None and self._ttl_seconds is not None:
            cached.deadline = self._now() + self._ttl_seconds

    def forget_pod(self, pod: Pod) -> None:
        """Undo assume_pod. Raises CacheError if the pod is not assumed, or is cached on another node."""
        uid = pod.metadata.uid
        cached = self._pods.get(uid)
        if cached is None:
            return
        if cached.node_name != pod.spec.node_name:
            raise CacheError(
                f"pod {uid}({pod.key}) was assumed on {pod.spec.node_name} but assigned to {cached.node_name}"
            )
        if not cached.assumed:
            raise CacheError(f"pod {uid}({pod.key}) is not assumed, so it cannot be forgotten")
        self._remove(cached)
        if self.pod_groups is not None:
            self.pod_groups.forget(pod)

    def add_pod(self, pod: Pod) -> None:
        """Add a bound pod, or confirm an assumed one. Raises CacheError if it was added before."""
        uid = pod.metadata.uid
        cached = self._pods.get(uid)
        if cached is None:
            self._add(PodInfo(pod, self.request_rules), assumed=False)
        elif cached.assumed:
            if cached.node_name != pod.spec.node_name:
                log.warning(
                    "pod was bound to another node than assumed",
                    extra={"pod": pod.key, "assumed": cached.node_name, "node": pod.spec.node_name},
                )
            self._remove(cached)
            self._add(cached.info.with_pod(pod), assumed=False)
        else:
            raise CacheError(f"pod {uid}({pod.key}) was already in added state")
        if self.pod_groups is not None:
            self.pod_groups.put(pod)

    def update_pod(self, old: Pod, new: Pod) -> None:
        """Update a bound pod. Raises CacheError if it is not cached, or only assumed."""
        uid = old.metadata.uid
        cached = self._pods.get(uid)
        if cached is None:
            raise CacheError(f"pod {uid}({old.key}) is not added to scheduler cache, so cannot be updated")
        if cached.assumed:
            raise CacheError(f"assumed pod {uid}({old.key}) should not be updated")
        if cached.node_name != new.spec.node_name:
            log.error("a bound pod changed its node", extra={"pod": new.key, "node": new.spec.node_name})
        self._remove(cached)
        self._add(cached.info.with_pod(new), assumed=False)
        if self.pod_groups is not None:
            self.pod_groups.put(new)

    def remove_pod(self, pod: Pod) -> None:
        """Remove a deleted pod. Raises CacheError if it is not cached."""
        cached = self._pods.get(pod.metadata.uid)
        if cached is None:
            raise CacheError(
                f"pod {pod.metadata.uid}({pod.key}) is not found in scheduler cache, so cannot be removed from it"
            )
        node_name = pod.spec.node_name
        if cached.node_name != node_name:
            fields = {"pod": pod.key, "uid": pod.metadata.uid, "assumed": node_name, "node": cached.node_name}
            log.error("pod was added to a different node than it was assumed", extra=fields)
            if node_name:  # it is empty in the last known state of a pod whose deletion was missed
                log.error("scheduler cache is corrupted and can badly affect scheduling decisions", extra=fields)
        self._remove(cached)
        if self.pod_groups is not None:
            self.pod_groups.remove(pod)

    def is_assumed(self, pod: Pod) -> bool:
        return pod.metadata.uid in self._assumed

    def get_pod(self, uid: str) -> Pod | None:
        """Return the pod as cached, with the node that it counts on."""
        cached = self._pods.get(uid)
        return cached.info.pod if cached is not None else None

    def assumes_pods(self) -> bool:
        """Return True if there are assumed pods, which may expire."""
        return bool(self._assumed)

    def expire_assumed_pods(self) -> list[Pod]:
        """Remove the assumed pods whose time to live is over, and return them. Called once a second."""
        if self._ttl_seconds is None:
            return []
        now = self._now()
        expired = [pod for pod in self._assumed.values() if pod.deadline is not None and pod.deadline <= now]
        for cached in expired:
            log.warning("assumed pod expired", extra={"pod": cached.info.key, "node": cached.node_name})
            self._remove(cached)
            if self.pod_groups is not None:
                self.pod_groups.forget(cached.info.pod)
        return [cached.info.pod for cached in expired]

    def _add(self, info: PodInfo, *, assumed: bool) -> None:
        cached = _CachedPod(info, assumed)
        node = self._nodes.get(cached.node_name)
        if node is None:
            node = self._nodes[cached.node_name] = NodeInfo(cached.node_name)
        node.add_pod(info)
        self._nodes.move_to_end(cached.node_name)
        self._pods[info.uid] = cached
        if assumed:
            self._assumed[info.uid] = cached

    def _remove(self, cached: _CachedPod) -> None:
        uid = cached.info.uid
        node = self._nodes.get(cached.node_name)
        if node is not None:
            node.remove_pod(uid)
            if node.node is None and not node.pods:
                del self._nodes[cached.node_name]
            else:
                self._nodes.move_to_end(cached.node_name)
        del self._pods[uid]
        self._assumed.pop(uid, None)

    # --- Nodes -----------------------------------------------------------------------------------------------------

    def has_node(self, name: str) -> bool:
        """Return True if the node exists. Pods may still be bound to one that does not."""
        info = self._nodes.get(name)
        return info is not None and info.node is not None

    def add_node(self, node: Node) -> None:
        """Add a node, which may have pods already."""
        info = self._nodes.get(node.metadata.name)
        if info is None:
            info = self._nodes[node.metadata.name] = NodeInfo(node.metadata.name)
        elif info.node is not None:
            self._remove_images(info.node)
        self._tree.add(node)
        self._set_node(info, node)

    def update_node(self, old: Node | None, new: Node) -> None:
        info = self._nodes.get(new.metadata.name)
        if info is None:
            info = self._nodes[new.metadata.name] = NodeInfo(new.metadata.name)
            self._tree.add(new)
        elif info.node is not None:
            self._remove_images(info.node)
        self._tree.update(old, new)
        self._set_node(info, new)

    def remove_node(self, node: Node) -> None:
        """Remove the node; its entry stays until its pods are removed, too. Raises CacheError if it is not cached."""
        name = node.metadata.name
        info = self._nodes.get(name)
        if info is None:
            raise CacheError(f"node {name} is not found")
        info.remove_node()
        if info.pods:
            self._nodes.move_to_end(name)
        else:
            del self._nodes[name]
        if not self._tree.remove(node):
            raise CacheError(f"node {name} was not found in the list of its zone")
        self._remove_images(node)

    def _set_node(self, info: NodeInfo, node: Node) -> None:
        self._nodes.move_to_end(node.metadata.name)
        info.image_states = self._add_images(node)
        info.set_node(node)

    def _add_images(self, node: Node) -> dict[str, ImageState]:
        states = {}
        for image in node.status.images:
            for name in image.names:
                state = self._images.get(name)
                if state is None:
                    state = self._images[name] = ImageState(image.size_bytes)
                state.nodes.add(node.metadata.name)
                states[name] = state
        return states

    def _remove_images(self, node: Node) -> None:
        for image in node.status.images:
            for name in image.names:
                state = self._images.get(name)
                if state is not None:
                    state.nodes.discard(node.metadata.name)
                    if not state.nodes:
                        del self._images[name]

    # --- The snapshot ----------------------------------------------------------------------------------------------

    def update_snapshot(self, snapshot: Snapshot, at_most: int | None = None) -> list[str]:
        """Bring `snapshot` up to date; return the names of the nodes that were copied.

        Only nodes that changed since the last call are copied. The order of rows changes only when a node was added or
        removed, not when one changed its zone. at_most: copy at most this many nodes, the least recently changed first,
        or a quarter of the snapshot's if nodes were added; if at least `at_most` are returned, the snapshot may be
        incomplete and must not be used yet.

        Without at_most, raises CacheError if the snapshot lacks a node; it is then built anew for the next cycle.
        """
        last_generation = self._snapshot_generations.get(snapshot, 0)
        stale: list[NodeInfo] = []  # most recently changed first
        for name in reversed(self._nodes):
            info = self._nodes[name]
            if info.generation <= last_generation:
                break
            stale.append(info)
        if at_most is not None and len(stale) > at_most:
            if len(snapshot) < len(self._tree):  # adding rows takes time for all rows, so that few slices should do it
                at_most = max(at_most, len(snapshot) // 4)
            stale = stale[-at_most:]
        changed = {info.name: info.clone() for info in stale if info.node is not None}
        nodes_added = not changed.keys() <= snapshot.row_of.keys()
        if stale:
            self._snapshot_generations[snapshot] = stale[0].generation
        order: list[NodeInfo] | None = None
        if nodes_added or len(snapshot) > len(self._tree):
            copied = dict(zip(snapshot.row_of, snapshot.node_infos, strict=True)) | changed
            order = [copied[name] for name in self._tree.names() if name in copied]
        if order is not None or changed:
            snapshot.update(order, changed.values())
        if at_most is None and len(snapshot) != len(self._tree):
            message = (
                f"snapshot state is not consistent: {len(snapshot)} nodes, but {len(self._tree)} in the tree and "
                f"{len(self._nodes)} in the cache; trying to recover"
            )
            log.error(message)
            self._rebuild(snapshot)
            raise CacheError(message)
        return list(changed)

    def _rebuild(self, snapshot: Snapshot) -> None:
        """Copy every node of the tree."""
        infos = [self._nodes[name] for name in self._tree.names() if name in self._nodes]
        copies = [info.clone() for info in infos if info.node is not None]
        snapshot.update(copies, copies)

    # --- Reading ---------------------------------------------------------------------------------------------------

    def nodes(self) -> Iterator[NodeInfo]:
        """Iterate over all entries, most recently changed first, including those without a node. Read only."""
        return iter([self._nodes[name] for name in reversed(self._nodes)])

    def pods(self) -> dict[str, Pod]:
        """Return all pods by UID."""
        return {uid: cached.info.pod for uid, cached in self._pods.items()}

    def pod_uids(self) -> Set[str]:
        """Return a dynamic view of the UIDs of all pods."""
        return self._pods.keys()

    def assumed_pods(self) -> list[Pod]:
        return [cached.info.pod for cached in self._assumed.values()]

    def sizes(self) -> tuple[int, int, int]:
        """Return the numbers of (nodes, pods, assumed pods)."""
        return len(self._nodes), len(self._pods), len(self._assumed)

    def check(self) -> None:
        """Assert: sums on nodes match their pods; every pod is on its node; the tree has exactly the existing nodes."""
        generations = [info.generation for info in self.nodes()]
        assert generations == sorted(generations, reverse=True)
        assert sorted(self._tree.names()) == sorted(name for name, info in self._nodes.items() if info.node)
        assert self._assumed.items() <= self._pods.items()
        counted = {uid: name for name, info in self._nodes.items() for uid in info.pods}
        assert counted == {uid: cached.node_name for uid, cached in self._pods.items()}
        for info in self._nodes.values():
            sums: dict[str, int] = {}
            for pod in info.pods.values():
                for name, amount in pod.requests.items():
                    sums[name] = sums.get(name, 0) + amount
            assert sums == {name: amount for name, amount in info.requested.items() if amount or name in sums}
