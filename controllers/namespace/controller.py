"""The namespace controller: empties namespaces that are being deleted, then lets them go.

Source: kube-controller-manager v1.36, pkg/controller/namespace.
"""

from __future__ import annotations

import asyncio
import logging

from kubeloop.controllers.namespace.deletion_conditions import DeletionReport, deletion_conditions
from kubeloop.controllers.namespace.namespaced_resources_deleter import (
    NamespaceContentRemaining,
    NamespacedResourcesDeleter,
)
from kubeloop.controllers.runtime.controller import Controller, clock_seconds
from kubeloop.controllers.runtime.metrics_interface import ControllerMetrics
from kubeloop.controllers.runtime.rate_limiter import (
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
)
from kubeloop.controllers.runtime.work_queue import WorkQueue
from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import ResourceEventHandlerFuncs
from kubeloop.kube.client.api_client import Client, PatchType
from kubeloop.kube.clock import Clock
from kubeloop.kube.errors import ApiError, Conflict, NotFound
from kubeloop.kube.objects.api_types import Condition, Namespace, Pod, to_json
from kubeloop.kube.objects.resources import NAMESPACES, PODS
from kubeloop.tracing.recording.reconcile_recorder import ReconcileTraces

log = logging.getLogger(__name__)

_FINALIZER = "kubernetes"


class NamespaceController:
    """`run()` works until cancelled.

    `grace_seconds`: how long a namespace is left alone after its deletion, so that every API server of a cluster has
    seen that it takes no more objects. kube-controller-manager's 5 s; one server alone needs none.
    """

    name = "namespace-controller"

    def __init__(
        self,
        client: Client,
        informers: InformerFactory,
        *,
        clock: Clock,
        traces: ReconcileTraces,
        metrics: ControllerMetrics | None = None,
        workers: int = 10,
        grace_seconds: float = 5.0,
    ) -> None:
        self._client = client
        self._clock = clock
        self._traces = traces
        self._grace_seconds = grace_seconds
        self._content = NamespacedResourcesDeleter(client, clock=clock)
        queue_metrics = metrics.queue("namespace") if metrics else None
        limiter = MaxOfRateLimiter(ItemExponentialFailureRateLimiter(base=0.005, cap=60.0), BucketRateLimiter())
        self._queue = WorkQueue("namespace", limiter=limiter, metrics=queue_metrics, seconds=clock_seconds(clock))
        self._controller = Controller(
            "namespace", self.reconcile, self._queue, workers, metrics=metrics, seconds=clock_seconds(clock)
        )
        self._namespaces = informers.informer(NAMESPACES)
        self._registration = self._namespaces.add_handler(
            ResourceEventHandlerFuncs(
                on_add=lambda namespace, _initial: self._seen(namespace), on_update=lambda _, new: self._seen(new)
            )
        )
        self._pods = informers.informer(PODS)
        self._pods.add_handler(ResourceEventHandlerFuncs(on_delete=lambda pod, _unknown: self._pod_gone(pod)))

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            await self._registration.wait_synced()
            tasks.create_task(self._controller.run(), name=self.name)

    def _seen(self, namespace: Namespace) -> None:
        if namespace.metadata.deletion_timestamp is not None:
            self._queue.add_after(namespace.metadata.name, self._grace_seconds)

    def _pod_gone(self, pod: Pod) -> None:
        """The last Pod of a terminating namespace is what its deletion waits for: half the grace period goes unused."""
        name = pod.metadata.namespace
        namespace = self._namespaces.store.get(name)
        if namespace is None or namespace.metadata.deletion_timestamp is None:
            return
        if not self._pods.store.count("namespace", name):
            self._queue.add(name)

    async def reconcile(self, name: str) -> float | None:
        """Bring the deletion of namespace `name` one round further.

        Level-based. Returns when to look again, for content that needs time to go. Raising means: retry with backoff.
        """
        trace = self._traces.reconcile("namespace", name)
        changed, failure = False, None
        try:
            namespace = await self._client.get(NAMESPACES, name)
            if namespace.metadata.deletion_timestamp is None:
                return None
            namespace = await self._mark_terminating(namespace)
            if not namespace.spec.finalizers or namespace.metadata.deletion_timestamp is None:
                return None
            changed = True
            report, seconds = await self._content.delete_all(name, namespace.metadata.deletion_timestamp)
            trace.note("delete content")
            await self._write_conditions(namespace, report)
            errors = [report.discovery_error] if report.discovery_error else []
            errors += report.content_errors
            if errors:
                raise NamespaceContentRemaining(errors)
            if seconds:
                return seconds // 2 + 1
            await self._finalize(namespace)
            trace.note("finalize")
        except NotFound:
            return None  # it is gone
        except Exception as error:
            failure = str(error)
            raise
        finally:
            trace.finish(changed, failure)
        return None

    async def _mark_terminating(self, namespace: Namespace) -> Namespace:
        while namespace.status.phase != "Terminating":
            body = {
                "metadata": {"resourceVersion": namespace.metadata.resource_version},
                "status": {"phase": "Terminating"},
            }
            name = namespace.metadata.name
            try:
                return await self._client.patch(NAMESPACES, name, body, PatchType.MERGE, subresource="status")
            except Conflict:
                namespace = await self._read_again(namespace)
        return namespace

    async def _read_again(self, namespace: Namespace) -> Namespace:
        """The namespace after a conflict. Raises NotFound if it is another one of the same name."""
        latest = await self._client.get(NAMESPACES, namespace.metadata.name)
        if latest.metadata.uid != namespace.metadata.uid:
            raise RuntimeError("namespace uid has changed across retries")
        return latest

    async def _write_conditions(self, namespace: Namespace, report: DeletionReport) -> None:
        """Tell how far the deletion is. A failure to tell must not keep it from going on."""
        old = namespace.status.conditions
        new = deletion_conditions(old, report, self._clock.now().replace(microsecond=0))
        if new == old:
            return
        body = {
            "metadata": {"resourceVersion": namespace.metadata.resource_version},
            "status": {"conditions": [_condition_json(condition) for condition in new]},
        }
        name = namespace.metadata.name
        try:
            await self._client.patch(NAMESPACES, name, body, PatchType.MERGE, subresource="status")
        except ApiError as error:
            log.warning("could not write the conditions of namespace %s: %s", name, error)

    async def _finalize(self, namespace: Namespace) -> None:
        """Take our finalizer away; with the last one, the server removes the namespace."""
        while True:
            whole = await self._client.get_raw(NAMESPACES, namespace.metadata.name)
            if whole["metadata"].get("uid") != namespace.metadata.uid:
                return
            spec = whole.get("spec") or {}
            left = sorted(each for each in spec.get("finalizers") or () if each != _FINALIZER)
            body = {**whole, "spec": {**spec, "finalizers": left}}
            try:
                await self._client.update_raw(NAMESPACES, namespace.metadata.name, body, subresource="finalize")
            except Conflict:
                continue
            return


def _condition_json(condition: Condition) -> dict[str, object]:
    body: dict[str, object] = to_json(condition)
    return body
