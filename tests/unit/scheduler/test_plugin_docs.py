"""The examples of docs/scheduler-plugins.md work as described."""

from __future__ import annotations

import asyncio
import random
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.scheduler.config.defaults import DEFAULT_PLUGINS, default_plugins
from kubeloop.scheduler.config.load import load_configuration
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.types import Profile, SchedulerConfiguration
from kubeloop.tracing.recording.open_pod_records import OpenPodRecords
from kubeloop.tracing.recording.pod_recorder import standalone_pod_recorder
from kubeloop.tracing.spans.pod_spans import pod_trace
from support.scheduling.scheduler_cluster import SchedulerCluster
from support.traces.span_tree import check_spans

pytestmark = pytest.mark.virtual_time

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scheduler-plugins.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def my_plugins() -> Iterator[None]:
    module = types.ModuleType("my_plugins")
    sys.modules["my_plugins"] = module
    for block in blocks("python"):
        exec(block, module.__dict__)
    yield
    del sys.modules["my_plugins"]


async def test_examples_filter_and_score(cluster, scheduling):
    (text,) = blocks("yaml")
    config = load_configuration(text)
    cluster.node("large-a", cpu="16", labels={"example.com/rack": "a"})
    cluster.node("small-b", cpu="2", labels={"example.com/rack": "b"})
    cluster.node("large-b", cpu="16", labels={"example.com/rack": "b"})
    async with scheduling(profiles=config.profiles) as scheduler:
        cluster.pod("anywhere")
        cluster.pod("in-b", metadata={"annotations": {"rack": "b"}})
        cluster.pod("in-c", metadata={"annotations": {"rack": "c"}})
        await asyncio.sleep(0.5)
        assert sorted(cluster.bindings) == [("default/anywhere", "small-b"), ("default/in-b", "small-b")]
        (message,) = (message for key, _, message in cluster.events if key == "default/in-c")
        assert message.startswith("0/3 nodes are available: 3 node(s) were in another rack.")
        cluster.node("other", labels={"example.com/rack": "x"})
        await asyncio.sleep(3)
        assert scheduler.queue.get("default/in-c")[0] == "unschedulable"
        cluster.node("right", labels={"example.com/rack": "c"})
        await asyncio.sleep(3)
        assert cluster.node_of("default/in-c") == "right"


async def test_example_places_groups_in_the_half_with_fewer_pods(clock):
    gates = {"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True}
    plugins = tuple(
        ref
        for ref in default_plugins(FeatureGates(gates))
        if ref.name not in ("TopologyPlacementGenerator", "PodGroupPodsCount", "NodeResourcesFit")
    )
    examples = (PluginRef("my_plugins:Halves"), PluginRef("my_plugins:FewestPods", 2))
    profile = Profile(multi_point=PluginSet((*plugins, *examples)))
    cluster = SchedulerCluster(clock, FeatureGates(gates))
    for name in "abcd":
        cluster.node(name)
    cluster.pod("running", nodeName="b")
    cluster.pod_group("g", min_count=2)
    for name in ("p", "q"):
        cluster.pod(name, schedulingGroup={"podGroupName": "g"})
    informers = cluster.server.informers
    scheduler = cluster.scheduler(SchedulerConfiguration(profiles=(profile,)), feature_gates=FeatureGates(gates))
    tasks = [asyncio.create_task(part.run()) for part in (informers, scheduler)]
    await asyncio.sleep(1)
    assert {cluster.node_of(f"default/{name}") for name in ("p", "q")} <= {"c", "d"}
    assert len(cluster.bindings) == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_example_span_is_part_of_the_trace_of_its_pod(cluster, scheduling, clock):
    records = []
    traces = standalone_pod_recorder(OpenPodRecords(clock=clock, on_finished=records.append), rng=random.Random(1))
    multi_point = PluginSet((*DEFAULT_PLUGINS, PluginRef("my_plugins:RackPower")))
    cluster.node("n")
    async with scheduling(traces=traces, profiles=(Profile(multi_point=multi_point),)):
        traces.observed(cluster.pod("p"))
        await asyncio.sleep(1)
        traces.observed(cluster.pods()[0])
    (record,) = records
    trace = pod_trace(record)
    check_spans(trace)
    (span,) = (span for span in trace.spans if span.name == "check power")
    (parent,) = (other for other in trace.spans if other.span_id == span.parent_span_id)
    assert parent.name == "pre-bind"
    assert span.attributes == {"k8s.node.name": "n", "rack.free_watts": 300}
