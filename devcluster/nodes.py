"""Simulated nodes: what kubelets, and the controllers that watch over nodes and their pods, do in a real cluster.

Every Node in the store has a kubelet here, those that `NodeSettings.count` asks for and those that users create. A pod
bound to a node is admitted or rejected, starts after a delay, becomes ready, runs, and stops within its grace period.
One heap holds the times at which something is due, for all nodes and pods together; there is no task per pod or node.
Nothing is remembered that the store does not tell: a pod is advanced from its object, its containers and the time.

    bound --admitted--> starting --start--> running (ready or not) --exit--> ended       deletionTimestamp, at any
      |                                        ^  | restart                     |        stage: --stop--> removed
      +--rejected--> failed                    +--+                             +-- phase Succeeded or Failed

Also here, because nothing else in the development cluster does it: taints by node condition, eviction by NoExecute
taints, and removal of pods whose node is gone (node lifecycle, taint eviction and pod garbage collection of
kube-controller-manager).

Annotations of a pod that steer it:
    kubeloop.dev/start-delay-seconds   instead of the settings' start delay
    kubeloop.dev/stop-seconds          instead of the settings' stop delay; never longer than the grace period
    kubeloop.dev/run-seconds           its containers exit after this time
    kubeloop.dev/exit-code             and with this code; without run-seconds they exit at once
    kubeloop.dev/not-ready             "true": running but not ready, until the annotation goes
    kubeloop.dev/image-pull-error      the text of the error with which its images cannot be pulled, until it goes
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
import uuid
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kubeloop.devcluster import node_objects, pod_status, taint_eviction
from kubeloop.devcluster.kubelet_events import KubeletEvents
from kubeloop.devcluster.node_admission import Rejection, rejection
from kubeloop.devcluster.node_objects import LEASE_NAMESPACE, NodeSettings
from kubeloop.devcluster.simulated_pod import SimulatedNode, SimulatedPod
from kubeloop.devcluster.storage import Change, Store, Stored
from kubeloop.kube.clock import Clock, rfc3339, rfc3339_micro
from kubeloop.kube.resources import LEASES, NODES, PODS

JSON = dict[str, Any]
log = logging.getLogger(__name__)

_BATCH = 50  # pieces of work between two turns for everybody else on the event loop: about 5 ms
_MAX_SLICES = 100  # leases and reports of all nodes are spread over this many points of their period


class SimulatedNodes:
    """All nodes of a development cluster. `run()` once; register() may be called before it."""

    def __init__(self, store: Store, settings: NodeSettings | None = None, *, clock: Clock, rng: random.Random) -> None:
        self._store = store
        self._settings = settings or NodeSettings()
        self._clock = clock
        self._rng = rng
        self._events = KubeletEvents(store, clock=clock, rng=rng) if self._settings.events else None
        self._nodes: dict[str, SimulatedNode] = {}
        self._pods: dict[str, SimulatedPod] = {}  # by uid
        self._orphans: dict[str, SimulatedPod] = {}  # by uid: pods whose node does not exist
        self._next_index = self._settings.count
        self._inbox: deque[Change] = deque()
        self._writing = False  # changes that arrive meanwhile are our own
        self._heap: list[tuple[float, int, SimulatedPod | Callable[[], None], int]] = []
        self._serial = 0
        self._wall_second, self._wall_text = -1, ""
        self._wake = asyncio.Event()

    # --- lifecycle --------------------------------------------------------------------------------

    def register(self) -> None:
        """Create the Nodes of the settings that do not exist yet."""
        now = self._wall()
        for index in range(self._settings.count):
            if self._store.get(NODES, "", self._settings.name(index)) is None:
                node = node_objects.node_object(self._settings, index, now=now, uid=self._uid())
                self._store.create(NODES, node)

    async def run(self) -> None:
        """Run nodes and pods until cancelled."""
        self.register()
        unsubscribe = [self._store.subscribe(NODES, self._receive), self._store.subscribe(PODS, self._receive)]
        try:
            for node in self._store.list(NODES):
                self._node_appeared(node)
            for pod in self._store.list(PODS):
                if pod["spec"].get("nodeName"):
                    self._inbox.append(Change("ADDED", Stored("", pod, 0), None, 0.0))
            self._beat(0, self._settings.lease_renew_seconds, self._renew_lease)
            self._beat(0, self._settings.status_report_seconds, self._report)
            while True:
                await self._work_through()
                alarm = None
                if self._heap:
                    alarm = asyncio.get_running_loop().call_at(self._heap[0][0], self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    if alarm is not None:
                        alarm.cancel()
                self._wake.clear()
        finally:
            for each in unsubscribe:
                each()

    async def _work_through(self) -> None:
        """Handle all changes and all that is due, in batches."""
        done = 0
        while True:
            if self._inbox:
                change = self._inbox.popleft()
                self._guarded(self._apply, change)
            elif self._heap and self._heap[0][0] <= self._now():
                _, _, target, epoch = heapq.heappop(self._heap)
                if isinstance(target, SimulatedPod):
                    if epoch == target.epoch:
                        self._guarded(self._advance, target)
                else:
                    target()
            else:
                return
            done += 1
            if done % _BATCH == 0:
                await asyncio.sleep(0)

    def _guarded(self, act: Callable[[Any], None], argument: Any) -> None:
        """One object that cannot be simulated must not stop all the others."""
        try:
            act(argument)
        except Exception:
            log.exception("simulated node failed at an object")

    def _receive(self, change: Change) -> None:
        if self._writing:
            return
        obj = change.now.object
        if obj["kind"] == "Pod" and not obj["spec"].get("nodeName"):
            return
        self._inbox.append(change)
        self._wake.set()

    def _apply(self, change: Change) -> None:
        obj = change.now.object
        if obj["kind"] == "Node":
            self._apply_node(change)
            return
        uid = obj["metadata"]["uid"]
        if change.type == "DELETED":
            self._forget(uid)
            return
        # What counts is the pod as it is now: our own writes may have overtaken this change.
        current = self._store.get(PODS, obj["metadata"]["namespace"], obj["metadata"]["name"])
        if current is None or current["metadata"]["uid"] != uid:
            return
        pod = self._pods.get(uid)
        if pod is None:
            self._pod_bound(current)
        else:
            self._pod_changed(pod, current)

    # --- nodes ------------------------------------------------------------------------------------

    def _apply_node(self, change: Change) -> None:
        name = change.now.object["metadata"]["name"]
        current = self._store.get(NODES, "", name)
        known = self._nodes.get(name)
        if known is not None and (current is None or current["metadata"]["uid"] != known.uid):
            self._node_gone(known)
            known = None
        if current is None:
            return
        if known is None:
            self._node_appeared(current)
        else:
            self._node_changed(known, current)

    def _node_appeared(self, node: JSON) -> None:
        name = node["metadata"]["name"]
        index = self._index_of(name)
        now = self._wall()
        complete = node_objects.completed_node(node, self._settings, index, now=now)
        if complete is not None:
            node = self._update(NODES, complete)
        known = self._nodes[name] = SimulatedNode(node, index)
        self._node_changed(known, node)
        self._renew_lease(known)
        for orphan in [each for each in self._orphans.values() if each.node_name == name]:
            self._forget(orphan.uid)
            self._pod_bound(orphan.object)

    def _index_of(self, name: str) -> int:
        prefix, first = self._settings.name_prefix, self._settings.first_number
        number = name.removeprefix(prefix)
        if name.startswith(prefix) and number.isdigit() and 0 <= int(number) - first < self._settings.count:
            return int(number) - first
        self._next_index += 1
        return self._next_index - 1

    def _node_changed(self, known: SimulatedNode, node: JSON) -> None:
        changed = node_objects.tainted(node, self._wall())
        if changed is not None:
            node = self._update(NODES, changed)
        had = known.no_execute
        known.refresh(node)
        if known.no_execute != had:
            for pod in list(known.pods.values()):
                self._consider_eviction(pod, known)
                self._plan(pod)

    def _node_gone(self, known: SimulatedNode) -> None:
        """The node's machine is no more: nothing of it runs, and nobody reports."""
        del self._nodes[known.name]
        for pod in list(known.pods.values()):
            self._forget(pod.uid)
            self._orphaned(pod.object)

    def _orphaned(self, obj: JSON) -> None:
        pod = SimulatedPod(obj, None)
        pod.remove_at = self._now() + self._settings.orphan_quarantine_seconds
        self._pods[pod.uid] = self._orphans[pod.uid] = pod
        self._plan(pod)

    def _collect_orphan(self, pod: SimulatedPod) -> None:
        """As the pod garbage collector: mark a pod that has not ended as failed, then delete it without grace."""
        current = self._current(pod)
        if current is None:
            return
        if (current.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            text = "PodGC: node no longer exists"
            status = self._disrupted(current, "DeletionByPodGC", text)
            current = self._write_status(pod, {**status, "phase": "Failed"})
        self._remove(pod, current)

    # --- leases and reports -----------------------------------------------------------------------

    def _beat(self, number: int, period: float, act: Callable[[SimulatedNode], None]) -> None:
        """Do `act` for one slice of the nodes, and plan the next slice: all nodes once a period."""
        slices = max(1, min(_MAX_SLICES, len(self._nodes)))
        for name in list(self._nodes)[number % slices :: slices]:
            self._guarded(act, self._nodes[name])
        self._at(self._now() + period / slices, lambda: self._beat((number + 1) % slices, period, act))

    def _renew_lease(self, known: SimulatedNode) -> None:
        now = self._clock.now()
        lease = self._store.get(LEASES, LEASE_NAMESPACE, known.name)
        if lease is None:
            lease = node_objects.lease_object(
                known.object, now=rfc3339(now), now_micro=rfc3339_micro(now), uid=self._uid()
            )
            self._store.create(LEASES, lease)
        else:
            self._store.update(LEASES, {**lease, "spec": {**lease["spec"], "renewTime": rfc3339_micro(now)}})

    def _report(self, known: SimulatedNode) -> None:
        node = self._store.get(NODES, "", known.name)
        if node is not None:
            known.refresh(self._update(NODES, node_objects.reported(node, self._wall())))

    # --- pods: from bound to admitted -------------------------------------------------------------

    def _pod_bound(self, obj: JSON) -> None:
        node = self._nodes.get(obj["spec"]["nodeName"])
        if node is None:
            self._orphaned(obj)
            return
        pod = SimulatedPod(obj, node, probe_delays=self._settings.probe_delays)
        status = obj.get("status") or {}
        self._pods[pod.uid] = pod
        if status.get("phase") in ("Succeeded", "Failed"):
            node.add(pod, counts=False)
            pod.ended = True
            self._plan_deletion(pod)
        elif status.get("phase") == "Running":
            node.add(pod, address=status.get("podIP", ""))
            pod.adopt(self._now(), self._wall())
            self._pod_changed(pod, obj)
        else:
            refused = rejection(
                obj,
                node.object,
                pod.requests,
                used=node.used,
                allocatable=node.allocatable,
                used_ports=node.used_ports(),
            )
            if refused is not None:
                node.add(pod, counts=False)
                self._reject(pod, refused)
            else:
                node.add(pod)
                self._accept(pod)
        self._consider_eviction(pod, node)
        self._plan(pod)

    def _reject(self, pod: SimulatedPod, refused: Rejection) -> None:
        pod.ended = True
        now = self._wall()
        self._write_status(pod, pod_status.rejected_status(pod.object, refused.reason, refused.message, now=now))
        self._event(pod, "Warning", refused.reason, refused.message)
        self._plan_deletion(pod)

    def _accept(self, pod: SimulatedPod) -> None:
        delay = pod.seconds("start-delay-seconds")
        if delay is None:
            spread = self._settings.start_delay_spread_seconds
            delay = max(0.0, self._settings.start_delay_seconds + self._rng.uniform(-spread, spread))
        now = self._now()
        pod.start_time = self._wall()
        pod.start_at = now + delay
        self._plan_deletion(pod)
        if delay >= 0.5 and pod.stop_at is None:  # long enough for somebody to look
            self._report_pod(pod)

    # --- pods: changes from outside ---------------------------------------------------------------

    def _pod_changed(self, pod: SimulatedPod, obj: JSON) -> None:
        """Somebody else wrote the pod: take over its new spec, annotations, conditions and deletion."""
        pod.object = obj
        self._plan_deletion(pod)
        if pod.node is None or pod.ended:
            self._plan(pod)
            return
        if obj["spec"] != pod.spec:
            pod.spec = obj["spec"]
            pod.node.recount(pod)
            self._apply_spec(pod)
            self._consider_eviction(pod, pod.node)
        if pod.start_at is None:
            if pod.pulls_fail and not pod.pull_error:
                pod.pulls_fail = False
                pod.start_at = self._now()
            pod.refresh_readiness(self._now())
            self._report_pod(pod)
        self._plan(pod)

    def _apply_spec(self, pod: SimulatedPod) -> None:
        """Containers whose image has changed are restarted with the new one."""
        for run, image in pod.changed_images():
            if run.state == "running":
                self._event(
                    pod, "Normal", "Killing", f"Container {run.name} definition changed, will be restarted", run.name
                )
                pod.restart(run, image, self._now(), self._wall())
                self._started_events(pod, run)
            else:
                run.image = image

    def _plan_deletion(self, pod: SimulatedPod) -> None:
        """Note when a pod that is being deleted will have stopped."""
        metadata = pod.object["metadata"]
        if not metadata.get("deletionTimestamp") or pod.node is None:
            return
        grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
        now = self._now()
        if pod.stop_at is None:
            wanted = pod.seconds("stop-seconds")
            delay = self._settings.stop_delay_seconds if wanted is None else wanted
            running = any(run.state == "running" for run in pod.runs)
            pod.stop_at = now + (min(delay, grace) if running else 0.0)
            for run in pod.runs:
                if run.state == "running":
                    self._event(pod, "Normal", "Killing", f"Stopping container {run.name}", run.name)
        else:  # deleted again, with less grace
            pod.stop_at = min(pod.stop_at, now + grace)

    # --- pods: what is due ------------------------------------------------------------------------

    def _advance(self, pod: SimulatedPod) -> None:
        """Do everything that is due for the pod, report it if something changed, and plan what comes next."""
        now = self._now()
        if pod.remove_at is not None and now >= pod.remove_at:
            self._collect_orphan(pod)
            return
        if pod.stop_at is not None:
            if now >= pod.stop_at:
                self._stopped(pod)
            else:
                self._plan(pod)
            return
        if pod.evict_at is not None and now >= pod.evict_at:
            self._evict(pod)
            return
        wall = self._wall()
        changed = False
        if pod.start_at is not None and now >= pod.start_at:
            pod.start_at = None
            self._start(pod, now, wall)
            changed = True
        if pod.pull_backoff_at is not None and now >= pod.pull_backoff_at:
            pod.pull_backoff_at = None
            self._back_off_pulling(pod)
            changed = True
        if pod.deadline_at is not None and now >= pod.deadline_at:
            pod.fail("DeadlineExceeded", "Pod was active on the node longer than the specified deadline", wall)
            self._event(pod, "Normal", "DeadlineExceeded", pod.failure[1] if pod.failure else "")
            changed = True
        if pod.exit_at is not None and now >= pod.exit_at:
            pod.exit(now, wall)
            changed = True
            if pod.restart_at is not None and pod.restart_at > now:
                for run in pod.main_runs():
                    self._event(pod, "Warning", "BackOff", f"Back-off restarting failed container {run.name}", run.name)
        if pod.restart_at is not None and now >= pod.restart_at:
            pod.restart_at = None
            for run in pod.main_runs():
                pod.restart(run, run.image, now, wall)
                self._started_events(pod, run)
            changed = True
        changed = pod.refresh_readiness(now) or changed
        if changed:
            self._report_pod(pod)
        self._plan(pod)

    def _start(self, pod: SimulatedPod, now: float, wall: str) -> None:
        assert pod.node is not None
        pod.give_address()
        error = pod.pull_error
        if error:
            pod.pulls_fail = True
            pod.pull_backoff_at = now + 2.0
            for run in pod.runs:
                run.reason, run.message = "ErrImagePull", error
                self._event(pod, "Normal", "Pulling", f'Pulling image "{run.image}"', run.name)
                text = f'Failed to pull image "{run.image}": {error}'
                self._event(pod, "Warning", "Failed", text, run.name)
                self._event(pod, "Warning", "Failed", "Error: ErrImagePull", run.name)
                if run.role == "init":
                    break  # those after it wait for it
            return
        for run in pod.runs:
            if run.state == "waiting":
                pod.start(run, now, wall)
                self._started_events(pod, run)
        pod.plan_exit(now)

    def _back_off_pulling(self, pod: SimulatedPod) -> None:
        for run in pod.runs:
            if run.reason == "ErrImagePull":
                run.reason = "ImagePullBackOff"
                run.message = f'Back-off pulling image "{run.image}": ErrImagePull: {run.message}'
                self._event(pod, "Normal", "BackOff", f'Back-off pulling image "{run.image}"', run.name)
                self._event(pod, "Warning", "Failed", "Error: ImagePullBackOff", run.name)

    def _stopped(self, pod: SimulatedPod) -> None:
        """All containers have ended and the pod was to be deleted: remove its object, or leave it to its finalizers."""
        current = self._current(pod)
        if current is None:
            return
        if current["metadata"].get("finalizers"):
            pod.stop_all(self._wall())
            pod.stop_at = None
            self._report_pod(pod)
            current = self._current(pod) or current
        self._remove(pod, current)

    def _remove(self, pod: SimulatedPod, current: JSON) -> None:
        """Delete without grace, as kubelets do at the end: finalizers keep the object until they are gone."""
        metadata = current["metadata"]
        if metadata.get("finalizers"):
            stamp = metadata.get("deletionTimestamp") or self._wall()
            if metadata.get("deletionGracePeriodSeconds") != 0 or "deletionTimestamp" not in metadata:
                changed = {**metadata, "deletionTimestamp": stamp, "deletionGracePeriodSeconds": 0}
                self._update(PODS, {**current, "metadata": changed})
            pod.ended, pod.stop_at, pod.remove_at = True, None, None
            pod.epoch += 1
            if pod.node is not None:
                pod.node.release(pod)
            return
        self._store.delete(PODS, metadata["namespace"], metadata["name"])
        self._forget(pod.uid)

    def _report_pod(self, pod: SimulatedPod) -> None:
        """Write the pod's status if it differs from what the store has."""
        current = self._current(pod)
        if current is None or pod.node is None:
            return
        pod.object = current
        status = pod_status.pod_status(
            current,
            pod.runs,
            now=self._wall(),
            host_ip=pod.node.host_ip,
            pod_ip=pod.address,
            start_time=(current.get("status") or {}).get("startTime") or pod.start_time,
            failure=pod.failure,
            stopped=pod.stopped,
        )
        self._write_status(pod, status)
        if status["phase"] in ("Succeeded", "Failed") and not pod.ended:
            pod.ended = True
            pod.node.release(pod)

    # --- eviction by taints -----------------------------------------------------------------------

    def _consider_eviction(self, pod: SimulatedPod, node: SimulatedNode) -> None:
        """Plan, move or cancel the eviction of a pod for its node's NoExecute taints."""
        if pod.ended:
            return
        stay = None
        if node.no_execute:
            stay = taint_eviction.stay_seconds(node.no_execute, pod.object["spec"].get("tolerations") or ())
        if stay is None:
            if pod.evict_at is not None:
                self._event(pod, "Normal", "TaintManagerEviction", f"Cancelling deletion of Pod {pod.key}")
            pod.evict_at = pod.tainted_at = None
            return
        if pod.tainted_at is None:
            pod.tainted_at = self._now()
        pod.evict_at = pod.tainted_at + stay

    def _evict(self, pod: SimulatedPod) -> None:
        current = self._current(pod)
        pod.evict_at = None
        if current is None or current["metadata"].get("deletionTimestamp"):
            return
        self._event(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {pod.key}")
        text = "Taint manager: deleting due to NoExecute taint"
        current = self._write_status(pod, self._disrupted(current, "DeletionByTaintManager", text))
        grace = current["spec"].get("terminationGracePeriodSeconds", 30)
        metadata = dict(current["metadata"])
        metadata["deletionTimestamp"] = rfc3339(self._clock.now() + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        metadata["generation"] = metadata.get("generation", 0) + 1
        pod.object = self._update(PODS, {**current, "metadata": metadata})
        self._plan_deletion(pod)
        self._plan(pod)

    def _disrupted(self, obj: JSON, reason: str, message: str) -> JSON:
        """The status of `obj` with the condition DisruptionTarget."""
        status: JSON = obj.get("status") or {}
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": self._wall(),
            "reason": reason,
            "message": message,
        }
        if obj["metadata"].get("generation"):
            condition["observedGeneration"] = obj["metadata"]["generation"]
        others = [each for each in status.get("conditions") or () if each.get("type") != "DisruptionTarget"]
        return {**status, "conditions": [*others, condition]}

    # --- small things -----------------------------------------------------------------------------

    def _current(self, pod: SimulatedPod) -> JSON | None:
        """The pod as the store has it; forgets one that is no longer there."""
        metadata = pod.object["metadata"]
        current = self._store.get(PODS, metadata["namespace"], metadata["name"])
        if current is None or current["metadata"]["uid"] != pod.uid:
            self._forget(pod.uid)
            return None
        return current

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        self._orphans.pop(uid, None)
        if pod is not None:
            pod.epoch += 1
            if pod.node is not None:
                pod.node.remove(pod)

    def _write_status(self, pod: SimulatedPod, status: JSON) -> JSON:
        current = self._current(pod) or pod.object
        if current.get("status") != status:
            current = self._update(PODS, {**current, "status": status})
        pod.object = current
        return current

    def _update(self, resource: Any, obj: JSON) -> JSON:
        self._writing = True
        try:
            return self._store.update(resource, obj)
        finally:
            self._writing = False

    def _plan(self, pod: SimulatedPod) -> None:
        """Put the pod on the heap for the next moment at which something is due; what was planned before lapses."""
        due = pod.next_due()
        pod.epoch += 1
        if due is not None and pod.uid in self._pods:
            self._serial += 1
            heapq.heappush(self._heap, (due, self._serial, pod, pod.epoch))

    def _at(self, when: float, act: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (when, self._serial, act, 0))

    def _event(self, pod: SimulatedPod, type_: str, reason: str, message: str, container: str = "") -> None:
        if self._events is not None:
            init = any(run.name == container and run.role != "main" for run in pod.runs)
            field = f"spec.{'initContainers' if init else 'containers'}{{{container}}}" if container else ""
            component = "taint-eviction-controller" if reason == "TaintManagerEviction" else "kubelet"
            self._events.record(
                pod.object, type_, reason, message, field_path=field, component=component, host=pod.node_name
            )

    def _started_events(self, pod: SimulatedPod, run: pod_status.ContainerRun) -> None:
        if self._events is not None:
            text = f'Container image "{run.image}" already present on machine and can be accessed by the pod'
            self._event(pod, "Normal", "Pulled", text, run.name)
            self._event(pod, "Normal", "Created", "Container created", run.name)
            self._event(pod, "Normal", "Started", "Container started", run.name)

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def _wall(self) -> str:
        """The time as metav1.Time; put into words once a second."""
        second = self._clock.time_ns() // 1_000_000_000
        if second != self._wall_second:
            self._wall_second, self._wall_text = second, rfc3339(self._clock.now())
        return self._wall_text

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
