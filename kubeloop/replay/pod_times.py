"""Start-up times, run times and failures of recorded pods, by workload.

The n-th pod that a workload creates in a replay has the times of the n-th one in the recording; further ones begin
with the first again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import msgspec

from kubeloop.devcluster.api.conditions import is_true
from kubeloop.kube.json_object import JSON
from kubeloop.kube.values.times import parse_time

_ORDER_SECONDS: Final = 1e-5  # between pods that the recording has at the same millisecond
_PAUSE_SECONDS: Final = 0.1  # between the bindings of two pods: the scheduler had no pod to try
_ATTEMPT_SECONDS: Final = 0.001  # of kube-scheduler


class PodTimes(msgspec.Struct, frozen=True):
    """Times of one pod in seconds.

    start: from binding to running; of a pod that does not end, to ready; None if it did not start. run: from running to
    the end, None if it did not end. exit_code: of the container that failed, 0 if none did. restarts: of containers;
    restart_after: seconds that the first of them ran. stop: from the request of its deletion to its end, None if it was
    not deleted.
    """

    start: float | None = None
    run: float | None = None
    exit_code: int = 0
    restarts: int = 0
    restart_after: float = 0.0
    stop: float | None = None

    def markers(self) -> dict[str, str]:
        """Return the values of kubeloop's annotations that give a simulated pod these times."""
        values: dict[str, str] = {}
        if self.start is not None:
            values["start-delay-seconds"] = f"{self.start:.3f}"
        if self.stop is not None:
            values["stop-seconds"] = f"{self.stop:.3f}"
        if self.run is not None:
            values |= {"run-seconds": f"{self.run:.3f}", "exit-code": str(self.exit_code)}
        elif self.restarts:
            values |= {
                "run-seconds": f"{self.restart_after:.3f}",
                "exit-code": str(self.exit_code or 1),
                "crashes": str(self.restarts),
            }
        return values


class _Timeline:
    """Times of one pod in a recording, in seconds. created: no two pods have the same."""

    __slots__ = (
        "bound", "created", "deleted", "ended", "exit_code", "is_initial", "node", "ready", "restart_after", "restarts",
        "running", "stopping",
    )  # fmt: skip

    def __init__(self, created: float, is_initial: bool) -> None:
        self.created = created
        self.is_initial = is_initial
        self.node = ""
        self.bound: float | None = None
        self.running: float | None = None
        self.ready: float | None = None
        self.ended: float | None = None
        self.stopping: float | None = None
        self.deleted: float | None = None
        self.exit_code = self.restarts = 0
        self.restart_after = 0.0

    def times(self) -> PodTimes:
        start = None
        if self.bound is not None and not self.is_initial:
            started = self.running if self.ended is not None else self.ready or self.running
            if started is None:
                started = self.ended
            start = None if started is None else max(0.0, started - self.bound)
        run = None
        if self.ended is not None:
            begin = self.running if self.running is not None else self.bound if self.bound is not None else self.ended
            run = max(0.0, self.ended - begin)
        stop = None
        if self.stopping is not None and self.deleted is not None and self.ended is None:
            stop = self.deleted - self.stopping
        return PodTimes(start, run, self.exit_code, self.restarts, self.restart_after, stop)


class WorkloadTimes:
    """Times of the pods of all workloads."""

    def __init__(self) -> None:
        self._timelines: dict[str, _Timeline] = {}  # by uid, in the order of creation
        self._workloads: dict[str, str] = {}  # by uid
        self._newest = 0.0  # time of the last creation
        self._later: dict[str, list[str]] = {}  # uids of the pods that were created while recording, by workload

    def observe(self, seconds: float, pod: JSON, workload: str, *, initial: bool) -> None:
        """Record a state of a pod."""
        uid = pod["metadata"].get("uid", "")
        timeline = self._timelines.get(uid)
        if timeline is None:
            self._newest = max(seconds, self._newest + _ORDER_SECONDS)
            timeline = self._timelines[uid] = _Timeline(self._newest, initial)
            self._workloads[uid] = workload
            if not initial:
                self._later.setdefault(workload, []).append(uid)
        status = pod.get("status") or {}
        phase = status.get("phase")
        if timeline.bound is None and (node := (pod.get("spec") or {}).get("nodeName")):
            timeline.bound, timeline.node = seconds, node
        if timeline.running is None and phase == "Running":
            timeline.running = seconds
        if timeline.ready is None and is_true(pod, "Ready"):
            timeline.ready = seconds
        is_stopped = "deletionTimestamp" in pod["metadata"]
        if timeline.stopping is None and is_stopped:
            timeline.stopping = seconds
        if timeline.ended is None and phase in ("Succeeded", "Failed") and not is_stopped:
            timeline.ended = seconds
            timeline.exit_code = _exit_code(status, phase)
        restarts = sum(entry.get("restartCount") or 0 for entry in status.get("containerStatuses") or ())
        if restarts > timeline.restarts:
            timeline.restarts = restarts
            timeline.restart_after, code = _first_run(status)
            timeline.exit_code = timeline.exit_code or code

    def deleted(self, seconds: float, pod: JSON) -> None:
        """Record the end of a pod."""
        if (timeline := self._timelines.get(pod["metadata"].get("uid", ""))) is not None:
            timeline.deleted = seconds

    def node_returned(self, seconds: float, node: str) -> None:
        """Record that a failed node works again: its pods whose deletion was requested stop from then on."""
        for timeline in self._timelines.values():
            if timeline.node == node and timeline.stopping is not None and timeline.deleted is None:
                timeline.stopping = seconds

    def of_initial(self, uid: str) -> PodTimes | None:
        """Return the times of a pod that existed at the start."""
        timeline = self._timelines.get(uid)
        return None if timeline is None else timeline.times()

    def of(self, workload: str, number: int) -> PodTimes | None:
        """Return the times of the pod with this number, from 0, that a workload creates; None if none is recorded."""
        uids = self._later.get(workload)
        if uids:
            return self._timelines[uids[number % len(uids)]].times()
        return None

    def created(self, workload: str, number: int) -> float | None:
        """Return when the pod with this number was created, None if none is recorded. No two times are equal."""
        uids = self._later.get(workload, ())
        return self._timelines[uids[number]].created if number < len(uids) else None

    def attempt_seconds(self) -> float:
        """Return how long an attempt to schedule takes: a millisecond, or less if pods were bound at shorter intervals.

        It is never 0: what happens at the same time precedes the attempt.
        """
        pods = [(it.bound, it.created) for it in self._timelines.values() if it.bound is not None and not it.is_initial]
        seconds = _median([*_intervals(sorted(pods))])
        return max(_ORDER_SECONDS, min(_ATTEMPT_SECONDS, _ATTEMPT_SECONDS if seconds is None else seconds))

    def medians(self) -> Mapping[str, PodTimes]:
        """Return the median times of starts and stops of each workload, and of all pods under ""."""
        starts: dict[str, list[float]] = {}
        stops: dict[str, list[float]] = {}
        for uid, timeline in self._timelines.items():
            times = timeline.times()
            for value, by_workload in ((times.start, starts), (times.stop, stops)):
                if value is not None:
                    by_workload.setdefault("", []).append(value)
                    by_workload.setdefault(self._workloads[uid], []).append(value)
        return {
            workload: PodTimes(start=_median(starts.get(workload)), stop=_median(stops.get(workload)))
            for workload in starts.keys() | stops.keys()
        }


def _intervals(pods: list[tuple[float, float]]) -> Iterator[float]:
    """Yield the mean interval between the bindings of pods that waited for each other.

    pods: times of binding and creation, in the order of the bindings.
    """
    first, count = 0.0, 0
    for (bound, _), (next_bound, next_created) in pairwise([*pods, (math.inf, 0.0)]):
        if next_bound - bound <= _PAUSE_SECONDS and next_created <= bound:
            first = first if count else bound
            count += 1
        elif count:
            yield (bound - first) / count
            count = 0


def _median(values: list[float] | None) -> float | None:
    return statistics.median(values) if values else None


def _exit_code(status: JSON, phase: str) -> int:
    """Return the exit code of a pod that has ended; 1 for a failed pod without one."""
    for entry in status.get("containerStatuses") or ():
        code = ((entry.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
        if code:
            return int(code)
    return 0 if phase == "Succeeded" else 1


def _first_run(status: JSON) -> tuple[float, int]:
    """Return how long the container ran that was restarted, and its exit code."""
    for entry in status.get("containerStatuses") or ():
        terminated = (entry.get("lastState") or {}).get("terminated")
        if terminated and terminated.get("startedAt") and terminated.get("finishedAt"):
            run = (parse_time(terminated["finishedAt"]) - parse_time(terminated["startedAt"])).total_seconds()
            return max(0.0, run), int(terminated.get("exitCode", 1))
    return 0.0, 1
