"""The scenarios, by area."""

from __future__ import annotations

from collections.abc import Mapping

from support.faults.scenario import Scenario
from support.faults.scenarios import (
    batch,
    changes,
    devices,
    namespaces,
    ownership,
    pod_groups,
    scheduling,
    services,
    workloads,
)

SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for module in (workloads, batch, ownership, scheduling, services, namespaces, devices, pod_groups, changes)
    for scenario in module.SCENARIOS
}
