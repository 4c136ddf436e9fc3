"""Stages at work on pods and nodes: which one an object is in for, the delay, and then its steps.

    object seen or changed --match--> appointment --due--> steps played --write--> object changed ...

A change of the object while a stage waits begins anew, as in KWOK: another stage may match now. A stage that is played
on one object twice in a row waits a second at least, so that one whose outcome matches again does not spin.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import yaml

from kubeloop.devcluster import decoding, errors, patching, strategies
from kubeloop.devcluster.registry import served
from kubeloop.devcluster.simulated_pod import SimulatedNode, SimulatedPod
from kubeloop.devcluster.simulation import Appointment, Simulation
from kubeloop.devcluster.stages.documents import read_document
from kubeloop.devcluster.stages.files import Apply, Finalizers, Patch, Stage, Step
from kubeloop.devcluster.stages.lifecycle import chosen, delay_seconds
from kubeloop.devcluster.stages.requests import Refused, StageRequests
from kubeloop.devcluster.stages.template_functions import FunctionError
from kubeloop.devcluster.stages.template_syntax import TemplateError
from kubeloop.kube import schema
from kubeloop.kube.clock import rfc3339_micro
from kubeloop.kube.resources import NODES, PODS, Resource

JSON = dict[str, Any]
log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0


class StageFailed(Exception):
    """The stage cannot be played on this object."""


class _Play:
    """A stage that waits for its time on one object. version: the object's when it was chosen."""

    __slots__ = ("appointment", "node", "obj", "pod", "stage", "version")

    def __init__(self, stage: Stage, obj: JSON, node: SimulatedNode, pod: SimulatedPod | None) -> None:
        self.stage = stage
        self.obj = obj
        self.node = node
        self.pod = pod
        self.version = obj["metadata"]["resourceVersion"]
        self.appointment: Appointment | None = None


class StagePlayer:
    """Plays the stages of a file on all pods and nodes that are simulated here."""

    def __init__(self, simulation: Simulation, stages: Sequence[Stage], requests: StageRequests | None = None) -> None:
        """requests: for steps that apply other objects."""
        self._simulation = simulation
        self._requests = requests
        ours = [stage for stage in stages if stage.of_kubelets]
        self._stages = {kind: [stage for stage in ours if stage.kind == kind] for kind in ("Pod", "Node")}
        self._waiting: dict[str, _Play] = {}  # by uid
        self._last: dict[str, tuple[str, float]] = {}  # by uid: the stage played last, and when
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
        self._last.pop(uid, None)
        self._cancel(uid)

    def _cancel(self, uid: str) -> None:
        play = self._waiting.pop(uid, None)
        if play is not None and play.appointment is not None:
            play.appointment.cancel()

    def _consider(self, stages: Sequence[Stage], obj: JSON, node: SimulatedNode, pod: SimulatedPod | None) -> None:
        uid = obj["metadata"]["uid"]
        waiting = self._waiting.get(uid)
        if waiting is not None and waiting.version == obj["metadata"]["resourceVersion"] and stages:
            return
        self._cancel(uid)
        stage = None if node.silent else chosen(stages, obj, self._simulation.clock.now(), self._simulation.rng)
        if stage is None:
            return
        now = self._simulation.now()
        when = now + delay_seconds(stage, obj, self._simulation.clock.now(), self._simulation.rng)
        last = self._last.get(uid)
        if last is not None and last[0] == stage.name:
            when = max(when, last[1] + _AGAIN_SECONDS)
        play = self._waiting[uid] = _Play(stage, obj, node, pod)
        play.appointment = self._simulation.agenda.at(when, self._play, play)

    def _play(self, play: _Play) -> None:
        metadata = play.obj["metadata"]
        uid, resource = metadata["uid"], NODES if play.stage.kind == "Node" else PODS
        self._waiting.pop(uid, None)
        current = self._simulation.store.get(resource, metadata.get("namespace", ""), metadata["name"])
        if current is None or current["metadata"]["uid"] != uid or play.node.silent:
            return
        self._last[uid] = (play.stage.name, self._simulation.now())
        try:
            after = self._steps(play, resource, current)
        except (StageFailed, TemplateError, FunctionError, Refused, errors.StatusError) as failure:
            text = f"stage {play.stage.name} cannot be played: {failure}"
            log.warning("%s %s: %s", play.stage.kind, metadata["name"], text)
            self._simulation.event(current, "Warning", "StageFailed", text, host=play.node.name)
            return
        if after is not None and play.stage.immediate:
            if play.pod is not None:
                self.pod_seen(after, play.pod)
            else:
                self.node_seen(after, play.node)

    # --- steps ------------------------------------------------------------------------------------

    def _steps(self, play: _Play, resource: Resource[Any], obj: JSON) -> JSON | None:
        """Play all steps; the object afterwards, None if it is gone or nothing of it has changed."""
        before = obj
        for step in play.stage.steps:
            if step.event is not None:
                type_, reason, message = step.event
                self._simulation.event(obj, type_, reason, message, host=play.node.name)
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

    def _patched(self, play: _Play, resource: Resource[Any], obj: JSON, step: Step) -> JSON:
        """`obj` as the patch leaves it, in the server's form. Raises StageFailed."""
        patch = step.patch
        assert patch is not None
        # a copy: templates may change the maps they are given
        data = msgspec.json.decode(msgspec.json.encode(obj))
        text = patch.template.render(data, self._context(play, obj))
        try:
            told = read_document(text)
        except yaml.YAMLError as error:
            raise StageFailed(f"the template makes no YAML: {error}") from None
        if told is None:
            return obj
        try:
            changed = _apply(obj, told, patch, resource)
            decoded, unknown = decoding.decode(resource, changed)
        except patching.PatchError as error:
            raise StageFailed(f"the template makes a patch that does not fit: {error}") from None
        except decoding.DecodeError as error:
            raise StageFailed(f"the template makes something that is no {play.stage.kind}: {error}") from None
        if unknown:
            log.debug("stage %s: %s", play.stage.name, ", ".join(unknown))
        if patch.subresource == "status":
            return strategies.prepare_for_status_update(served(resource), decoded, obj)
        kept = {name: obj["metadata"][name] for name in _IDENTITY if name in obj["metadata"]}
        return {**decoded, "metadata": {**decoded["metadata"], **kept}, "status": obj.get("status") or {}}

    def _applied(self, play: _Play, obj: JSON, apply: Apply) -> None:
        """Apply another object. Raises StageFailed and Refused."""
        if self._requests is None:
            raise StageFailed("there is no API server here to apply other objects to")
        text = apply.template.render(msgspec.json.decode(msgspec.json.encode(obj)), self._context(play, obj))
        try:
            told = read_document(text)
        except yaml.YAMLError as error:
            raise StageFailed(f"the template makes no YAML: {error}") from None
        namespace = obj["metadata"].get("namespace", "")
        self._requests.apply(told, namespace, apply.type, apply.subresource, user=apply.user)

    # --- what templates ask of the cluster --------------------------------------------------------

    def _context(self, play: _Play, obj: JSON) -> dict[str, Callable[..., Any]]:
        node, pod = play.node, play.pod

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
    if patch.type == "json":
        if patch.root and isinstance(told, list):
            told = [{**each, "path": f"/{patch.root}{each.get('path', '')}"} for each in told if isinstance(each, dict)]
        changed: JSON = patching.json_patch(obj, told)
        return changed
    if not isinstance(told, dict):
        raise StageFailed(f"the template makes a {type(told).__name__}, not a map: {json.dumps(told)[:80]}")
    body = {patch.root: told} if patch.root else told
    if patch.type == "merge":
        merged: JSON = patching.merge_patch(obj, body)
        return merged
    return patching.strategic_patch(obj, body, schema.type_for(resource.group, resource.version, resource.kind))


def _with_finalizers(obj: JSON, change: Finalizers) -> JSON:
    """Source: finalizersModify."""
    before = list(obj["metadata"].get("finalizers") or ())
    kept = [] if change.empty else [each for each in before if each not in change.remove]
    after = [*kept, *(each for each in change.add if each not in kept)]
    metadata = {name: value for name, value in obj["metadata"].items() if name != "finalizers"}
    return {**obj, "metadata": {**metadata, "finalizers": after} if after else metadata}
