"""The binding cycle: results of bind requests, lost responses and the limit of requests in flight."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from kubeloop.kube.errors import ApiError, ServerUnreachable, from_status
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.objects.api_types import ApiStatus
from kubeloop.scheduler.api.extender import ExtenderError
from kubeloop.scheduler.api.queued_pod import QueuedPodInfo
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.api_calls.background_calls import BackgroundCalls
from kubeloop.scheduler.api_calls.status_patches import StatusPatches
from kubeloop.scheduler.attempts.attempt import Attempt
from kubeloop.scheduler.attempts.binding_cycle import BindingCycle
from kubeloop.scheduler.cache.cache import SchedulerCache
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.context import SchedulerContext
from kubeloop.scheduler.framework.points.binding_points import BindingPoints
from kubeloop.scheduler.framework.timing import Timing
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.metrics import NO_METRICS
from kubeloop.scheduler.queue.nominator import Nominator
from kubeloop.scheduler.queue.scheduling_queue import SchedulingQueue
from support.scheduling.plugin_cluster import make_pod
from support.simulation.recorded_events import RecordedEvents
from support.traces.disabled_recorders import DisabledPodRecorder

pytestmark = pytest.mark.virtual_time

NOT_FOUND = from_status(ApiStatus(status="Failure", code=404, reason="NotFound", message="not found"))
CONFLICT = from_status(ApiStatus(status="Failure", code=409, reason="Conflict", message="conflict"))
NOT_SENT = ServerUnreachable("no connection", maybe_applied=False)
LOST = ServerUnreachable("no response", maybe_applied=True)


class Binder:
    """A Bind plugin; each call takes a second and ends with the next of `results`."""

    name = "Binder"

    def __init__(self, results: list[ApiError | ServerUnreachable | None]) -> None:
        self.results = results
        self.started: list[float] = []

    async def bind(self, state: Any, pod: PodInfo, node_name: str) -> None:
        self.started.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1.0)
        result = self.results.pop(0)
        if result is not None:
            raise result


class Binding:
    """A binding cycle with `binder` and `pre_bind` as its plugins.

    stored: the pod's node in the API server; None if the pod was deleted.
    """

    def __init__(
        self,
        clock: Any,
        *results: ApiError | ServerUnreachable | None,
        stored: str | None = "",
        pre_bind: Any = (),
        gates: FeatureGates = DEFAULT_FEATURE_GATES,
    ) -> None:
        self.binder, self.stored = Binder(list(results)), stored
        self.waiting_pods = WaitingPods()
        points: Any = {"preBind": pre_bind, "bind": [self.binder], "postBind": ()}
        binding = BindingPoints(Timing(NO_METRICS, "profile", int), points)
        self.framework: Any = SimpleNamespace(binding=binding, profile_name="profile")
        client: Any = self
        recorder: Any = RecordedEvents()
        traces: Any = DisabledPodRecorder()
        context = SchedulerContext(client, clock, random.Random(1), lambda _: recorder, traces, feature_gates=gates)
        queue = SchedulingQueue(
            sort_key=lambda queued: queued.key,
            hint_maps={},
            pre_enqueue={},
            nominator=Nominator(lambda key: None),
            now_ns=lambda: 0,
        )
        self.patches = StatusPatches(client, clock, BackgroundCalls(context))
        self.cycle = BindingCycle(
            context, SchedulerCache(lambda: 0.0), queue, self.patches, self.waiting_pods, (), max_in_flight=1
        )

    async def get(self, resource: Any, name: str, namespace: str, *, lane: str) -> Any:
        if self.stored is None:
            raise NOT_FOUND
        return make_pod(name, self.stored)

    async def run(self, name: str = "p") -> Status | None:
        attempt = Attempt(self.framework, QueuedPodInfo(PodInfo(make_pod(name, "n")), 0))
        attempt.node = "n"
        return await self.cycle.run(attempt)


@pytest.mark.parametrize(
    ("results", "stored", "bound", "requests"),
    [
        pytest.param([None], "", True, 1, id="bound"),
        pytest.param([CONFLICT], "n", True, 1, id="conflict with an earlier request"),
        pytest.param([CONFLICT], "other", False, 1, id="bound to another node"),
        pytest.param([CONFLICT], "", False, 1, id="other conflict"),
        pytest.param([CONFLICT], None, False, 1, id="conflict, pod deleted"),
        pytest.param([NOT_SENT], "", False, 1, id="request not sent"),
        pytest.param([LOST, None], "", True, 2, id="lost response, sent again"),
        pytest.param([LOST], "n", True, 1, id="lost response, bound"),
        pytest.param([LOST], None, False, 1, id="lost response, pod deleted"),
        pytest.param([LOST] * 7, "", False, 7, id="no response at all"),
    ],
)
async def test_result_of_a_binding(clock: Any, results: Any, stored: str | None, bound: bool, requests: int) -> None:
    binding = Binding(clock, *results, stored=stored)
    status = await binding.run()
    assert (status is None) is bound
    assert len(binding.binder.started) == requests


async def test_next_binding_waits_for_a_slot(clock: Any) -> None:
    binding = Binding(clock, None)
    await binding.cycle.wait_for_slot()
    running = asyncio.create_task(binding.run())
    await asyncio.sleep(0.1)
    start = asyncio.get_running_loop().time()
    await binding.cycle.wait_for_slot()
    assert asyncio.get_running_loop().time() - start == pytest.approx(0.9)
    assert await running is None


async def test_time_on_permit_is_measured(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    binding = Binding(clock)
    waits = []
    metrics = SimpleNamespace(permit_wait=lambda result, seconds: waits.append((result, seconds)))
    monkeypatch.setattr(binding.cycle, "_metrics", metrics)
    await asyncio.sleep(1.0)
    binding.waiting_pods.add(PodInfo(make_pod("p", "n")), {"Mine": 5.0})
    await binding.run()
    assert waits == [("Unschedulable", pytest.approx(5.0))]


async def test_rejected_permit_sends_no_request(clock: Any) -> None:
    binding = Binding(clock)
    binding.waiting_pods.add(PodInfo(make_pod("p", "n")), {"Mine": 5.0})
    status = await binding.run()
    assert status is not None
    assert (status.plugin, status.is_rejection) == ("Mine", True)
    assert binding.binder.started == []


class PreBinder:
    """A PreBind plugin that has work if `works`."""

    name = "PreBinder"

    def __init__(self, *, works: bool) -> None:
        self.works = works
        self.calls: list[str] = []
        self.pending_patches: list[int] = []
        self.binding: Binding | None = None

    def pre_bind_pre_flight(self, state: Any, pod: PodInfo, node_name: str) -> Status | None:
        self.calls.append("flight")
        return None if self.works else Status(Code.SKIP)

    async def pre_bind(self, state: Any, pod: PodInfo, node_name: str) -> None:
        self.calls.append("work")
        assert self.binding is not None
        self.pending_patches.append(len(self.binding.patches))


class SlowPreBinder(PreBinder):
    async def pre_bind(self, state: Any, pod: PodInfo, node_name: str) -> None:
        await asyncio.sleep(5)


@pytest.mark.parametrize(
    ("enabled", "works", "calls", "patches"),
    [
        pytest.param(True, True, ["flight", "work"], [1], id="expected node reported"),
        pytest.param(True, False, ["flight"], [], id="nothing to wait for"),
        pytest.param(False, True, ["work"], [0], id="gate off"),
        pytest.param(False, False, ["work"], [0], id="gate off, every PreBind plugin runs"),
    ],
)
async def test_expected_node_is_reported_while_pre_bind_works(
    clock: Any, enabled: bool, works: bool, calls: list[str], patches: list[int]
) -> None:
    plugin = PreBinder(works=works)
    gates = FeatureGates({"NominatedNodeNameForExpectation": enabled})
    plugin.binding = binding = Binding(clock, None, pre_bind=[plugin], gates=gates)
    assert await binding.run() is None
    assert (plugin.calls, plugin.pending_patches) == (calls, patches)


@pytest.mark.parametrize("enabled", [False, True])
async def test_expected_node_is_reported_while_the_pod_waits_on_permit(clock: Any, enabled: bool) -> None:
    binding = Binding(clock, gates=FeatureGates({"NominatedNodeNameForExpectation": enabled}))
    binding.waiting_pods.add(PodInfo(make_pod("p", "n")), {"Mine": 5.0})
    await binding.run()
    assert len(binding.patches) == enabled


@pytest.mark.parametrize("enabled", [False, True])
async def test_pre_bind_can_be_preempted_if_expected_nodes_are_reported(clock: Any, enabled: bool) -> None:
    plugin = SlowPreBinder(works=True)
    gates = FeatureGates({"NominatedNodeNameForExpectation": enabled})
    plugin.binding = binding = Binding(clock, None, pre_bind=[plugin], gates=gates)
    running = asyncio.create_task(binding.run())
    await asyncio.sleep(1)
    assert binding.waiting_pods.preempt(make_pod("p", "n").metadata.uid, "DefaultPreemption") is enabled
    status = await running
    assert (status is not None and status.message) == ("preempted by DefaultPreemption" if enabled else False)
    assert len(binding.binder.started) == (0 if enabled else 1)


async def test_members_of_a_group_are_bound_one_slot_at_a_time(clock: Any) -> None:
    """All of them start at once, without waiting for a slot before."""
    binding = Binding(clock, None, None, None)
    start = asyncio.get_running_loop().time()
    assert await asyncio.gather(*(binding.run(name) for name in "abc")) == [None, None, None]
    assert asyncio.get_running_loop().time() - start == pytest.approx(3)
    assert binding.cycle.free_slots == 1


class BindingExtender:
    """An extender that binds pods, or raises `error`."""

    def __init__(
        self, error: str = "", *, ignorable: bool = False, binds: bool = True, interested: bool = True
    ) -> None:
        self.error, self.ignorable, self.binds, self.interested = error, ignorable, binds, interested
        self.bound: list[str] = []

    def is_interested(self, pod: Any) -> bool:
        return self.interested

    async def bind(self, pod: Any, node_name: str) -> None:
        if self.error:
            raise ExtenderError(self.error)
        self.bound.append(f"{pod.metadata.name} to {node_name}")


@pytest.mark.parametrize(
    ("extenders", "message", "bound", "requests"),
    [
        pytest.param([], None, [], 1, id="no extender: the plugin binds"),
        pytest.param([BindingExtender()], None, [["p to n"]], 0, id="extender"),
        pytest.param([BindingExtender(), BindingExtender()], None, [["p to n"], []], 0, id="the first one"),
        pytest.param([BindingExtender(binds=False)], None, [[]], 1, id="extender that does not bind"),
        pytest.param([BindingExtender(interested=False)], None, [[]], 1, id="pod without its resources"),
        pytest.param([BindingExtender("no")], "no", [[]], 0, id="error"),
        pytest.param([BindingExtender("no", ignorable=True)], None, [[]], 1, id="ignorable error"),
        pytest.param(
            [BindingExtender("no", ignorable=True), BindingExtender()], None, [[], ["p to n"]], 0, id="the next one"
        ),
    ],
)
async def test_extender_that_binds_replaces_the_plugins(clock, extenders, message, bound, requests):
    for extender in extenders:
        extender.bound.clear()
    binding = Binding(clock, None)
    binding.cycle._extenders = extenders
    status = await binding.run()
    assert (None if status is None else status.message) == message
    assert [extender.bound for extender in extenders] == bound
    assert len(binding.binder.started) == requests
