"""Random sequences of changes to workloads under kube-controller-manager and under kubeloop: the same states.

docs/reliability.md records a longer run.
"""

from __future__ import annotations

from support.real_apiserver import needs_binaries
from support.workload_sequences import BATCH, compare, draw_sequence, running_clusters


def test_states_of_random_sequences_match_kubernetes(tmp_path):
    needs_binaries("kube-controller-manager")
    sequences = [draw_sequence(seed) for seed in range(1, BATCH + 1)]
    with running_clusters(tmp_path) as clusters:
        comparisons = compare(clusters, sequences)
    report = "\n\n".join(str(comparison) for comparison in comparisons if not comparison.explained)
    assert not report, report[:20_000]


def test_sequence_depends_on_its_seed_alone():
    sequences = [str(draw_sequence(seed)) for seed in range(50)]
    assert sequences == [str(draw_sequence(seed)) for seed in range(50)]
    assert len({*sequences}) == 50
