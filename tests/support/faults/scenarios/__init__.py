"""The scenarios, by area."""

from __future__ import annotations

from collections.abc import Mapping

from support.faults.scenario import Scenario
from support.faults.scenarios import workloads

SCENARIOS: Mapping[str, Scenario] = {scenario.name: scenario for scenario in (*workloads.SCENARIOS,)}
