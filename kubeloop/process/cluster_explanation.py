"""Explanation of a pending pod or pod group of a cluster that another scheduler serves, for `kubeloop explain`.

Reads the cluster once, by paged lists, into the caches of a scheduler that never runs, and explains the pod with its
filters, or the group with an attempt that has no effects.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.client.api_client import Client
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import Forbidden, NotFound, UserError
from kubeloop.kube.event_recorder import EventRecorder
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from kubeloop.process.endpoint.owner_pods import cron_job_runs, first_pending, owner_document, pods_of
from kubeloop.process.endpoint.trace_targets import POD_GROUP_KIND, Target, resolve
from kubeloop.scheduler.cache.pod_groups import pod_group_key
from kubeloop.scheduler.config.plugin_sets import PluginSet
from kubeloop.scheduler.config.types import SchedulerConfiguration, default_configuration
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.explain.pending_pod import explain
from kubeloop.scheduler.explain.pod_group import explain_pod_group
from kubeloop.scheduler.lister_resources import lister_resources
from kubeloop.scheduler.plugins.dynamic_resources import requests_extended_resource
from kubeloop.scheduler.plugins.registry import IN_TREE_PLUGINS
from kubeloop.scheduler.scheduler import Scheduler
from kubeloop.tracing.recording.pod_recorder import PodRecorder

_PROGRESS_SECONDS: Final = 2.0
_UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_GROUP_GATES: Final = (
    "GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling", "DRAWorkloadResourceClaims"
)  # fmt: skip
_DEVICES: Final = "DynamicResources"


class ClusterExplanation:
    """Explains pods of one cluster.

    configuration: of the cluster's scheduler; None if it is unknown: that of kube-scheduler's default profile applies
    to pods of every scheduler. report_progress: receives a line of text every 2 s while the cluster is read.
    """

    def __init__(
        self,
        client: Client,
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
        self._denied: list[str] = []  # resources that the user may not list, or that the server does not have
        self._denied_devices: list[str] = []  # those of them without which claims and devices cannot be checked

    async def explain(self, target: Target) -> dict[str, Any]:
        """Return the explanation as JSON: PodExplanation or PodGroupExplanation, with `scheduler`, `server`, `notes`.

        target: a pod; a pod group, which needs the gates of gates_for(); or an owner, of whose pods the first pending
        one is explained, with `owner`. Raises UserError if there is no such pod or a permission is missing, ApiError,
        ServerUnreachable; in a group, too.
        """
        if not target.is_owner:
            return await self._explain(await self._pod(target.namespace, target.name))
        if target.kind == POD_GROUP_KIND:
            return await self._explain_group(target)
        pods = await self._pods(target)
        pod = first_pending(pods)
        return (await self._explain(pod) if pod is not None else {}) | owner_document(target, pods)

    async def _explain(self, pod: Pod) -> dict[str, Any]:
        scheduler_name = pod.spec.scheduler_name
        configuration = self._configuration or _default_configuration(scheduler_name, self._gates)
        is_pending = not pod.spec.node_name and any(
            profile.scheduler_name == scheduler_name for profile in configuration.profiles
        )
        scheduler = await self._filled_scheduler(configuration, [pod], read=is_pending)
        explanation = explain(scheduler, pod.key)
        # The queue that the caches feed is not that of the cluster's scheduler.
        explanation.queue, explanation.attempts, explanation.rejected_by = "", 0, ()
        explanation.retry_seconds = 0.0
        return explanation.to_json() | {
            "scheduler": scheduler_name,
            "server": self._client.transport.server,
            "notes": self._notes(pod, configuration),
        }

    async def _explain_group(self, target: Target) -> dict[str, Any]:
        key = f"{target.namespace}/{target.name}"
        try:
            pods = (await self._client.list(PODS, target.namespace)).items
        except Forbidden as error:
            raise _missing_permission("list", PODS, error) from None
        members = [pod for pod in pods if pod_group_key(pod) == key]
        pod = first_pending(members) or next(iter(members), None)
        scheduler_name = pod.spec.scheduler_name if pod is not None else "default-scheduler"
        configuration = self._configuration or _default_configuration(scheduler_name, self._gates)
        scheduler = await self._filled_scheduler(configuration, members)
        cycle = scheduler.pod_group_cycle
        facts = await cycle.dry_run(key) if cycle is not None else None
        explanation = explain_pod_group(scheduler, key, facts)
        if not explanation.exists:
            raise UserError(f"there is no pod group {key}", hint="list pod groups with kubectl get podgroups -A")
        explanation.retry_seconds = 0.0  # the queue that the caches feed is not that of the cluster's scheduler
        return explanation.to_json() | {
            "pod": explain(scheduler, explanation.unfit_pod).to_json() if explanation.unfit_pod else None,
            "scheduler": scheduler_name,
            "server": self._client.transport.server,
            "notes": self._notes(pod, configuration) if pod is not None else [],
        }

    async def _pod(self, namespace: str, name: str) -> Pod:
        try:
            return await self._client.get(PODS, name, namespace)
        except NotFound:
            names = {(namespace, pod.metadata.name) for pod in (await self._client.list(PODS, namespace)).items}
            resolve("pod", name, namespace, names)
            raise UserError(f"pod {namespace}/{name} was created a moment ago", hint="try again") from None
        except Forbidden as error:
            raise _missing_permission("get", PODS, error) from None

    async def _pods(self, owner: Target) -> list[Pod]:
        runs = await cron_job_runs(self._client, owner)
        try:
            return pods_of(owner, (await self._client.list(PODS, owner.namespace)).items, runs)
        except Forbidden as error:
            raise _missing_permission("list", PODS, error) from None

    def _context(self) -> SchedulerContext:
        events = EventRecorder(self._client, clock=self._clock, rng=self._rng)  # never runs, so nothing is written
        return SchedulerContext(
            client=self._client,
            clock=self._clock,
            rng=self._rng,
            recorder_for=events.for_component,
            traces=PodRecorder(clock=self._clock, rng=self._rng),
            feature_gates=self._gates,
        )

    async def _filled_scheduler(
        self, configuration: SchedulerConfiguration, pods: Iterable[Pod], *, read: bool = True
    ) -> Scheduler:
        """Return a scheduler whose caches have the objects of the cluster; with read=False, only `pods`.

        pods: those to explain. Claims and devices are read if one of them needs devices.
        """
        pods = [*pods]
        informers = InformerFactory(self._client, clock=self._clock, rng=self._rng)
        if not read:
            scheduler = Scheduler(self._context(), informers, _without_devices(configuration), IN_TREE_PLUGINS)
            await informers.informer(PODS).replace({pod.key: pod for pod in pods})
            return scheduler
        resources: list[Resource[Any]] = [*lister_resources(self._gates).values(), NODES, PODS]
        with_devices = any(_needs_devices(pod, self._gates) for pod in pods)
        if with_devices:
            resources = [*_device_resources(self._gates), *resources]
        objects = await self._read_all(resources)
        if not with_devices or self._denied_devices:
            configuration = _without_devices(configuration)
        scheduler = Scheduler(self._context(), informers, configuration, IN_TREE_PLUGINS)
        for resource, by_key in zip(resources, objects, strict=True):  # pods come last: they refer to all others
            await informers.informer(resource).replace(by_key)
        return scheduler

    async def _read_all(self, resources: Iterable[Resource[Any]]) -> list[dict[str, Any]]:
        """Return the objects of each resource by key, and report the progress meanwhile."""
        async with asyncio.TaskGroup() as tasks:
            reporter = tasks.create_task(self._report(), name="progress")
            lists = [tasks.create_task(self._list(resource), name=resource.plural) for resource in resources]
            await asyncio.wait(lists)
            reporter.cancel()
        return [objects.result() for objects in lists]

    async def _list(self, resource: Resource[Any]) -> dict[str, Any]:
        """Return all objects by key; none if an optional resource cannot be listed. Raises UserError."""
        objects: dict[str, Any] = {}
        selector = _UNFINISHED if resource is PODS else ""
        try:
            async for page in self._client.pages(resource, field_selector=selector):
                if page.restarted:
                    objects.clear()
                objects |= {item.key: item for item in page.items}
                self._read[resource.plural] = len(objects)
        except (Forbidden, NotFound) as error:
            if resource in (NODES, PODS):
                raise _missing_permission("list", resource, error) from None
            denied = self._denied_devices if resource in _device_resources(self._gates) else self._denied
            denied.append(resource.group_resource)
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
        if self._denied:
            denied = ", ".join(sorted(self._denied))
            notes.append(f"Counted as empty, because the user may not list them: {denied}.")
        if self._denied_devices:
            denied = ", ".join(sorted(self._denied_devices))
            notes.append(f"Claims and devices are not checked, because the user may not list {denied}.")
        if configuration.extenders:
            notes.append("The scheduler's extenders are not called.")
        return notes


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


def _without_devices(configuration: SchedulerConfiguration) -> SchedulerConfiguration:
    profiles = tuple(
        msgspec.structs.replace(
            profile,
            multi_point=_without(profile.multi_point, _DEVICES),
            points={point: _without(plugins, _DEVICES) for point, plugins in profile.points.items()},
        )
        for profile in configuration.profiles
    )
    return msgspec.structs.replace(configuration, profiles=profiles)


def _without(plugins: PluginSet, name: str) -> PluginSet:
    return PluginSet(tuple(ref for ref in plugins.enabled if ref.name != name), plugins.disabled)


def _missing_permission(verb: str, resource: Resource[Any], error: Exception) -> UserError:
    return UserError(
        f"cannot {verb} {resource.plural}: {error}",
        hint=f"the user needs this permission; see kubectl auth can-i {verb} {resource.plural}",
    )
