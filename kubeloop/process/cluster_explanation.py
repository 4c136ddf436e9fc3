"""Explanation of a pending pod or pod group of a cluster that another scheduler serves, for `kubeloop explain`.

Reads the cluster once, by paged lists, into the caches of a scheduler that never runs, and explains the pod with its
filters, or the group with an attempt that has no effects.

What the user may not list is unknown, not absent: plugins that need it for this pod are left out, which a note states.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import Forbidden, NotFound
from kubeloop.kube.events.event_recorder import EventBroadcaster
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Container, Pod
from kubeloop.kube.objects.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.scheduler_plugins import plugins_for
from kubeloop.process.endpoint.owner_pods import find_owner, first_pending, owner_document
from kubeloop.process.endpoint.trace_targets import POD_GROUP_KIND, Target, resolve
from kubeloop.scheduler.cache.node_info import PodInfo, may_be_devices
from kubeloop.scheduler.cache.pod_groups import pod_group_key
from kubeloop.scheduler.config.plugin_sets import PluginSet
from kubeloop.scheduler.config.types import SchedulerConfiguration, default_configuration
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.explain.pending_pod import PodExplanation, explain
from kubeloop.scheduler.explain.pod_group import explain_pod_group
from kubeloop.scheduler.lister_resources import lister_resources
from kubeloop.scheduler.plugins.dynamic_resources.dynamic_resources import requests_extended_resource
from kubeloop.scheduler.plugins.volumes.volume_claims import claim_uses
from kubeloop.scheduler.scheduler import Scheduler
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.pod_recorder import standalone_pod_recorder

_PROGRESS_SECONDS: Final = 2.0
_UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_GROUP_GATES: Final = (
    "GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling", "DRAWorkloadResourceClaims"
)  # fmt: skip
_DEVICES: Final = "DynamicResources"
_AS_FAR_AS_READ: Final = "as far as the user may read the cluster"
_ZONE: Final = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES)
_LIMITS: Final = (*_ZONE, CSI_NODES, CSI_DRIVERS, VOLUME_ATTACHMENTS)
_NEEDED: Final[Mapping[str, tuple[Resource[Any], ...]]] = {
    "VolumeBinding": (*_ZONE, CSI_NODES, CSI_DRIVERS, CSI_STORAGE_CAPACITIES),
    "VolumeZone": _ZONE,
    "VolumeRestrictions": (PERSISTENT_VOLUME_CLAIMS,),
    "NodeVolumeLimits": _LIMITS,
    **dict.fromkeys(("EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"), _LIMITS),
    **dict.fromkeys((f"Max{disk}VolumeCount" for disk in ("EBS", "GCEPD", "AzureDisk", "Cinder")), _LIMITS),
    "InterPodAffinity": (NAMESPACES,),
    "PodTopologySpread": (SERVICES, REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS),
    "ServiceAffinity": (SERVICES,),
    "GangScheduling": (POD_GROUPS,),
}
"""Resources without which a plugin cannot decide about a pod that _concerns()."""
_LISTS_ALL: Final = frozenset(plugin for plugin, resources in _NEEDED.items() if resources is _LIMITS)
_IN_ONE_NAMESPACE: Final = (PERSISTENT_VOLUME_CLAIMS, POD_GROUPS)  # those of the pod's namespace may suffice


class ClusterExplanation:
    """Explains pods of one cluster.

    configuration: of the cluster's scheduler; None if it is unknown: that of kube-scheduler's default profile applies
    to pods of every scheduler. report_progress: receives a line of text every 2 s while the cluster is read.
    """

    def __init__(
        self,
        client: ApiClient,
        configuration: SchedulerConfiguration | None,
        *,
        gates: FeatureGates,
        clock: Clock,
        rng: random.Random,
        report_progress: Callable[[str], None],
    ) -> None:
        self._client = client
        self._configuration = configuration
        self._gates = gates
        self._clock = clock
        self._rng = rng
        self._report_progress = report_progress
        self._read: Counter[str] = Counter()  # number of objects read, by resource
        # Resources that the user may not list, or that the server does not serve in this version; those of _partial are
        # known in the namespaces of the explained pods.
        self._denied: list[Resource[Any]] = []
        self._partial: list[Resource[Any]] = []
        self._unserved: list[Resource[Any]] = []  # those of _denied that the server does not serve
        self._unchecked: dict[str, list[Resource[Any]]] = {}  # by plugin that is left out

    async def explain(self, target: Target, *, with_scores: bool = False) -> dict[str, Any]:
        """Return the explanation as JSON: PodExplanation or PodGroupExplanation, with `scheduler`, `server`, `notes`.

        target: a pod; a pod group, which needs the gates of gates_for(); or an owner, of whose pods the first pending
        one is explained, with `owner`. Raises UserError if there is no such pod or a permission is missing, ApiError,
        ServerUnreachable; in a group, too.
        """
        if not target.is_owner:
            return await self._explain(await self._pod(target.namespace, target.name), with_scores)
        if target.kind == POD_GROUP_KIND:
            return await self._explain_group(target)
        owner, pods = await find_owner(self._client, target, await self._pods(target.namespace))
        target, pod = owner, first_pending(pods)
        return (await self._explain(pod, with_scores) if pod is not None else {}) | owner_document(target, pods)

    async def _explain(self, pod: Pod, with_scores: bool) -> dict[str, Any]:
        scheduler_name = pod.spec.scheduler_name
        configuration = self._configuration or _default_configuration(scheduler_name, self._gates)
        is_pending = not pod.spec.node_name and any(
            profile.scheduler_name == scheduler_name for profile in configuration.profiles
        )
        scheduler = await self._filled_scheduler(configuration, [pod], read=is_pending or with_scores)
        explanation = explain(scheduler, pod.key, self._unknown(), with_scores=with_scores)
        # The queue that the caches feed is not that of the cluster's scheduler.
        explanation.queue, explanation.attempts, explanation.rejected_by = "", 0, ()
        explanation.retry_seconds = 0.0
        if self._unchecked:
            _qualify(explanation)
        return explanation.to_json() | {
            "scheduler": scheduler_name,
            "server": self._client.transport.server,
            "notes": self._notes(pod, configuration),
        }

    async def _explain_group(self, target: Target) -> dict[str, Any]:
        pods = await self._pods(target.namespace)
        key = await self._group_key(target, pods)
        members = [pod for pod in pods if pod_group_key(pod) == key]
        pod = first_pending(members) or next(iter(members), None)
        scheduler_name = pod.spec.scheduler_name if pod is not None else "default-scheduler"
        configuration = self._configuration or _default_configuration(scheduler_name, self._gates)
        scheduler = await self._filled_scheduler(configuration, members, namespaces=[key.partition("/")[0]])
        if POD_GROUPS.group_resource in self._unknown():
            raise _missing_permission("list", POD_GROUPS, "whether there is a PodGroup is unknown")
        cycle = scheduler.pod_group_cycle
        facts = await cycle.dry_run(key) if cycle is not None else None
        explanation = explain_pod_group(scheduler, key, facts)
        if not explanation.exists:
            raise UserError(f"there is no pod group {key}", hint="list pod groups with kubectl get podgroups -A")
        explanation.retry_seconds = 0.0  # the queue that the caches feed is not that of the cluster's scheduler
        if self._unchecked:
            explanation.summary += f" ({_AS_FAR_AS_READ})"
        return explanation.to_json() | {
            "pod": explain(scheduler, explanation.unfit_pod, self._unknown()).to_json()
            if explanation.unfit_pod
            else None,
            "scheduler": scheduler_name,
            "server": self._client.transport.server,
            "notes": self._notes(pod, configuration) if pod is not None else [],
        }

    async def _pod(self, namespace: str, name: str) -> Pod:
        """Return a pod; without a namespace, of "default", or of the only namespace that has it."""
        try:
            return await self._client.get(PODS, name, namespace or "default")
        except NotFound:
            pass
        except Forbidden as error:
            if namespace:
                raise _missing_permission("get", PODS, error) from None
        return await self._pod_elsewhere(namespace, name)

    async def _pod_elsewhere(self, namespace: str, name: str) -> Pod:
        """Return the pod of this name in another namespace, if `namespace` is "". Raises UserError."""
        try:
            pods = (await self._client.list_all(PODS, namespace, field_selector=f"metadata.name={name}")).items
            if not pods:  # for similar names
                pods = (await self._client.list_all(PODS, namespace)).items
        except Forbidden as error:
            where = f"in namespace {namespace or 'default'}"
            hint = f"other pods are unknown: {error}" if namespace else f"choose a namespace with -n: {error}"
            raise UserError(f"no pod {name} {where} that the user may get", hint=hint) from None
        existing = {(pod.metadata.namespace, pod.metadata.name) for pod in pods}
        key = f"{resolve('pod', name, namespace, existing, incomplete='')}/{name}"
        return next(pod for pod in pods if pod.key == key)

    async def _pods(self, namespace: str) -> Sequence[Pod]:
        try:
            return (await self._client.list_all(PODS, namespace)).items
        except Forbidden as error:
            raise _missing_permission("list", PODS, error) from None

    async def _group_key(self, target: Target, pods: Iterable[Pod]) -> str:
        """Return "namespace/name" of a pod group, in the namespace that resolve() selects."""
        if target.namespace:
            return f"{target.namespace}/{target.name}"
        keys = {pod_group_key(pod) for pod in pods} - {""}
        try:
            keys |= {group.key for group in (await self._client.list_all(POD_GROUPS)).items}
        except (Forbidden, NotFound) as error:
            if not any(key.endswith(f"/{target.name}") for key in keys):
                raise _missing_permission("list", POD_GROUPS, error) from None
        existing = {(namespace, name) for namespace, _, name in (key.partition("/") for key in keys)}
        return f"{resolve(POD_GROUP_KIND, target.name, '', existing, incomplete='')}/{target.name}"

    def _scheduler(
        self, informers: InformerFactory, configuration: SchedulerConfiguration, left_out: Collection[str]
    ) -> Scheduler:
        configuration = _without_plugins(configuration, left_out)
        return Scheduler(self._context(), informers, configuration, plugins_for(configuration.profiles))

    def _context(self) -> SchedulerContext:
        events = EventBroadcaster(self._client, clock=self._clock, rng=self._rng)  # never runs, so nothing is written
        return SchedulerContext(
            client=self._client,
            clock=self._clock,
            rng=self._rng,
            recorder_for=events.for_component,
            traces=standalone_pod_recorder(OpenPodRecords(clock=self._clock), rng=self._rng),
            feature_gates=self._gates,
        )

    async def _filled_scheduler(
        self,
        configuration: SchedulerConfiguration,
        pods: Iterable[Pod],
        *,
        read: bool = True,
        namespaces: Sequence[str] = (),
    ) -> Scheduler:
        """Return a scheduler whose caches have the objects of the cluster; with read=False, only `pods`.

        pods: those to explain. Claims and devices are read if one of them needs devices.
        """
        pods = [*pods]
        informers = InformerFactory(self._client, clock=self._clock, rng=self._rng)
        if not read:
            scheduler = self._scheduler(informers, configuration, {_DEVICES})
            await informers.informer(NODES).replace(await self._nodes_of(pods))
            await informers.informer(PODS).replace({pod.key: pod for pod in pods})
            return scheduler
        resources: list[Resource[Any]] = [*lister_resources(self._gates).values(), NODES, PODS]
        with_devices = any(_needs_devices(pod, self._gates) for pod in pods)
        if with_devices:
            resources = [*_device_resources(self._gates), *resources]
        namespaces = namespaces or sorted({pod.metadata.namespace for pod in pods})
        objects = await self._read_all(resources, namespaces)
        by_resource = dict(zip(resources, objects, strict=True))
        self._find_unchecked(configuration, pods, by_resource[PODS].values(), with_devices=with_devices)
        left_out = {*self._unchecked, *(() if with_devices else (_DEVICES,))}
        scheduler = self._scheduler(informers, configuration, left_out)
        for resource, by_key in by_resource.items():  # pods come last: they refer to all others
            if resource is PODS and _DEVICES in self._unchecked:
                by_key |= {pod.key: _without_extended_resources(pod) for pod in pods}
            await informers.informer(resource).replace(by_key)
        scheduler.queue.activate_gated()  # as after the first lists of informers that run
        return scheduler

    async def _nodes_of(self, pods: Iterable[Pod]) -> dict[str, Any]:
        """Return the nodes that pods name, as far as they exist and may be read."""
        nodes = {}
        for name in {pod.spec.node_name for pod in pods} - {""}:
            try:
                nodes[name] = await self._client.get(NODES, name)
            except NotFound:
                continue
            except Forbidden:
                self._denied.append(NODES)
        return nodes

    def _find_unchecked(
        self,
        configuration: SchedulerConfiguration,
        pods: Sequence[Pod],
        all_pods: Iterable[Pod],
        *,
        with_devices: bool,
    ) -> None:
        """Set _unchecked for the pods to explain."""
        all_pods = [*all_pods] if NAMESPACES in self._denied else pods
        needed: dict[str, Sequence[Resource[Any]]] = {
            plugin: resources for plugin, resources in _NEEDED.items() if _concerns(plugin, pods, all_pods)
        }
        if self._configuration is None:  # the default constraints filter no nodes
            needed.pop("PodTopologySpread", None)
        if with_devices:  # a pod group may have claims, too
            groups = (POD_GROUPS,) if any(map(pod_group_key, pods)) else ()
            needed[_DEVICES] = (*_device_resources(self._gates), *groups)
        enabled = {
            ref.name
            for profile in configuration.profiles
            for plugins in (profile.multi_point, *profile.points.values())
            for ref in plugins.enabled
        }
        for plugin in needed.keys() & enabled:
            resources = needed[plugin]
            known = self._partial if plugin not in _LISTS_ALL else ()
            missing = [resource for resource in resources if resource in self._denied and resource not in known]
            if missing:
                self._unchecked[plugin] = missing

    def _unknown(self) -> frozenset[str]:
        return frozenset(item.group_resource for item in self._denied if item not in self._partial)

    async def _read_all(self, resources: Iterable[Resource[Any]], namespaces: Sequence[str]) -> list[dict[str, Any]]:
        """Return the objects of each resource by key, and report the progress meanwhile."""
        async with asyncio.TaskGroup() as tasks:
            reporter = tasks.create_task(self._report(), name="progress")
            lists = [
                tasks.create_task(self._list(resource, namespaces), name=resource.plural) for resource in resources
            ]
            await asyncio.wait(lists)
            reporter.cancel()
        return [objects.result() for objects in lists]

    async def _list(self, resource: Resource[Any], namespaces: Sequence[str]) -> dict[str, Any]:
        """Return all objects by key. Of an optional resource that cannot be listed, those of `namespaces`, or none.

        Raises UserError.
        """
        try:
            return await self._list_in(resource, "")
        except (Forbidden, NotFound) as error:
            if resource in (NODES, PODS):
                raise _missing_permission("list", resource, error) from None
            if isinstance(error, NotFound):
                self._unserved.append(resource)
        self._denied.append(resource)
        objects: dict[str, Any] = {}
        if resource not in _IN_ONE_NAMESPACE:
            return objects
        try:
            for namespace in namespaces:
                objects |= await self._list_in(resource, namespace)
        except (Forbidden, NotFound):
            return {}
        self._partial.append(resource)
        return objects

    async def _list_in(self, resource: Resource[Any], namespace: str) -> dict[str, Any]:
        objects: dict[str, Any] = {}
        selector = _UNFINISHED if resource is PODS else ""
        async for page in self._client.pages(resource, namespace, field_selector=selector):
            if page.restarted:
                objects.clear()
            objects |= {item.key: item for item in page.items}
            self._read[resource.plural] = len(objects)
        return objects

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            counts = ", ".join(f"{self._read[resource.plural]:,} {resource.plural}" for resource in (NODES, PODS))
            self._report_progress(f"reading {self._client.transport.server}: {counts}")

    def _notes(self, pod: Pod, configuration: SchedulerConfiguration) -> list[str]:
        notes = []
        if not any(condition.type == "PodScheduled" for condition in pod.status.conditions):
            notes.append(f"Scheduler {pod.spec.scheduler_name} has not tried to schedule the pod yet: does it run?")
        if self._configuration is None:
            notes.append("The filters are those of kube-scheduler's default configuration; --config sets another one.")
        if self._unchecked:
            for what, plugins in (("Claims and devices are", {_DEVICES}), ("", self._unchecked.keys() - {_DEVICES})):
                missing = {item for plugin in plugins for item in self._unchecked.get(plugin, ())}
                if missing:
                    subject = what or f"{', '.join(sorted(plugins))} {'is' if len(plugins) == 1 else 'are'}"
                    notes.append(f"{subject} not checked, because {self._why_unread(missing)}.")
        if configuration.extenders:
            notes.append("The scheduler's extenders are not called.")
        return notes

    def _why_unread(self, resources: Collection[Resource[Any]]) -> str:
        reasons = []
        for reason, named in (
            ("the user may not list", [item for item in resources if item not in self._unserved]),
            ("the server does not serve", [item for item in resources if item in self._unserved]),
        ):
            if named:
                reasons.append(f"{reason} {', '.join(sorted(item.group_resource for item in named))}")
        return " and ".join(reasons)


def gates_for(target: Target, gates: FeatureGates) -> FeatureGates:
    """Return the gates to explain a target with: for a pod group, those of pod groups, unless the user set them."""
    if target.kind != POD_GROUP_KIND or "GenericWorkload" in gates.values:
        return gates
    return FeatureGates.parse({**gates.values, **dict.fromkeys(_GROUP_GATES, True)})


def _default_configuration(scheduler_name: str, gates: FeatureGates) -> SchedulerConfiguration:
    """Return kube-scheduler's default profile under the name of the pod's scheduler."""
    configuration = default_configuration(gates)
    profile = msgspec.structs.replace(configuration.profiles[0], scheduler_name=scheduler_name)
    return msgspec.structs.replace(configuration, profiles=(profile,))


def _needs_devices(pod: Pod, gates: FeatureGates) -> bool:
    """Return True for a pod with claims, or with an extended resource that devices may provide."""
    return bool(pod.spec.resource_claims) or (gates.enabled("DRAExtendedResource") and requests_extended_resource(pod))


def _device_resources(gates: FeatureGates) -> tuple[Resource[Any], ...]:
    rules = (DEVICE_TAINT_RULES,) if gates.enabled("DRADeviceTaintRules") else ()
    return (DEVICE_CLASSES, RESOURCE_SLICES, RESOURCE_CLAIMS, *rules)


def _concerns(plugin: str, pods: Iterable[Pod], all_pods: Iterable[Pod]) -> bool:
    """Return True if what a plugin decides about `pods` depends on the resources in _NEEDED."""
    match plugin:
        case "InterPodAffinity":
            return any(_selects_namespaces(pod) for pod in all_pods)
        case "PodTopologySpread":
            return any(not pod.spec.topology_spread_constraints for pod in pods)
        case "GangScheduling":
            return any(pod_group_key(pod) for pod in pods)
        case "ServiceAffinity":
            return True
        case "NodeVolumeLimits":
            return any(volume.csi is not None for pod in pods for volume in pod.spec.volumes) or _use_claims(pods)
    return _use_claims(pods)


def _use_claims(pods: Iterable[Pod]) -> bool:
    return any(any(claim_uses(pod)) for pod in pods)


def _selects_namespaces(pod: Pod) -> bool:
    """Return True if a required (anti-)affinity term of the pod selects namespaces by their labels."""
    info = PodInfo(pod)
    terms = (*info.affinity_class.required_affinity_terms, *info.affinity_class.required_anti_affinity_terms)
    return any(not term.namespace_selector.nothing for term in terms)


def _qualify(explanation: PodExplanation) -> None:
    """State in the summary that not everything was checked; nothing is known to be absent."""
    if explanation.summary.startswith("the pod fits"):
        fits, _, _ = explanation.summary.partition(";")
        explanation.summary = f"{fits}, {_AS_FAR_AS_READ}"


def _without_extended_resources(pod: Pod) -> Pod:
    """Return the pod without requests of resources that devices may provide."""

    def stripped(container: Container) -> Container:
        requests = {name: amount for name, amount in container.resources.requests.items() if not may_be_devices(name)}
        resources = msgspec.structs.replace(container.resources, requests=requests)
        return msgspec.structs.replace(container, resources=resources)

    containers = {field: tuple(map(stripped, getattr(pod.spec, field))) for field in ("containers", "init_containers")}
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **containers))


def _without_plugins(configuration: SchedulerConfiguration, names: Collection[str]) -> SchedulerConfiguration:
    if not names:
        return configuration
    profiles = tuple(
        msgspec.structs.replace(
            profile,
            multi_point=_without(profile.multi_point, names),
            points={point: _without(plugins, names) for point, plugins in profile.points.items()},
        )
        for profile in configuration.profiles
    )
    return msgspec.structs.replace(configuration, profiles=profiles)


def _without(plugins: PluginSet, names: Collection[str]) -> PluginSet:
    return PluginSet(tuple(ref for ref in plugins.enabled if ref.name not in names), plugins.disabled)


def _missing_permission(verb: str, resource: Resource[Any], error: object) -> UserError:
    return UserError(
        f"cannot {verb} {resource.plural}: {error}",
        hint=f"the user needs this permission; see kubectl auth can-i {verb} {resource.plural}",
    )
