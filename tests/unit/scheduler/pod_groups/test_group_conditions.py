"""The condition of PodGroups: what is written, in which order, and retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.kube.errors import ApiError, ApiStatus, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import Condition
from kubeloop.kube.objects.workload_types import PodGroup, PodGroupStatus
from kubeloop.scheduler.pod_groups.group_conditions import GroupCondition, PodGroupConditions, new_condition
from support.scheduling.plugin_cluster import PluginCluster, make_pod_group

pytestmark = pytest.mark.virtual_time

NOW = datetime(2026, 3, 1, tzinfo=UTC)
EARLIER = datetime(2026, 2, 1, tzinfo=UTC)
SCHEDULED = GroupCondition("True", "Scheduled", "")
FULL = GroupCondition("False", "Unschedulable", "full")


def group_with(status: str = "", reason: str = "", message: str = "", generation: int = 1) -> PodGroup:
    """Return a PodGroup with a condition since EARLIER; status "": none."""
    condition = Condition(
        type="PodGroupScheduled",
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=EARLIER,
    )
    return replace(make_pod_group("g", 2), status=PodGroupStatus(conditions=(condition,) if status else ()))


@pytest.mark.parametrize(
    ("current", "condition", "since"),
    [
        pytest.param(group_with(), FULL, "2026-03-01T00:00:00Z", id="first"),
        pytest.param(group_with("False", "Unschedulable", "full"), FULL, None, id="unchanged"),
        pytest.param(group_with("False", "Unschedulable", "x"), FULL, "2026-02-01T00:00:00Z", id="other message"),
        pytest.param(group_with("False", "SchedulerError", "full"), FULL, "2026-02-01T00:00:00Z", id="other reason"),
        pytest.param(group_with("False", "Unschedulable", "full", 0), FULL, "2026-02-01T00:00:00Z", id="generation"),
        pytest.param(group_with("False", "Unschedulable", "x"), SCHEDULED, "2026-03-01T00:00:00Z", id="scheduled"),
        pytest.param(group_with("True", "Scheduled"), FULL, None, id="scheduled before"),
        pytest.param(group_with("True", "Scheduled"), SCHEDULED, None, id="more pods are scheduled"),
    ],
)
def test_condition_to_write(current, condition, since):
    entry = new_condition(current, condition, NOW)
    if since is None:
        assert entry is None
    else:
        assert entry == {
            "type": "PodGroupScheduled",
            "status": condition.status,
            "observedGeneration": 1,
            "lastTransitionTime": since,
            "reason": condition.reason,
            "message": condition.message,
        }


class Conditions:
    """PodGroupConditions on a cluster with the PodGroup g."""

    def __init__(self) -> None:
        self.cluster = PluginCluster()
        self.cluster.put("pod_groups", group_with())
        self.tasks: list[asyncio.Task[None]] = []
        self.conditions = PodGroupConditions(
            self.cluster.client, self.cluster.clock, self.cluster.listers.pod_groups, self._spawn
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks.append(asyncio.create_task(work, name=name))

    async def settle(self) -> None:
        await asyncio.gather(*self.tasks)

    @property
    def written(self) -> list[str]:
        """The reason in each request."""
        for verb, *request in self.cluster.client.requests:
            assert (verb, *request[:4]) == ("patch", "podgroups", "default", "g", "status")
            assert request[4]["metadata"] == {"uid": "g"}
        return [request[-1]["status"]["conditions"][0]["reason"] for request in self.cluster.client.requests]


def api_error(code: int) -> Exception:
    return (NotFound if code == 404 else ApiError)(ApiStatus(code=code, reason="", message="refused"))


async def test_newest_condition_is_written_last():
    conditions = Conditions()
    conditions.conditions.set("default/g", FULL)
    await asyncio.sleep(0)
    conditions.conditions.set("default/g", GroupCondition("False", "SchedulerError", "x"))
    conditions.conditions.set("default/g", SCHEDULED)
    await conditions.settle()
    assert conditions.written == ["Unschedulable", "Scheduled"]
    assert len(conditions.tasks) == 1


async def test_group_stays_scheduled_before_the_cache_shows_it():
    conditions = Conditions()
    conditions.conditions.set("default/g", FULL)
    await asyncio.sleep(0)
    for condition in (SCHEDULED, FULL):  # while the first one is being written
        conditions.conditions.set("default/g", condition)
    await conditions.settle()
    conditions.conditions.set("default/g", FULL)
    await conditions.settle()
    assert conditions.written == ["Unschedulable", "Scheduled"]
    group = group_with()
    conditions.cluster.put("pod_groups", replace(group, metadata=replace(group.metadata, uid="another")))
    conditions.conditions.set("default/g", FULL)
    await conditions.settle()
    uids = [request[5]["metadata"]["uid"] for request in conditions.cluster.client.requests]
    assert uids == ["g", "g", "another"]


async def test_unscheduled_group_whose_condition_was_refused_is_written_again():
    conditions = Conditions()
    conditions.cluster.client.failures = [api_error(403)]
    for condition in (SCHEDULED, FULL):
        conditions.conditions.set("default/g", condition)
        await conditions.settle()
    assert conditions.written == ["Scheduled", "Unschedulable"]


async def test_groups_are_forgotten_when_the_cache_shows_them_scheduled():
    conditions = Conditions()
    conditions.cluster.put("pod_groups", make_pod_group("h", 2))
    conditions.conditions.set("default/g", SCHEDULED)
    await conditions.settle()
    conditions.cluster.put("pod_groups", group_with("True", "Scheduled"))
    conditions.conditions.set("default/h", SCHEDULED)
    await conditions.settle()
    assert conditions.conditions._scheduled == {"default/h": "h"}


async def test_unchanged_condition_is_not_written():
    conditions = Conditions()
    conditions.cluster.put("pod_groups", group_with("True", "Scheduled"))
    conditions.conditions.set("default/g", FULL)
    await conditions.settle()
    assert conditions.written == []


async def test_deleted_pod_group_is_logged(caplog):
    conditions = Conditions()
    conditions.conditions.set("default/other", FULL)
    await conditions.settle()
    assert conditions.written == []
    assert [record.getMessage() for record in caplog.records] == ["no PodGroup to write a condition of"]


@pytest.mark.parametrize(
    ("failures", "requests", "warnings"),
    [
        pytest.param([500], 2, 0, id="retried"),
        pytest.param([500, 503, 500, 500], 4, 1, id="given up"),
        pytest.param([404], 1, 0, id="deleted"),
        pytest.param([403], 1, 1, id="forbidden"),
        pytest.param([0], 2, 0, id="unreachable"),
    ],
)
async def test_failed_write_is_retried(caplog, failures, requests, warnings):
    conditions = Conditions()
    conditions.cluster.client.failures = [
        api_error(code) if code else ServerUnreachable("refused", maybe_applied=False) for code in failures
    ]
    conditions.conditions.set("default/g", SCHEDULED)
    await conditions.settle()
    assert conditions.written == ["Scheduled"] * requests
    logged = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in logged] == ["cannot write the condition of a PodGroup"] * warnings


async def test_deleted_and_recreated_groups_are_forgotten():
    conditions = Conditions()
    conditions.cluster.put("pod_groups", make_pod_group("h", 2))
    for key in ("default/g", "default/h"):
        conditions.conditions.set(key, SCHEDULED)
        await conditions.settle()
    assert conditions.conditions._scheduled == {"default/g": "g", "default/h": "h"}
    conditions.cluster.listers.pod_groups.remove("default/g")
    conditions.conditions.set("default/h", SCHEDULED)
    await conditions.settle()
    assert conditions.conditions._scheduled == {"default/h": "h"}
