"""The APIServices of custom resources: one for each group and version that some definition serves.

Sources: pkg/controlplane/controller/crdregistration, kube-aggregator pkg/controllers/autoregister of v1.36. What they
do some moments later is done here right after the write that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.devcluster.api.served_resources import API_SERVICES, CUSTOM_RESOURCE_DEFINITIONS, VERSIONS, served
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.registry.server_objects import OURSELVES, stamped, template
from kubeloop.devcluster.server.bootstrap.contents import AUTOMANAGED, api_service
from kubeloop.devcluster.storage.store import Change, Store
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON


class LocalServices:
    """Notes which group versions are to be looked at, and looks at them after the write."""

    def __init__(self, store: Store, clock: Clock, new_uid: Callable[[], str]) -> None:
        self._store = store
        self._clock = clock
        self._new_uid = new_uid
        self._follows = False
        self.pending: dict[tuple[str, str], None] = {}
        for each in store.list(CUSTOM_RESOURCE_DEFINITIONS):
            self._note(each)
        store.subscribe(CUSTOM_RESOURCE_DEFINITIONS, self._note_definition)

    def _note_definition(self, change: Change) -> None:
        if change.before is not None:
            self._note(change.before.object)
        self._note(change.now.object)

    def _note(self, definition: JSON) -> None:
        group = definition["spec"]["group"]
        for each in definition["spec"]["versions"]:
            if each["name"] not in VERSIONS.get(group, ()):
                self.pending[group, each["name"]] = None

    def _note_service(self, change: Change) -> None:
        version, _, group = change.now.key.partition(".")
        if change.now.object["metadata"].get("labels", {}).get(AUTOMANAGED) == "true":
            self.pending[group, version] = None

    def settle(self) -> None:
        """Raises NotDurable."""
        while self.pending:
            if not self._follows:
                self._follows = True
                self._store.subscribe(API_SERVICES, self._note_service)
            group, version = next(iter(self.pending))
            del self.pending[group, version]
            self._sync(group, version)

    def _sync(self, group: str, version: str) -> None:
        table = self._store.table(API_SERVICES)
        stored = table.get(f"{version}.{group}")
        if stored is not None and stored.object["metadata"].get("labels", {}).get(AUTOMANAGED) != "true":
            return
        if not self._is_served(group, version):
            if stored is not None:
                table.delete(stored)
            return
        wanted = template(API_SERVICES, api_service(group, version))
        now = rfc3339(self._clock.now())
        if stored is None:
            table.create(f"{version}.{group}", stamped(wanted, self._new_uid(), now))
        elif stored.object["spec"] != wanted["spec"]:
            obj = {**stored.object, "metadata": dict(stored.object["metadata"]), "spec": wanted["spec"]}
            track_update(served(API_SERVICES), obj, stored.object, Writer(OURSELVES), lambda: now, subresource="")
            table.update(stored, obj)

    def _is_served(self, group: str, version: str) -> bool:
        return any(
            each["name"] == version and each.get("served")
            for definition in self._store.list(CUSTOM_RESOURCE_DEFINITIONS)
            if definition["spec"]["group"] == group
            for each in definition["spec"]["versions"]
        )
