"""VolumeCandidates: the volume that is chosen for a claim on a node."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.kube.quantities import value
from kubeloop.scheduler.plugins.volume_binder import VolumeCandidates, matches_node
from support.plugin_volumes import make_claim, make_volume

ZONE = "topology.kubernetes.io/zone"


@pytest.mark.parametrize("seed", range(20))
def test_the_smallest_volume_that_a_node_reaches_is_chosen(seed: int, node: Callable[..., Any]) -> None:
    rng = random.Random(seed)
    keys = ("kubernetes.io/hostname", ZONE, "rack")

    def places() -> list[tuple[str, str, list[str]]] | None:
        operators = rng.choice([["In"], ["In", "NotIn"], ["NotIn"], ["Exists"]])
        if rng.random() < 0.2:
            return None
        values = ["n0", "n1", "a", "b"]
        return [
            (rng.choice(keys), operator, [] if operator == "Exists" else rng.sample(values, rng.randrange(1, 3)))
            for operator in operators
        ]

    volumes = [
        make_volume(f"pv{number}", places=places(), capacity={"storage": f"{rng.randrange(1, 6)}Gi"})
        for number in range(20)
    ]
    wanted = make_claim("c", storage="2Gi")
    suitable = VolumeCandidates(wanted, volumes)
    for number in range(8):
        there = node(f"n{number % 3}", labels={ZONE: rng.choice("ab")} | ({"rack": "a"} if rng.random() < 0.5 else {}))
        chosen = {f"pv{rng.randrange(20)}" for _ in range(rng.randrange(4))}
        fitting = [
            each
            for each in volumes
            if each.metadata.name not in chosen
            and value(each.spec.capacity["storage"]) >= 2 << 30
            and matches_node(each.spec.node_affinity, there)
        ]
        smallest = min(fitting, key=lambda each: value(each.spec.capacity["storage"]), default=None)
        assert suitable.find(there, chosen) is smallest
