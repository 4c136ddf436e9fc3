"""Computes a plan: copies the cluster, lets it come to rest, makes the changes, and lets it come to rest again."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from kubeloop.kube.clock import rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import CRON_JOBS, HORIZONTAL_POD_AUTOSCALERS, NODES, PODS, Resource
from kubeloop.kube.user_error import UserError
from kubeloop.planning.cluster_copy import ClusterCopy, gates_of, other_schedulers, prepared, running_copy
from kubeloop.planning.fit import fewest_nodes
from kubeloop.planning.memory_guard import memory_guard
from kubeloop.planning.node_pools import NodeUse, compare_use, nodes_for_requests, pool_of, use_of
from kubeloop.planning.object_changes import DEPENDENT_KINDS, object_changes
from kubeloop.planning.plan_changes import Drain, NodeCopies, PlanChanges, make_changes, named_node
from kubeloop.planning.pod_history import PodHistory
from kubeloop.planning.result import Plan
from kubeloop.planning.run_times import RunTimes, WorkloadKey
from kubeloop.planning.webhooks import uncalled_webhooks
from kubeloop.planning.workloads import WorkloadOutcomes, is_pending
from kubeloop.recording.changes import ClusterState, Finding
from kubeloop.recording.resources import RECORDED
from kubeloop.scheduler.config.types import SchedulerConfiguration, default_configuration
from kubeloop.testing.virtual_time import VirtualTimeLoop

T = TypeVar("T")

_REST_SECONDS: Final = 60.0  # without a change, before the changes are made
_STABLE_SECONDS: Final = 360.0  # the same if there are autoscalers: longer than their downscale stabilization
_REST_LIMIT_SECONDS: Final = 3_600.0
_QUIET_SECONDS: Final = 660.0  # without a change, at the end: longer than the usual deadlines and back-offs
_LIMIT_SECONDS: Final = 7 * 86_400.0
_NODE_SECONDS: Final = 60.0  # without a change, after a node is added for pending pods
_WAITING_FIELDS: Final = frozenset(
    {"initialDelaySeconds", "minReadySeconds", "terminationGracePeriodSeconds", "progressDeadlineSeconds"}
)


class InputCluster(msgspec.Struct):
    """The cluster to plan for. is_projected: from a recording, which lacks environment and commands."""

    name: str
    state: ClusterState
    findings: list[Finding]
    is_projected: bool


def compute_plan(
    cluster: InputCluster,
    changes: PlanChanges,
    *,
    configuration: SchedulerConfiguration | None = None,
    helps: bool = True,
) -> Plan:
    """Return the plan; of `changes.fit`, the one with the fewest nodes.

    helps: look for nodes that would let pending pods fit. Raises UserError for changes that are not possible. Runs
    event loops of its own: call it from a thread without one.
    """
    state, findings = prepared(cluster.state, cluster.name)
    cluster = msgspec.structs.replace(cluster, state=state, findings=[*cluster.findings, *findings])

    def plan_with(count: int) -> tuple[Plan, list[JSON]]:
        changed = msgspec.structs.replace(changes, fit_nodes=count)
        return _run(_Planner(cluster, changed, configuration, helps=helps and not changes.fit).plan())

    if not changes.fit:
        return plan_with(0)[0]
    plan_fit, plan = fewest_nodes(named_node(state.of(NODES), changes.fit, "--fit"), plan_with)
    plan.fit, plan.fits = plan_fit, plan.fits and plan_fit.nodes is not None
    return plan


def _run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time. A UserError is raised without the groups of the tasks that it went through."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        try:
            return runner.run(main)
        except BaseExceptionGroup as group:
            error: BaseException | None = group.subgroup(UserError)
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if error is None:
                raise
            raise error from None


class _Planner:
    """One run of a copy."""

    def __init__(
        self,
        cluster: InputCluster,
        changes: PlanChanges,
        configuration: SchedulerConfiguration | None,
        *,
        helps: bool,
    ) -> None:
        self._cluster = cluster
        self._changes = changes
        self._configuration = configuration
        self._helps = helps
        self._rng = random.Random(0)
        self._times = RunTimes(cluster.state)
        self._findings = list(cluster.findings)
        self._touched: list[WorkloadKey] = []
        self._created_in: dict[Resource[Any], set[str]] = {}

    async def plan(self) -> tuple[Plan, list[JSON]]:
        """Return the plan, and the pods that are pending at its end."""
        state, markers = self._cluster.state, self._times.markers
        async with (
            running_copy(state, configuration=self._configuration, pod_markers=markers) as copy,
            memory_guard(copy.store, self._cluster.name),
        ):
            plan = await self._planned(copy)
            pending = _pending(copy)
            if self._helps and pending:
                plan.would_help = await self._helping_nodes(copy)
            return plan, pending

    # --- steps -------------------------------------------------------------------------------------------------------

    async def _planned(self, copy: ClusterCopy) -> Plan:
        loop = asyncio.get_running_loop()
        await self._come_to_rest(copy)
        before = {resource: copy.objects(resource) for resource in RECORDED}
        use_before = _use(copy)
        pending_before = frozenset(pod["metadata"]["uid"] for pod in _pending(copy))
        history = PodHistory()
        unsubscribe = copy.store.subscribe(PODS, history.receive)
        began_at = loop.time()
        drain = await self._make_changes(copy)
        applied = {resource: copy.objects(resource) for resource in RECORDED}
        self._touched += [key for key in _workload_keys(before, applied) if key not in self._touched]
        unsettled = await self._settle(copy, drain)
        unsubscribe()
        if unsettled:
            self._find(
                f"after {_LIMIT_SECONDS / 86_400:.0f} days, {', '.join(unsettled)} still change",
                "the plan shows the state at that time",
            )
        outcomes = WorkloadOutcomes(
            copy, history, self._times, began_at=began_at, pending_before=pending_before, touched=self._touched
        )
        preempted, evicted = outcomes.displaced()
        plan = Plan(
            self._cluster.name,
            rfc3339(self._cluster.state.moment),
            changes=object_changes(before, applied),
            workloads=outcomes.affected(),
            pending_before=outcomes.pending_before(),
            preempted=preempted,
            evicted=evicted,
            blocked=drain.blocked(),
        )
        use_after = _use(copy)
        plan.resources = compare_use(use_before, use_after)
        plan.nodes_before, plan.nodes_after = use_before.count, use_after.count
        plan.settled_seconds = max((workload.seconds for workload in plan.workloads), default=0.0)
        plan.fits = not plan.blocked and all(
            workload.rollout != "failed" or not _is_new_failure(workload, self._touched) for workload in plan.workloads
        )
        self._findings += copy.metrics.findings(self._cluster.name)
        self._add_findings(history, drain)
        plan.findings = [str(finding) for finding in self._findings]
        return plan

    async def _come_to_rest(self, copy: ClusterCopy) -> None:
        """Let what goes on in the cluster end, so that it is not taken for an effect of the changes."""
        history = PodHistory()
        unsubscribe = copy.store.subscribe(PODS, history.receive)
        rest_seconds = _STABLE_SECONDS if self._cluster.state.of(HORIZONTAL_POD_AUTOSCALERS) else _REST_SECONDS
        unsettled = await copy.settle(rest_seconds, _REST_LIMIT_SECONDS)
        unsubscribe()
        moved = sum(not pod.created_at is pod.deletion_at is pod.bound_at is None for pod in history)
        if moved:
            self._find(
                f"the cluster was not at rest: {moved} pods are created, bound or deleted without the changes, too",
                "they are part of the state before the changes",
            )
        if unsettled:
            kinds = ", ".join(unsettled)
            self._find(f"without the changes, {kinds} change all the time", "they are part of the result")

    async def _make_changes(self, copy: ClusterCopy) -> Drain:
        made = await make_changes(copy, self._changes, self._rng, is_projected=self._cluster.is_projected)
        for resource, namespace, _ in made.applied:
            self._created_in.setdefault(resource, set()).add(namespace)
        self._touched += [
            (resource.kind, namespace, name)
            for resource, namespace, name in (*made.applied, *made.scaled)
            if resource.kind in DEPENDENT_KINDS
        ]
        return made.drain

    async def _settle(self, copy: ClusterCopy, drain: Drain) -> list[str]:
        quiet = max(_QUIET_SECONDS, _longest_wait(manifest.body for manifest in self._changes.manifests) + 60.0)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(drain.run(), name="drain")
            unsettled = await copy.settle(quiet, _LIMIT_SECONDS)
            task.cancel()
        return unsettled

    # --- nodes that would help ---------------------------------------------------------------------------------------

    async def _helping_nodes(self, copy: ClusterCopy) -> str:
        """Return the nodes with which nothing would be pending, "" if none of the cluster's kinds would help.

        Pods that get a node are not started.
        """
        copy.scheduler_writes.counts_only = True
        pools: dict[str, list[str]] = {}
        nodes = copy.objects(NODES)
        for name, node in nodes.items():
            if not node["spec"].get("unschedulable"):
                pools.setdefault(pool_of(node), []).append(name)
        for names in sorted(pools.values(), key=lambda names: (-len(names), names[0])):
            pending = len(_pending(copy))
            count = await self._add_until_placed(copy, nodes[names[0]], limit=pending)
            if count is not None:
                return f"{count} {'node' if count == 1 else 'nodes'} like {names[0]}"
            if len(_pending(copy)) < pending:
                return ""  # nodes of another pool would have to be added as well
        return ""

    async def _add_until_placed(self, copy: ClusterCopy, like: JSON, *, limit: int) -> int | None:
        """Add nodes until nothing is pending, and return their number.

        Returns None if it would exceed `limit`, or if a node lets no pod fit.
        Each time as many as the requests need at least, or half as many as would be needed if all took as many pods as
        the best one so far: all pending pods are tried again after each addition.
        """
        new_nodes, count, most_per_node = NodeCopies(copy, like, self._rng), 0, 0
        while pending := _pending(copy):
            needed = max(1, nodes_for_requests(pending, like))
            if most_per_node:
                needed = max(needed, len(pending) // (2 * most_per_node))
            if needed > limit - count:
                return None
            added = int(needed)
            new_nodes.add(added)
            count += added
            await copy.settle(_NODE_SECONDS, _REST_LIMIT_SECONDS)
            placed = len(pending) - len(_pending(copy))
            if placed <= 0:
                return None
            most_per_node = max(most_per_node, math.ceil(placed / added))
        return count

    # --- findings ----------------------------------------------------------------------------------------------------

    def _find(self, problem: str, effect: str, subject: str = "") -> None:
        self._findings.append(Finding(self._cluster.name, problem, effect, subject))

    def _add_findings(self, history: PodHistory, drain: Drain) -> None:
        state = self._cluster.state
        created = dict(self._created_in)
        namespaces = {pod.object["metadata"]["namespace"] for pod in history if pod.created_at is not None}
        if namespaces:
            created[PODS] = created.get(PODS, set()) | namespaces
        self._findings += uncalled_webhooks(state, self._cluster.name, created)
        self._findings += drain.findings(self._cluster.name)
        if any(not (cron_job.get("spec") or {}).get("suspend") for cron_job in state.of(CRON_JOBS).values()):
            self._find("CronJobs start no Jobs in a plan", "the result has no room for the pods of their next runs")
        configuration = self._configuration or default_configuration(gates_of(state))
        for name, count in sorted(other_schedulers(state, configuration).items()):
            self._find(
                f"{count} pending pods are for the scheduler {name}, which has no profile",
                "they stay pending; --scheduler-config sets profiles",
            )


def _pending(copy: ClusterCopy) -> list[JSON]:
    placed = copy.scheduler_writes.placed
    return [pod for pod in copy.objects(PODS).values() if is_pending(pod) and pod["metadata"]["uid"] not in placed]


def _use(copy: ClusterCopy) -> NodeUse:
    assert copy.plane.scheduler is not None
    return use_of(copy.plane.scheduler)


def _workload_keys(
    before: Mapping[Resource[Any], Mapping[str, JSON]], after: Mapping[Resource[Any], Mapping[str, JSON]]
) -> Iterable[WorkloadKey]:
    """Yield the workloads whose spec differs."""
    for resource, objects in after.items():
        if resource.kind in DEPENDENT_KINDS:
            for key, obj in objects.items():
                old = before[resource].get(key)
                if old is None or old.get("spec") != obj.get("spec"):
                    yield resource.kind, *tuple(key.partition("/")[::2])  # type: ignore[misc]


def _is_new_failure(workload: Any, touched: Sequence[WorkloadKey]) -> bool:
    """Return False for a workload that fails only because pods were pending before, and that no change names."""
    if (workload.kind, workload.namespace, workload.name) in touched:
        return True
    return not workload.pending or any(not pods.pending_before for pods in workload.pending)


def _longest_wait(values: Iterable[Any]) -> float:
    """Return the longest time in seconds that manifests name."""
    longest = 0.0
    for value in values:
        if isinstance(value, dict):
            for name, item in value.items():
                if name in _WAITING_FIELDS and isinstance(item, int | float):
                    longest = max(longest, float(item))
            longest = max(longest, _longest_wait(value.values()))
        elif isinstance(value, list):
            longest = max(longest, _longest_wait(value))
    return longest
