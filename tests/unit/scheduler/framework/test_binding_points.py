"""Extension points from Reserve to PostBind: order, failures and skipped plugins."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState
from kubeloop.scheduler.api.results import skip, unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.framework.binding_points import BindingPoints
from kubeloop.scheduler.framework.timing import Timing
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from support.plugin_cluster import make_pod

POINTS = ("reserve", "permit", "preBind", "bind", "postBind")
WAIT = Status(Code.WAIT)


class Plugin:
    """A plugin at all points. results: by method, the value to return or exception to raise."""

    def __init__(self, name: str, calls: list[str], **results: Any) -> None:
        self.name = name
        self.calls = calls
        self.results = results

    def _call(self, method: str) -> Any:
        self.calls.append(f"{self.name}.{method}")
        result = self.results.get(method)
        if isinstance(result, Exception):
            raise result
        return result

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        return self._call("reserve")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._call("unreserve")

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        return self._call("permit") or (None, 0.0)

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
        self.waiting_pods = WaitingPods()
        timing = Timing(None, "profile", lambda: 0)
        self.points = BindingPoints(timing, dict.fromkeys(POINTS, plugins), self.waiting_pods)
        self.pod = PodInfo(make_pod("p"))
        self.state = CycleState()

    @property
    def arguments(self) -> tuple[CycleState, PodInfo, str]:
        return self.state, self.pod, "n"


def error(plugin: str, message: str) -> Status:
    return Status(Code.ERROR, (message,), plugin)


@pytest.mark.parametrize(
    ("result", "status", "calls"),
    [
        pytest.param(None, None, ["A.reserve", "B.reserve"], id="success"),
        pytest.param(unschedulable("", "full"), unschedulable("A", "full"), ["A.reserve"], id="rejection"),
        pytest.param(
            ValueError("broken"), error("A", 'running Reserve plugin "A": broken'), ["A.reserve"], id="exception"
        ),
        pytest.param(skip("A"), error("A", 'running Reserve plugin "A": '), ["A.reserve"], id="skip is invalid"),
    ],
)
def test_reserve_ends_with_first_failure(result: Any, status: Status | None, calls: list[str]) -> None:
    profile = Profile({"reserve": result})
    assert profile.points.run_reserve(*profile.arguments) == status
    assert profile.calls == calls


def test_unreserve_runs_all_plugins_in_reverse_order() -> None:
    profile = Profile({}, {"unreserve": ValueError("broken")})
    profile.points.run_unreserve(*profile.arguments)
    assert profile.calls == ["B.unreserve", "A.unreserve"]


@pytest.mark.parametrize(
    ("a", "b", "code", "waits_for"),
    [
        pytest.param(None, None, None, None, id="allowed"),
        pytest.param((WAIT, 5.0), (WAIT, 5.0), Code.WAIT, {"A", "B"}, id="both wait"),
        pytest.param((WAIT, 5.0), None, Code.WAIT, {"A"}, id="one waits"),
        pytest.param(
            (WAIT, 5.0), (unschedulable("B"), 0.0), Code.UNSCHEDULABLE, None, id="rejected while another waits"
        ),
        pytest.param(WAIT, None, Code.ERROR, None, id="no timeout"),
    ],
)
async def test_permit_waits_unless_a_plugin_rejects(
    a: Any, b: Any, code: Code | None, waits_for: set[str] | None
) -> None:
    profile = Profile({"permit": a}, {"permit": b})
    status = profile.points.run_permit(*profile.arguments)
    assert (status and status.code) == code
    waiting_pod = profile.waiting_pods.get("p")
    assert (waiting_pod and waiting_pod.pending_plugins) == waits_for


async def test_pre_bind_skips_plugins_without_work() -> None:
    profile = Profile({"pre_bind_pre_flight": skip("A")})
    assert profile.points.run_pre_bind_pre_flight(*profile.arguments) is None
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
