"""Objects of every namespace: the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`.

They are created right after the request that creates their namespace, or deletes them, unless the namespace terminates;
kube-controller-manager does it some moments later. A changed ConfigMap is restored likewise, unless a
kube-controller-manager has published another certificate. Sources: pkg/controller/serviceaccount,
pkg/controller/certificates/rootcacertpublisher of v1.36.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.registry.server_objects import ServerObject, object_template, stamp_object
from kubeloop.devcluster.server.bootstrap.contents import SYSTEM_NAMESPACES
from kubeloop.devcluster.storage.store import Change, ObjectStore, object_key
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS, Resource
from kubeloop.kube.uids import new_uid

_MANAGER = "kube-controller-manager"
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)
_DESCRIPTION_KEY = "kubernetes.io/description"
_NAMES: dict[Resource[Any], str] = {SERVICE_ACCOUNTS: "default", CONFIG_MAPS: "kube-root-ca.crt"}


def _is_of_publisher(metadata: JSON) -> bool:
    """Return True if kube-controller-manager owns the certificate."""
    return any(
        entry.get("manager") == _MANAGER and "f:ca.crt" in (entry.get("fieldsV1") or {}).get("f:data", {})
        for entry in metadata.get("managedFields") or ()
    )


@lru_cache(maxsize=4)
def _template(resource: Resource[Any], root_ca: str) -> JSON:
    if resource is SERVICE_ACCOUNTS:
        return object_template(resource, ServerObject(_NAMES[resource], manager=_MANAGER))
    annotations = {_DESCRIPTION_KEY: _DESCRIPTION}
    content = {"data": {"ca.crt": root_ca}}
    return object_template(
        resource, ServerObject(_NAMES[resource], annotations=annotations, content=content, manager=_MANAGER)
    )


class NamespaceDefaults:
    """Queues namespaces, and creates or restores their objects. root_ca: certificates in PEM; None: no objects."""

    def __init__(self, store: ObjectStore, clock: Clock, rng: random.Random, root_ca: str | None) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._root_ca = root_ca
        self.pending: dict[str, None] = {}

    def initial_templates(self, resource: Resource[Any]) -> list[JSON]:
        """Return the objects of this resource in the namespaces of a new cluster."""
        if self._root_ca is None or resource not in _NAMES:
            return []
        return [self._object(resource, namespace) for namespace in SYSTEM_NAMESPACES]

    def note_all(self) -> None:
        """Queue all namespaces, in which objects may be missing or changed."""
        self.pending |= dict.fromkeys(stored.key for stored in self._store.table(NAMESPACES).list())

    def note_namespace(self, change: Change) -> None:
        if change.type == "ADDED":
            self.pending[change.now.key] = None

    def note_object(self, change: Change) -> None:
        """Note the change or deletion of a ServiceAccount or ConfigMap."""
        metadata = change.now.object["metadata"]
        if change.type != "ADDED" and metadata["name"] in _NAMES.values():
            self.pending[metadata["namespace"]] = None

    def settle(self) -> None:
        """Create the missing objects of all queued namespaces, and restore changed ones. Raises NotDurable."""
        while self.pending:
            namespace, _ = self.pending.popitem()
            obj = self._store.get(NAMESPACES, "", namespace)
            if obj is None or obj["status"].get("phase") != "Active" or "deletionTimestamp" in obj["metadata"]:
                continue
            now = rfc3339(self._clock.now())
            for resource, name in _NAMES.items():
                table, key = self._store.table(resource), object_key(namespace, name)
                stored = table.get(key)
                if stored is None:
                    table.create(key, stamp_object(self._object(resource, namespace), new_uid(self._rng), now))
                elif resource is CONFIG_MAPS and (restored := self._restored(stored.object, now)) is not None:
                    table.update(stored, restored)

    def _restored(self, config_map: JSON, now: str) -> JSON | None:
        """Return the ConfigMap with the certificate and the description; None if it has both, or is immutable."""
        metadata, data = config_map["metadata"], config_map.get("data") or {}
        annotations = metadata.get("annotations") or {}
        is_published = data == {"ca.crt": self._root_ca} or (data.keys() == {"ca.crt"} and _is_of_publisher(metadata))
        if (is_published and annotations.get(_DESCRIPTION_KEY)) or config_map.get("immutable"):
            return None
        metadata = {**metadata, "annotations": {**annotations, _DESCRIPTION_KEY: _DESCRIPTION}}
        restored = {**config_map, "metadata": metadata, "data": data if is_published else {"ca.crt": self._root_ca}}
        served = get_served_resource(CONFIG_MAPS)
        track_update(served, restored, config_map, Writer(_MANAGER), lambda: now, subresource="")
        return restored

    def _object(self, resource: Resource[Any], namespace: str) -> JSON:
        template = _template(resource, self._root_ca or "")
        return {**template, "metadata": {**template["metadata"], "namespace": namespace}}
