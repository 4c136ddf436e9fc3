"""Faults of one run: their kinds, and how the plan of a run is drawn from its seed.

Classes follow Sieve (OSDI '22), which names intermediate, stale and unobservable states; docs/reliability.md describes
them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec


class PlannedFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault. Times in seconds since the start of the run.

    write: number of the control plane's write at which the fault happens, from 1; else it happens at `at`.
    seconds: its duration, or the length of a delay. resource: plural name; "" for all. share: of requests or events; of
    "slow" the longest latency in seconds, of "clock" the jump in seconds. cluster: name of the only cluster whose
    connections it affects, "" for that of the controllers; None for all.
    """

    kind: str
    at: float = 0.0
    write: int = 0
    seconds: float = 0.0
    resource: str = ""
    share: float = 0.0
    cluster: str | None = None

    def __str__(self) -> str:
        texts = [f"at write {self.write}" if self.write else f"at {self.at:g} s"]
        texts += [f"for {self.seconds:g} s"] if self.seconds else []
        texts += [self.resource] if self.resource else []
        texts += [cluster_title(self.cluster)] if self.cluster is not None else []
        if self.share:
            texts.append(f"{self.share:g} s" if self.kind in ("slow", "clock") else f"{self.share:.0%}")
        return f"{self.kind} ({', '.join(texts)})"


def cluster_title(name: str) -> str:
    return f"cluster {name}" if name else "cluster of the controllers"


class FaultPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Faults of a run.

    journal: the process has a trace journal. compares_versions: the feature gates StaleControllerConsistency* are on:
    controllers wait until their caches show their own writes; without them, expectations alone must suffice.
    """

    faults: tuple[PlannedFault, ...] = ()
    journal: bool = True
    compares_versions: bool = True

    def of_kind(self, *kinds: str) -> list[PlannedFault]:
        return [fault for fault in self.faults if fault.kind in kinds]

    @property
    def end(self) -> float:
        """The time when the last timed fault is over."""
        return max((fault.at + fault.seconds for fault in self.faults), default=0.0)


@dataclass(frozen=True)
class RunProfile:
    """The run of a scenario without faults. writes: those of the control plane, as "POST pods", in their order.

    seconds: its duration. resources: plural names of what it watches. creates: number of created objects by resource.
    """

    writes: tuple[str, ...]
    seconds: float
    resources: tuple[str, ...]
    creates: Mapping[str, int]


Draw = Callable[[random.Random, RunProfile], Sequence[PlannedFault]]


def _moment(rng: random.Random, profile: RunProfile) -> float:
    return round(rng.uniform(0.0, profile.seconds), 3)


def _window(kind: str, rng: random.Random, profile: RunProfile, longest: float, **fields: Any) -> PlannedFault:
    return PlannedFault(kind, at=_moment(rng, profile), seconds=round(rng.uniform(0.5, longest), 3), **fields)


def _write(rng: random.Random, profile: RunProfile) -> int:
    return rng.randint(1, max(1, len(profile.writes)))


def _resource(rng: random.Random, profile: RunProfile) -> str:
    return rng.choice(profile.resources)


def _crash(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """The process ends before or after a write, in half of the runs more than once."""
    faults = [PlannedFault(rng.choice(("crash-before", "crash-after")), write=_write(rng, profile))]
    while rng.random() < 0.5:
        faults.append(PlannedFault(rng.choice(("crash-before", "crash-after")), write=_write(rng, profile)))
    return faults


def _late_crash(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """The process ends, and its last write reaches the server when the next process runs already."""
    return [PlannedFault("crash-late", write=_write(rng, profile), seconds=round(rng.uniform(0.5, 20.0), 3))]


def _stale(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """Watch events, lists or both arrive late, by up to four minutes, mostly after a restart."""
    faults = []
    if rng.random() < 0.6:
        crash = PlannedFault(rng.choice(("crash-before", "crash-after")), write=_write(rng, profile))
        faults.append(rng.choice((crash, crash, PlannedFault("crash-at", at=_moment(rng, profile)))))
    for _ in range(rng.randint(1, 3)):
        kind = rng.choice(("late-events", "late-events", "late-lists", "switch-server"))
        longest = rng.choice((5.0, 30.0, 240.0))
        resource = "" if rng.random() < 0.3 else _resource(rng, profile)
        faults.append(_window(kind, rng, profile, longest, resource=resource))
    return faults


def _old_lists(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """A restarted process lists from an API server that is behind, whatever resourceVersion it requests."""
    age = round(rng.uniform(1.0, max(2.0, profile.seconds)), 3)
    crash = PlannedFault(rng.choice(("crash-before", "crash-after")), write=_write(rng, profile))
    resource = "" if rng.random() < 0.5 else _resource(rng, profile)
    return [crash, PlannedFault("old-lists", seconds=age, resource=resource)]


def _unobservable(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """Watches miss a window; objects are replaced or deleted in it, or between the pages of a list."""
    resource = _resource(rng, profile)
    faults = [_window("blind", rng, profile, rng.choice((2.0, 20.0)), resource="" if rng.random() < 0.3 else resource)]
    window = faults[0]
    for _ in range(rng.randint(0, 2)):
        kind = rng.choice(("replace-object", "delete-object", "touch-object"))
        at = round(window.at + rng.uniform(0.0, window.seconds), 3)
        faults.append(PlannedFault(kind, at=at, resource=rng.choice(("pods", "pods", resource))))
    if rng.random() < 0.5:
        faults.append(
            PlannedFault("small-pages", seconds=window.at + window.seconds + 60.0, share=rng.choice((0.0, 0.5)))
        )
    return faults


def _slow(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """Requests and responses take long, and overtake each other."""
    return [_window("slow", rng, profile, 60.0, share=rng.choice((0.05, 1.0, 10.0)))]


def _refused(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """Requests are refused with 409, 429 with Retry-After, or 500."""
    return [
        _window(kind, rng, profile, 30.0, share=rng.choice((0.1, 0.3, 0.9)))
        for kind in rng.sample(("conflict", "throttle", "error"), rng.randint(1, 3))
    ]


def _lost(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """Responses are lost, or requests and events arrive twice."""
    return [
        _window(kind, rng, profile, 30.0, share=rng.choice((0.1, 0.5)))
        for kind in rng.sample(("lost-answer", "duplicate", "duplicate-events"), rng.randint(1, 3))
    ]


def _disconnected(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """Connections break, silently or not; the API server restarts or compacts."""
    kinds = ("disconnect", "silent", "restart-server", "compact", "disconnect")
    return [_window(rng.choice(kinds), rng, profile, rng.choice((1.0, 20.0))) for _ in range(rng.randint(1, 3))]


def _clock(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """The clock of the process jumps forward or back."""
    jumps = (-3600.0, -61.0, -5.0, 5.0, 61.0, 3600.0)
    return [PlannedFault("clock", at=_moment(rng, profile), share=rng.choice(jumps)) for _ in range(rng.randint(1, 2))]


def _leaders(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """The leader is cut off until its lease has expired; what it sent arrives when another one leads."""
    return [PlannedFault("freeze-leader", at=_moment(rng, profile), seconds=round(rng.uniform(5.0, 60.0), 3))]


def _tracing(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """The collector of traces does not respond, or the disk of the journal is full; the process may end."""
    faults = [_window("dead-collector", rng, profile, 60.0)]
    if rng.random() < 0.5:
        faults.append(PlannedFault("full-disk", at=_moment(rng, profile)))
    if rng.random() < 0.5:
        faults.append(PlannedFault(rng.choice(("crash-before", "crash-after")), write=_write(rng, profile)))
    return faults


_DRAW: dict[str, Draw] = {
    "crash": _crash,
    "late crash": _late_crash,
    "stale": _stale,
    "old lists": _old_lists,
    "unobservable": _unobservable,
    "slow": _slow,
    "refused": _refused,
    "lost": _lost,
    "disconnected": _disconnected,
    "clock": _clock,
    "leaders": _leaders,
    "tracing": _tracing,
}


def _combined(rng: random.Random, profile: RunProfile) -> list[PlannedFault]:
    """Faults of two or three classes."""
    classes = rng.sample([name for name in _DRAW if name not in ("leaders", "old lists")], rng.randint(2, 3))
    return [fault for name in classes for fault in _DRAW[name](rng, profile)]


FAULT_CLASSES: Mapping[str, Draw] = {**_DRAW, "combined": _combined}
"""Functions that draw the faults of a class, by its name."""


def draw_plan(fault_class: str, seed: str, profile: RunProfile) -> FaultPlan:
    """Return the plan of a run. The same seed and profile give the same plan."""
    rng = random.Random(f"{fault_class}/{seed}")
    faults = tuple(FAULT_CLASSES[fault_class](rng, profile))
    journal = fault_class == "tracing" or rng.random() < 0.5
    return FaultPlan(faults, journal, compares_versions=rng.random() < 0.7)


def spread_over_clusters(plan: FaultPlan, seed: str, clusters: Sequence[str]) -> FaultPlan:
    """Return the plan with some of its faults in one cluster only: that of the controllers, or another one."""
    rng = random.Random(f"clusters/{seed}")
    faults = (
        fault
        if fault.kind.startswith("crash") or fault.kind in ("clock", "freeze-leader")
        else msgspec.structs.replace(fault, cluster=rng.choice((None, "", *clusters)))
        for fault in plan.faults
    )
    return msgspec.structs.replace(plan, faults=tuple(faults))


def crash_plans(profile: RunProfile) -> list[FaultPlan]:
    """Return the plans of all single crashes: before and after each write, with and without a journal."""
    return [
        FaultPlan((PlannedFault(kind, write=number),), journal=journal)
        for number in range(1, len(profile.writes) + 1)
        for kind in ("crash-before", "crash-after")
        for journal in (False, True)
    ]


# --- what Kubernetes does not guarantee under a fault -----------------------------------------------------------------

_UNCERTAIN_CREATES = {
    "crash-late", "old-lists", "lost-answer", "freeze-leader", "slow", "duplicate", "silent", "restart-server",
    "disconnect",
}  # fmt: skip
"""A create may take effect although the controller believes that it failed, or does not see it: it may create again."""
_CURRENT = {"crash-before", "crash-after", "error", "throttle", "conflict", "dead-collector", "full-disk", "compact"}
"""Caches follow the server within a second."""


def caches_are_current(plan: FaultPlan) -> bool:
    """Return True if the control plane never acts on caches that are seconds behind."""
    return all(fault.kind in _CURRENT for fault in plan.faults)


def binds_once(plan: FaultPlan) -> bool:
    """Return True if one scheduler at a time binds pods, and knows all bound ones."""
    return not plan.of_kind("old-lists", "crash-late", "freeze-leader")


def creates_are_certain(plan: FaultPlan) -> bool:
    """Return True if no create can be repeated without being seen."""
    return not plan.of_kind(*_UNCERTAIN_CREATES)


def completions_are_exact(plan: FaultPlan) -> bool:
    """Return True if no more pods of a Job succeed than its completions.

    A pod that is created twice, or by a user, may succeed before it is deleted. Without the gates, or after a restart
    with an old list, a controller may see that a counted pod is released before it sees the status that counts it.
    """
    compares = plan.compares_versions or caches_are_current(plan)
    return compares and creates_are_certain(plan) and not plan.of_kind("replace-object")


def creates_are_exact(plan: FaultPlan) -> bool:
    """Return True if the control plane creates exactly as many objects as without faults."""
    return all(fault.kind in ("crash-before", "crash-after") for fault in plan.faults)
