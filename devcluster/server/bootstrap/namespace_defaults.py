"""Objects of every namespace: the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`.

They are created right after the request that creates their namespace, or deletes them, unless the namespace terminates;
kube-controller-manager does it some moments later. A changed ConfigMap is left as it is, because a
kube-controller-manager may publish another certificate. Sources: pkg/controller/serviceaccount,
pkg/controller/certificates/rootcacertpublisher of v1.36.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

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
_NAMES: dict[Resource[Any], str] = {SERVICE_ACCOUNTS: "default", CONFIG_MAPS: "kube-root-ca.crt"}


@lru_cache(maxsize=4)
def _template(resource: Resource[Any], root_ca: str) -> JSON:
    if resource is SERVICE_ACCOUNTS:
        return object_template(resource, ServerObject(_NAMES[resource], manager=_MANAGER))
    annotations = {"kubernetes.io/description": _DESCRIPTION}
    content = {"data": {"ca.crt": root_ca}}
    return object_template(
        resource, ServerObject(_NAMES[resource], annotations=annotations, content=content, manager=_MANAGER)
    )


class NamespaceDefaults:
    """Queues namespaces and creates their missing objects. root_ca: certificates in PEM; None: create no objects."""

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
        """Queue all namespaces, in which objects may be missing."""
        self.pending |= dict.fromkeys(stored.key for stored in self._store.table(NAMESPACES).list())

    def note_namespace(self, change: Change) -> None:
        if change.type == "ADDED":
            self.pending[change.now.key] = None

    def note_object(self, change: Change) -> None:
        """Note the deletion of a ServiceAccount or ConfigMap."""
        metadata = change.now.object["metadata"]
        if change.type == "DELETED" and metadata["name"] in _NAMES.values():
            self.pending[metadata["namespace"]] = None

    def settle(self) -> None:
        """Create the missing objects of all queued namespaces. Raises NotDurable."""
        while self.pending:
            namespace, _ = self.pending.popitem()
            obj = self._store.get(NAMESPACES, "", namespace)
            if obj is None or obj["status"].get("phase") != "Active" or "deletionTimestamp" in obj["metadata"]:
                continue
            now = rfc3339(self._clock.now())
            for resource, name in _NAMES.items():
                table, key = self._store.table(resource), object_key(namespace, name)
                if table.get(key) is None:
                    table.create(key, stamp_object(self._object(resource, namespace), new_uid(self._rng), now))

    def _object(self, resource: Resource[Any], namespace: str) -> JSON:
        template = _template(resource, self._root_ca or "")
        return {**template, "metadata": {**template["metadata"], "namespace": namespace}}
