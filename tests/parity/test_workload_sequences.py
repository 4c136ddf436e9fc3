"""Random sequences of changes to workloads under kube-controller-manager and under kubeloop: the same states.

docs/reliability.md records a longer run.
"""

from __future__ import annotations

import json

from support.comparison.real_apiserver import needs_binaries
from support.comparison.workload_sequences import BATCH, _without_steps, compare, draw_sequence, running_clusters


def test_states_of_random_sequences_match_kubernetes(tmp_path):
    needs_binaries("kube-controller-manager")
    sequences = [draw_sequence(seed) for seed in range(1, BATCH + 1)]
    with running_clusters(tmp_path) as clusters:
        comparisons = compare(clusters, sequences)
    report = "\n\n".join(str(comparison) for comparison in comparisons if not comparison.explanation)
    assert not report, report[:20_000]


def test_sequence_depends_on_its_seed_alone():
    sequences = [str(draw_sequence(seed)) for seed in range(50)]
    assert sequences == [str(draw_sequence(seed)) for seed in range(50)]
    assert len({*sequences}) == 50


def test_steps_of_scaling_are_no_difference():
    def states(generation: int, *steps: str) -> list[list[str]]:
        replica_set = {"kind": "ReplicaSet", "metadata": {"generation": generation, "name": "web-1"}}
        lines = [json.dumps({**replica_set, "status": {"observedGeneration": generation}})]
        return [[*lines, *(f"Deployment/web Normal ScalingReplicaSet: Scaled {step}" for step in steps)]]

    one = states(4, "down replica set web-1 from 3 to 1", "down replica set web-1 from 1 to 0")
    two = states(
        5,
        "down replica set web-1 from 3 to 2",
        "down replica set web-1 from 2 to 1",
        "down replica set web-1 from 1 to 0",
    )
    other = states(4, "down replica set web-1 from 3 to 1")
    assert _without_steps(one) == _without_steps(two)
    assert _without_steps(one) != _without_steps(other)
