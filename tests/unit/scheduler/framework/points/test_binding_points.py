"""Extension points of the binding cycle: order, failures and skipped plugins."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.results import skip
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.points.binding_points import BindingPoints
from kubeloop.scheduler.framework.timing import Timing
from kubeloop.scheduler.metrics import NO_METRICS
from support.scheduling.plugin_cluster import make_pod
from support.scheduling.recording_plugin import RecordingPlugin

POINTS = ("preBind", "bind", "postBind")


class Plugin(RecordingPlugin):
    """A plugin at all points."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        return self._call("pre_bind_pre_flight")

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        return self._call("pre_bind")

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        return self._call("bind")

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._call("post_bind")


class Profile:
    """Binding points with the plugins A and B, and the arguments of their calls."""

    def __init__(self, a: dict[str, Any], b: dict[str, Any] | None = None) -> None:
        self.calls: list[str] = []
        plugins: list[Any] = [Plugin("A", self.calls, **a), Plugin("B", self.calls, **(b or {}))]
        self.points = BindingPoints(Timing(NO_METRICS, "profile", lambda: 0), dict.fromkeys(POINTS, plugins))
        self.pod = PodInfo(make_pod("p"))
        self.state = CycleState()

    @property
    def arguments(self) -> tuple[CycleState, PodInfo, str]:
        return self.state, self.pod, "n"


def error(plugin: str, message: str) -> Status:
    return Status(Code.ERROR, (message,), plugin)


async def test_pre_bind_skips_plugins_without_work() -> None:
    profile = Profile({"pre_bind_pre_flight": skip("A")})
    assert profile.points.run_pre_bind_pre_flight(*profile.arguments) == Status(Code.SUCCESS)
    assert await profile.points.run_pre_bind(*profile.arguments) is None
    assert profile.calls == ["A.pre_bind_pre_flight", "B.pre_bind_pre_flight", "B.pre_bind"]


def test_pre_flight_is_skip_if_no_plugin_has_work() -> None:
    profile = Profile({"pre_bind_pre_flight": skip("A")}, {"pre_bind_pre_flight": skip("B")})
    assert profile.points.run_pre_bind_pre_flight(*profile.arguments) == Status(Code.SKIP)


@pytest.mark.parametrize(
    ("a", "b", "status", "calls"),
    [
        pytest.param(None, None, None, ["A.bind"], id="bound by the first"),
        pytest.param(skip("A"), None, None, ["A.bind", "B.bind"], id="bound by the second"),
        pytest.param(
            skip("A"), skip("B"), error("", "all bind plugins skipped the pod"), ["A.bind", "B.bind"], id="all skip"
        ),
        pytest.param(
            ValueError("broken"), None, error("A", 'running Bind plugin "A": broken'), ["A.bind"], id="exception"
        ),
    ],
)
async def test_first_plugin_that_does_not_skip_binds(a: Any, b: Any, status: Status | None, calls: list[str]) -> None:
    profile = Profile({"bind": a}, {"bind": b})
    assert await profile.points.run_bind(*profile.arguments) == status
    assert profile.calls == calls


def test_post_bind_continues_after_exception() -> None:
    profile = Profile({"post_bind": ValueError("broken")})
    profile.points.run_post_bind(*profile.arguments)
    assert profile.calls == ["A.post_bind", "B.post_bind"]
