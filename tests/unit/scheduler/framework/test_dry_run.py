"""Dry runs by sums, by free capacity and from the cache give the same results as dry runs on copied nodes."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kubeloop.kube.objects.api_types import Node, PodDisruptionBudget, convert
from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework import dry_run
from support.simulation.set_clock import SetClock

TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize("seed", range(40))
def test_summed_node_equals_copied_node(
    seed: int, plugin_cluster: Callable[..., Any], node: Callable[..., Any], pod: Callable[..., Any]
) -> None:
    rng = random.Random(seed)

    def some_pod(name: str, node_name: str = "") -> Any:
        cpu, memory = f"{rng.randrange(0, 2000, 250)}m", f"{rng.randrange(3000)}Mi"
        return pod(name, node_name, cpu=cpu, memory=memory, priority=rng.randrange(3))

    existing = [some_pod(f"existing-{number}", "a") for number in range(rng.randrange(7))]
    taints = [TAINT] if rng.random() < 0.2 else []
    cluster = plugin_cluster([node("a", taints=taints, allocatable={"pods": str(rng.randrange(4, 9))})], existing)
    for number in range(rng.randrange(3)):
        nominated = some_pod(f"nominated-{number}")
        cluster.pods.put(nominated.key, nominated)
        cluster.nominator.add(PodInfo(nominated), "a")
    pending = PodInfo(some_pod("pending"))
    state = CycleState()
    cluster.framework.filters.run_pre_filter(state, pending, cluster.snapshot)
    info = cluster.snapshot.node_infos[0]
    requested, pods = dict(info.requested), dict(info.pods)
    by_sums = cluster.dry_runs(state, pending)(info)
    by_copy = dry_run._CopiedNode(cluster.framework.node_filters, state, pending, info)
    assert isinstance(by_sums, dry_run._SummedNode)
    assert by_sums.run_filters() == by_copy.run_filters()
    present, removed = list(info.pods.values()), []
    for _ in range(12):
        source, target, change = (
            (present, removed, "remove_pod") if rng.random() < 0.6 else (removed, present, "add_pod")
        )
        if source:
            other = source.pop(rng.randrange(len(source)))
            target.append(other)
            assert getattr(by_sums, change)(other) is None
            assert getattr(by_copy, change)(other) is None
        assert by_sums.run_filters() == by_copy.run_filters()
    assert (info.requested, info.pods) == (requested, pods)  # the dry run changed nothing


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"ports": [{"hostPort": 80, "containerPort": 80}]}, id="host ports"),
        pytest.param(
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}
                        ]
                    }
                }
            },
            id="anti-affinity",
        ),
    ],
)
def test_filters_that_read_pods_use_copied_nodes(
    spec: dict[str, Any], plugin_cluster: Callable[..., Any], node: Callable[..., Any], pod: Callable[..., Any]
) -> None:
    cluster = plugin_cluster([node("a")])
    pending, state = PodInfo(pod("pending", **spec)), CycleState()
    cluster.framework.filters.run_pre_filter(state, pending, cluster.snapshot)
    assert isinstance(cluster.dry_runs(state, pending)(cluster.snapshot.node_infos[0]), dry_run._CopiedNode)


@pytest.mark.parametrize("seed", range(30))
def test_preemption_victims_equal_those_on_copied_nodes(
    seed: int,
    plugin_cluster: Callable[..., Any],
    node: Callable[..., Any],
    pod: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods, nominations, taints and the time change between attempts; some pods have a disruption budget.

    Some pods seem to start in the future, as the clock of their node is ahead.
    """
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(6)]

    def some_pod(name: str, node_name: str = "", priority: int | None = None) -> Any:
        return pod(
            name,
            node_name,
            cpu=f"{rng.randrange(0, 2000, 250)}m",
            memory=f"{rng.randrange(3000)}Mi",
            priority=rng.randrange(3) if priority is None else priority,
            labels={"app": rng.choice("ab")},
            status={"startTime": f"2026-01-0{rng.randrange(1, 5)}T00:00:00Z"} if rng.random() < 0.8 else {},
        )

    nodes = [
        node(name, taints=[TAINT] if rng.random() < 0.2 else [], allocatable={"pods": str(rng.randrange(3, 8))})
        for name in names
    ]
    placed = [some_pod(f"existing-{number}", rng.choice(names)) for number in range(25)]
    cluster = plugin_cluster(nodes, placed)
    cluster.clock = SetClock(datetime(2026, 1, 2, 12, tzinfo=UTC))
    if seed % 2:
        budget = {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}},
            "status": {"disruptionsAllowed": seed % 3},
        }
        cluster.put("pod_disruption_budgets", convert(PodDisruptionBudget, budget))
    preemptors = [PodInfo(some_pod(f"preemptor-{number}", priority=2)) for number in range(2)]
    framework = cluster.framework
    plugin = framework.plugins["DefaultPreemption"]
    candidates, victims = 0, 0
    for step in range(15):
        if placed and rng.random() < 0.5:
            cluster.cache.remove_pod(placed.pop(rng.randrange(len(placed))))
        if rng.random() < 0.5:
            placed.append(some_pod(f"new-{step}", rng.choice(names)))
            cluster.cache.add_pod(placed[-1])
        if rng.random() < 0.4:
            nominated = some_pod(f"nominated-{step}", priority=rng.choice([1, 2, 3]))
            cluster.pods.put(nominated.key, nominated)
            cluster.nominator.add(PodInfo(nominated), rng.choice(names))
        if rng.random() < 0.2:
            number = rng.randrange(len(nodes))
            changed = convert(Node, msgspec.to_builtins(nodes[number]) | {"spec": {"taints": [TAINT][: step % 2]}})
            cluster.cache.update_node(nodes[number], changed)
            nodes[number] = changed
        if rng.random() < 0.3:
            preemptor = rng.choice(preemptors)
            cluster.pods.put(preemptor.key, preemptor.pod)
            cluster.nominator.add(preemptor, rng.choice(["", *names]))
        cluster.clock.moment += timedelta(hours=rng.choice([0, 0, 6]))
        if step == 8 and seed % 2:
            cluster.put("pod_disruption_budgets", convert(PodDisruptionBudget, budget | {"status": {}}))
        cluster.refresh()
        pending, state = rng.choice(preemptors), CycleState()
        framework.filters.run_pre_filter(state, pending, cluster.snapshot)
        offset = rng.randrange(1000)
        results = []
        for copied_nodes in (False, True):
            cluster.rng.seed(offset)
            with monkeypatch.context() as patched:
                if copied_nodes:
                    patched.setattr(dry_run, "reads_only_sums", lambda *_: False)
                    assert isinstance(
                        cluster.dry_runs(state, pending)(cluster.snapshot.node_infos[0]), dry_run._CopiedNode
                    )
                run = plugin.victim_selection.dry_run(state, pending, cluster.snapshot, cluster.snapshot.all_rows)
            best = run.best(cluster.clock.now()) if run.candidates else None
            results.append((run.candidates, best, dict(run.rejections.items()) if best is None else None))
        assert results[0] == results[1]
        candidates += len(results[0][0])
        victims += sum(len(candidate.victims) for candidate in results[0][0])
    assert candidates > 5
    assert victims > candidates // 2
