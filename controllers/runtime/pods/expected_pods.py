"""Creation and deletion of the Pods that a plan names, with expectations.

Source: v1.36 manageReplicas in pkg/controller/replicaset, syncNodes in pkg/controller/daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.pods.pod_control import CannotDeletePods, PodControl
from kubeloop.controllers.runtime.pods.slow_start import slow_start_batch
from kubeloop.controllers.runtime.writes.consistency import ConsistencyStore
from kubeloop.controllers.runtime.writes.expectations import Expectations
from kubeloop.kube.errors import ApiError, NotFound, is_namespace_terminating
from kubeloop.kube.objects.api_types import JSONValue, Object, Pod
from kubeloop.kube.objects.resources import PODS
from kubeloop.tracing.recording.reconcile_recorder import Reconcile


class ExpectedPods:
    """Creates and deletes the Pods of one controller, so that no reconcile repeats what the cache does not show yet."""

    def __init__(self, context: ControllerContext, consistency: ConsistencyStore) -> None:
        self._pod_control = PodControl(context)
        self._consistency = consistency
        self.expectations = Expectations(context.clock)

    async def apply(
        self,
        owner: Object,
        create: Sequence[dict[str, JSONValue]],
        delete: Sequence[Pod],
        reconcile: Reconcile,
    ) -> Exception | None:
        """Create Pods with these bodies, then delete others; return the first failure after all were tried.

        After a failed creation, no further batch is started.
        """
        # Before the first request: the watch may show a Pod before our call returns. An event that is not yet expected
        # is not counted, and the controller would wait for that Pod until the expectation expires.
        key, next_body, failure = owner.key, iter(create).__next__, None
        if delete:
            self.expectations.expect(key, len(create), (pod.key for pod in delete))
        else:
            self.expectations.expect_creations(key, len(create))
        if create:
            created, failure = await slow_start_batch(len(create), lambda: self._create(owner, next_body(), reconcile))
            for _ in range(len(create) - created):
                self.expectations.creation_observed(key)  # not tried, or failed: no event will show them
        failures = [] if failure is None else [failure]
        if len(delete) == 1:
            await self._delete(owner, delete[0], reconcile, failures)
        elif delete:
            async with asyncio.TaskGroup() as deleting:
                for pod in delete:
                    deleting.create_task(self._delete(owner, pod, reconcile, failures))
        return failures[0] if failures else None

    async def _create(self, owner: Object, body: dict[str, JSONValue], reconcile: Reconcile) -> None:
        """Create one Pod. Raises the error of the request, unless the namespace is being deleted."""
        try:
            pod = await self._pod_control.create(owner, body, reconcile)
        except ApiError as error:
            if is_namespace_terminating(error):
                return
            raise
        self._consistency.wrote(owner, PODS, pod)

    async def _delete(self, owner: Object, pod: Pod, reconcile: Reconcile, failures: list[Exception]) -> None:
        try:
            await self._pod_control.delete(owner, pod, reconcile)
        except (NotFound, CannotDeletePods) as error:
            self.expectations.deletion_observed(owner.key, pod.key)  # no event will show this deletion
            if not isinstance(error, NotFound):
                failures.append(error)
