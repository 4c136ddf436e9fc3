"""Pod feed: all pods at first, then changes, in bounded responses."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.informers.store import Store
from kubeloop.kube.objects import api_types
from kubeloop.tracing.recording import recent_traces
from kubeloop.tracing.views import pod_feed as feed_module
from kubeloop.tracing.views.pod_feed import PodFeed, untraced_line

pytestmark = pytest.mark.virtual_time


class Cluster:
    """Cluster whose pods are passed to the recorder and the store by hand."""

    def __init__(self, tracing, pod, clock):
        self.tracing, self.pod, self.clock = tracing, pod, clock
        self.store = Store()
        self.traceparents = {}

    def feed(self, **settings):
        return PodFeed(self.tracing.recent, self.store, now_ns=self.clock.time_ns, instance="one", **settings)

    def show(self, name, **state):
        pod = self.pod(name, traceparent=self.traceparents.get(name, ""), **state)
        self.store.put(pod.key, pod)
        return pod

    def create(self, name):
        request = self.tracing.pods.create_requested(namespace="shop", owner_kind="ReplicaSet", owner_name="web-5f")
        self.traceparents[name] = request.traceparent
        self.clock.pass_ms(1)

    def appear(self, name):
        shown = self.show(name)
        self.tracing.pods.created(self.traceparents[name], shown)
        self.tracing.pods.observed(shown)
        self.tracing.pods.queued(shown, "active", "PodAdd")
        self.clock.pass_ms(1)

    def bind(self, name):
        self.tracing.pods.observed(self.show(name, node="n1"))

    def delete(self, name):
        pod = self.store.get(f"shop/{name}")
        self.tracing.pods.deleted(pod)
        self.store.remove(pod.key)


@pytest.fixture
def cluster(tracing, pod, manual_clock):
    return Cluster(tracing, pod, manual_clock)


class Reader:
    """Client of the feed: applies responses to its lines."""

    def __init__(self, feed, limit=feed_module.MAX_LINES):
        self.feed, self.limit = feed, limit
        self.cursor, self.lines, self.received = "", {}, 0

    async def catch_up(self):
        self.received = 0
        await asyncio.sleep(feed_module.COMPARE_SECONDS)
        while True:
            response = await self.feed.poll(self.cursor, limit=self.limit)
            assert len(response.lines) <= self.limit
            if response.reset:
                self.lines = {}
            for key in response.removed:
                self.lines.pop(key, None)
            self.lines |= {line.key: line for line in response.lines}
            self.cursor = response.cursor
            self.received += len(response.lines)
            if not response.more:
                return {line.name or "?": line.stage for line in self.lines.values()}


async def test_pod_is_sent_once_per_change(cluster):
    reader = Reader(cluster.feed())
    assert await reader.catch_up() == {}
    cluster.create("a")
    assert await reader.catch_up() == {"?": "creating"}
    cluster.appear("a")
    assert await reader.catch_up() == {"a": "queued"}
    await reader.catch_up()
    assert reader.received == 0
    cluster.bind("a")
    assert await reader.catch_up() == {"a": "starting"}
    cluster.show("a", node="n1", phase="Running")
    assert await reader.catch_up() == {"a": "running"}
    cluster.delete("a")
    assert await reader.catch_up() == {"a": "gone"}
    assert len({line.key for line in reader.lines.values()}) == 1
    reader.feed.check()


async def test_ten_thousand_pods_come_in_bounded_responses(cluster):
    for number in range(10_000):
        cluster.create(f"p{number}")
        cluster.appear(f"p{number}")
    reader = Reader(cluster.feed())
    stages = await reader.catch_up()
    assert len(stages) == reader.received == 10_000
    cluster.bind("p77")
    await reader.catch_up()
    assert reader.received == 1


async def test_only_selected_pods_are_sent(cluster):
    for name in ("a", "b"):
        cluster.create(name)
        cluster.appear(name)
    response = await cluster.feed().poll(selects=lambda line: line.name == "b")
    assert [line.name for line in response.lines] == ["b"]
    assert response.pods == 2


async def test_untraced_pod_has_line_from_object(cluster):
    cluster.show("old", node="n9", phase="Running", created="2026-01-01T11:00:00Z")
    feed = cluster.feed()
    reader = Reader(feed)
    assert await reader.catch_up() == {"old": "running"}
    (line,) = reader.lines.values()
    assert (line.trace_id, line.owner, line.node) == ("", "deployment/web", "n9")
    assert feed.document(line.key) is None
    assert feed.pod(line.key).metadata.name == "old"


async def test_recreated_pod_of_same_name_has_own_line(cluster):
    reader = Reader(cluster.feed())
    cluster.create("a")
    cluster.appear("a")
    cluster.bind("a")
    cluster.delete("a")
    cluster.show("a", uid="another")
    await reader.catch_up()
    assert sorted(line.stage for line in reader.lines.values()) == ["gone", "queued"]


@pytest.mark.parametrize("cursor", ["", "two-1", "one-999", "one-", "one--1", "one-x", "one-²", "nonsense"])
async def test_unknown_cursor_resets_client(cluster, cursor):
    cluster.create("a")
    cluster.appear("a")
    response = await cluster.feed().poll(cursor)
    assert response.reset
    assert [line.name for line in response.lines] == ["a"]


async def test_client_that_missed_removals_is_reset(make_tracing, pod, manual_clock, monkeypatch):
    monkeypatch.setattr(recent_traces, "MAX_PODS", 2)
    cluster = Cluster(make_tracing(manual_clock), pod, manual_clock)
    feed = cluster.feed()
    monkeypatch.setattr(feed_module, "_MAX_REMOVED", 3)
    feed._removed = type(feed._removed)(maxlen=3)
    late, prompt = Reader(feed), Reader(feed)
    for number in range(8):
        name = f"p{number}"
        cluster.create(name)
        cluster.appear(name)
        cluster.bind(name)
        cluster.delete(name)
        if number == 1:
            await late.catch_up()
        assert (await prompt.catch_up()).keys() == {f"p{n}" for n in range(max(0, number - 1), number + 1)}
    assert (await late.catch_up()).keys() == {"p6", "p7"}


@given(
    st.lists(st.tuples(st.sampled_from(["step", "delete", "read"]), st.integers(0, 3)), max_size=40), st.integers(1, 4)
)
@settings(max_examples=60)
def test_incremental_client_equals_new_client(make_tracing, pod, make_clock, events, limit):
    async def run():
        clock = make_clock()
        cluster = Cluster(make_tracing(clock), pod, clock)
        feed = cluster.feed()
        reader = Reader(feed, limit)
        steps = {}
        for step, number in events:
            name = f"p{number}"
            if step == "read":
                await reader.catch_up()
            elif step == "step" and steps.get(name, 0) < 3:
                (cluster.create, cluster.appear, cluster.bind)[steps.get(name, 0)](name)
                steps[name] = steps.get(name, 0) + 1
            elif step == "delete" and steps.get(name, 0) >= 2:
                cluster.delete(name)
                steps[name] = 0
        await reader.catch_up()
        fresh = Reader(feed)
        await fresh.catch_up()
        # durations of open traces still grow
        assert {key: line.stage for key, line in reader.lines.items()} == {
            key: line.stage for key, line in fresh.lines.items()
        }
        feed.check()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(feed_module, "COMPARE_SECONDS", 0.0)
        patched.setattr(recent_traces, "MAX_PODS", 3)
        asyncio.run(run())


def test_untraced_pod_has_its_group(pod):
    assert untraced_line("k", pod("a", group="train")).lower_owners == ["replicaset/web-5f", "podgroup/train"]
    assert untraced_line("k", pod("a", group="train", owner="")).owner == "podgroup/train"


def test_untraced_unschedulable_pod_has_reason(pod):
    waiting = pod("a")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    status = api_types.convert(api_types.PodStatus, {"phase": "Pending", "conditions": [condition]})
    line = untraced_line("k", msgspec.structs.replace(waiting, status=status))
    assert (line.stage, line.reason, line.is_open, line.segments) == ("unschedulable", "0/1 nodes", True, [])


async def test_response_has_the_number_of_pods_that_follow(cluster):
    feed = cluster.feed()
    for number in range(5):
        cluster.create(f"a{number}")
    first = await feed.poll(limit=2)
    assert (first.more, first.remaining) == (True, 3)
    second = await feed.poll(first.cursor, limit=3)
    assert (second.more, second.remaining) == (False, 0)


async def test_stage_of_a_pod_began_with_its_last_condition(cluster):
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T11:00:02Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:07Z"},
        {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T11:00:09Z"},
    ]
    status = api_types.convert(api_types.PodStatus, {"phase": "Running", "conditions": conditions})
    pod = msgspec.structs.replace(cluster.pod("a", node="n1", created="2026-01-01T11:00:00Z"), status=status)
    assert untraced_line("k", pod).stage_after_us == 7_000_000
    cluster.create("b")
    cluster.appear("b")
    cluster.bind("b")
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}]
    shown = cluster.store.get("shop/b")
    status = api_types.convert(api_types.PodStatus, {"phase": "Running", "conditions": ready})
    cluster.store.put(shown.key, msgspec.structs.replace(shown, status=status))
    reader = Reader(cluster.feed())
    await reader.catch_up()
    (line,) = reader.lines.values()
    assert line.start_us + line.stage_after_us == 1_893_456_000_000_000
