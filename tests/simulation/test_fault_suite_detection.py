"""The fault suite is able to fail: it detects defects that are put into the control plane."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import support
from kubeloop.controllers.daemonset import rolling_update as daemon_set_update
from kubeloop.controllers.deployment import rolling_update
from kubeloop.controllers.deployment.deployment_status import with_condition
from kubeloop.controllers.deployment.pending_status import PendingStatus
from kubeloop.controllers.garbagecollector.garbage_collector import FOREGROUND, GarbageCollector
from kubeloop.controllers.podgroupprotection import pod_group_protection_controller
from kubeloop.controllers.replicaset import replica_set_controller
from kubeloop.controllers.resourceclaim.resource_claim_controller import ResourceClaimController
from kubeloop.controllers.runtime.pods.pod_control import PodControl
from kubeloop.controllers.runtime.writes.expectations import Expectations, UIDExpectations
from kubeloop.controllers.statefulset import stateful_set_plan
from kubeloop.informers.reflector import Reflector
from kubeloop.informers.shared_informer import SharedInformer
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.objects.api_types import Deployment
from kubeloop.kube.objects.object_fields import condition_of
from kubeloop.kube.objects.resources import PODS
from kubeloop.process.control_plane.leader_election import LeaderElection
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.cache.pod_groups import PodGroupState
from kubeloop.scheduler.devices.cluster.claim_cache import ClaimCache
from kubeloop.scheduler.framework.points.reserve_points import ReservePoints
from kubeloop.scheduler.plugins.pod_groups.gang_scheduling import GangScheduling
from kubeloop.scheduler.plugins.preemption import pod_group_preemption
from kubeloop.scheduler.plugins.preemption.executor import PreemptionExecutor
from kubeloop.testing.faults.fault_plan import FaultPlan, PlannedFault
from kubeloop.tracing.journal.trace_journal import RecoveredRecords, TraceJournal
from support.faults import campaign
from support.faults.scenarios import SCENARIOS
from support.faults.simulation import profile_of

MOST_RUNS = 25


def without_expectations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Expectations, "met", lambda self, key: True)


def without_uid(patch: pytest.MonkeyPatch) -> None:
    async def delete(self: Any, pod: Any, reconcile: Any) -> None:
        await self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace)

    patch.setattr(PodControl, "delete_without_events", delete)


def with_force(patch: pytest.MonkeyPatch) -> None:
    async def delete(self: Any, pod: Any, reconcile: Any) -> None:
        uid, grace = pod.metadata.uid, 0
        name, namespace = pod.metadata.name, pod.metadata.namespace
        await self._client.delete(PODS, name, namespace, precondition_uid=uid, grace_period_seconds=grace)

    patch.setattr(PodControl, "delete_without_events", delete)


def listing_at_zero(patch: pytest.MonkeyPatch) -> None:
    pages = ApiClient.pages
    patch.setattr(ApiClient, "pages", lambda *arguments, **options: pages(*arguments, **options, resource_version="0"))


def without_surge_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rolling_update, "scaled_value", lambda value, desired, *, round_up: desired)


def without_forgetting_assumed_pods(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SchedulerCache, "forget_pod", lambda self, pod: None)


def keeping_deleted_objects(patch: pytest.MonkeyPatch) -> None:
    async def replace(self: Any, items: Any) -> None:
        for key, obj in items.items():
            self._set(key, obj, not self.has_synced, listed=True)
        self._synced.set()

    patch.setattr(SharedInformer, "replace", replace)


def without_journal_recovery(patch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def recover(self: Any, now_ns: int) -> Iterator[RecoveredRecords]:
        yield RecoveredRecords()

    patch.setattr(TraceJournal, "recover", recover)


def without_unreserve(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReservePoints, "run_unreserve", lambda self, state, pod, node_name: None)


def leading_after_expiry(patch: pytest.MonkeyPatch) -> None:
    async def renew(self: Any) -> None:
        while True:
            await asyncio.sleep(self._settings.retry_period_seconds)
            await self._try_acquire_or_renew()

    patch.setattr(LeaderElection, "_renew", renew)


def resuming_without_a_list(patch: pytest.MonkeyPatch) -> None:
    """After 410 Gone, watch from the newest version."""
    list_all = Reflector._list

    async def read_version(self: Any) -> None:
        if not self.resource_version:
            await list_all(self)
            return
        async for page in self._client.pages(self._resource, limit=1):
            self._mark_listed(page.metadata.resource_version)

    patch.setattr(Reflector, "_watch_list", read_version)
    patch.setattr(Reflector, "_list", read_version)


def without_waiting_for_dependents(patch: pytest.MonkeyPatch) -> None:
    async def finish(self: Any, node: Any, reconcile: Any) -> None:
        for dependent in node.blocking_dependents():
            self._attempt_to_delete.add(dependent.identity.uid)
        await self._remove_finalizer(node.identity, FOREGROUND, reconcile)

    patch.setattr(GarbageCollector, "_continue_foreground_deletion", finish)


def counting_released_pods(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UIDExpectations, "pending", lambda self, key: frozenset())


def without_unavailable_limit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(daemon_set_update, "unavailable_count", lambda daemon_set, desired: desired)


def with_newest_revision(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stateful_set_plan, "revision_of_new_pod", lambda sts, revisions, ordinal: revisions.update)


def without_pending_allocations(patch: pytest.MonkeyPatch) -> None:
    def add_pending(self: Any, uid: str, allocation: Any) -> None:
        self.pending[uid] = allocation

    patch.setattr(ClaimCache, "add_pending", add_pending)


def without_reading_consumers(patch: pytest.MonkeyPatch) -> None:
    async def exists(self: Any, consumer: Any, namespace: str) -> bool:
        return False

    patch.setattr(ResourceClaimController, "_exists", exists)


def without_permit_for_gangs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GangScheduling, "permit", lambda self, state, pod, node_name: (None, 0))


def counting_assumed_members_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PodGroupState, "scheduled_count", property(lambda self: len(self.assumed)))


def without_domain_of_bound_members(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PodGroupState, "scheduled_pods", lambda self: [])


def without_protecting_used_groups(patch: pytest.MonkeyPatch) -> None:
    async def is_used(self: Any, obj: Any) -> bool:
        return False

    patch.setattr(pod_group_protection_controller.PodGroupProtectionController, "is_used", is_used)


def evicting_members_one_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pod_group_preemption, "_group_disrupted_together", lambda pod, groups: None)


def taking_conflicts_for_deletions(patch: pytest.MonkeyPatch) -> None:
    async def is_stored(self: Any, pod: Any) -> bool:
        return False

    patch.setattr(PreemptionExecutor, "_is_stored", is_stored)


def counts_of_postponed_statuses_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Only the condition of a postponed status is taken as written."""

    def applied_to(self: PendingStatus, deployment: Deployment) -> Deployment:
        progressing = condition_of(self.status.conditions, "Progressing")
        status = with_condition(deployment.status, progressing) if progressing is not None else deployment.status
        return structs.replace(deployment, status=status)

    patch.setattr(PendingStatus, "applied_to", applied_to)


def postponing_every_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica_set_controller, "turns", lambda before, status, replicas_after: False)


CRASH = FaultPlan((PlannedFault("crash-after", write=30),), compares_versions=False)
LATE_RESTART = FaultPlan(
    (
        PlannedFault("crash-after", write=8),
        PlannedFault("small-pages", seconds=60.0),  # makes the reflector list
        PlannedFault("late-events", at=1.0, seconds=30.0, resource="pods"),
    )
)
CRASH_WITHOUT_COLLECTOR = FaultPlan(
    (PlannedFault("dead-collector", seconds=30.0), PlannedFault("crash-after", write=40))
)
BLIND = FaultPlan((PlannedFault("blind", at=3.0, seconds=10.0),))
REFUSED = FaultPlan((PlannedFault("error", at=0.5, seconds=8.0, share=0.9),))
LATE_PODS = FaultPlan((PlannedFault("late-events", at=2.0, seconds=5.0, resource="pods"),), compares_versions=False)
OLD_PODS = FaultPlan((PlannedFault("crash-after", write=40), PlannedFault("old-lists", seconds=5.0, resource="pods")))
CONFLICTS = FaultPlan((PlannedFault("conflict", at=1.0, seconds=8.0, share=0.9),))
CRASH_AMONG_BINDINGS = FaultPlan((PlannedFault("crash-after", write=8),))
CRASH_AMONG_BINDINGS_OF_JOBS = FaultPlan((PlannedFault("crash-after", write=19),))
FROZEN = FaultPlan((PlannedFault("freeze-leader", at=1.0, seconds=40.0),))

DEFECTS = {
    "no expectations": (without_expectations, "rollout", CRASH),
    "no uid of deleted pods": (without_uid, "rollout", CRASH),
    "no grace period": (with_force, "statefulset", CRASH),
    "lists at resourceVersion 0": (listing_at_zero, "indexed job", LATE_RESTART),
    "no surge limit": (without_surge_limit, "rollout", CRASH),
    "no forgotten assumed pods": (without_forgetting_assumed_pods, "gated pods", REFUSED),
    "no deletions on relist": (keeping_deleted_objects, "rollout", BLIND),
    "no recovered journal": (without_journal_recovery, "rollout", CRASH_WITHOUT_COLLECTOR),
    "no unreserve": (without_unreserve, "volume binding", REFUSED),
    "leader after the lease has expired": (leading_after_expiry, "rollout", FROZEN),
    "no relist after 410": (resuming_without_a_list, "rollout", BLIND),
    "owners deleted before dependents": (without_waiting_for_dependents, "foreground deletion", REFUSED),
    "released pods counted again": (counting_released_pods, "failing job", LATE_PODS),
    "no limit of unavailable nodes": (without_unavailable_limit, "daemonset", CRASH),
    "reserved devices allocated again": (without_pending_allocations, "device taints", REFUSED),
    "claims released for pods that are not cached": (without_reading_consumers, "resource claims", OLD_PODS),
    "new revision below the partition": (with_newest_revision, "partitioned statefulset", CRASH),
    "gangs bound in part": (without_permit_for_gangs, "pod groups", CRASH),
    "bound members do not count": (counting_assumed_members_only, "pod groups", CRASH_AMONG_BINDINGS),
    "other domain after a restart": (
        without_domain_of_bound_members,
        "pod groups of jobs",
        CRASH_AMONG_BINDINGS_OF_JOBS,
    ),
    "used groups not protected": (without_protecting_used_groups, "pod groups", CRASH),
    "group evicted in part": (evicting_members_one_by_one, "preempting pod groups", FaultPlan()),
    "postponed counts forgotten": (counts_of_postponed_statuses_forgotten, "stalled rollouts", FaultPlan()),
    "each count postponed": (postponing_every_count, "stalled rollouts", FaultPlan()),
    "refused evictions not retried": (taking_conflicts_for_deletions, "preempting pod groups", CONFLICTS),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_defect_violates_invariants(defect: str, monkeypatch: pytest.MonkeyPatch):
    break_product, scenario, plan = DEFECTS[defect]
    profile_of(SCENARIOS[scenario])  # of the intact product
    runs = [campaign.RunId(scenario, "", str(number), plan) for number in range(MOST_RUNS)]
    assert not campaign.run(runs[0]).violations
    break_product(monkeypatch)
    assert any(campaign.run(run_id).violations for run_id in runs)


def test_failure_is_shrunk_to_the_faults_that_matter(monkeypatch: pytest.MonkeyPatch):
    profile_of(SCENARIOS["rollout"])
    without_journal_recovery(monkeypatch)
    plan = FaultPlan((PlannedFault("slow", at=1.0, seconds=1.0, share=0.1), *CRASH_WITHOUT_COLLECTOR.faults))
    shrunk = campaign.shrink(campaign.RunId("rollout", "", "0", plan)).plan
    assert shrunk is not None
    assert shrunk.faults == CRASH_WITHOUT_COLLECTOR.faults


def test_a_run_depends_on_its_seed_alone():
    program = (
        "from support.faults import campaign\n"
        "print('\\n'.join(campaign.run(campaign.RunId('statefulset', 'combined', 'fixed')).story))"
    )
    stories = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(support.__path__[0]).parent)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert "all faults are over" in stories[0]
    assert stories[0] == stories[1]
