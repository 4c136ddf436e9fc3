"""Namespace controller: deletes the content of terminating namespaces, then removes the finalizer "kubernetes".

Source: kube-controller-manager v1.36, pkg/controller/namespace.
"""

from __future__ import annotations

import logging

from kubeloop.controllers.namespace.deletion_conditions import DeletionReport, deletion_conditions
from kubeloop.controllers.namespace.namespaced_resources_deleter import (
    NamespaceContentRemaining,
    NamespacedResourcesDeleter,
)
from kubeloop.controllers.runtime.controller import EventDrivenController
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.queue.rate_limiter import controller_rate_limiter
from kubeloop.controllers.runtime.writes.object_patch import patch_status
from kubeloop.kube.errors import ApiError, Conflict, NotFound
from kubeloop.kube.objects.api_types import Condition, Namespace, Pod, to_json
from kubeloop.kube.objects.resources import NAMESPACES, PODS

log = logging.getLogger(__name__)

_FINALIZER = "kubernetes"
_GRACE_SECONDS = 5.0


class NamespaceController(EventDrivenController):
    """Namespace controller; `run()` works until cancelled.

    The content of a deleted namespace is deleted after a delay, so that every API server of the cluster rejects new
    objects in it.
    """

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "namespace", "namespace", controller_rate_limiter(base=0.005, cap=60.0))
        self._traces = context.traces
        self._grace_seconds = 0.0 if context.single_api_server else _GRACE_SECONDS
        self._resources_deleter = NamespacedResourcesDeleter(self._client, clock=self._clock)
        namespaces, pods = context.informers.informer(NAMESPACES), context.informers.informer(PODS)
        self._namespaces, self._pods = namespaces.store, pods.store
        self._registrations = (namespaces.on_latest(self._enqueue_terminating),)
        pods.on_events(deleted=self._on_pod_deleted)

    def _enqueue_terminating(self, namespace: Namespace) -> None:
        if namespace.metadata.deletion_timestamp is not None:
            self.queue.add_after(namespace.metadata.name, self._grace_seconds)

    def _on_pod_deleted(self, pod: Pod) -> None:
        """Enqueue a terminating namespace whose last Pod was deleted, instead of waiting for the next round."""
        name = pod.metadata.namespace
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.deletion_timestamp is None:
            return
        if not self._pods.count("namespace", name):
            self.queue.add(name)

    async def reconcile(self, name: str) -> float | None:
        """Bring the deletion of namespace `name` one round closer to its end.

        Level-based. Returns the seconds until the next round, for content that needs time to terminate. An exception
        means: retry with backoff.
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
            report, seconds = await self._resources_deleter.delete_all(name, namespace.metadata.deletion_timestamp)
            trace.add_action("delete content")
            await self._write_conditions(namespace, report)
            errors = [report.discovery_error] if report.discovery_error else []
            errors += report.content_errors
            if errors:
                raise NamespaceContentRemaining(errors)
            if seconds:
                return seconds // 2 + 1
            await self._finalize(namespace)
            trace.add_action("finalize")
        except NotFound:
            return None  # deleted
        except Exception as error:
            failure = str(error)
            raise
        finally:
            trace.finish(changed, failure)
        return None

    async def _mark_terminating(self, namespace: Namespace) -> Namespace:
        while namespace.status.phase != "Terminating":
            try:
                return await patch_status(self._client, NAMESPACES, namespace, {"phase": "Terminating"})
            except Conflict:
                namespace = await self._read_after_conflict(namespace)
        return namespace

    async def _read_after_conflict(self, namespace: Namespace) -> Namespace:
        """Return the namespace after a conflict. Raises RuntimeError if it was replaced by one of the same name."""
        latest = await self._client.get(NAMESPACES, namespace.metadata.name)
        if latest.metadata.uid != namespace.metadata.uid:
            raise RuntimeError("namespace uid has changed across retries")
        return latest

    async def _write_conditions(self, namespace: Namespace, report: DeletionReport) -> None:
        """Write the conditions that report the deletion's progress. A failure is logged and does not stop it."""
        old = namespace.status.conditions
        new = deletion_conditions(old, report, self._clock.now().replace(microsecond=0))
        if new == old:
            return
        conditions = [_condition_json(condition) for condition in new]
        try:
            await patch_status(self._client, NAMESPACES, namespace, {"conditions": conditions})
        except ApiError as error:
            log.warning("could not write the conditions of namespace %s: %s", namespace.metadata.name, error)

    async def _finalize(self, namespace: Namespace) -> None:
        """Remove the finalizer "kubernetes"; without finalizers, the server removes the namespace."""
        while True:
            body = await self._client.get_raw(NAMESPACES, namespace.metadata.name)
            if body["metadata"].get("uid") != namespace.metadata.uid:
                return
            spec = body.get("spec") or {}
            remaining = sorted(finalizer for finalizer in spec.get("finalizers") or () if finalizer != _FINALIZER)
            update = {**body, "spec": {**spec, "finalizers": remaining}}
            try:
                await self._client.update_raw(NAMESPACES, namespace.metadata.name, update, subresource="finalize")
            except Conflict:
                continue
            return


def _condition_json(condition: Condition) -> dict[str, object]:
    body: dict[str, object] = to_json(condition)
    return body
