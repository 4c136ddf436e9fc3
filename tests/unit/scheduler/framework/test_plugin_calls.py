"""Calls of plugins: exceptions and invalid return values become statuses with the plugin's name."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.results import failed, skip, unschedulable
from kubeloop.scheduler.api.status import Code, PluginFailure, Status
from kubeloop.scheduler.cache.node_info import NodeInfo, PodInfo
from kubeloop.scheduler.framework.plugin_calls import (
    checked_status,
    filter_node,
    status_of_exception,
    with_plugin_name,
)
from support.scheduling.plugin_cluster import make_node, make_pod


class Filter:
    """A filter that returns or raises `result`."""

    name = "Mine"

    def __init__(self, result: Any = None) -> None:
        self.result = result

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.mark.parametrize(
    ("result", "status"),
    [
        pytest.param(None, None, id="None"),
        pytest.param(Status(Code.SUCCESS), None, id="success"),
        pytest.param(unschedulable("", "full"), unschedulable("Mine", "full"), id="rejection without a name"),
        pytest.param(unschedulable("Other", "full"), unschedulable("Other", "full"), id="rejection with a name"),
        pytest.param(skip(""), Status(Code.ERROR, ('running "Mine" filter plugin: ',), "Mine"), id="skip is invalid"),
        pytest.param(
            ValueError("broken"),
            Status(Code.ERROR, ('running "Mine" filter plugin: broken',), "Mine"),
            id="exception",
        ),
        pytest.param(
            True,
            Status(Code.ERROR, ('running "Mine" filter plugin: returned bool, not a Status or None',), "Mine"),
            id="bool",
        ),
    ],
)
def test_filter_node(result: Any, status: Status | None) -> None:
    node = NodeInfo.of(make_node("n"))
    assert filter_node(Filter(result), CycleState(), PodInfo(make_pod("p")), node) == status


def test_exception_without_text_is_reported_by_type(caplog: pytest.LogCaptureFixture) -> None:
    error = KeyError()
    status = status_of_exception(Filter(), error)
    assert (status, status.error) == (failed("Mine", "KeyError"), error)
    assert [(record.levelname, record.plugin) for record in caplog.records] == [("ERROR", "Mine")]  # type: ignore[attr-defined]


def test_failure_that_the_cluster_causes_is_logged_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    assert status_of_exception(Filter(), PluginFailure("no such class")) == failed("Mine", "no such class")
    assert [(record.exc_info, record.error) for record in caplog.records] == [(None, "no such class")]  # type: ignore[attr-defined]


def test_checked_status_raises_for_other_types() -> None:
    status = Status(Code.WAIT)
    assert (checked_status(None), checked_status(status)) == (None, status)
    with pytest.raises(TypeError, match="returned tuple, not a Status or None"):
        checked_status((status, 1.0))


def test_name_of_another_plugin_is_preserved() -> None:
    assert with_plugin_name(unschedulable("A"), "B").plugin == "A"
    assert with_plugin_name(unschedulable(""), "B").plugin == "B"
