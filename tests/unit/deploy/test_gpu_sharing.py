"""The policies of deploy/examples/gpu-sharing: filter, scores and allocation, with figures worked out by hand."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.scheduler.api import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from support.scheduling.plugin_cluster import PluginCluster, make_node

EXAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "examples" / "gpu-sharing" / "gpu_sharing.py"
GPU_MILLI = "alibabacloud.com/gpu-milli"


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_sharing", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = load_example()


def node(name: str, gpus: int, cpu: str = "64", model: str = "T4") -> Any:
    allocatable = {"cpu": cpu} | ({GPU_MILLI: str(gpus * 1000)} if gpus else {})
    return make_node(name, allocatable=allocatable, labels={"alibabacloud.com/gpu-card-model": model} if gpus else {})


def pod(name: str, milli: int, node_name: str = "", gpus: str = "", cpu: str = "1") -> Pod:
    requests = {"cpu": cpu} | ({GPU_MILLI: str(milli)} if milli else {})
    metadata = {"name": name, "namespace": "default", "uid": name}
    if gpus:
        metadata["annotations"] = {"alibabacloud.com/gpu-index": gpus}
    containers = [{"name": "c", "image": "i", "resources": {"requests": requests}}]
    return convert(Pod, {"metadata": metadata, "spec": {"containers": containers, "nodeName": node_name}})


def policy(name: str, cluster: PluginCluster, **args: Any) -> Any:
    kind = getattr(example, name)
    return kind(kind.args_type(**args) if hasattr(kind, "args_type") else None, cluster)


def scores(plugin: Any, cluster: PluginCluster, incoming: Pod) -> list[int]:
    snapshot = cluster.snapshot
    rows = plugin.filter_rows(CycleState(), PodInfo(incoming), snapshot, snapshot.all_rows).passed.nonzero()[0]
    result = plugin.score_rows(CycleState(), PodInfo(incoming), snapshot, rows)
    by_row = dict(zip(rows.tolist(), result.tolist(), strict=True))
    return [by_row.get(row, -1) for row in range(len(snapshot))]


def reserved(plugin: Any, incoming: Pod, node_name: str) -> tuple[int, ...]:
    assert plugin.reserve(CycleState(), PodInfo(incoming), node_name) is None
    return plugin._allocated.get(incoming.metadata.uid, ())


@pytest.mark.parametrize(
    ("milli", "passed"),
    [
        (0, [True, True, True]),
        (300, [False, True, True]),
        (500, [False, True, True]),
        (501, [False, False, True]),
        (1000, [False, False, True]),
        (2000, [False, False, True]),
        (3000, [False, False, False]),
    ],
)
def test_filter_requires_gpus_with_enough_left(milli, passed):
    cluster = PluginCluster(
        [node("cpu-only", 0), node("shared", 2), node("free", 2)],
        [pod("a", 500, "shared", "0"), pod("b", 700, "shared", "1")],
    )
    plugin = policy("BestFit", cluster)
    snapshot, incoming = cluster.snapshot, PodInfo(pod("new", milli))
    assert plugin.filter_rows(CycleState(), incoming, snapshot, snapshot.all_rows).passed.tolist() == passed
    assert [plugin.filter(CycleState(), incoming, info) is None for info in snapshot.node_infos] == passed


def test_reserve_shares_the_gpu_with_least_left_and_takes_whole_gpus_in_order():
    cluster = PluginCluster([node("n", 4)], [pod("a", 500, "n", "1"), pod("b", 200, "n", "2")])
    plugin = policy("BestFit", cluster)
    assert reserved(plugin, pod("share", 400), "n") == (1,)
    assert reserved(plugin, pod("larger share", 600), "n") == (2,)
    assert reserved(plugin, pod("largest share", 900), "n") == (0,)
    assert reserved(plugin, pod("whole", 2000), "n") == (0, 3)
    assert reserved(plugin, pod("no gpu", 0), "n") == ()


def test_allocation_counts_until_unreserved_or_shown_by_annotation():
    cluster = PluginCluster([node("n", 2)])
    plugin = policy("BestFit", cluster)
    placed = pod("a", 600, "n")
    reserved(plugin, placed, "n")
    cluster.cache.add_pod(placed)
    assert plugin.free(cluster.refresh()).tolist()[0][:3] == [400, 1000, -1]
    annotated = pod("a", 600, "n", gpus="0")
    cluster.cache.update_pod(placed, annotated)
    assert plugin.free(cluster.refresh()).tolist()[0][:3] == [400, 1000, -1]
    assert plugin._allocated == {}
    cluster.cache.remove_pod(annotated)
    assert plugin.free(cluster.refresh()).tolist()[0][:3] == [1000, 1000, -1]
    reserved(plugin, placed, "n")
    plugin.unreserve(CycleState(), PodInfo(placed), "n")
    assert plugin._allocated == {}


async def test_pre_bind_writes_the_allocated_gpus_to_the_pod():
    cluster = PluginCluster([node("n", 4)])
    plugin = policy("BestFit", cluster)
    incoming = pod("a", 2000)
    reserved(plugin, incoming, "n")
    await plugin.pre_bind(CycleState(), PodInfo(incoming), "n")
    await plugin.pre_bind(CycleState(), PodInfo(pod("without", 0)), "n")
    body = {"metadata": {"annotations": {"alibabacloud.com/gpu-index": "0-1"}}}
    assert cluster.client.requests == [("patch", "pods", "default", "a", "", body)]


def test_dot_product_prefers_nodes_with_least_left():
    cluster = PluginCluster([node("small", 2), node("large", 8, cpu="128")], [pod("a", 1000, "small", "0", cpu="32")])
    # small: (32/128 x 16/128 + 1/8 x 1/8) / 2 = 0.0234; large: (1 x 16/128 + 1 x 1/8) / 2 = 0.125
    assert scores(policy("DotProd", cluster), cluster, pod("new", 1000, cpu="16")) == [97, 87]


def test_best_fit_prefers_the_least_left_after_the_pod():
    cluster = PluginCluster([node("small", 2), node("large", 8, cpu="128")])
    plugin = policy("BestFit", cluster)
    # small: 1 - (48/128 + 1/8) / 2 = 0.75; large: 1 - (112/128 + 7/8) / 2 = 0.125
    incoming = pod("new", 1000, cpu="16")
    assert scores(plugin, cluster, incoming) == [75, 12]
    normalize = plugin.normalize_scores
    args = CycleState(), PodInfo(incoming), cluster.snapshot, cluster.snapshot.all_rows
    assert normalize(*args, np.array([75, 12, 40])).tolist() == [100, 0, 44]
    assert normalize(*args, np.array([75, 75])).tolist() == [0, 0]


def test_clustering_prefers_nodes_with_equal_requests_only():
    cluster = PluginCluster(
        [node(name, 8) for name in ("equal", "mixed", "empty", "others", "cpu pods")],
        [
            pod("a", 300, "equal", "0"),
            pod("b", 300, "mixed", "0"),
            pod("c", 1000, "mixed", "1"),
            pod("d", 2000, "others", "0-1"),
            pod("e", 0, "cpu pods"),
        ],
    )
    plugin = policy("GpuClustering", cluster)
    # 75, 50, 25 or 0, and 25 x used/8000 rounded down
    assert scores(plugin, cluster, pod("share", 500)) == [75, 54, 25, 6, 25]
    assert scores(plugin, cluster, pod("one", 1000)) == [0, 54, 25, 6, 25]
    assert scores(plugin, cluster, pod("two", 2000)) == [0, 4, 25, 81, 25]
    assert scores(plugin, cluster, pod("no gpu", 0)) == [0, 0, 0, 0, 0]


def test_packing_prefers_shared_gpus_then_used_nodes():
    cluster = PluginCluster(
        [node("shared", 2), node("used", 4), node("free", 2), node("large", 8)],
        [pod("a", 700, "shared", "0"), pod("b", 900, "used", "0")],
    )
    plugin = policy("GpuPacking", cluster)
    # shared: 100 - 30/10; used: 50 - 1 whole GPU; free nodes: 33 - number of GPUs
    assert scores(plugin, cluster, pod("share", 200)) == [97, 49, 31, 25]
    # used: 50 - 3 whole GPUs
    assert scores(plugin, cluster, pod("three", 3000)) == [-1, 47, -1, 25]
    assert scores(plugin, cluster, pod("no gpu", 0)) == [0, 0, 0, 0]


def test_random_chooses_any_feasible_node_and_gpu():
    cluster = PluginCluster([node(name, 2) for name in "abc"], [pod("full", 2000, "b", "0-1")])
    cluster.rng = random.Random(1)
    plugin = policy("Random", cluster)
    chosen = [scores(plugin, cluster, pod("new", 500)).index(100) for _ in range(100)]
    assert set(chosen) == {0, 2}
    assert {reserved(plugin, pod("new", 500), "a") for _ in range(100)} == {(0,), (1,)}


def fragmentation(free: list[int], cpu_milli: int, typical: list[dict[str, Any]], model: str) -> float:
    """Return the expected GPU capacity that a typical pod cannot use, from the definition in the paper."""
    expected = 0.0
    for pod in typical:
        milli, count = min(pod["gpu_milli"], 1000), max(pod["gpu_milli"] // 1000, 1)
        can_run = (
            pod["gpu_milli"]
            and (not pod["models"] or model in pod["models"])
            and cpu_milli >= pod["cpu_milli"]
            and sum(left >= milli for left in free) >= count
        )
        expected += pod["share"] * sum(left for left in free if not can_run or left < milli)
    return expected


def test_fgd_score_is_the_decrease_of_the_expected_fragmentation():
    rng = random.Random(5)
    models = ("T4", "P100")
    for _ in range(60):
        typical = [
            {
                "cpu_milli": rng.choice([1000, 8000, 32000]),
                "gpu_milli": rng.choice([0, 300, 500, 1000, 2000]),
                "models": rng.choice([(), ("T4",)]),
                "share": rng.random() / 5,
            }
            for _ in range(5)
        ]
        nodes, pods, free = [], [], {}
        for number in range(6):
            gpus = rng.randint(1, 4)
            nodes.append(node(f"n{number}", gpus, cpu=str(rng.choice([16, 32])), model=rng.choice(models)))
            free[f"n{number}"] = [1000] * gpus
            for gpu in range(gpus):
                if milli := rng.choice([0, 400, 700]):
                    pods.append(pod(f"p{number}-{gpu}", milli, f"n{number}", str(gpu)))
                    free[f"n{number}"][gpu] -= milli
        cluster = PluginCluster(nodes, pods)
        plugin = policy("Fragmentation", cluster, typical_pods=tuple(example.TypicalPod(**each) for each in typical))
        milli = rng.choice([0, 250, 500, 1000, 2000])
        incoming = pod("new", milli, cpu="4")
        actual = scores(plugin, cluster, incoming)
        for row, info in enumerate(cluster.snapshot.node_infos):
            assert info.node is not None
            model = info.node.metadata.labels["alibabacloud.com/gpu-card-model"]
            left, cpu = free[info.name], info.allocatable["cpu"] - info.requested.get("cpu", 0)
            before = fragmentation(left, cpu, typical, model)
            count, share = example.gpu_request(PodInfo(incoming))
            fitting = [gpu for gpu, amount in enumerate(left) if amount >= share]
            if len(fitting) < count:
                assert actual[row] == -1
                continue
            choices = [[gpu] for gpu in fitting] if share < 1000 and count else [fitting[:count]]
            expected = []
            for gpus in choices:
                after = [amount - share * (gpu in gpus) for gpu, amount in enumerate(left)]
                decrease = before - fragmentation(after, cpu - 4000, typical, model)
                expected.append(int(100 / (1 + np.exp(-round(decrease, 6) / 1000))))
            assert actual[row] == max(expected)
            if count:
                assert reserved(plugin, incoming, info.name) == tuple(choices[expected.index(max(expected))])


def test_equal_scores_are_ordered_by_name_over_many_nodes():
    names = [f"n{number:04}" for number in range(1213)]
    random.Random(3).shuffle(names)
    cluster = PluginCluster([node(name, 1) for name in names])
    coarse, fine = policy("FirstByName", cluster), policy("FirstByNameWithinStep", cluster)
    snapshot, incoming = cluster.snapshot, PodInfo(pod("new", 500))
    totals = 101 * coarse.score_rows(CycleState(), incoming, snapshot, snapshot.all_rows) + fine.score_rows(
        CycleState(), incoming, snapshot, snapshot.all_rows
    )
    by_score = [snapshot.names[row] for row in np.argsort(-totals, kind="stable")]
    assert by_score == sorted(names)
