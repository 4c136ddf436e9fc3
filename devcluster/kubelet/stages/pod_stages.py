"""Stages at work on pods and nodes: which one an object is in for, the delay, and then its steps.

object seen or changed --match--> turn --due--> steps played --write--> object changed ...
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.kubelet.simulated_pod import SimulatedNode, SimulatedPod
from kubeloop.devcluster.kubelet.stages.files import Apply, Finalizers, Patch, Stage, Step
from kubeloop.devcluster.kubelet.stages.requests import Refused, StageRequests
from kubeloop.devcluster.kubelet.stages.schedule import StageFailed, Turn, Turns, rendered, under_root
from kubeloop.devcluster.languages.gotemplate.functions import FunctionError
from kubeloop.devcluster.languages.gotemplate.syntax import TemplateError
from kubeloop.devcluster.registry import strategies
from kubeloop.devcluster.serializer import decoding, patches
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.kube import schema
from kubeloop.kube.clock import rfc3339_micro
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS, Resource

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Place:
    """pod: None for a stage of the node itself."""

    node: SimulatedNode
    pod: SimulatedPod | None


class StagePlayer:
    """Plays the stages of a file on all pods and nodes that are simulated here."""

    def __init__(self, simulation: Simulation, stages: Sequence[Stage], requests: StageRequests | None = None) -> None:
        """requests: for steps that apply other objects."""
        self._simulation = simulation
        self._requests = requests
        ours = [stage for stage in stages if stage.of_kubelets]
        self._stages = {kind: [stage for stage in ours if stage.kind == kind] for kind in ("Pod", "Node")}
        self._turns = Turns(simulation.timers, self._play, clock=simulation.clock, rng=simulation.rng)
        self._started = rfc3339_micro(simulation.clock.now())

    def replaces(self, kind: Literal["Pod", "Node"]) -> bool:
        """Whether the built-in behaviour of these objects gives way to the stages."""
        return any(not stage.adds for stage in self._stages[kind])

    def pod_seen(self, obj: JSON, pod: SimulatedPod) -> None:
        """A pod is new, or has changed."""
        stages = self._stages["Pod"]
        self._consider(stages if pod.staged else [stage for stage in stages if stage.adds], obj, pod.node, pod)

    def node_seen(self, obj: JSON, node: SimulatedNode) -> None:
        """A node is new, or has changed; one that fails is left alone until it is back."""
        self._consider([] if node.failing else self._stages["Node"], obj, node, None)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._turns.forget(uid)

    def _consider(self, stages: Sequence[Stage], obj: JSON, node: SimulatedNode, pod: SimulatedPod | None) -> None:
        self._turns.consider([] if node.is_unreachable else stages, obj, _Place(node, pod))

    def _play(self, play: Turn[_Place]) -> None:
        metadata, node = play.obj["metadata"], play.subject.node
        resource = NODES if play.stage.kind == "Node" else PODS
        self._turns.take(play)
        current = self._simulation.store.get(resource, metadata.get("namespace", ""), metadata["name"])
        if current is None or current["metadata"]["uid"] != metadata["uid"] or node.is_unreachable:
            return
        self._turns.begin(play)
        try:
            after = self._steps(play, resource, current)
        except (StageFailed, TemplateError, FunctionError, Refused, errors.StatusError) as failure:
            text = f"stage {play.stage.name} cannot be played: {failure}"
            log.warning("%s %s: %s", play.stage.kind, metadata["name"], text)
            self._simulation.event(current, "Warning", "StageFailed", text, host=node.name)
            return
        if after is not None and play.stage.immediate:
            if play.subject.pod is not None:
                self.pod_seen(after, play.subject.pod)
            else:
                self.node_seen(after, node)

    # --- steps ------------------------------------------------------------------------------------

    def _steps(self, play: Turn[_Place], resource: Resource[Any], obj: JSON) -> JSON | None:
        """Play all steps; the object afterwards, None if it is gone or nothing of it has changed."""
        before = obj
        for step in play.stage.steps:
            if step.event is not None:
                type_, reason, message = step.event
                self._simulation.event(obj, type_, reason, message, host=play.subject.node.name)
            if step.finalizers is not None:
                obj = self._write(resource, obj, _with_finalizers(obj, step.finalizers))
            if step.delete:
                if not self._delete(resource, obj):
                    return None
                obj = (
                    self._simulation.store.get(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
                    or obj
                )
            elif step.patch is not None:
                obj = self._write(resource, obj, self._patched(play, resource, obj, step))
            if step.apply is not None:
                self._applied(play, obj, step.apply)
        return None if obj is before else obj

    def _write(self, resource: Resource[Any], before: JSON, after: JSON) -> JSON:
        return before if after == before else self._simulation.update(resource, after)

    def _delete(self, resource: Resource[Any], obj: JSON) -> bool:
        """Delete the object without grace; True: its finalizers still keep it."""
        if resource is PODS:
            return not self._simulation.remove_pod(obj)
        if obj["metadata"].get("finalizers"):
            if not obj["metadata"].get("deletionTimestamp"):
                metadata = {**obj["metadata"], "deletionTimestamp": self._simulation.wall()}
                self._simulation.update(resource, {**obj, "metadata": metadata})
            return True
        self._simulation.store.delete(resource, "", obj["metadata"]["name"])
        return False

    def _patched(self, play: Turn[_Place], resource: Resource[Any], obj: JSON, step: Step) -> JSON:
        """`obj` as the patch leaves it, in the server's form. Raises StageFailed."""
        patch = step.patch
        assert patch is not None
        told = rendered(patch.template, obj, self._context(play, obj))
        if told is None:
            return obj
        try:
            changed = _apply(obj, told, patch, resource)
            decoded, unknown = decoding.decode(resource, changed)
            apply_defaults(resource, decoded)
        except patches.PatchError as error:
            raise StageFailed(f"the template makes a patch that does not fit: {error}") from None
        except decoding.DecodeError as error:
            raise StageFailed(f"the template makes something that is no {play.stage.kind}: {error}") from None
        if unknown:
            log.debug("stage %s: %s", play.stage.name, ", ".join(unknown))
        if patch.subresource == "status":
            return strategies.prepare_for_status_update(get_served_resource(resource), decoded, obj)
        kept = {name: obj["metadata"][name] for name in _IDENTITY if name in obj["metadata"]}
        return {**decoded, "metadata": {**decoded["metadata"], **kept}, "status": obj.get("status") or {}}

    def _applied(self, play: Turn[_Place], obj: JSON, apply: Apply) -> None:
        """Apply another object. Raises StageFailed and Refused."""
        if self._requests is None:
            raise StageFailed("there is no API server here to apply other objects to")
        told = rendered(apply.template, obj, self._context(play, obj))
        namespace = obj["metadata"].get("namespace", "")
        self._requests.apply(told, namespace, apply.type, apply.subresource, user=apply.user)

    # --- what templates ask of the cluster --------------------------------------------------------

    def _context(self, play: Turn[_Place], obj: JSON) -> dict[str, Callable[..., Any]]:
        node, pod = play.subject.node, play.subject.pod

        def node_ips(_name: Any = None) -> list[str]:
            addresses = (node.object.get("status") or {}).get("addresses") or ()
            found = [each["address"] for each in addresses if each.get("type") == "InternalIP"]
            return found or [node.host_ip]

        def pod_ips(_node: Any = None, host_network: Any = False, *_identity: Any) -> list[str]:
            if host_network:
                return node_ips()
            if pod is None:
                raise FunctionError("only pods have an address of the pod network")
            if not pod.address:
                pod.address = (obj.get("status") or {}).get("podIP") or node.next_address()
            return [pod.address]

        return {
            "Now": lambda: rfc3339_micro(self._simulation.clock.now()),
            "StartTime": lambda: self._started,
            "Version": lambda: "v0.7.0",
            "NodeIP": lambda: node.host_ip,
            "NodeName": lambda: node.name,
            "NodePort": lambda: 10250,
            "PodIP": lambda: pod_ips()[0],
            "NodeIPWith": lambda name: node_ips(name)[0],
            "NodeIPsWith": node_ips,
            "PodIPWith": lambda *told: pod_ips(*told)[0],
            "PodIPsWith": pod_ips,
        }


_IDENTITY = ("name", "namespace", "uid", "creationTimestamp", "resourceVersion", "deletionTimestamp", "generation")


def _apply(obj: JSON, told: Any, patch: Patch, resource: Resource[Any]) -> JSON:
    body = under_root(patch.root, told, json_patch=patch.type == "json")
    if patch.type == "json":
        changed: JSON = patches.json_patch(obj, body)
        return changed
    if not isinstance(told, dict):
        raise StageFailed(f"the template makes a {type(told).__name__}, not a map: {json.dumps(told)[:80]}")
    if patch.type == "merge":
        merged: JSON = patches.merge_patch(obj, body)
        return merged
    return patches.strategic_patch(obj, body, schema.type_for(resource.group, resource.version, resource.kind))


def _with_finalizers(obj: JSON, change: Finalizers) -> JSON:
    after = change.made_of(obj["metadata"].get("finalizers") or ())
    metadata = {name: value for name, value in obj["metadata"].items() if name != "finalizers"}
    return {**obj, "metadata": {**metadata, "finalizers": after} if after else metadata}
