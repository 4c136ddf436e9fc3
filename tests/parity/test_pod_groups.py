"""Pod groups beside kube-scheduler: the same pods on the same nodes, the same victims, the same messages.

Some decisions are left to chance by both schedulers: which of two racks with as many pods, the placement whose
message is reported, how far an eviction is when the next pod is scheduled, and which pods of a gang that fits in part
are queued when it is tried again, which both do without end. So cases whose outcomes differ are repeated, until both
schedulers have had an outcome in common. A few cases that kube-scheduler itself decides differently each time may
have none. With preemption for groups, one group or single pod at a time is added (see
support/comparison/pod_group_cases.py). Skipped if the binaries are not installed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.comparison.compared_schedulers import CASES_PER_BATCH, kube_scheduler, kubeloop_scheduler, outcomes
from support.comparison.pod_group_cases import GATES, Kind, PodGroupCase, pod_group_case
from support.comparison.real_apiserver import needs_binaries

JSON = dict[str, Any]
CASES = 6 * CASES_PER_BATCH  # of each kind
ROUNDS = 5
MAX_UNDETERMINED = {"gang": 8, "topology": 8, "preemption": 4}  # cases of each kind


class Comparison:
    """Outcomes of both schedulers by case and part; those of a part agree if an alternative occurred with both."""

    def __init__(self) -> None:
        self._occurred: tuple[dict[tuple[str, str], list[set[str]]], ...] = ({}, {})

    def add(self, both: Sequence[dict[str, JSON]]) -> None:
        for occurred, by_case in zip(self._occurred, both, strict=True):
            for case, parts in by_case.items():
                for part, alternatives in parts.items():
                    sets = occurred.setdefault((case, part), [set() for _ in alternatives])
                    for values, value in zip(sets, alternatives, strict=True):
                        values.add(json.dumps(value, indent=1))

    def is_undetermined(self, case: str, parts: Collection[str]) -> bool:
        """Return True if kube-scheduler itself did not always bind and evict the same pods, or give these parts."""
        if any(self._varies(case, part) for part in ("first pods", "last pods")):
            return True
        return all(self._varies(case, part) for part in parts)

    def _varies(self, case: str, part: str) -> bool:
        return any(len(values) > 1 for values in self._occurred[0][case, part])

    def differences(self) -> dict[str, dict[str, list[list[str]]]]:
        """Return the parts that do not agree by case, with the outcomes of kube-scheduler and of kubeloop."""
        differences: dict[str, dict[str, list[list[str]]]] = {}
        kubernetes, kubeloop = self._occurred
        for (case, part), sets in kubernetes.items():
            if not any(map(set.intersection, sets, kubeloop[case, part])):
                differences.setdefault(case, {})[part] = [sorted(sets[-1]), sorted(kubeloop[case, part][-1])]
        return differences


def batches(kind: Kind, names: set[str] | None) -> list[list[PodGroupCase]]:
    """Return the cases with these names (None: all), in batches with a namespace each."""
    cases = (pod_group_case(kind, number, f"{kind}-{number // CASES_PER_BATCH}") for number in range(CASES))
    chosen = [case for case in cases if names is None or case.name in names]
    by_namespace: dict[str, list[PodGroupCase]] = {}
    for case in chosen:
        by_namespace.setdefault(case.namespace, []).append(case)
    return list(by_namespace.values())


@pytest.mark.parametrize("kind", GATES)
def test_outcomes_are_those_of_kube_scheduler(kind: Kind, tmp_path: Path) -> None:
    needs_binaries("kube-scheduler")
    comparison = Comparison()
    names: set[str] | None = None
    for number in range(ROUNDS):
        with ThreadPoolExecutor(2) as executor:
            runs = [
                executor.submit(outcomes, tmp_path / f"{side}-{number}", run, GATES[kind], batches(kind, names))
                for side, run in (("kubernetes", kube_scheduler), ("kubeloop", kubeloop_scheduler))
            ]
            both = [run.result() for run in runs]
        if names is None:
            check_variety(kind, both[0])
        comparison.add(both)
        differences = comparison.differences()
        if not differences:
            return
        names = set(differences)
    determined = {case: parts for case, parts in differences.items() if not comparison.is_undetermined(case, parts)}
    if determined or len(differences) > MAX_UNDETERMINED[kind]:
        pytest.fail(json.dumps(differences, indent=1).replace("\\n", "\n")[:20_000])


def check_variety(kind: Kind, by_case: dict[str, JSON]) -> None:
    """Assert that the cases have groups that fit, groups that do not, and victims."""
    texts = [json.dumps(outcome) for outcome in by_case.values()]
    expected = ["PodGroupScheduled True", "PodGroupScheduled False", "waiting for minCount pods", "Preempted by pod "]
    if kind == "topology":
        expected += ["placement-based pod group scheduling limitation"]
    if kind == "preemption":
        expected += ["Preempted by podgroup", "not eligible due to workload aware preemption enabled"]
    assert {text: sum(text in outcome for outcome in texts) >= 5 for text in expected} == dict.fromkeys(expected, True)
