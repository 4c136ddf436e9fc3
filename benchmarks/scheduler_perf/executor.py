"""Runs the operations of a workload through the API. Source: WorkloadExecutor in scheduler_perf."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import (
    BY_GROUP_KIND,
    CSI_NODES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
    Resource,
)
from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.durations import parse_duration_seconds
from scheduler_perf import config
from scheduler_perf.cleanup import Created
from scheduler_perf.figures import (
    WORST_LOOP_LAG,
    Measurement,
    Metrics,
    Throughput,
    cpu_seconds,
    peak_memory_mib,
    summary,
)
from scheduler_perf.processes import Kubeloop
from scheduler_perf.templates import ObjectTemplate, object_template

_NODE_WORKERS = 32
_POD_WORKERS = 30  # source: CreatePod in test/utils
_POLL_SECONDS = 0.05
_SCAN_SECONDS = 0.25
_CREATE_ANY_SECONDS = 20.0
_NAME_TRIES = 4
_NOT_READY = "node.kubernetes.io/not-ready"
_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # k8s.io/apimachinery/pkg/util/rand

T = TypeVar("T")


class WorkloadFailed(Exception):
    """A failed workload; the text has the operation and the reason."""


class PodCounter:
    """All pods of a watch, and the number of bound pods per namespace."""

    def __init__(self, informers: InformerFactory) -> None:
        informer = informers.informer(PODS)
        self.store = informer.store
        self._bound: dict[str, set[str]] = {}  # namespace -> uids
        self.throughput: Throughput | None = None
        self.bound_listener: Callable[[Pod], None] | None = None
        informer.add_handler(ResourceEventHandlerFuncs(self._added, self._updated, self._deleted))

    def _added(self, pod: Pod, initial: bool) -> None:
        if pod.spec.node_name:
            self._now_bound(pod)

    def _updated(self, old: Pod, new: Pod) -> None:
        if new.spec.node_name and not old.spec.node_name:
            self._now_bound(new)

    def _deleted(self, pod: Pod, final_state_unknown: bool) -> None:
        self._bound.get(pod.metadata.namespace, set()).discard(pod.metadata.uid)

    def _now_bound(self, pod: Pod) -> None:
        metadata = pod.metadata
        self._bound.setdefault(metadata.namespace, set()).add(metadata.uid)
        if self.throughput is not None and self.throughput.matches(metadata.namespace, metadata.labels):
            self.throughput.pod_bound(asyncio.get_running_loop().time())
        if self.bound_listener is not None:
            self.bound_listener(pod)

    def of(self, namespace: str, labels: Mapping[str, str]) -> list[Pod]:
        pods = self.store.by_index("namespace", namespace)
        return [pod for pod in pods if all(pod.metadata.labels.get(key) == value for key, value in labels.items())]

    def bound(self, namespace: str, labels: Mapping[str, str]) -> int:
        if not labels:
            return len(self._bound.get(namespace, ()))
        return sum(1 for pod in self.of(namespace, labels) if pod.spec.node_name)

    def attempted(self, namespace: str, labels: Mapping[str, str]) -> int:
        """Return the number of pods that are bound, unschedulable or gated."""
        return sum(1 for pod in self.of(namespace, labels) if pod.spec.node_name or _scheduling_condition(pod))


def _scheduling_condition(pod: Pod) -> Any:
    return next((condition for condition in pod.status.conditions if condition.type == "PodScheduled"), None)


@dataclass
class _Collecting:
    """A running measurement."""

    name: str
    throughput: Throughput
    sampling: asyncio.Task[None]
    started_at: float
    cpu_before: float
    metrics_before: Metrics


@dataclass
class Executor:
    """Runs one workload against one API server. `limit_seconds` applies to each wait for pods."""

    workload: config.Workload
    client: ApiClient
    informers: InformerFactory
    kubeloop: Kubeloop
    created: Created
    rng: random.Random
    limit_seconds: float
    print_progress: Callable[[str], None]
    service_accounts: bool = False
    measurements: list[Measurement] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pods = PodCounter(self.informers)
        self._expected_pods: dict[str, int] = {}  # namespace -> number of pods that a barrier waits for
        self._priorities: set[int] = set()
        self._collecting: _Collecting | None = None
        self._next_node = 0

    async def run(self) -> list[Measurement]:
        """Run all operations; churn ends with the last of them. Raises WorkloadFailed."""
        operations = self.workload.operations()
        async with asyncio.TaskGroup() as background:
            watching = [background.create_task(self.informers.run(), name="pods-seen")]
            await self.informers.wait_synced()
            loop = asyncio.get_running_loop()
            for index, operation in enumerate(operations):
                started_at = loop.time()
                place = f"operation {index} ({operation.__struct_config__.tag})"
                try:
                    task = await self._run(index, operation, background)
                except (ApiError, UserError, WorkloadFailed) as error:
                    raise WorkloadFailed(f"{place}: {error}") from error
                if task is not None:
                    watching.append(task)
                self.print_progress(f"{place} took {loop.time() - started_at:.1f} s")
            for task in watching:
                task.cancel()
        return self.measurements

    async def _run(
        self, index: int, operation: config.Operation, background: asyncio.TaskGroup
    ) -> asyncio.Task[None] | None:
        """Run one operation. Returns a task that continues after it, if any."""
        match operation:
            case config.CreateNodes():
                await self._create_nodes(index, operation)
            case config.CreateNamespaces():
                await self._create_namespaces(operation)
            case config.CreatePods():
                await self._create_pods(index, operation, background)
            case config.DeletePods():
                pods = self._pods.of(operation.namespace, operation.label_selector)
                if operation.skip_wait_to_completion:
                    return background.create_task(self._delete_pods(operation, pods), name="deletePods")
                await self._delete_pods(operation, pods)
            case config.Churn():
                namespace = operation.namespace or f"namespace-{index}"
                await self._need_namespace(namespace)
                return background.create_task(self._churn(operation, namespace), name="churn")
            case config.Barrier():
                await self._barrier(operation)
            case config.Sleep():
                await asyncio.sleep(parse_duration_seconds(operation.duration or "0"))
            case config.CreateAny():
                await self._create_any(operation)
            case config.UpdateAny():
                await self._update_any(operation)
            case config.CreateResourceDriver():
                await self._create_resource_driver(operation)
            case config.AllocResourceClaims():
                await self._alloc_resource_claims(operation)
            case config.StartCollectingMetrics():
                await self._start(operation.name, operation.namespaces, operation.label_selector, background)
            case config.StopCollectingMetrics():
                await self._stop()
            case _:
                raise WorkloadFailed(f"no way to run {operation!r}")
        return None

    # --- nodes and namespaces ----------------------------------------------------------------------------------------

    async def _create_nodes(self, index: int, operation: config.CreateNodes) -> None:
        template = object_template(Path(operation.node_template_path)) if operation.node_template_path else None
        allocatable = operation.node_allocatable_strategy
        first = self._next_node
        self._next_node += operation.count

        def node_of(number: int) -> JSON:
            node = (
                template.create(number, operation.count, operation.template_params)
                if template
                else _base_node(f"node-{index}-")
            )
            self._name(node)
            labels = node["metadata"].setdefault("labels", {})
            labels["kubernetes.io/hostname"] = node["metadata"]["name"]
            if operation.label_node_prepare_strategy is not None:
                strategy = operation.label_node_prepare_strategy
                labels[strategy.label_key] = strategy.label_values[number % len(strategy.label_values)]
            if operation.unique_node_label_strategy is not None:
                labels[operation.unique_node_label_strategy.label_key] = f"unique-{first + number}"
            if allocatable is not None:
                capacity = node["status"].get("capacity", {})
                node["status"]["allocatable"] = {**capacity, **allocatable.node_allocatable}
            return node

        async def create(number: int) -> None:
            response = await _create_with_new_name(lambda: self.client.create(NODES, node_of(number)))
            name = response.metadata.name
            self.created.add(NODES, name)
            if any(taint.key == _NOT_READY for taint in response.spec.taints):
                await self._remove_not_ready_taint(name)
            if not response.status.allocatable:
                raise WorkloadFailed(f"the API server stored node {name} without status.allocatable")
            if allocatable is not None and allocatable.csi_node_allocatable:
                await self.client.create(CSI_NODES, _csi_node(name, allocatable))
                self.created.add(CSI_NODES, name)

        await _for_each(range(operation.count), create, workers=_NODE_WORKERS)

    async def _remove_not_ready_taint(self, name: str) -> None:
        """Remove the taint that kube-apiserver adds to new nodes; the node lifecycle controller may not run."""
        while True:
            node = await self.client.get_raw(NODES, name)
            taints = node["spec"].get("taints", [])
            others = [taint for taint in taints if taint["key"] != _NOT_READY]
            if others == taints:
                return  # the node lifecycle controller runs
            node["spec"]["taints"] = others
            with contextlib.suppress(Conflict):
                await self.client.update_raw(NODES, name, node)

    async def _create_namespaces(self, operation: config.CreateNamespaces) -> None:
        path = operation.namespace_template_path
        template = object_template(Path(path)) if path else None
        for number in range(operation.count):
            namespace = template.create() if template else {"apiVersion": "v1", "kind": "Namespace", "metadata": {}}
            await self._need_namespace(f"{operation.prefix}-{number}", namespace)

    async def _need_namespace(self, name: str, body: JSON | None = None) -> None:
        if name in self._expected_pods:
            return
        body = body or {"apiVersion": "v1", "kind": "Namespace", "metadata": {}}
        body["metadata"]["name"] = name
        try:
            await self.client.create(NAMESPACES, body)
            self.created.add(NAMESPACES, name)
        except AlreadyExists:
            pass
        if self.service_accounts:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            with contextlib.suppress(AlreadyExists):
                await self.client.create_raw(SERVICE_ACCOUNTS, account, name)
        self._expected_pods[name] = 0

    # --- pods --------------------------------------------------------------------------------------------------------

    async def _create_pods(self, index: int, operation: config.CreatePods, background: asyncio.TaskGroup) -> None:
        namespace = operation.namespace or f"namespace-{index}"
        await self._need_namespace(namespace)
        create = await self._pod_creator(operation, namespace)
        if operation.collect_metrics:
            await self._start(namespace, [namespace], {}, background)
        if operation.steady_state:
            await self._create_steadily(operation, namespace, create)
        else:
            await _for_each(range(operation.count), create, workers=_POD_WORKERS)
            if operation.skip_wait_to_completion:
                self._expected_pods[namespace] += operation.count
                return
            await self._wait(namespace, {}, operation.count, self._pods.bound, "bound")
        if operation.collect_metrics:
            await self._stop()

    async def _pod_creator(self, operation: config.CreatePods, namespace: str) -> Callable[[int], Awaitable[None]]:
        """Return a function that creates the pod with a number, and its volume and claim if it has them."""
        path = operation.pod_template_path or self.workload.default_pod_template
        template = object_template(Path(path)) if path else None
        volumes = operation.persistent_volume_template_path

        async def pod_body(number: int) -> JSON:
            pod = template.create(number, operation.count, operation.template_params) if template else _base_pod()
            await self._prioritised(pod)
            return pod

        if not volumes and (template is None or template.constant):
            same = msgspec.json.encode(await pod_body(0))  # encoded once: without template actions, all pods are equal

            async def create_same(number: int) -> None:
                await self._create_pod(same, namespace)

            return create_same

        async def create(number: int) -> None:
            pod = await pod_body(number)
            if volumes:
                claim = await self._create_volume(operation, namespace, number)
                pod["spec"]["volumes"] = [{"name": "vol", "persistentVolumeClaim": {"claimName": claim}}]
            await self._create_pod(msgspec.json.encode(pod), namespace)

        return create

    async def _create_pod(self, pod: bytes, namespace: str) -> None:
        await _create_with_new_name(lambda: self.client.create(PODS, pod, namespace))

    async def _create_volume(self, operation: config.CreatePods, namespace: str, number: int) -> str:
        """Create a volume and a claim that are bound to each other; return the claim's name."""
        volume = object_template(Path(operation.persistent_volume_template_path)).create()
        claim = object_template(Path(operation.persistent_volume_claim_template_path)).create()
        volume_id, claim_name = f"vol-{number}", f"pvc-{number}"
        volume_name = f"{namespace}-{volume_id}"
        spec = volume["spec"]
        if "csi" in spec:
            spec["csi"]["volumeHandle"] = volume_id
        elif "awsElasticBlockStore" in spec:
            spec["awsElasticBlockStore"]["volumeID"] = volume_id
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim_name}
        spec["claimRef"] = reference
        volume.setdefault("metadata", {})["name"] = volume_name
        claim["spec"]["volumeName"] = volume_name
        claim.setdefault("metadata", {})["name"] = claim_name
        # the claim first: a volume without its claim would be released
        await self._create_bound(PERSISTENT_VOLUME_CLAIMS, claim, claim_name, namespace)
        await self._create_bound(PERSISTENT_VOLUMES, volume, volume_name)
        self.created.add(PERSISTENT_VOLUMES, volume_name)
        return claim_name

    async def _create_bound(self, resource: Resource[Any], body: JSON, name: str, namespace: str = "") -> None:
        stored = msgspec.json.decode(await self.client.create_raw(resource, body, namespace))
        stored.setdefault("status", {})["phase"] = "Bound"
        await self.client.update_raw(resource, name, stored, namespace, subresource="status")

    async def _create_steadily(
        self, operation: config.CreatePods, namespace: str, create: Callable[[int], Awaitable[None]]
    ) -> None:
        bound: asyncio.Queue[Pod] = asyncio.Queue()
        self._pods.bound_listener = lambda pod: bound.put_nowait(pod) if pod.metadata.namespace == namespace else None
        count = 0
        try:
            async with asyncio.timeout(parse_duration_seconds(operation.duration)):
                await _for_each(range(operation.count), create, workers=_POD_WORKERS)
                while True:
                    pod = await bound.get()
                    count += 1
                    await self.client.delete(PODS, pod.metadata.name, namespace, grace_period_seconds=0)
                    await create(operation.count + count)
        except TimeoutError:
            if count == 0:
                raise WorkloadFailed(f"no pod was bound within {operation.duration}") from None
        finally:
            self._pods.bound_listener = None

    async def _prioritised(self, pod: JSON) -> None:
        """Replace spec.priority by a class with the same value, since the Priority admission plugin rejects the
        former."""
        priority = pod["spec"].get("priority")
        if priority is None or "priorityClassName" in pod["spec"]:
            return
        name = f"scheduler-perf-{priority}"
        pod["spec"]["priorityClassName"] = name
        if priority not in self._priorities:
            self._priorities.add(priority)
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": priority}
            try:
                await self.client.create(PRIORITY_CLASSES, {**body, "metadata": {"name": name}})
                self.created.add(PRIORITY_CLASSES, name)
            except AlreadyExists:
                pass

    async def _delete_pods(self, operation: config.DeletePods, pods: Sequence[Pod]) -> None:
        if operation.delete_pods_per_second:
            async for number in _paced(len(pods), operation.delete_pods_per_second):
                try:
                    await self.client.delete(PODS, pods[number].metadata.name, operation.namespace)
                except NotFound:
                    self.print_progress(f"pod {pods[number].key} was already deleted")
            return
        labels = ",".join(f"{key}={value}" for key, value in operation.label_selector.items())
        await self.client.delete_collection(PODS, operation.namespace, label_selector=labels)

    async def _barrier(self, operation: config.Barrier) -> None:
        unknown = [name for name in operation.namespaces if name not in self._expected_pods]
        if unknown:
            raise WorkloadFailed(f"unknown namespaces: {', '.join(unknown)}")
        attempted = operation.stage_requirement == "Attempted"
        count, state = (self._pods.attempted, "attempted") if attempted else (self._pods.bound, "bound")
        for namespace in operation.namespaces or [*self._expected_pods]:
            await self._wait(namespace, operation.label_selector, self._expected_pods[namespace], count, state)
        if not attempted:
            for namespace in operation.namespaces or [*self._expected_pods]:
                self._expected_pods[namespace] = 0

    async def _wait(
        self,
        namespace: str,
        labels: Mapping[str, str],
        expected: int,
        count: Callable[[str, Mapping[str, str]], int],
        state: str,
    ) -> None:
        """Wait until so many pods are in the state. Raises WorkloadFailed with an example pod after the timeout."""
        every = _SCAN_SECONDS if labels or state != "bound" else _POLL_SECONDS
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limit_seconds
        while (current := count(namespace, labels)) < expected:
            if loop.time() >= deadline:
                raise WorkloadFailed(
                    f"{current} of {expected} pods in {namespace} are {state} after {self.limit_seconds:g} s"
                    f"{self._example(namespace, labels)}"
                )
            await asyncio.sleep(every)

    def _example(self, namespace: str, labels: Mapping[str, str]) -> str:
        for pod in self._pods.of(namespace, labels):
            if not pod.spec.node_name:
                condition = _scheduling_condition(pod)
                return f"; {pod.key} is pending: {condition.message if condition else 'never attempted'}"
        return ""

    # --- any object --------------------------------------------------------------------------------------------------

    def _name(self, body: JSON) -> None:
        metadata = body.setdefault("metadata", {})
        if not metadata.get("name"):
            letters = "".join(self.rng.choice(_NAME_LETTERS) for _ in range(5))
            metadata["name"] = metadata.pop("generateName", "") + letters

    async def _churn(self, operation: config.Churn, namespace: str) -> None:
        templates = [object_template(Path(path)) for path in operation.template_paths]
        slots: list[list[str]] = [[""] * max(1, operation.number) for _ in templates]
        rounds = operation.number if operation.mode == "create" and operation.number else None
        async for turn in _paced(rounds, 1000 / operation.interval_milliseconds):
            for template, names in zip(templates, slots, strict=True):
                slot = turn % len(names)
                try:
                    if operation.mode == "recreate" and names[slot]:
                        resource = _resource_of(template)
                        name, names[slot] = names[slot], ""
                        await self.client.delete(resource, name, namespace if resource.namespaced else "")
                    else:
                        names[slot] = await self._create_object(template.create(), namespace, template)
                except ApiError as error:
                    self.print_progress(f"churn of {template.path.name}: {error}")

    async def _create_object(self, body: JSON, namespace: str, template: ObjectTemplate) -> str:
        resource = _resource_of(template, body)
        if resource is PODS:
            await self._prioritised(body)
        response = await self.client.create_raw(resource, body, namespace if resource.namespaced else "")
        name = str(msgspec.json.decode(response)["metadata"]["name"])
        if not resource.namespaced:
            self.created.add(resource, name)
        return name

    async def _create_any(self, operation: config.CreateAny) -> None:
        if operation.namespace:
            await self._need_namespace(operation.namespace)
        template = object_template(Path(operation.template_path))
        count = 1 if operation.count is None else operation.count
        loop = asyncio.get_running_loop()
        for number in range(count):
            body = template.create(number, count, operation.template_params)
            _check_scope(_resource_of(template, body), operation.namespace, template)
            deadline = loop.time() + _CREATE_ANY_SECONDS
            while True:
                try:
                    await self._create_object(body, operation.namespace, template)
                    break
                except ApiError:
                    if loop.time() >= deadline:
                        raise
                    await asyncio.sleep(1.0)

    async def _update_any(self, operation: config.UpdateAny) -> None:
        if operation.namespace:
            await self._need_namespace(operation.namespace)
        template = object_template(Path(operation.template_path))
        count = 1 if operation.count is None else operation.count

        async def update(number: int) -> None:
            body = template.create(number, count, operation.template_params)
            resource = _resource_of(template, body)
            _check_scope(resource, operation.namespace, template)
            name = body["metadata"]["name"]
            if resource is NODES:
                await self._preserve_allocated(body, name)
            subresource = "/".join(operation.subresources)
            await self.client.update_raw(resource, name, body, operation.namespace, subresource=subresource)
            await self.client.update_raw(resource, name, body, operation.namespace, subresource="status")

        if operation.update_per_second:
            async for number in _paced(count, operation.update_per_second):
                await update(number)
        else:
            for number in range(count):
                await update(number)

    async def _preserve_allocated(self, node: JSON, name: str) -> None:
        """Copy fields that a controller has set on the node: an update must not remove them."""
        spec = (await self.client.get_raw(NODES, name))["spec"]
        allocated = {key: spec[key] for key in ("podCIDR", "podCIDRs", "providerID") if key in spec}
        node["spec"] = {**allocated, **node.get("spec", {})}

    # --- devices -----------------------------------------------------------------------------------------------------

    async def _create_resource_driver(self, operation: config.CreateResourceDriver) -> None:
        names = [node.metadata.name for node in (await self.client.list_all(NODES)).items]
        drivers = [name for name in names if fnmatch.fnmatchcase(name, operation.nodes)]

        async def create(number: int) -> None:
            body = _resource_slice(operation.driver_name, drivers[number], operation.max_claims_per_node)
            await self.client.create(RESOURCE_SLICES, body)
            self.created.add(RESOURCE_SLICES, drivers[number])

        await _for_each(range(len(drivers)), create, workers=_NODE_WORKERS)

    async def _alloc_resource_claims(self, operation: config.AllocResourceClaims) -> None:
        claims = (await self.client.list_all(RESOURCE_CLAIMS, operation.namespace)).items
        slices = (await self.client.list_all(RESOURCE_SLICES)).items
        devices = [(slice_.spec, device.name) for slice_ in slices for device in slice_.spec.devices]
        self.rng.shuffle(devices)
        if len(devices) < len(claims):
            raise WorkloadFailed(f"{len(claims)} claims for {len(devices)} devices")

        async def allocate(number: int) -> None:
            metadata, (spec, device) = claims[number].metadata, devices[number]
            body = await self.client.get_raw(RESOURCE_CLAIMS, metadata.name, metadata.namespace)
            request = body["spec"]["devices"]["requests"][0]["name"]
            result = {"request": request, "driver": spec.driver, "pool": spec.pool.name, "device": device}
            on_node = {"key": "metadata.name", "operator": "In", "values": [spec.node_name]}
            body["status"] = {
                "allocation": {
                    "devices": {"results": [result]},
                    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
                }
            }
            await self.client.update_raw(RESOURCE_CLAIMS, metadata.name, body, metadata.namespace, subresource="status")

        await _for_each(range(len(claims)), allocate, workers=_NODE_WORKERS)

    # --- measuring ---------------------------------------------------------------------------------------------------

    async def _start(
        self, name: str, namespaces: Sequence[str], labels: Mapping[str, str], background: asyncio.TaskGroup
    ) -> None:
        if self._collecting is not None:
            raise WorkloadFailed("metrics are already being collected")
        throughput = Throughput(namespaces, labels)
        before = await self.kubeloop.metrics()
        self._pods.throughput = throughput
        self._collecting = _Collecting(
            name=f"{self.workload.full_name}/{name}",
            throughput=throughput,
            sampling=background.create_task(throughput.run(), name="throughput"),
            started_at=asyncio.get_running_loop().time(),
            cpu_before=cpu_seconds(self.kubeloop.pid),
            metrics_before=before,
        )

    async def _stop(self) -> None:
        collecting = self._collecting
        if collecting is None:
            raise WorkloadFailed("metrics are not being collected")
        cpu = cpu_seconds(self.kubeloop.pid) - collecting.cpu_before
        throughput = collecting.throughput
        await throughput.settle()
        collecting.sampling.cancel()
        self._pods.throughput = self._collecting = None
        after = await self.kubeloop.metrics()
        self.measurements.append(
            Measurement(
                name=collecting.name,
                pods=throughput.bound,
                seconds=throughput.last_bound_at - collecting.started_at,
                cpu_seconds=cpu,
                peak_memory_mib=peak_memory_mib(self.kubeloop.pid),
                worst_loop_lag_seconds=after.sums.get(WORST_LOOP_LAG, 0.0),
                throughput=summary(throughput.samples),
                distributions=after.since(collecting.metrics_before),
            )
        )


def _resource_of(template: ObjectTemplate, body: JSON | None = None) -> Resource[Any]:
    body = body or template.create()
    group = body["apiVersion"].rpartition("/")[0]
    resource = BY_GROUP_KIND.get((group, body["kind"]))
    if resource is None:
        raise WorkloadFailed(f"{template.path}: {body['apiVersion']} {body['kind']} is not a known kind")
    return resource


def _check_scope(resource: Resource[Any], namespace: str, template: ObjectTemplate) -> None:
    if resource.namespaced and not namespace:
        raise WorkloadFailed(f"{template.path}: {resource.kind} needs a namespace")
    if namespace and not resource.namespaced:
        raise WorkloadFailed(f"{template.path}: {resource.kind} is cluster-scoped, but has a namespace")


def _base_node(prefix: str) -> JSON:
    """Source: makeBaseNode in scheduler_perf."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"generateName": prefix},
        "status": {
            "capacity": {"pods": "110", "cpu": "4", "memory": "32Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "phase": "Running",
        },
    }


def _base_pod() -> JSON:
    """Source: makeBasePod in scheduler_perf, MakePodSpec in test/utils."""
    resources = {"cpu": "100m", "memory": "500Mi"}
    container = {
        "name": "pause",
        "image": "registry.k8s.io/pause:3.10.1",
        "ports": [{"containerPort": 80}],
        "resources": {"limits": resources, "requests": resources},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "pod-"},
        "spec": {"containers": [container]},
    }


def _resource_slice(driver: str, node: str, devices: int) -> JSON:
    """Source: resourceSlice in scheduler_perf/dra.go."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 0, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"instance-{number}",
                    "attributes": {
                        "model": {"string": "A100"},
                        "family": {"string": "GPU"},
                        "driverVersion": {"version": "1.2.3"},
                        "dra.example.com/numa": {"int": number},
                    },
                    "capacity": {"memory": {"value": "1Gi"}},
                }
                for number in range(devices)
            ],
        },
    }


def _csi_node(name: str, strategy: config.NodeAllocatableStrategy) -> JSON:
    annotations = {}
    if strategy.migrated_plugins:
        annotations["storage.alpha.kubernetes.io/migrated-plugins"] = ",".join(strategy.migrated_plugins)
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "drivers": [
                {"name": driver, "nodeID": name, "allocatable": {"count": limits.count}}
                for driver, limits in strategy.csi_node_allocatable.items()
            ]
        },
    }


async def _for_each(numbers: range, do: Callable[[int], Awaitable[None]], *, workers: int) -> None:
    """Call `do` for each number, `workers` at a time. Raises the first error without a group."""
    remaining = iter(numbers)

    async def work() -> None:
        for number in remaining:
            await do(number)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(workers, len(numbers))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _create_with_new_name(create: Callable[[], Awaitable[T]]) -> T:
    """Create an object, and retry if its generated name exists."""
    for _ in range(_NAME_TRIES):
        with contextlib.suppress(AlreadyExists):
            return await create()
    return await create()


async def _paced(count: int | None, per_second: float) -> AsyncIterator[int]:
    """Yield numbers from 0 at a rate per second, the first one interval from now. count None: endlessly."""
    loop = asyncio.get_running_loop()
    interval = 1 / per_second
    due = loop.time()
    number = 0
    while count is None or number < count:
        due = max(due + interval, loop.time())  # missed ticks are dropped, as by time.Ticker
        await asyncio.sleep(due - loop.time())
        yield number
        number += 1
