"""Dry runs by sums say what dry runs on whole copies say."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework import dry_run
from kubeloop.scheduler.framework.interface import CycleState

TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


@pytest.mark.parametrize("seed", range(40))
def test_sums_and_whole_copies_agree_whoever_comes_and_goes(
    seed: int, cluster: Callable[..., Any], node: Callable[..., Any], pod: Callable[..., Any]
) -> None:
    rng = random.Random(seed)

    def some_pod(name: str, node_name: str = "") -> Any:
        cpu, memory = f"{rng.randrange(0, 2000, 250)}m", f"{rng.randrange(3000)}Mi"
        return pod(name, node_name, cpu=cpu, memory=memory, priority=rng.randrange(3))

    there = [some_pod(f"there-{number}", "a") for number in range(rng.randrange(7))]
    taints = [TAINT] if rng.random() < 0.2 else []
    here = cluster([node("a", taints=taints, allocatable={"pods": str(rng.randrange(4, 9))})], there)
    for number in range(rng.randrange(3)):
        nominated = some_pod(f"nominated-{number}")
        here.pods.put(nominated.key, nominated)
        here.nominator.add(PodInfo(nominated), "a")
    pending = PodInfo(some_pod("pending"))
    state = CycleState()
    here.framework.run_pre_filter(state, pending, here.snapshot)
    info = here.snapshot.node_infos[0]
    requested, pods = dict(info.requested), dict(info.pods)
    by_sums = here.dry_runs(state, pending)(info)
    by_copy = dry_run._Copy(here.framework, state, pending, info)
    assert isinstance(by_sums, dry_run._Sums)
    assert by_sums.verdict() == by_copy.verdict()
    present, gone = list(info.pods.values()), []
    for _ in range(12):
        source, target, change = (present, gone, "remove") if rng.random() < 0.6 else (gone, present, "add")
        if source:
            other = source.pop(rng.randrange(len(source)))
            target.append(other)
            assert getattr(by_sums, change)(other) is None
            assert getattr(by_copy, change)(other) is None
        assert by_sums.verdict() == by_copy.verdict()
    assert (info.requested, info.pods) == (requested, pods)  # it was dry


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
def test_a_pod_to_which_single_pods_matter_gets_whole_copies(
    spec: dict[str, Any], cluster: Callable[..., Any], node: Callable[..., Any], pod: Callable[..., Any]
) -> None:
    here = cluster([node("a")])
    pending, state = PodInfo(pod("pending", **spec)), CycleState()
    here.framework.run_pre_filter(state, pending, here.snapshot)
    assert isinstance(here.dry_runs(state, pending)(here.snapshot.node_infos[0]), dry_run._Copy)
