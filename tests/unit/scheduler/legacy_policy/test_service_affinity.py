"""ServiceAffinity: pods of a service on nodes with equal labels, or spread over their values."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from kubeloop.kube.objects.api_types import ObjectMeta, Service, convert
from kubeloop.kube.objects.resources import SERVICES
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.config.plugin_args import ServiceAffinityArgs
from kubeloop.scheduler.legacy_policy.policy import decode_policy
from kubeloop.scheduler.legacy_policy.service_affinity import ServiceAffinity

pytestmark = pytest.mark.virtual_time

EQUAL = [{"name": "EqualPriority", "weight": 1}]
SAME_ZONE = [{"name": "SameZone", "argument": {"serviceAffinity": {"labels": ["zone"]}}}]
OVER_ZONES = [{"name": "OverZones", "weight": 1, "argument": {"serviceAntiAffinity": {"label": "zone"}}}]
WEB = {"metadata": {"labels": {"app": "web"}}}


def profiles(**fields: Any) -> dict[str, Any]:
    return {"profiles": decode_policy({"kind": "Policy", "apiVersion": "v1", **fields}).profiles}


@pytest.fixture
async def zones(cluster: Any) -> Any:
    """Return a cluster with two nodes in each of zones a and b, c1 without a zone, and a service for app: web."""
    for name in ("a1", "a2", "b1", "b2"):
        cluster.node(name, labels={"zone": name[0]})
    cluster.node("c1")
    cluster.put(SERVICES, {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}})
    return cluster


async def place(cluster: Any, *pods: tuple[str, dict[str, Any]]) -> list[str]:
    for name, spec in pods:
        cluster.pod(name, **spec)
        await asyncio.sleep(0.2)
    return [cluster.node_of(f"default/{name}") for name, _ in pods]


async def test_pods_of_a_service_share_the_labels_of_their_nodes(zones, scheduling):
    zones.pod("first", nodeName="b1", **WEB)
    async with scheduling(**profiles(predicates=SAME_ZONE, priorities=EQUAL)):
        placed = await place(zones, *((f"p{number}", WEB) for number in range(6)))
    assert {node[0] for node in placed} == {"b"}


async def test_node_selector_takes_precedence_over_the_service(zones, scheduling):
    zones.pod("first", nodeName="b1", **WEB)
    predicates = [*SAME_ZONE, {"name": "MatchNodeSelector"}]
    async with scheduling(**profiles(predicates=predicates, priorities=EQUAL)):
        placed = await place(zones, ("p", {**WEB, "nodeSelector": {"zone": "a"}}))
    assert placed[0][0] == "a"


async def test_pods_without_a_service_run_anywhere(zones, scheduling):
    zones.pod("first", nodeName="b1", metadata={"labels": {"app": "db"}})
    async with scheduling(**profiles(predicates=SAME_ZONE, priorities=EQUAL)):
        placed = await place(zones, *((f"p{number}", {"metadata": {"labels": {"app": "db"}}}) for number in range(8)))
    assert {node[0] for node in placed} > {"b"}


async def test_message_if_the_zone_is_full(zones, scheduling):
    zones.pod("first", nodeName="b1", cpu="4", **WEB)
    zones.pod("second", nodeName="b2", cpu="4", **WEB)
    predicates = [*SAME_ZONE, {"name": "PodFitsResources"}]
    async with scheduling(**profiles(predicates=predicates, priorities=EQUAL)):
        await place(zones, ("p", {"cpu": "4", **WEB}))
    message = zones.events[0][2]
    assert "3 node(s) didn't match service affinity" in message
    assert "2 Insufficient cpu" in message


async def test_pods_are_spread_over_the_values_of_a_label(zones, scheduling):
    async with scheduling(**profiles(priorities=OVER_ZONES)):
        placed = await place(zones, *((f"p{number}", WEB) for number in range(4)))
    assert sorted(node[0] for node in placed) == ["a", "a", "b", "b"]  # a node without the label scores 0


async def test_preemption_evicts_from_the_zone_of_the_service(zones, scheduling):
    zones.pod("first", nodeName="b1", cpu="1", priority=100, **WEB)
    for name in ("a1", "a2", "b1", "b2", "c1"):
        zones.pod(f"victim-{name}", nodeName=name, cpu="3")
    predicates = [*SAME_ZONE, {"name": "PodFitsResources"}]
    async with scheduling(**profiles(predicates=predicates, priorities=EQUAL)):
        await place(zones, ("p", {"cpu": "3", "priority": 10, **WEB}))
        await asyncio.sleep(3)
    assert zones.node_of("default/p") in ("b1", "b2")


async def test_scores_are_the_mean_over_the_labels(plugin_cluster, node, pod):
    places = {"a": {"zone": "x", "rack": "1"}, "b": {"zone": "x", "rack": "2"}, "c": {"zone": "y"}}
    web = {"labels": {"app": "web"}}
    others = [pod("w1", "a", **web), pod("w2", "a", **web), pod("w3", "c", **web), pod("db", "b")]
    cluster = plugin_cluster([node(name, labels=labels) for name, labels in places.items()], others)
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    cluster.put("services", convert(Service, service))
    plugin = ServiceAffinity(ServiceAffinityArgs(anti_affinity_labels_preference=("zone", "rack")), cluster)
    snapshot, state = cluster.snapshot, CycleState()
    normalized = {}
    for name, incoming in (("web", PodInfo(pod("p", **web))), ("other", PodInfo(pod("p")))):
        plugin.pre_score(state, incoming, snapshot, snapshot.all_rows)
        counts = np.array([plugin.score(state, incoming, info) for info in snapshot.node_infos])
        scores = plugin.normalize_scores(state, incoming, snapshot, snapshot.all_rows, counts)
        names = [info.name for info in snapshot.node_infos]
        normalized[name] = dict(zip(names, scores.tolist(), strict=True))
    # Two of three pods are in zone x and rack 1, one in zone y.
    assert normalized["web"] == {"a": 33, "b": 66, "c": 33}
    assert normalized["other"] == {"a": 100, "b": 100, "c": 50}  # no service; c has no rack


@pytest.mark.parametrize(
    ("selector", "labels", "passes"),
    [
        pytest.param({}, {"zone": "a"}, True, id="zone of the first pod"),
        pytest.param({}, {"zone": "a", "rack": "1"}, True, id="with other labels"),
        pytest.param({}, {"zone": "b"}, False, id="another zone"),
        pytest.param({"zone": "b"}, {"zone": "b"}, True, id="zone of the node selector"),
        pytest.param({"zone": "b"}, {"zone": "a"}, False, id="not that of the node selector"),
    ],
)
def test_node_has_the_labels_of_the_first_pods_node(selector, labels, passes, plugin_cluster, node, pod):
    existing = pod("existing", "a", labels={"app": "web"})
    target = structs.replace(node("t"), metadata=ObjectMeta(name="t", labels=labels))
    cluster = plugin_cluster([node("a", labels={"zone": "a"}), target], [existing])
    selected = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}
    cluster.put("services", convert(Service, selected))
    plugin = ServiceAffinity(ServiceAffinityArgs(affinity_labels=("zone",)), cluster)
    new, state = PodInfo(pod("new", labels={"app": "web"}, nodeSelector=selector)), CycleState()
    plugin.pre_filter(state, new, cluster.snapshot)
    info = cluster.snapshot.get("t")
    assert (plugin.filter(state, new, info) is None) is passes
    if not selector:
        plugin.remove_pod(state, new, PodInfo(existing), cluster.snapshot.get("a"))
        assert plugin.filter(state, new, info) is None, "no pod is left"
        plugin.add_pod(state, new, PodInfo(pod("stranger", "a", labels={"app": "db"})), cluster.snapshot.get("a"))
        assert plugin.filter(state, new, info) is None, "a pod with other labels does not count"
        plugin.add_pod(state, new, PodInfo(existing), cluster.snapshot.get("a"))
        assert (plugin.filter(state, new, info) is None) is passes
