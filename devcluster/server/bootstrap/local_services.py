"""APIServices of custom resources: one per group and version that a definition serves.

They are updated right after the write of the definition; Kubernetes does it some moments later. Sources:
pkg/controlplane/controller/crdregistration, kube-aggregator pkg/controllers/autoregister of v1.36.
"""

from __future__ import annotations

import random

from kubeloop.devcluster.api.served_resources import (
    API_SERVICES,
    CUSTOM_RESOURCE_DEFINITIONS,
    VERSIONS,
    get_served_resource,
)
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.registry.server_objects import API_SERVER_MANAGER, object_template, stamp_object
from kubeloop.devcluster.server.bootstrap.contents import AUTOMANAGED, api_service
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.uids import new_uid


class LocalServices:
    """Queues group versions of written definitions and updates their APIServices."""

    def __init__(self, store: ObjectStore, clock: Clock, rng: random.Random) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._follows = False
        self.pending: dict[tuple[str, str], None] = {}
        for definition in store.list(CUSTOM_RESOURCE_DEFINITIONS):
            self._note(definition)
        store.subscribe(CUSTOM_RESOURCE_DEFINITIONS, self._note_definition)

    def _note_definition(self, change: Change) -> None:
        if change.before is not None:
            self._note(change.before.object)
        self._note(change.now.object)

    def _note(self, definition: JSON) -> None:
        group = definition["spec"]["group"]
        for version in definition["spec"]["versions"]:
            if version["name"] not in VERSIONS.get(group, ()):
                self.pending[group, version["name"]] = None

    def _note_service(self, change: Change) -> None:
        version, _, group = change.now.key.partition(".")
        if change.now.object["metadata"].get("labels", {}).get(AUTOMANAGED) == "true":
            self.pending[group, version] = None

    def settle(self) -> None:
        """Update the APIServices of all queued group versions. Raises NotDurable."""
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
        desired = object_template(API_SERVICES, api_service(group, version))
        now = rfc3339(self._clock.now())
        if stored is None:
            table.create(f"{version}.{group}", stamp_object(desired, new_uid(self._rng), now))
        elif stored.object["spec"] != desired["spec"]:
            obj = {**stored.object, "metadata": dict(stored.object["metadata"]), "spec": desired["spec"]}
            track_update(
                get_served_resource(API_SERVICES),
                obj,
                stored.object,
                Writer(API_SERVER_MANAGER),
                lambda: now,
                subresource="",
            )
            table.update(stored, obj)

    def _is_served(self, group: str, version: str) -> bool:
        return any(
            served_version["name"] == version and served_version.get("served")
            for definition in self._store.list(CUSTOM_RESOURCE_DEFINITIONS)
            if definition["spec"]["group"] == group
            for served_version in definition["spec"]["versions"]
        )
