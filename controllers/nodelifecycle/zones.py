"""States of zones, and the rates at which their nodes get NoExecute taints.

    normal ------------- at least 3 nodes and unhealthy_share not ready --> partial disruption: reduced rate, or none
       |                                                                    in a zone of at most large_size nodes
       `---------------- no node ready --> full disruption: normal rate; if all zones are so, no evictions at all,
                                           since the control plane itself is probably cut off

Source: handleDisruption, ComputeZoneState in pkg/controller/nodelifecycle/node_lifecycle_controller.go, and its
scheduler/rate_limited_queue.go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from kubeloop.kube.objects.api_types import Condition

ZoneState = Literal["normal", "partial disruption", "full disruption"]


class EvictionRates(msgspec.Struct, frozen=True):
    """Nodes per second and zone that get a NoExecute taint, and the sizes of zones that decide between the rates.

    normal: --node-eviction-rate. reduced: --secondary-node-eviction-rate, of zones with more than `large_size` nodes
    (--large-cluster-size-threshold) under partial disruption. unhealthy_share: --unhealthy-zone-threshold.
    """

    normal: float = 0.1
    reduced: float = 0.01
    large_size: int = 50
    unhealthy_share: float = 0.55

    def zone_state(self, ready: int, not_ready: int) -> ZoneState:
        if ready == 0 and not_ready > 0:
            return "full disruption"
        if not_ready > 2 and not_ready / (ready + not_ready) >= self.unhealthy_share:
            return "partial disruption"
        return "normal"

    def rate(self, state: ZoneState, size: int) -> float:
        """Return the rate of a zone of `size` nodes."""
        if state == "partial disruption":
            return self.reduced if size > self.large_size else 0.0
        return self.normal


class DisruptionPlan(msgspec.Struct, frozen=True):
    """Result of a check of all zones.

    states: of the zones that have nodes. rates: of the zones whose rate may change. enters_full: every zone has just
    become fully disrupted; leaves_full: no longer so.
    """

    states: Mapping[str, ZoneState]
    rates: Mapping[str, float]
    enters_full: bool = False
    leaves_full: bool = False


def plan_disruption(
    before: Mapping[str, ZoneState], ready_by_zone: Mapping[str, Sequence[Condition | None]], rates: EvictionRates
) -> DisruptionPlan:
    """Return new states and rates. before: states of the last check; ready_by_zone: conditions Ready of the nodes."""
    states: dict[str, ZoneState] = {}
    for zone, conditions in ready_by_zone.items():
        ready = count_ready(conditions)
        states[zone] = rates.zone_state(ready, len(conditions) - ready)
    all_full = all(state == "full disruption" for state in states.values())
    were_full = all(before.get(zone) == "full disruption" for zone in states)
    if all_full and were_full:
        return DisruptionPlan(states, {})
    if all_full:
        return DisruptionPlan(states, dict.fromkeys(states, 0.0), enters_full=True)
    changed = [zone for zone in states if were_full or before.get(zone) != states[zone]]
    new_rates = {zone: rates.rate(states[zone], len(ready_by_zone[zone])) for zone in changed}
    return DisruptionPlan(states, new_rates, leaves_full=were_full)


def count_ready(conditions: Sequence[Condition | None]) -> int:
    """Return how many of the conditions Ready are True."""
    return sum(condition is not None and condition.status == "True" for condition in conditions)


class TaintQueue:
    """Nodes of one zone that wait for their NoExecute taint, in order of arrival. Times: of the event loop."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._waiting: dict[str, None] = {}
        self._free_at = -math.inf  # time from which the next node may be taken

    def add(self, name: str) -> None:
        self._waiting.setdefault(name)

    def remove(self, name: str) -> None:
        self._waiting.pop(name, None)

    def contains(self, name: str) -> bool:
        return name in self._waiting

    def set_rate(self, rate: float, now: float) -> None:
        """Change the rate. A zone that has to wait at the old rate waits a whole period of the new one."""
        if rate == self._rate:
            return
        waits = self._rate <= 0 or now < self._free_at
        self._rate = rate
        if rate > 0 and waits:
            self._free_at = now + 1 / rate

    def seconds_until_next(self, now: float) -> float | None:
        """Return the seconds until pop() returns a node; None if no node waits, or none may be taken."""
        return max(0.0, self._free_at - now) if self._waiting and self._rate > 0 else None

    def pop(self, now: float) -> str | None:
        """Remove and return the next node if the rate allows it."""
        if self.seconds_until_next(now) != 0.0:
            return None
        name = next(iter(self._waiting))
        del self._waiting[name]
        self._free_at = now + 1 / self._rate
        return name
