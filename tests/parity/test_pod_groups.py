"""Pod groups beside kube-scheduler: the same pods on the same nodes, the same victims, the same messages.

Some decisions are left to chance by both schedulers: which of two racks with as many pods, the placement whose
message is reported, how far an eviction is when the next pod is scheduled, and which pods of a gang that fits in part
are queued when it is tried again, which both do without end. So cases whose outcomes differ are repeated, until both
schedulers have had an outcome in common. A few cases that kube-scheduler itself decides differently each time may
have none.

How far evictions are is not only chance: kube-scheduler waits for the patch of each pod that does not fit before it
schedules the next one, unless the feature gate SchedulerAsyncAPICalls is on; kubeloop never does. If several such pods
come first, the victims are always gone with one scheduler and still there with the other. So every second round has the
gate on, and in the last ones, each case is scheduled alone, as kube-scheduler always waits for patches of PodGroups.
An outcome in common may be of different settings, but what differs between settings only is not left to chance.

With preemption for groups, one group or single pod at a time is added (see support/comparison/pod_group_cases.py).
Skipped if the binaries are not installed.
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
ROUNDS = 6
ROUNDS_IN_BATCHES = 2  # after them, each case is scheduled alone
MAX_UNDETERMINED = {"gang": 8, "topology": 8, "preemption": 4}  # cases of each kind


class Comparison:
    """Outcomes of both schedulers by case and part; those of a part agree if an alternative occurred with both."""

    def __init__(self) -> None:
        self._rounds: list[tuple[bool, Sequence[dict[str, JSON]]]] = []  # with the setting of SchedulerAsyncAPICalls

    def add(self, async_api_calls: bool, both: Sequence[dict[str, JSON]]) -> None:
        """Add a round: the outcomes of kube-scheduler and of kubeloop. Later ones have the cases that still differ."""
        self._rounds.append((async_api_calls, both))

    def _occurred(self, side: int, case: str, part: str, settings: Collection[bool] = (False, True)) -> list[set[str]]:
        """Return the values of each alternative of a part, in the rounds with these settings."""
        rounds = [
            both[side][case][part] for setting, both in self._rounds if setting in settings and case in both[side]
        ]
        return [{json.dumps(value, indent=1) for value in values} for values in zip(*rounds, strict=True)]

    def is_undetermined(self, case: str, parts: Collection[str]) -> bool:
        """Return True if kube-scheduler itself did not always bind and evict the same pods, or give these parts."""
        if any(self._varies(case, part) for part in ("first pods", "last pods")):
            return True
        return all(self._varies(case, part) for part in parts)

    def _varies(self, case: str, part: str) -> bool:
        """Return True if kube-scheduler's outcome differed between rounds with the same setting."""
        return any(len(values) > 1 for setting in (False, True) for values in self._occurred(0, case, part, [setting]))

    def differences(self) -> dict[str, dict[str, list[list[str]]]]:
        """Return the parts that do not agree by case, with the outcomes of kube-scheduler and of kubeloop."""
        differences: dict[str, dict[str, list[list[str]]]] = {}
        _, (last, _) = self._rounds[-1]
        for case, part in ((case, part) for case, parts in last.items() for part in parts):
            kubernetes, kubeloop = (self._occurred(side, case, part) for side in (0, 1))
            if not any(map(set.intersection, kubernetes, kubeloop)):
                differences.setdefault(case, {})[part] = [sorted(kubernetes[-1]), sorted(kubeloop[-1])]
        return differences


def batches(kind: Kind, names: set[str] | None, size: int) -> list[list[PodGroupCase]]:
    """Return the cases with these names (None: all), in batches with a namespace each. size: maximum of a batch."""
    cases = (pod_group_case(kind, number, f"{kind}-{number // size}") for number in range(CASES))
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
        async_api_calls = number % 2 == 1
        cases = batches(kind, names, CASES_PER_BATCH if number < ROUNDS_IN_BATCHES else 1)
        with ThreadPoolExecutor(2) as executor:
            runs = [
                executor.submit(outcomes, tmp_path / f"{side}-{number}", run, GATES[kind], cases, async_api_calls)
                for side, run in (("kubernetes", kube_scheduler), ("kubeloop", kubeloop_scheduler))
            ]
            both = [run.result() for run in runs]
        if names is None:
            check_variety(kind, both[0])
        comparison.add(async_api_calls, both)
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


def pods_on(node: str, message: str = "") -> dict[str, JSON]:
    """Return an outcome of the case "c" whose pod is on a node; messages have two alternatives."""
    pods = [{"pod": node}]
    return {"c": {"first pods": pods, "last pods": pods, "last messages of pod": [[message], [message]]}}


@pytest.mark.parametrize(
    ("rounds", "differs", "undetermined"),
    [
        pytest.param([("a", "a")], False, False, id="same"),
        pytest.param([("a", "b"), ("b", "b")], False, False, id="as with the gate on"),
        pytest.param([("a", "c"), ("b", "c"), ("a", "c"), ("b", "c")], True, False, id="as with neither setting"),
        pytest.param([("a", "c"), ("b", "c"), ("b", "c"), ("b", "c")], True, True, id="left to chance"),
        pytest.param([("a", "b"), ("a", "c"), ("a", "b")], True, False, id="only kubeloop varies"),
    ],
)
def test_outcome_of_kubeloop_must_be_one_of_kube_scheduler(
    rounds: list[tuple[str, str]], differs: bool, undetermined: bool
) -> None:
    comparison = Comparison()
    for number, (kubernetes, kubeloop) in enumerate(rounds):
        comparison.add(number % 2 == 1, [pods_on(kubernetes), pods_on(kubeloop)])
    assert ("c" in comparison.differences()) is differs
    assert comparison.is_undetermined("c", ["first pods"]) is undetermined


@pytest.mark.parametrize(("second", "undetermined"), [("no room", False), ("no CPU", True)])
def test_messages_that_kube_scheduler_varies_are_undetermined(second: str, undetermined: bool) -> None:
    comparison = Comparison()
    for message in ("no room", second):
        comparison.add(False, [pods_on("a", message), pods_on("a", "no node")])
    assert list(comparison.differences()["c"]) == ["last messages of pod"]
    assert comparison.is_undetermined("c", ["last messages of pod"]) is undetermined
