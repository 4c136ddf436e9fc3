"""Extended resources that devices provide, beside kube-scheduler: the same nodes, claims, scores and reasons.

The profile scores an extended resource only. Skipped if the binaries are not installed.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.comparison.device_replay import NODES, PODS, Objects, differences, outcome, scheduled_by_kube_scheduler
from support.comparison.extended_resource_groups import CLASSES, GPU, PODS_PER_GROUP, extended_group
from support.comparison.real_apiserver import needs_binaries

GROUPS = 120
STRATEGY = {"type": "MostAllocated", "resources": [{"name": GPU, "weight": 1}]}
PROFILE: dict[str, Any] = {
    "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}},
    "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": STRATEGY}}],
}


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    needs_binaries("kube-scheduler")
    groups = [extended_group(number) for number in range(GROUPS)]
    return scheduled_by_kube_scheduler(tmp_path_factory.mktemp("extended"), groups, CLASSES, PROFILE, {})


def test_extended_resources_are_those_of_kube_scheduler(scheduled):
    assert differences(map(extended_group, range(GROUPS)), scheduled, PROFILE, {}) == {}
    pods = scheduled[PODS].values()
    assert sum("extendedResourceClaimStatus" in pod["status"] for pod in pods) >= 100
    assert sum(outcome(pod) not in scheduled[NODES] for pod in pods) >= 100
    assert len(pods) == GROUPS * PODS_PER_GROUP
