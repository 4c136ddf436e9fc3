"""A fixed sample of the fault suite (docs/reliability.md). `make faults` runs fresh seeds."""

from __future__ import annotations

import pytest

from kubeloop.testing.faults.fault_plan import FAULT_CLASSES, FaultPlan, PlannedFault, crash_plans
from support.faults import campaign
from support.faults.scenarios import SCENARIOS
from support.faults.simulation import profile_of

pytestmark = pytest.mark.long

PAIRS = [
    (scenario, fault_class)
    for row, scenario in enumerate(SCENARIOS)
    for column, fault_class in enumerate(FAULT_CLASSES)
    if (row + column) % 2 == 0
]
CRASHED_AT_EVERY_WRITE = ("indexed job", "adoption", "gated pods", "preemption")


def assert_holds(run_id: campaign.RunId) -> None:
    if campaign.run(run_id).violations:
        pytest.fail(campaign.failure_text(run_id), pytrace=False)


@pytest.mark.parametrize(("scenario", "fault_class"), PAIRS)
def test_invariants_hold_under_faults(scenario: str, fault_class: str):
    assert_holds(campaign.RunId(scenario, fault_class, "fixed"))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_postponing_changes_no_final_state(scenario: str):
    assert_holds(campaign.RunId(scenario, "", "fixed", FaultPlan()))


@pytest.mark.parametrize("scenario", CRASHED_AT_EVERY_WRITE)
def test_invariants_hold_after_a_crash_at_every_write(scenario: str):
    for plan in crash_plans(profile_of(SCENARIOS[scenario])):
        if plan.journal:
            assert_holds(campaign.RunId(scenario, "crash", "fixed", plan))


@pytest.mark.parametrize("scenario", ["rollout", "statefulset", "daemonset", "foreground deletion"])
def test_every_process_that_writes_makes_progress(scenario: str):
    """Each process ends after its first write."""
    plan = FaultPlan(tuple(PlannedFault("crash-after", write=number) for number in range(1, 500)))
    assert_holds(campaign.RunId(scenario, "crash", "fixed", plan))
