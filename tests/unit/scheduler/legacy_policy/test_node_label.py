"""NodeLabel: required and preferred labels of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.events import Hint
from kubeloop.scheduler.api.status import Code
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.config.plugin_args import NodeLabelArgs
from kubeloop.scheduler.legacy_policy.node_label import NodeLabel

ARGS = NodeLabelArgs(
    present_labels=("gpu",),
    absent_labels=("retiring",),
    present_labels_preference=("ssd", "fast"),
    absent_labels_preference=("old",),
)


@pytest.mark.parametrize(
    ("labels", "feasible", "score"),
    [
        pytest.param({"gpu": "a"}, True, 33, id="required label; one of three preferences"),
        pytest.param({"gpu": "", "ssd": "", "fast": ""}, True, 100, id="all preferences"),
        pytest.param({"gpu": "", "old": "yes"}, True, 0, id="no preference"),
        pytest.param({}, False, 33, id="without the required label"),
        pytest.param({"gpu": "", "retiring": "2026"}, False, 33, id="with the forbidden label"),
    ],
)
def test_filter_and_score(node, pod, labels, feasible, score):
    handle: Any = None
    plugin = NodeLabel(ARGS, handle)
    info, incoming = NodeInfo.of(node("n", labels=labels)), PodInfo(pod("p"))
    status = plugin.filter(CycleState(), incoming, info)
    assert (status is None) == feasible
    if status is not None:
        assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        assert status.reasons == ("node(s) didn't have the requested labels",)
    assert plugin.score(CycleState(), incoming, info) == score
    (event,) = plugin.events_to_register()
    assert event.hint is not None
    assert event.hint(pod("p"), None, node("n", labels=labels)) == (Hint.QUEUE if feasible else Hint.SKIP)
