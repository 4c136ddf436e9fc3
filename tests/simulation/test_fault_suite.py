"""A fixed sample of the fault suite (docs/reliability.md). `make faults` runs fresh seeds."""

from __future__ import annotations

import pytest

from support.faults import campaign
from support.faults.fault_plan import FAULT_CLASSES
from support.faults.scenarios import SCENARIOS

SEED = "fixed"


def check(scenario: str, fault_class: str) -> None:
    run_id = campaign.RunId(scenario, fault_class, SEED)
    if campaign.run(run_id).violations:
        pytest.fail(campaign.failure_text(run_id), pytrace=False)


@pytest.mark.parametrize("fault_class", FAULT_CLASSES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_holds_under_faults(scenario: str, fault_class: str):
    check(scenario, fault_class)
