"""Simulated kubelets: admit or reject pods, start, report, restart, stop and delete them.

    bound --admitted--> starting --start--> running (ready or not) --exit--> ended       deletionTimestamp, at any
      |                                        ^  | restart                     |        stage: not ready --stop-->
      +--rejected--> failed                    +--+                             |        ended --> deleted
                                                                                +-- phase Succeeded or Failed

A pod's next state depends on its object, its containers and the time only. A kubelet whose node is unreachable does
nothing until the node recovers, and then does what has become due.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kubeloop.devcluster.kubelet.pods import pod_adoption, pod_termination
from kubeloop.devcluster.kubelet.pods.awaited_objects import AwaitedObjects
from kubeloop.devcluster.kubelet.pods.container_lifecycle import refresh_readiness, retry
from kubeloop.devcluster.kubelet.pods.container_runner import ContainerRunner
from kubeloop.devcluster.kubelet.pods.kubelet_events import KubeletEvents
from kubeloop.devcluster.kubelet.pods.pod_admission import AdmissionRejection, rejection
from kubeloop.devcluster.kubelet.pods.pod_annotations import invalid_markers
from kubeloop.devcluster.kubelet.pods.pod_resizes import PodResizes
from kubeloop.devcluster.kubelet.pods.pod_status import PodIPs, pod_status, rejected_status
from kubeloop.devcluster.kubelet.pods.resource_usage import invalid_usage
from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.devcluster.simulation.node_objects import NETWORK_NOT_READY
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.devcluster.storage.store import Change
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import PODS

_EARLY_REPORT_SECONDS = 0.5  # a pod with a longer start delay is reported when it is admitted


class Kubelets:
    """Pods of all simulated nodes.

    quiet: other parts ignore the status writes. receive: passes changes of the objects that pods wait for to
    object_changed(); see AwaitedObjects.
    """

    def __init__(self, simulation: Simulation, receive: Callable[[Change], None], *, quiet: bool) -> None:
        self._simulation = simulation
        self._settings = simulation.settings
        self._quiet = quiet
        self._pods: dict[str, SimulatedPod] = {}  # by uid
        self._pods_of: dict[str, dict[str, SimulatedPod]] = {}  # by uid of the node and of the pod
        self._events = KubeletEvents(simulation)
        self._awaited = AwaitedObjects(simulation.store, self._events, receive)
        self._containers = ContainerRunner(simulation, self._events, self._awaited)
        self._resizes = PodResizes(
            self._events,
            self._report,
            self._containers.restart,
            self._set_timer,
            delay_seconds=simulation.settings.start_delay_seconds,
        )

    def get(self, uid: str) -> SimulatedPod | None:
        return self._pods.get(uid)

    def pods_of(self, node: SimulatedNode) -> list[SimulatedPod]:
        """Return the pods of a node."""
        return list(self._pods_of.get(node.uid, {}).values())

    def close(self) -> None:
        """End the subscriptions."""
        self._awaited.close()

    # --- from bound to admitted -------------------------------------------------------------------

    def add_pod(self, obj: JSON, node: SimulatedNode, *, staged: bool) -> None:
        """Add a pod that is bound to `node`. staged: stages of a file control it, not the kubelet."""
        pod = SimulatedPod(obj, node, self._settings, self._simulation.rng, staged)
        self._pods[pod.uid] = pod
        self._pods_of.setdefault(node.uid, {})[pod.uid] = pod
        if staged:
            pod.ended = (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            pod.adopt_address()
            if not pod.ended:
                pod.count_resources()
        elif not node.is_unreachable:
            self._observe(pod)

    def _observe(self, pod: SimulatedPod) -> None:
        """Admit, reject or adopt a pod that the kubelet observes for the first time."""
        obj, node = pod.object, pod.node
        phase = (obj.get("status") or {}).get("phase")
        pod.seen = True
        if phase in ("Succeeded", "Failed"):
            pod.ended = True
            self._plan_stop(pod)
        elif phase == "Running":
            now = self._simulation.now()
            pod_adoption.adopt_allocation(pod)
            pod.count_resources()
            pod.adopt_address()
            pod_adoption.adopt_running(pod, now, self._simulation.wall())
            if self._settings.adopts_at_once or obj["metadata"].get("deletionTimestamp"):
                self.changed(pod, obj)
            self._resizes.consider(pod, now)
        else:
            rejected = rejection(
                obj,
                node.object,
                pod.requests,
                used=node.used,
                allocatable=node.allocatable,
                used_ports=node.used_ports(),
                restricted=node.restricted,
            )
            if rejected is not None:
                self._reject(pod, rejected)
            else:
                pod.count_resources()
                self._accept(pod)
        self._set_timer(pod)

    def resume(self, node: SimulatedNode) -> None:
        """Resume the pods of a node whose failure has ended."""
        now = self._simulation.now()
        for pod in self.pods_of(node):
            current = self._current(pod)
            if current is None or pod.staged:
                continue
            pod.object = current
            if pod.start_at == math.inf:
                pod.start_at = now
            if pod.seen:
                self.changed(pod, current)
                if not pod.ended:
                    self._report(pod)
            else:
                self._observe(pod)
        self._resizes.retry(node, now)

    def _reject(self, pod: SimulatedPod, rejected: AdmissionRejection) -> None:
        pod.ended = True
        now = self._simulation.wall()
        self._write_status(pod, rejected_status(pod.object, rejected.reason, rejected.message, now=now))
        self._events.record(pod, "Warning", rejected.reason, rejected.message)
        self._plan_stop(pod)

    def _accept(self, pod: SimulatedPod) -> None:
        for problem in (*invalid_markers(pod.markers(), pod.containers()), *invalid_usage(pod.object)):
            self._events.record(pod, "Warning", "InvalidAnnotation", problem)
        delay = pod.seconds("start-delay-seconds")
        if delay is None:
            spread = self._settings.start_delay_spread_seconds
            delay = max(0.0, self._settings.start_delay_seconds + self._simulation.rng.uniform(-spread, spread))
        now, wall = self._simulation.now(), self._simulation.wall()
        pod.start_time = (pod.object.get("status") or {}).get("startTime") or wall
        pod.start_at = now + delay
        pod_termination.plan_deadline(pod, now, wall)
        self._plan_stop(pod)
        if delay >= _EARLY_REPORT_SECONDS and pod.stop_at is None:
            self._report(pod)

    # --- changes from outside ---------------------------------------------------------------------

    def changed(self, pod: SimulatedPod, obj: JSON) -> None:
        """Apply another writer's changes of a pod: spec, annotations, conditions, deletion."""
        before = pod.object["metadata"]
        pod.object = obj
        if not pod.ended and (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            self._end(pod)  # reported by another writer; a kubelet never reverts it
        if pod.staged or not pod.seen or pod.node.is_unreachable:
            return
        self._plan_stop(pod)
        if pod.ended:
            self._set_timer(pod)
            return
        now = self._simulation.now()
        is_new_spec = obj["spec"] != pod.spec
        if is_new_spec:
            pod.spec = obj["spec"]
            pod_termination.plan_deadline(pod, now, self._simulation.wall())
            self._containers.apply_spec(pod)
        if self._awaited.has_claim_names(pod):
            retry(pod, now)
        elif is_new_spec or _read_metadata(before) != _read_metadata(obj["metadata"]):
            self._containers.retry_refused(pod, now)
        if pod.start_at is None:
            refresh_readiness(pod, now)
            self._report(pod)
        if is_new_spec:
            self._resizes.consider(pod, now)
        self._set_timer(pod)

    def object_changed(self, obj: JSON) -> None:
        """Retry the start of the pods and containers that wait for this object."""
        for pod in self._awaited.take_waiting(obj):
            retry(pod, self._simulation.now())
            self._set_timer(pod)

    def node_changed(self, node: SimulatedNode) -> None:
        """Apply what a changed node allows: resizes that waited for room."""
        self._resizes.retry(node, self._simulation.now())

    def _plan_stop(self, pod: SimulatedPod) -> None:
        """Set the time at which a pod in deletion will have stopped."""
        metadata = pod.object["metadata"]
        if not metadata.get("deletionTimestamp"):
            return
        is_first = pod.stop_at is None
        # No client waits for single pods of a namespace in deletion, which has to wait for all of them.
        in_deletion = self._simulation.is_namespace_in_deletion(metadata["namespace"])
        stop_seconds = 0.0 if in_deletion else self._settings.stop_delay_seconds
        grace_seconds = float(metadata.get("deletionGracePeriodSeconds") or 0)
        pod_termination.plan_stop(pod, self._simulation.now(), grace_seconds, stop_seconds, hooks=not in_deletion)
        for run in pod.runs if is_first else ():
            if run.state == "running":
                self._events.record(pod, "Normal", "Killing", f"Stopping container {run.name}", run)

    # --- what is due ------------------------------------------------------------------------------

    def _advance(self, pod: SimulatedPod) -> None:
        """Do all that is due for the pod, report changes, and set the timer for what comes next."""
        now = self._simulation.now()
        pod.timer = None
        if pod.node.is_unreachable:
            return
        if pod.stop_at is not None:
            if now >= pod.stop_at:
                self._finish_stop(pod)
            else:
                self._set_timer(pod)
            return
        wall = self._simulation.wall()
        changed = False
        if pod.start_at is not None and now >= pod.start_at:
            self._start(pod, now)
            changed = True
        if pod.pull_backoff_at is not None and now >= pod.pull_backoff_at:
            pod.pull_backoff_at = None
            self._containers.back_off_pulling(pod)
            changed = True
        if pod.deadline_at is not None and now >= pod.deadline_at:
            message = "Pod was active on the node longer than the specified deadline"
            pod_termination.fail(pod, "DeadlineExceeded", message, wall)
            self._events.record(pod, "Normal", "DeadlineExceeded", message)
            changed = True
        changed = self._containers.exit_and_restart(pod, now, wall) or changed
        changed = refresh_readiness(pod, now) or changed
        if pod.resize_at is not None and now >= pod.resize_at:
            self._resizes.apply(pod)
            changed = True
        if pod.start_at is None and not pod.stopped:
            changed = self._containers.start(pod, now, wall) or changed
            if pod_termination.has_finished(pod):
                pod_termination.finish(pod, wall)
        if changed:
            self._report(pod)
        self._set_timer(pod)

    def _start(self, pod: SimulatedPod, now: float) -> None:
        """Prepare network, volumes, claims and images of the pod, or let it wait for them: pod.start_at is set then."""
        pod.start_at = math.inf  # until the node recovers, or the objects are written
        if pod.node.is_network_unavailable and not pod.object["spec"].get("hostNetwork"):
            message = f"network is not ready: {NETWORK_NOT_READY}"
            self._events.record(pod, "Warning", "NetworkNotReady", message)
        elif pod.address or not (self._awaited.wait_for_volumes(pod) or self._awaited.wait_for_claim(pod)):
            pod.start_at = None
            pod.assign_address()
            self._containers.pull_images(pod, now)

    def _finish_stop(self, pod: SimulatedPod) -> None:
        """Report the end of all containers and delete the pod, unless it has finalizers."""
        if not pod.ended:
            pod_termination.stop(pod, self._simulation.wall())
            self._report(pod)
        current = self._current(pod)
        if current is None:
            return
        if self._simulation.remove_pod(current):
            self.forget(pod.uid)
            return
        pod.stop_at = None
        self._end(pod)

    # --- status, end ------------------------------------------------------------------------------

    def _report(self, pod: SimulatedPod) -> None:
        """Write the pod's status if it differs from the stored one."""
        current = self._current(pod)
        if current is None:
            return
        pod.object = current
        status = pod_status(
            current,
            pod.runs,
            now=self._simulation.wall(),
            ips=PodIPs(pod.node.host_ip, pod.address),
            start_time=pod.start_time,
            failure=pod.failure,
            stopped=pod.stopped,
            resizes=pod.resizes,
        )
        self._write_status(pod, status)
        if status["phase"] in ("Succeeded", "Failed") and not pod.ended:
            self._end(pod)

    def _write_status(self, pod: SimulatedPod, status: JSON) -> None:
        if pod.object.get("status") != status:
            pod.object = self._simulation.update(PODS, {**pod.object, "status": status}, quiet=self._quiet)

    def _current(self, pod: SimulatedPod) -> JSON | None:
        """Return the stored pod; forget one that no longer exists."""
        current = self._simulation.current_pod(pod.object)
        if current is None:
            self.forget(pod.uid)
        return current

    def _end(self, pod: SimulatedPod) -> None:
        """Free the resources of a pod that has ended."""
        pod.ended = True
        pod.node.release(pod.uid)
        self._resizes.room_made(pod, self._simulation.now())

    def forget(self, uid: str) -> None:
        """Remove the state of a pod that is deleted or whose node is."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self._pods_of[pod.node.uid].pop(uid)
        self._awaited.forget(uid)
        if pod.timer is not None:
            pod.timer.cancel()
        pod.node.release(uid)
        if pod.address:
            pod.node.network.release(pod.address)
        self._resizes.room_made(pod, self._simulation.now())

    def forget_node(self, node: SimulatedNode) -> list[SimulatedPod]:
        """Remove the state of a node that is removed, and of its pods; return these."""
        self._resizes.forget_node(node)
        pods = self.pods_of(node)
        for pod in pods:
            self.forget(pod.uid)
        self._pods_of.pop(node.uid, None)
        return pods

    def _set_timer(self, pod: SimulatedPod) -> None:
        """Set the pod's timer to the next time at which something is due."""
        if pod.timer is not None:
            pod.timer.cancel()
            pod.timer = None
        due = pod.next_due()
        if due is not None and pod.uid in self._pods:
            pod.timer = self._simulation.timers.at(due, self._advance, pod)


def _read_metadata(metadata: JSON) -> tuple[JSON | None, JSON | None]:
    """Return what decides on images, environment and mounts of containers."""
    return metadata.get("annotations"), metadata.get("labels")
