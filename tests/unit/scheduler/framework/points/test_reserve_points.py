"""Extension points of a reservation: order, failures and waits of Reserve, Unreserve and Permit."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.scheduler.api.cycle_state import CycleState, PodGroupCycleState
from kubeloop.scheduler.api.results import skip, unschedulable
from kubeloop.scheduler.api.status import Code, Status
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.pod_groups import PodGroupState
from kubeloop.scheduler.framework.points.reserve_points import ReservePoints
from kubeloop.scheduler.framework.timing import Timing
from kubeloop.scheduler.framework.waiting_pods import WaitingPods
from kubeloop.scheduler.metrics import NO_METRICS
from support.scheduling.plugin_cluster import make_pod
from support.scheduling.recording_plugin import RecordingPlugin

WAIT = Status(Code.WAIT)


class Plugin(RecordingPlugin):
    """A plugin at both points."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        return self._call("reserve")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._call("unreserve")

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Any:
        return self._call("permit") or (None, 0.0)


class Profile:
    """Reserve points with the plugins A and B, and the arguments of their calls."""

    def __init__(self, a: dict[str, Any], b: dict[str, Any] | None = None) -> None:
        self.calls: list[str] = []
        plugins: list[Any] = [Plugin("A", self.calls, **a), Plugin("B", self.calls, **(b or {}))]
        self.waiting_pods = WaitingPods()
        timing = Timing(NO_METRICS, "profile", lambda: 0)
        self.points = ReservePoints(timing, {"reserve": plugins, "permit": plugins}, self.waiting_pods)
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


def test_no_pod_waits_in_the_cycle_of_its_group() -> None:
    waits = Status(Code.WAIT, ("not enough pods",))
    profile = Profile({"permit": (waits, 5.0)}, {"permit": None})
    state, pod, node = profile.arguments
    state.pod_group_cycle = PodGroupCycleState(PodGroupState())
    status = profile.points.run_permit(state, pod, node)
    assert status == Status(
        Code.WAIT, ("not enough pods", "one or more plugins asked to wait and no plugin rejected pod")
    )
    assert profile.waiting_pods.get("p") is None
