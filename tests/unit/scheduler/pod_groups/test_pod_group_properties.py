"""Gangs that compete for the devices of a cluster never hold a part each and wait for the rest (property test).

Groups and their pods arrive at random times, in any order. A gang runs for a while once minCount of its pods are bound,
and then its pods are deleted. So each gang that fits in the empty cluster must run in the end, and at no time may a
gang have nodes for some of its pods, but for fewer than minCount.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from kubeloop.scheduler.config.types import default_configuration
from kubeloop.scheduler.scheduler import Scheduler
from kubeloop.testing import virtual_time
from kubeloop.testing.virtual_time import VirtualClock
from support.objects.devices import claim, device, device_class, device_slice, request
from support.scheduling.scheduler_cluster import SchedulerCluster

GATES = {"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True}
GPU = "example.com/gpu"
LIMIT_SECONDS = 3600  # more than all gangs take one after the other, with the longest backoff between two of them


class Gang(msgspec.Struct, frozen=True):
    """pods: when each arrives, in seconds. created: when the PodGroup arrives. devices: of each pod. seconds: for which
    the gang runs. in_rack: all pods must run in one rack."""

    pods: tuple[int, ...]
    min_count: int
    created: int
    devices: int
    seconds: int
    in_rack: bool

    def fits(self, racks: list[list[int]]) -> bool:
        """Return True if minCount pods fit in the empty cluster. racks: the devices of each node."""
        rooms = [sum(node // self.devices for node in rack) for rack in racks]
        return (max(rooms) if self.in_rack else sum(rooms)) >= self.min_count


TIMES = st.integers(0, 40)


@st.composite
def gangs(draw: st.DrawFn) -> Gang:
    pods = tuple(draw(st.lists(TIMES, min_size=1, max_size=5)))
    return Gang(
        pods=pods,
        min_count=draw(st.integers(1, len(pods))),
        created=draw(TIMES),
        devices=draw(st.integers(1, 3)),
        seconds=draw(st.integers(1, 60)),
        in_rack=draw(st.booleans()),
    )


RACKS = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=2)


class GangCluster:
    """Gangs on a cluster of racks of nodes.

    claims: pods request devices by ResourceClaims, not as a resource. batching: the feature gate OpportunisticBatching.
    """

    def __init__(self, racks: list[list[int]], gangs: list[Gang], seed: int, *, claims: bool, batching: bool) -> None:
        self._gates = FeatureGates(GATES | {"OpportunisticBatching": batching})
        self.cluster = SchedulerCluster(VirtualClock(), self._gates)
        self.cluster.before_bind = self._delay
        self._rng = random.Random(seed)
        self._racks = racks
        self._gangs = {f"gang-{number}": gang for number, gang in enumerate(gangs)}
        self._claims = claims
        self.done: set[str] = set()

    async def _delay(self, key: str, node: str) -> None:
        await asyncio.sleep(self._rng.choice((0, 0.01, 0.5)))

    def _create_nodes(self) -> None:
        if self._claims:
            self.cluster.put(DEVICE_CLASSES, device_class())
        for rack, nodes in enumerate(self._racks):
            for number, devices in enumerate(nodes):
                name = f"{rack}-{number}"
                allocatable = {"cpu": "64", "memory": "64Gi", "pods": "110", GPU: str(devices)}
                self.cluster.node(name, labels={"rack": str(rack)}, status={"allocatable": allocatable})
                if self._claims:
                    slice_ = device_slice(name, *(device(f"gpu-{index}") for index in range(devices)))
                    self.cluster.put(RESOURCE_SLICES, slice_)

    async def _run_gang(self, name: str, gang: Gang) -> None:
        """Create the group and its pods, wait until minCount pods are bound, and delete the pods."""
        arrivals = sorted([(gang.created, ""), *((at, f"{name}-{index}") for index, at in enumerate(gang.pods))])
        before = 0
        for at, pod in arrivals:
            await asyncio.sleep(at - before)
            before = at
            if pod:
                self._create_pod(name, pod, gang)
            else:
                self.cluster.pod_group(name, gang.min_count, "rack" if gang.in_rack else "")
        while len(self._nodes_of(name)) < gang.min_count:
            await asyncio.sleep(1)
        await asyncio.sleep(gang.seconds)
        for index in range(len(gang.pods)):
            self.cluster.delete_pod(f"default/{name}-{index}")
            if self._claims:
                self.cluster.server.store.delete(RESOURCE_CLAIMS, "default", f"{name}-{index}")
        self.done.add(name)

    def _create_pod(self, group: str, name: str, gang: Gang) -> None:
        spec: dict[str, Any] = {"schedulingGroup": {"podGroupName": group}}
        if self._claims:
            self.cluster.put(RESOURCE_CLAIMS, claim(name, request(count=gang.devices)))
            spec["resourceClaims"] = [{"name": "gpus", "resourceClaimName": name}]
        else:
            requests = {GPU: str(gang.devices)}
            spec["containers"] = [{"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}]
        self.cluster.pod(name, **spec)

    def _nodes_of(self, group: str) -> list[str]:
        """Return the nodes of the group's bound pods."""
        nodes = (self.cluster.node_of(f"default/{group}-{index}") for index in range(len(self._gangs[group].pods)))
        return [node for node in nodes if node]

    def _check(self, scheduler: Scheduler) -> None:
        """Assert that each gang has nodes for none or at least minCount of its pods, in one rack if it must be."""
        groups = scheduler.cache.pod_groups
        assert groups is not None
        groups.check()
        for key, state in groups.all().items():
            gang = self._gangs[key.partition("/")[2]]
            assert state.scheduled_count == 0 or state.scheduled_count >= gang.min_count, (key, gang)
            racks = {pod.spec.node_name.partition("-")[0] for pod in state.scheduled_pods()}
            assert len(racks) <= 1 or not gang.in_rack, (key, racks)
        for rack, nodes in enumerate(self._racks):
            for number, devices in enumerate(nodes):
                used = sum(
                    gang.devices * self._nodes_of(name).count(f"{rack}-{number}") for name, gang in self._gangs.items()
                )
                assert used <= devices

    async def run(self) -> None:
        self._create_nodes()
        scheduler = self.cluster.scheduler(default_configuration(self._gates), feature_gates=self._gates)
        tasks = [asyncio.create_task(part.run()) for part in (self.cluster.server.informers, scheduler)]
        tasks += [asyncio.create_task(self._run_gang(name, gang)) for name, gang in self._gangs.items()]
        feasible = {name for name, gang in self._gangs.items() if gang.fits(self._racks)}
        try:
            for _ in range(LIMIT_SECONDS * 4):
                await asyncio.sleep(0.25)
                self._check(scheduler)
                if self.done == feasible:
                    break
            assert self.done == feasible
            await asyncio.sleep(15)  # the longest backoff: those that do not fit were tried again
            assert all(not self._nodes_of(name) for name in self._gangs)
            assert all(task.done() or not task.cancelled() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        scheduler.queue.check()
        scheduler.cache.check()


def run_gangs(
    racks: list[list[int]], gangs: list[Gang], seed: int, *, claims: bool = False, batching: bool = True
) -> None:
    async def main() -> None:
        await GangCluster(racks, gangs, seed, claims=claims, batching=batching).run()

    virtual_time.run(main())


def half_each(pods: int, devices: int) -> list[Gang]:
    """Return two gangs whose pods arrive in turns: half of the devices for each would leave both waiting."""
    arrivals = itertools.count()
    times: list[list[int]] = [[], []]
    for _ in range(pods):
        for gang in times:
            gang.append(next(arrivals) // 2)
    return [Gang(tuple(gang), pods, 0, devices, 30, False) for gang in times]


@settings(max_examples=40)
@example(racks=[[4]], gangs=half_each(4, 1), seed=0, claims=False, batching=True)
@example(racks=[[4]], gangs=half_each(4, 1), seed=0, claims=True, batching=False)
@example(racks=[[2, 2], [2, 2]], gangs=half_each(4, 2) + half_each(2, 2), seed=0, claims=True, batching=True)
@given(
    racks=RACKS,
    gangs=st.lists(gangs(), min_size=2, max_size=4),
    seed=st.integers(0, 2**32),
    claims=st.booleans(),
    batching=st.booleans(),
)
def test_every_gang_that_fits_runs_in_the_end(racks, gangs, seed, claims, batching):
    run_gangs(racks, gangs, seed, claims=claims, batching=batching)


def test_the_check_finds_gangs_that_hold_half_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without all-or-nothing decisions, both gangs wait on permit with half of the devices."""

    def schedule_each_pod(*args: Any, **kwargs: Any) -> None:
        return None

    monkeypatch.setattr(Scheduler, "_new_group_cycle", schedule_each_pod)
    with pytest.raises(AssertionError, match="gang-"):
        run_gangs([[4]], half_each(4, 1), 0)
