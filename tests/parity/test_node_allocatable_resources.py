"""Claims that take resources of their nodes, and lists as attributes, beside kube-scheduler with both feature gates.

Skipped if the binaries are not installed.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.comparison.device_replay import NODES, PODS, Objects, differences, outcome, scheduled_by_kube_scheduler
from support.comparison.node_allocatable_groups import CLASSES, GATES, node_allocatable_group
from support.comparison.real_apiserver import needs_binaries

GROUPS = 120
PROFILE: dict[str, Any] = {
    "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}},
}


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    needs_binaries("kube-scheduler")
    groups = [node_allocatable_group(number) for number in range(GROUPS)]
    return scheduled_by_kube_scheduler(tmp_path_factory.mktemp("devices"), groups, CLASSES, PROFILE, GATES)


def test_node_allocatable_resources_are_those_of_kube_scheduler(scheduled):
    assert differences(map(node_allocatable_group, range(GROUPS)), scheduled, PROFILE, GATES) == {}
    pods = scheduled[PODS].values()
    assert sum("nodeAllocatableResourceClaimStatuses" in pod["status"] for pod in pods) >= 100
    assert sum(outcome(pod) not in scheduled[NODES] for pod in pods) >= 100
