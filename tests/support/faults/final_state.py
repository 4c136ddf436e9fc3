"""Final state of a run, for comparison with another run: the stored objects without times, UIDs and random names.

`unpostponed` runs a control plane that postpones and merges no write. "Postponing changes no final state" is the
invariant that compares the two, see `campaign.run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from kubeloop.controllers.deployment.replica_sets import DESIRED_REPLICAS, MAX_REPLICAS
from kubeloop.controllers.devicetainteviction import device_taint_eviction_controller, rule_status
from kubeloop.controllers.job import job_controller
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_TAINT_RULES,
    JOBS,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
    Resource,
)
from kubeloop.process.control_plane import control_plane
from kubeloop.scheduler.api_calls.status_patches import StatusPatches, _Request
from kubeloop.scheduler.pod_groups.group_conditions import PodGroupConditions
from kubeloop.testing.faults.state import stable, stable_text
from support.faults.cluster import Cluster
from support.faults.objects import JSON

COMPARED = (
    DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS, CRON_JOBS, PODS, POD_GROUPS, POD_DISRUPTION_BUDGETS,
    RESOURCE_QUOTAS, DEVICE_TAINT_RULES,
)  # fmt: skip
_AT_LAST_SCALING = {DESIRED_REPLICAS, MAX_REPLICAS}  # annotations
_NUMBER = re.compile(r"-\d+(?=-|$)")


def final_state(cluster: Cluster, *, after_crash: bool) -> Counter[str]:
    """Return the objects with a status, each as JSON without what differs between two runs of one scenario.

    after_crash: without the conditions of PodGroups, which no process writes again (docs/reliability.md).
    """
    return Counter(
        json.dumps([resource.plural, _comparable(resource, obj, after_crash=after_crash)], sort_keys=True)
        for resource in COMPARED
        for obj in cluster.all(resource)
    )


def differences(unpostponed: Counter[str], postponed: Counter[str]) -> list[str]:
    """Return the objects that only one of two final states has."""
    return [
        *(f"only if no write is postponed: {obj}" for obj in unpostponed - postponed),
        *(f"only if writes are postponed: {obj}" for obj in postponed - unpostponed),
    ]


def _comparable(resource: Resource[Any], obj: JSON, *, after_crash: bool) -> JSON:
    metadata, status = obj["metadata"], obj.get("status", {})
    spec = obj.get("spec", {})
    name = metadata["name"]
    if resource is PODS:  # nodes and victims are choices of the scheduler, addresses and containers follow from them
        name = _NUMBER.sub("-N", stable_text(name))
        spec = {"bound": bool(spec.get("nodeName"))}
        status = {name: status[name] for name in ("phase", "conditions", "nominatedNodeName") if name in status}
    elif resource is POD_GROUPS and after_crash:
        status = {name: value for name, value in status.items() if name != "conditions"}
    elif "observedGeneration" in status:
        status = {**status, "unobserved": metadata["generation"] - status["observedGeneration"]}
    labels = {name: label for name, label in metadata.get("labels", {}).items() if "topology" not in name}
    annotations = {name: text for name, text in metadata.get("annotations", {}).items() if name not in _AT_LAST_SCALING}
    fields = {"name": name, "labels": labels, "annotations": annotations}
    result: JSON = stable({**fields, "spec": spec, "status": status})
    return result


class _Queued(dict[str, Any]):
    """Takes the place of a dict of pending writes, but none replaces another: each key has a queue."""

    def get(self, key: str, default: Any = None) -> Any:
        return default

    def __setitem__(self, key: str, value: Any) -> None:
        queue: deque[Any] = self.setdefault(key, deque())
        queue.append(value)

    def pop(self, key: str, default: Any = None) -> Any:
        queue: deque[Any] | None = super().get(key)
        if queue is None:
            return default
        value = queue.popleft()
        if not queue:
            del self[key]
        return value


def _set_status(self: Any, pod: Pod, *, reason: str = "", message: str = "", nominated_node_name: Any = None) -> None:
    if pod.metadata.uid not in self._superseded:
        self._pending[pod.metadata.uid] = _Request(pod, (reason, message) if reason else None, nominated_node_name)
        self._work.set()


async def _settle(self: Any, uid: str) -> None:
    while uid in self._pending or uid in self._in_progress:
        await asyncio.sleep(0.001)


@contextlib.contextmanager
def unpostponed() -> Iterator[None]:
    """Let the control planes that start in the block write each status at once, or after the one before it."""

    def queued(cls: type) -> Any:
        initialize = cls.__init__  # type: ignore[misc]

        def init(self: Any, *arguments: Any, **options: Any) -> None:
            initialize(self, *arguments, **options)
            self._pending = _Queued()

        return patch.object(cls, "__init__", init)

    with contextlib.ExitStack() as patches:
        patches.enter_context(patch.object(control_plane, "STATUS_DELAY_SECONDS", 0.0))
        patches.enter_context(patch.object(job_controller, "BATCH_SECONDS", 0.0))
        patches.enter_context(patch.object(rule_status, "STATUS_PERIOD_SECONDS", 0.0))
        patches.enter_context(patch.object(device_taint_eviction_controller, "STATUS_PERIOD_SECONDS", 0.0))
        patches.enter_context(queued(PodGroupConditions))
        patches.enter_context(queued(StatusPatches))
        patches.enter_context(
            patch.multiple(StatusPatches, set=_set_status, settle=_settle, sync=lambda self, pod: None)
        )
        yes = property(lambda self: self.condition is not None)
        patches.enter_context(patch.multiple(_Request, changes_condition=yes))
        yield
