"""Status of FlowSchemas: the Dangling condition, which reports a missing priority level.

Source: apiserver pkg/util/flowcontrol/apf_controller.go of v1.36.
"""

from __future__ import annotations

import asyncio

from kubeloop.devcluster.api.served_resources import FLOW_SCHEMAS, PRIORITY_LEVEL_CONFIGURATIONS, get_served_resource
from kubeloop.devcluster.managedfields.field_sets import all_fields, new_entry, sorted_entries
from kubeloop.devcluster.managedfields.go_types import value_type_of
from kubeloop.devcluster.server.bootstrap.contents import CONSUMER, dangling
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON

_SETTLE_DELAY_SECONDS = 0.1
"""Delay after a write, so that a client which creates a FlowSchema and updates it meets no conflict."""


class FlowSchemas:
    """Queues FlowSchemas after writes and updates their status after a short delay."""

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pending: dict[str, None] = {}
        self._noted = asyncio.Event()

    async def run(self) -> None:
        """Update statuses until cancelled. Raises NotDurable."""
        while True:
            await self._noted.wait()
            await asyncio.sleep(_SETTLE_DELAY_SECONDS)
            self._noted.clear()
            self._settle()

    def note_schema(self, change: Change) -> None:
        if change.type != "DELETED":
            self._note(change.now.key)

    def note_level(self, change: Change) -> None:
        if change.type != "MODIFIED":
            for flow_schema in self._store.list(FLOW_SCHEMAS):
                if _level(flow_schema) == change.now.key:
                    self._note(flow_schema["metadata"]["name"])

    def _note(self, name: str) -> None:
        self._pending[name] = None
        self._noted.set()

    def _settle(self) -> None:
        while self._pending:
            name = next(iter(self._pending))
            del self._pending[name]
            obj = self._store.get(FLOW_SCHEMAS, "", name)
            if obj is not None:
                self._update_status(obj)

    def _update_status(self, obj: JSON) -> None:
        level = _level(obj)
        desired = dangling(level, exists=self._store.get(PRIORITY_LEVEL_CONFIGURATIONS, "", level) is not None)
        conditions = obj.get("status", {}).get("conditions") or []
        current: JSON = next((condition for condition in conditions if condition["type"] == "Dangling"), {})
        if {name: current.get(name) for name in desired} == desired:
            return
        now = rfc3339(self._clock.now())
        changed = current.get("status") != desired["status"]
        condition = {**desired, "lastTransitionTime": now if changed else current["lastTransitionTime"]}
        others = [other for other in conditions if other["type"] != "Dangling"]
        owned = all_fields(value_type_of(FLOW_SCHEMAS), {"status": {"conditions": [condition]}})
        entries = [entry for entry in obj["metadata"].get("managedFields", ()) if entry["manager"] != CONSUMER]
        entries.append(new_entry(get_served_resource(FLOW_SCHEMAS), CONSUMER, "Apply", "status", owned, now))
        metadata = {**obj["metadata"], "managedFields": sorted_entries(entries)}
        status = {**obj.get("status", {}), "conditions": [*others, condition]}
        self._store.update(FLOW_SCHEMAS, {**obj, "metadata": metadata, "status": status})


def _level(flow_schema: JSON) -> str:
    name: str = flow_schema["spec"]["priorityLevelConfiguration"]["name"]
    return name
