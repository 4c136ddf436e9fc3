"""Disruption controller: the events that enqueue a PodDisruptionBudget, and its reconcile.

Also resets the condition DisruptionTarget of pods that were not deleted in time. Source: v1.36
pkg/controller/disruption/disruption.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from kubeloop.controllers.disruption.budget_status import (
    DELETION_TIMEOUT_SECONDS,
    budget_status,
    desired_healthy,
    failed_status,
    healthy_count,
    needs_scale,
    overdue_disruptions,
    pending_disruptions,
    stale_disruption_seconds,
    status_json,
)
from kubeloop.controllers.disruption.pod_scale import PodScale
from kubeloop.controllers.runtime.controller import EventDrivenController, ReconcileLoop
from kubeloop.controllers.runtime.controller_context import ControllerContext
from kubeloop.controllers.runtime.label_index import (
    LABELS,
    SELECTOR_LABEL,
    labels_of,
    no_label,
    pods_with,
    required_label,
)
from kubeloop.controllers.runtime.pods.disruption_target import DISRUPTION_TARGET, patch_pod_status
from kubeloop.controllers.runtime.writes.object_patch import patch_status
from kubeloop.kube.clock import rfc3339
from kubeloop.kube.errors import ApiError, Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Pod, PodDisruptionBudget, PodDisruptionBudgetStatus
from kubeloop.kube.objects.resources import POD_DISRUPTION_BUDGETS, PODS
from kubeloop.kube.selectors.selectors import Selector, selector_from, selector_text
from kubeloop.kube.values.times import seconds_between, time_plus

log = logging.getLogger(__name__)


class DisruptionController(EventDrivenController):
    """Reconciles PodDisruptionBudgets, and pods with a stale condition; `run()` works until cancelled."""

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, "disruption", workers=1)
        self._scale = PodScale(context)
        budgets = context.informers.informer(POD_DISRUPTION_BUDGETS)
        pods = context.informers.informer(PODS)
        self._budgets, self._pods = budgets.store, pods.store
        self._pods.add_index("namespace")
        self._pods.add_index(LABELS, labels_of)
        self._budgets.add_index(SELECTOR_LABEL, _selector_label)
        self._selectors: dict[str, Selector] = {}  # by key of the budget
        self._stale_queue = context.new_queue("stale_pod_disruption")
        self._stale_controller = ReconcileLoop("disruption", self.reset_condition, self._stale_queue, 1, context)
        self._registrations = (
            budgets.on_latest(self.on_budget, deleted=self.on_budget_delete),
            pods.on_events(added=self.on_pod, updated=self.on_pod_update, deleted=self._enqueue_budgets),
        )

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._scale.wait_synced()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._controller.run(self._registrations), name="disruption/budgets")
            tasks.create_task(self._stale_controller.run(self._registrations), name="disruption/stale-pods")

    # --- event handlers --------------------------------------------------------------------------------------------

    def on_budget(self, budget: PodDisruptionBudget) -> None:
        self._selectors[budget.key] = selector_from(budget.spec.selector)
        self.queue.add(budget.key)

    def on_budget_delete(self, budget: PodDisruptionBudget) -> None:
        self._selectors.pop(budget.key, None)

    def on_pod(self, pod: Pod) -> None:
        names = self._enqueue_budgets(pod)
        if len(names) > 1:
            metadata = pod.metadata
            message = (
                f'Pod "{metadata.namespace}"/"{metadata.name}" matches multiple PodDisruptionBudgets.  '
                f'Chose "{names[0]}" arbitrarily.'
            )
            self._events.event(pod, "Warning", "MultiplePodDisruptionBudgets", message)
        if pod.status.conditions:
            seconds = stale_disruption_seconds(pod, self._clock.now())
            if seconds is not None:
                self._stale_queue.add_after(pod.key, seconds)

    def on_pod_update(self, old: Pod, new: Pod) -> None:
        if old.metadata.labels != new.metadata.labels:
            self._enqueue_budgets(old)
        self.on_pod(new)

    def _enqueue_budgets(self, pod: Pod) -> list[str]:
        """Enqueue the budgets that select a pod, and return their names."""
        names = []
        for label in (*labels_of(pod), no_label(pod.metadata.namespace)):
            for budget in self._budgets.view(SELECTOR_LABEL, label):
                selector = self._selectors.get(budget.key)
                if selector is not None and selector.matches(pod.metadata.labels):
                    names.append(budget.metadata.name)
                    self.queue.add(budget.key)
        return names

    # --- reconcile -------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> float | None:
        """Count the pods of a budget and write its status.

        Returns the seconds until an allowed eviction is overdue, if there is one. An exception means: retry.
        """
        budget = self._budgets.get(key)
        if budget is None:
            return None
        now = self._clock.now()
        try:
            return await self._sync(budget)
        except Conflict:
            raise
        except Exception as error:  # a status that may be wrong must not allow evictions
            log.warning("could not count the pods of disruption budget %s: %s", key, error)
            written = await self._write_status(budget, failed_status(budget, str(error), now.replace(microsecond=0)))
            if not written and isinstance(error, ApiError | ServerUnreachable):
                raise  # the event of a write enqueues the budget again, but nothing was written
            return None

    async def _sync(self, budget: PodDisruptionBudget) -> float | None:
        metadata = budget.metadata
        selector = selector_from(budget.spec.selector)
        possible = pods_with(self._pods, metadata.namespace, _required_labels(budget))
        pods = [pod for pod in possible if selector.matches(pod.metadata.labels)]
        if not pods:
            self._events.event(budget, "Normal", "NoPods", "No matching pods found")
        try:
            expected, unmanaged = len(pods), list[str]()
            if needs_scale(budget):
                expected, unmanaged = await self._scale.expected(pods)
            elif budget.spec.min_available is None:
                expected = 0
            desired = desired_healthy(budget, expected)
        except Exception as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            self._events.event(budget, "Warning", "CalculateExpectedPodCountFailed", message)
            raise
        if unmanaged:
            message = (
                f"Pods selected by this PodDisruptionBudget (selector: {selector_text(budget.spec.selector)}) were "
                "found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may "
                'result in undefined behavior. To account for these pods please set ".spec.minAvailable" field of the '
                "PDB to an integer value."
            )
            self._events.event(budget, "Warning", "UnmanagedPods", message)
        now = self._clock.now()
        disrupted = pending_disruptions(budget, pods, now)
        for pod in overdue_disruptions(budget, pods, now):
            message = f"Pod was expected by PDB {metadata.namespace}/{metadata.namespace} to be deleted but it wasn't"
            self._events.event(pod, "Warning", "NotDeleted", message)
        healthy = healthy_count(pods, disrupted)
        second = now.replace(microsecond=0)
        await self._write_status(budget, budget_status(budget, healthy, desired, expected, disrupted, second))
        if not disrupted:
            return None
        overdue_at = time_plus(min(disrupted.values()), DELETION_TIMEOUT_SECONDS)
        return seconds_between(now, overdue_at) + 1.0  # times are whole seconds

    async def _write_status(self, budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> bool:
        """Write the status if it changed, and return whether it did."""
        if status == budget.status:
            return False
        await patch_status(self._client, POD_DISRUPTION_BUDGETS, budget, status_json(budget.status, status))
        return True

    async def reset_condition(self, key: str) -> float | None:
        """Set the condition DisruptionTarget of a pod to False if it is stale, else return the seconds until then."""
        pod = self._pods.get(key)
        if pod is None:
            return None
        now = self._clock.now()
        seconds = stale_disruption_seconds(pod, now)
        if seconds is None or seconds > 0:
            return seconds
        condition = {
            "type": DISRUPTION_TARGET,
            "status": "False",
            "observedGeneration": pod.metadata.generation,
            "lastTransitionTime": rfc3339(now),
            "reason": None,
            "message": None,
        }
        with suppress(NotFound):
            await patch_pod_status(self._client, pod, condition)
        return None


def _required_labels(budget: PodDisruptionBudget) -> Mapping[str, str]:
    return budget.spec.selector.match_labels if budget.spec.selector is not None else {}


def _selector_label(budget: PodDisruptionBudget) -> list[str]:
    return [required_label(budget.metadata.namespace, _required_labels(budget))]
