"""Stages of simulated pods and nodes.

object added or changed --match--> scheduled --due--> steps applied --write--> object changed ...
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.slow_work import HandlerTasks
from kubeloop.devcluster.api.strategy import Write, strategy_of
from kubeloop.devcluster.kubelet.pods.simulated_node import SimulatedNode
from kubeloop.devcluster.kubelet.pods.simulated_pod import SimulatedPod
from kubeloop.devcluster.kubelet.stages.files import ADD_TO, Finalizers, Stage, StagePatch, Step
from kubeloop.devcluster.kubelet.stages.requests import Refused, StageRequests
from kubeloop.devcluster.kubelet.stages.schedule import (
    PendingStage,
    StageFailed,
    StageSchedule,
    apply_rendered,
    general_functions,
    render_yaml,
    wrap_patch,
)
from kubeloop.devcluster.languages.gotemplate.syntax import TemplateError
from kubeloop.devcluster.languages.gotemplate.values import FunctionError
from kubeloop.devcluster.registry.disabled_fields import DEFAULT_FIELDS, DisabledFields
from kubeloop.devcluster.registry.preparation import prepare_for_subresource_update
from kubeloop.devcluster.serializer import decoding, patches
from kubeloop.devcluster.serializer.defaulting import apply_defaults
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.kube import schema
from kubeloop.kube.clock import rfc3339_micro
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS, Resource

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Target:
    """Target of a stage. pod: None for a stage of the node itself."""

    node: SimulatedNode
    pod: SimulatedPod | None


class PodStages:
    """Applies the stages of a file to all simulated pods and nodes."""

    def __init__(
        self,
        simulation: Simulation,
        stages: Sequence[Stage],
        wake: Callable[[], None],
        requests: StageRequests | None = None,
        fields: DisabledFields = DEFAULT_FIELDS,
    ) -> None:
        """wake: called when a timer is set in the background. requests: for steps that apply other objects.

        fields: those that the API server drops.
        """
        self._simulation = simulation
        self._fields = fields
        self._requests = requests
        self._handlers = HandlerTasks()
        own_stages = [stage for stage in stages if stage.is_for_pod_or_node]
        self._stages = {kind: [stage for stage in own_stages if stage.kind == kind] for kind in ("Pod", "Node")}
        self._schedule = StageSchedule(
            own_stages,
            simulation.timers,
            self._apply_pending,
            wake,
            clock=simulation.clock,
            rng=simulation.rng,
            unselected=self._warn_of_unselected,
        )
        self._has_warned = False
        self._started = rfc3339_micro(simulation.clock.now())

    def replaces(self, kind: Literal["Pod", "Node"]) -> bool:
        """Return True if stages replace the built-in behaviour of these objects."""
        return any(not stage.extends_built_in for stage in self._stages[kind])

    def pod_seen(self, obj: JSON, pod: SimulatedPod) -> None:
        """Schedule a stage for a new or changed pod."""
        stages = self._stages["Pod"]
        self._consider(
            stages if pod.staged else [stage for stage in stages if stage.extends_built_in], obj, pod.node, pod
        )

    def node_seen(self, obj: JSON, node: SimulatedNode) -> None:
        """Schedule a stage for a new or changed node, unless the node fails."""
        self._consider([] if node.failing else self._stages["Node"], obj, node, None)

    def forget(self, uid: str) -> None:
        """Remove the state of a deleted object."""
        self._schedule.forget(uid)

    def _consider(self, stages: Sequence[Stage], obj: JSON, node: SimulatedNode, pod: SimulatedPod | None) -> None:
        self._schedule.reschedule([] if node.is_unreachable else stages, obj, _Target(node, pod))

    async def run(self) -> None:
        """Finish the stages that wait for webhooks or expensive expressions, until cancelled."""
        await self._handlers.run()

    def _apply_pending(self, pending: PendingStage[_Target]) -> None:
        resource = NODES if pending.stage.kind == "Node" else PODS
        self._schedule.take(pending)
        current = self._stored(resource, pending.obj)
        if current is None or pending.subject.node.is_unreachable:
            return
        self._schedule.begin(pending)
        self._handlers.start(self._apply_stage(pending, resource, current))

    def _warn_of_unselected(self, obj: JSON, target: _Target) -> None:
        """Warn that nothing starts a new pod: stages replace the kubelet, and none selects the pod."""
        status = obj.get("status") or {}
        if target.pod is None or not target.pod.staged or status.get("startTime") or status.get("containerStatuses"):
            return
        if status.get("phase", "Pending") != "Pending" or "deletionTimestamp" in obj["metadata"]:
            return
        text = f"the stages for pods replace the kubelets' behaviour, and none of them selects this pod: {_ADD_HINT}"
        self._simulation.event(obj, "Warning", "NoStage", text, host=target.node.name)
        if not self._has_warned:
            self._has_warned = True
            metadata = obj["metadata"]
            log.warning("pod %s/%s stays Pending: %s", metadata["namespace"], metadata["name"], text)

    def _stored(self, resource: Resource[Any], obj: JSON) -> JSON | None:
        """Return the object as it is stored now; None if it was deleted."""
        metadata = obj["metadata"]
        stored = self._simulation.store.get(resource, metadata.get("namespace", ""), metadata["name"])
        return stored if stored is not None and stored["metadata"]["uid"] == metadata["uid"] else None

    async def _apply_stage(self, pending: PendingStage[_Target], resource: Resource[Any], current: JSON) -> None:
        metadata, node = pending.obj["metadata"], pending.subject.node
        try:
            after = await self._steps(pending, resource, current)
        except (StageFailed, TemplateError, FunctionError, Refused, errors.StatusError) as failure:
            text = f"stage {pending.stage.name} failed: {failure}"
            log.warning("%s %s: %s", pending.stage.kind, metadata["name"], text)
            self._simulation.event(current, "Warning", "StageFailed", text, host=node.name)
            return
        except Exception:  # an error at one object must not stop the others
            log.exception("simulated node failed")
            return
        if after is not None and pending.stage.immediate:
            if pending.subject.pod is not None:
                self.pod_seen(after, pending.subject.pod)
            else:
                self.node_seen(after, node)

    # --- steps ------------------------------------------------------------------------------------

    async def _steps(self, pending: PendingStage[_Target], resource: Resource[Any], obj: JSON) -> JSON | None:
        """Apply all steps; return the resulting object, None if it is deleted or unchanged."""
        before = obj
        for step in pending.stage.steps:
            if step.event is not None:
                type_, reason, message = step.event
                self._simulation.event(obj, type_, reason, message, host=pending.subject.node.name)
            if step.finalizers is not None:
                obj = self._write(resource, obj, _with_finalizers(obj, step.finalizers))
            if step.delete:
                if not self._delete(resource, obj):
                    return None
                obj = self._stored(resource, obj) or obj
            elif step.patch is not None:
                obj = self._write(resource, obj, self._apply_patch(pending, resource, obj, step))
            if step.apply is not None:
                if self._requests is None:
                    raise StageFailed("no API server to apply other objects to")
                await apply_rendered(self._requests, step.apply, obj, self._context(pending, obj))
                stored = self._stored(resource, obj)
                if stored is None:
                    return None
                if stored != obj:  # changed by the request, or while it waited
                    obj = stored
        return None if obj is before else obj

    def _write(self, resource: Resource[Any], before: JSON, after: JSON) -> JSON:
        return before if after == before else self._simulation.update(resource, after)

    def _delete(self, resource: Resource[Any], obj: JSON) -> bool:
        """Delete the object without grace; return True if finalizers remain."""
        if resource is PODS:
            return not self._simulation.remove_pod(obj)
        if obj["metadata"].get("finalizers"):
            if not obj["metadata"].get("deletionTimestamp"):
                metadata = {**obj["metadata"], "deletionTimestamp": self._simulation.wall()}
                self._simulation.update(resource, {**obj, "metadata": metadata})
            return True
        self._simulation.store.delete(resource, "", obj["metadata"]["name"])
        return False

    def _apply_patch(self, pending: PendingStage[_Target], resource: Resource[Any], obj: JSON, step: Step) -> JSON:
        """Return `obj` with the patch, decoded. Raises StageFailed."""
        patch = step.patch
        assert patch is not None
        patch_body = render_yaml(patch.template, obj, self._context(pending, obj))
        if patch_body is None:
            return obj
        try:
            changed = _apply(obj, patch_body, patch, resource)
            decoded, unknown = decoding.decode(resource, changed)
            apply_defaults(resource, decoded)
        except patches.PatchError as error:
            raise StageFailed(f"the rendered patch does not apply: {error}") from None
        except decoding.DecodeError as error:
            raise StageFailed(f"the patched object is not a valid {pending.stage.kind}: {error}") from None
        if unknown:
            log.debug("stage %s: %s", pending.stage.name, ", ".join(unknown))
        if patch.subresource == "status":
            return prepare_for_subresource_update(
                strategy_of(resource), decoded, obj, "status", Write(now=self._simulation.wall), self._fields
            )
        self._fields.drop(strategy_of(resource), decoded, obj)
        identity = {name: obj["metadata"][name] for name in _IDENTITY if name in obj["metadata"]}
        return {**decoded, "metadata": {**decoded["metadata"], **identity}, "status": obj.get("status") or {}}

    # --- template functions -----------------------------------------------------------------------

    def _context(self, pending: PendingStage[_Target], obj: JSON) -> dict[str, Callable[..., Any]]:
        node, pod = pending.subject.node, pending.subject.pod

        def node_ips(_name: Any = None) -> list[str]:
            addresses = (node.object.get("status") or {}).get("addresses") or ()
            internal_ips = [address["address"] for address in addresses if address.get("type") == "InternalIP"]
            return internal_ips or [node.host_ip]

        def pod_ips(_node: Any = None, host_network: Any = False, *_identity: Any) -> list[str]:
            if host_network:
                return node_ips()
            if pod is None:
                raise FunctionError("only pods have an address in the pod network")
            if not pod.address:
                pod.address = (obj.get("status") or {}).get("podIP") or node.network.next_address()
            return [pod.address]

        return {
            **general_functions(self._simulation.clock, self._started),
            "NodeIP": lambda: node.host_ip,
            "NodeName": lambda: node.name,
            "NodePort": lambda: 10250,
            "PodIP": lambda: pod_ips()[0],
            "NodeIPWith": lambda name: node_ips(name)[0],
            "NodeIPsWith": node_ips,
            "PodIPWith": lambda *arguments: pod_ips(*arguments)[0],
            "PodIPsWith": pod_ips,
        }


_ADD_HINT = f"to add stages to that behaviour, give each the annotation {ADD_TO}: built-in (docs/nodes.md)"
_IDENTITY = ("name", "namespace", "uid", "creationTimestamp", "resourceVersion", "deletionTimestamp", "generation")


def _apply(obj: JSON, patch_body: Any, patch: StagePatch, resource: Resource[Any]) -> JSON:
    body = wrap_patch(patch.root, patch_body, json_patch=patch.type == "json")
    if patch.type == "json":
        changed: JSON = patches.json_patch(obj, body)
        return changed
    if not isinstance(patch_body, dict):
        raise StageFailed(
            f"the template renders a {type(patch_body).__name__}, not a map: {json.dumps(patch_body)[:80]}"
        )
    if patch.type == "merge":
        merged: JSON = patches.merge_patch(obj, body)
        return merged
    return patches.strategic_patch(obj, body, schema.type_for(resource.group, resource.version, resource.kind))


def _with_finalizers(obj: JSON, change: Finalizers) -> JSON:
    after = change.applied_to(obj["metadata"].get("finalizers") or ())
    metadata = {name: value for name, value in obj["metadata"].items() if name != "finalizers"}
    return {**obj, "metadata": {**metadata, "finalizers": after} if after else metadata}
