"""Creation and deletion of Pods by controllers, with events about the owner and with the Pods' traces.

Expectations are the caller's: set them before the calls, and lower them after a failure. Source: RealPodControl in
pkg/controller/controller_utils.go.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from kubeloop.controllers.runtime.controller import ReconcileError
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.kube.client.current_span import current_span
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable, is_namespace_terminating
from kubeloop.kube.objects.api_types import JSONValue, Object, Pod, convert
from kubeloop.kube.objects.object_fields import controller_of
from kubeloop.kube.objects.resources import PODS, Resource
from kubeloop.tracing.recording.reconcile_recorder import Reconcile
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION as TRACEPARENT

T = TypeVar("T")


class CannotCreatePods(ReconcileError):
    """No Pod can be created from the template."""


class CannotDeletePods(ReconcileError):
    """The API server refused to delete a Pod."""


class PodControl:
    """Creates and deletes the Pods of one controller."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._events = context.events
        self._pod_traces = context.pod_traces

    async def create(self, owner: Object, body: dict[str, JSONValue], reconcile: Reconcile) -> Pod:
        """Create a Pod, see `pod_from_template`, and record the event SuccessfulCreate or FailedCreate.

        Raises the error of the request; without an event if the namespace is being deleted.
        """
        try:
            pod = await self.create_without_events(owner, body, reconcile)
        except (ApiError, ServerUnreachable) as error:
            if not is_namespace_terminating(error):
                self._events.event(owner, "Warning", "FailedCreate", f"Error creating: {error}")
            raise
        self._events.event(owner, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name}")
        return pod

    async def create_without_events(self, owner: Object, body: dict[str, JSONValue], reconcile: Reconcile) -> Pod:
        """Create a Pod and start its trace, which is linked with the reconcile. Raises the error of the request."""
        if not body["metadata"].get("labels"):
            raise CannotCreatePods("unable to create pods, no labels")
        return await self.create_traced(PODS, owner, body, reconcile)

    async def create_traced(
        self, resource: Resource[T], owner: Object, body: dict[str, JSONValue], reconcile: Reconcile, **query: str
    ) -> T:
        """Create a Pod, see `create_without_events`, and return it as the type of `resource`."""
        metadata = body["metadata"]
        annotations = metadata.get("annotations")
        start_ns = self._clock.time_ns()
        request = self._pod_traces.create_requested(
            namespace=owner.metadata.namespace,
            owner_kind=owner.kind,
            owner_name=owner.metadata.name,
            top_owner=controller_of(owner.metadata),
            link=reconcile.traceparent,
            inherited=annotations.get(TRACEPARENT, "") if annotations else "",
            scheduler_name=body["spec"].get("schedulerName") or "default-scheduler",
        )
        if request.traceparent:
            # Annotations of this Pod only: the template is not changed.
            annotations = {**annotations, **request.annotations} if annotations else request.annotations
            body = {**body, "metadata": {**metadata, "annotations": annotations}}
            reconcile.link(request.traceparent, "pod")
        token = current_span.set(request)
        try:
            created = await self._client.create(resource, body, owner.metadata.namespace, query=query)
        except (ApiError, ServerUnreachable) as error:
            self._pod_traces.create_failed(request.traceparent, str(error))
            reconcile.add_action("create pod", start_ns=start_ns, error=str(error))
            raise
        except asyncio.CancelledError:
            self._pod_traces.create_failed(request.traceparent, "cancelled")
            raise
        finally:
            current_span.reset(token)
        pod = created if isinstance(created, Pod) else convert(Pod, created)
        self._pod_traces.created(request.traceparent, pod)
        reconcile.add_action(f"create pod {pod.metadata.name}", start_ns=start_ns)
        return created

    async def delete(self, owner: Object, pod: Pod, reconcile: Reconcile) -> None:
        """Delete a Pod, and record the event SuccessfulDelete or FailedDelete.

        Raises NotFound, without an event, if it is gone, and CannotDeletePods after any other error.
        """
        try:
            await self.delete_without_events(pod, reconcile)
        except NotFound:
            raise
        except (ApiError, ServerUnreachable) as error:
            self._events.event(owner, "Warning", "FailedDelete", f"Error deleting: {error}")
            raise CannotDeletePods(f"unable to delete pods: {error}") from error
        self._events.event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")

    async def delete_without_events(self, pod: Pod, reconcile: Reconcile) -> None:
        """Delete a Pod. Raises the error of the request, Conflict if a newer Pod has its name."""
        name, namespace = pod.metadata.name, pod.metadata.namespace
        with reconcile.action_span(f"delete pod {name}"):
            await self._client.delete(PODS, name, namespace, precondition_uid=pod.metadata.uid)
