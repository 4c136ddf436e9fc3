"""Objects that a cluster contains before the first request, and their upkeep: `Bootstrap`.

Objects are created when their kind is first read (ObjectStore.add_initial_objects), so the duration of a start does not
depend on their number.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from ipaddress import IPv4Network
from typing import Any

from kubeloop.devcluster.api.served_resources import (
    API_SERVICES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ENDPOINT_SLICES,
    ENDPOINTS,
    FLOW_SCHEMAS,
    IP_ADDRESSES,
    PRIORITY_LEVEL_CONFIGURATIONS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_CIDRS,
    get_served_resource,
)
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.kinds.core.cluster_ip_allocation import ServiceAllocator
from kubeloop.devcluster.kinds.core.node_port_allocation import NODE_PORT_RANGE
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.registry.server_objects import ServerObject, object_template, stamp_object
from kubeloop.devcluster.server.bootstrap import contents
from kubeloop.devcluster.server.bootstrap.contents import Identity
from kubeloop.devcluster.server.bootstrap.flow_schemas import FlowSchemas
from kubeloop.devcluster.server.bootstrap.local_services import LocalServices
from kubeloop.devcluster.server.bootstrap.namespace_defaults import NamespaceDefaults
from kubeloop.devcluster.storage.store import Change, InitialObjects, ObjectStore, object_key
from kubeloop.devcluster.validation.common.error_list import error_list_type
from kubeloop.kube.clock import Clock, is_virtual, pause, rfc3339, rfc3339_micro
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import (
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from kubeloop.kube.uids import new_uid

__all__ = ["Bootstrap", "Identity"]

_RESTORE_SECONDS = 10.0
"""Interval at which a server restores its objects, as kube-apiserver's controllers for its Service and lease do."""

_SHARED: dict[Resource[Any], Callable[[], Iterable[ServerObject]]] = {
    NAMESPACES: contents.namespaces,
    PRIORITY_CLASSES: contents.priority_classes,
    API_SERVICES: contents.api_services,
    PRIORITY_LEVEL_CONFIGURATIONS: contents.priority_levels,
    FLOW_SCHEMAS: contents.flow_schemas,
    CLUSTER_ROLES: partial(contents.role_objects, "clusterroles"),
    CLUSTER_ROLE_BINDINGS: partial(contents.role_objects, "clusterrolebindings"),
    ROLES: partial(contents.role_objects, "roles"),
    ROLE_BINDINGS: partial(contents.role_objects, "rolebindings"),
}
"""Objects that are the same in all servers."""

_RESERVED_REVISIONS = {CLUSTER_ROLES: 80, CLUSTER_ROLE_BINDINGS: 80, API_SERVICES: 60}
_DEFAULT_RESERVED_REVISIONS = 20
"""Revisions that are reserved for the initial objects of a resource."""

_RESTORED = (
    NAMESPACES, CONFIG_MAPS, SERVICES, ENDPOINTS, ENDPOINT_SLICES, SERVICE_CIDRS, LEASES, PRIORITY_LEVEL_CONFIGURATIONS,
    FLOW_SCHEMAS,
)  # fmt: skip
"""Resources whose objects are restored when deleted; those of other kinds return with the next start."""

_RESTORED_FIELDS: dict[Resource[Any], tuple[str, ...]] = {
    ENDPOINTS: ("subsets",),
    ENDPOINT_SLICES: ("endpoints", "ports"),
    **dict.fromkeys((LEASES, FLOW_SCHEMAS, PRIORITY_LEVEL_CONFIGURATIONS), ("spec",)),
}
"""Fields that are restored when changed."""

_MANDATORY = ("exempt", "catch-all")


@cache
def _templates(resource: Resource[Any]) -> list[JSON]:
    return [object_template(resource, server_object) for server_object in _SHARED[resource]()]


class Bootstrap:
    """Creates and maintains the initial objects of a store, and the addresses of its Services.

    Objects have the time of the start, and uids from their own random generator, so they do not depend on the order of
    requests.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        rng: random.Random,
        identity: Identity,
        service_range: IPv4Network,
        root_ca: str | None,
        gates: FeatureGates,
        authentication_data: Callable[[], dict[str, str]] = dict,
        node_ports: range = NODE_PORT_RANGE,
    ) -> None:
        """root_ca: see NamespaceDefaults; None: ClusterRoles have no aggregated rules either, as without controllers.

        authentication_data: how extension API servers authenticate requests.
        """
        self._store = store
        self._clock = clock
        self._gates = gates
        self._authentication_data = authentication_data
        self._has_controllers = root_ca is not None
        self._identity = identity
        self._service_range = service_range
        self._rng = random.Random(rng.getrandbits(64))
        self._started = clock.now()
        self._holder = f"{identity.name}_{new_uid(self._rng)}"
        self._flow_schemas = FlowSchemas(store, clock)
        self.local_services = LocalServices(store, clock, self._rng)
        self.namespace_defaults = NamespaceDefaults(store, clock, self._rng, root_ca)
        self._restored: list[Resource[Any]] = [
            resource for resource in _RESTORED if resource is not LEASES or gates.enabled("APIServerIdentity")
        ]
        resources: dict[Resource[Any], None] = dict.fromkeys((*_SHARED, *self._restored))
        follow: dict[Resource[Any], Callable[[Change], None]] = {
            FLOW_SCHEMAS: self._flow_schemas.note_schema,
            PRIORITY_LEVEL_CONFIGURATIONS: self._flow_schemas.note_level,
        }
        if root_ca is not None:
            resources[SERVICE_ACCOUNTS] = None
            follow[NAMESPACES] = self.namespace_defaults.note_namespace
            follow[SERVICE_ACCOUNTS] = follow[CONFIG_MAPS] = self.namespace_defaults.note_object
        for resource, receive in follow.items():
            store.follow(resource, receive)
        self._changed: set[Resource[Any]] = set()
        self._lease_renewed_at = -math.inf
        for resource in (*self._restored, IP_ADDRESSES):
            store.follow(resource, partial(self._note_change, resource))
        store.add_initial_objects(
            {
                resource: InitialObjects(
                    _RESERVED_REVISIONS.get(resource, _DEFAULT_RESERVED_REVISIONS),
                    partial(self._objects, resource),
                )
                for resource in resources
            }
        )
        if root_ca is not None and store.data_directory is not None:  # it may be older than these objects
            self.namespace_defaults.note_all()
        self.addresses = ServiceAllocator(store, clock, rng, error_list_type(gates), node_ports)

    async def run(self) -> None:
        """Restore deleted and changed objects and renew the server's lease until cancelled.

        Raises ExceptionGroup of NotDurable.
        """
        loop, has_unused_addresses = asyncio.get_running_loop(), True
        authentication_data: dict[str, str] | None = None  # may depend on files
        if in_virtual_time := is_virtual(loop):
            self._store.refresh_before_reads(LEASES, lambda key: self._renew_lease(loop.time()))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flow_schemas.run(), name="flow-schemas")
            while True:
                due = 0.0 if has_unused_addresses else None
                await pause(_RESTORE_SECONDS, due, has_work=lambda: bool(self._changed))
                changed, self._changed = self._changed, set()
                if (data := self._authentication_data()) != authentication_data:
                    authentication_data = data
                    changed.add(CONFIG_MAPS)
                if in_virtual_time:
                    changed.discard(LEASES)
                else:
                    changed.add(LEASES)
                for resource in self._restored:
                    if resource in changed and self._store.initial_objects_created(resource):
                        self._restore(resource)
                if has_unused_addresses or not changed.isdisjoint((SERVICES, IP_ADDRESSES)):
                    has_unused_addresses = self.addresses.repair()

    def _note_change(self, resource: Resource[Any], change: Change) -> None:
        self._changed.add(resource)

    def _renew_lease(self, now: float) -> None:
        """Renew the server's lease, unless that has been done within the last interval."""
        if LEASES in self._restored and now - self._lease_renewed_at >= _RESTORE_SECONDS:
            self._lease_renewed_at = now
            self._restore(LEASES)

    # --- creating -----------------------------------------------------------------------------------------------------

    def _objects(self, resource: Resource[Any]) -> Iterator[JSON]:
        """Yield the initial objects of a resource."""
        now = rfc3339(self._started)
        for obj in self._templates(resource):
            yield stamp_object(obj, new_uid(self._rng), now)

    def _templates(self, resource: Resource[Any]) -> list[JSON]:
        if resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
            roles = contents.roles_with_gates(_templates(resource), self._gates)
            return contents.aggregated_roles(roles) if self._has_controllers and resource is CLUSTER_ROLES else roles
        if resource is API_SERVICES:
            return contents.services_with_gates(_templates(resource), self._gates)
        if resource in _SHARED:
            return _templates(resource)
        own = [] if resource is SERVICE_ACCOUNTS else [object_template(resource, obj) for obj in self._own(resource)]
        return own + self.namespace_defaults.initial_templates(resource)

    def _own(self, resource: Resource[Any]) -> list[ServerObject]:
        """Return the templates of the objects of a kind that depend on this server."""
        if resource is SERVICES:
            return [contents.service(str(self._service_range[1]), self._identity.port)]
        if resource is ENDPOINTS:
            return [contents.endpoints(self._identity)]
        if resource is ENDPOINT_SLICES:
            return [contents.endpoint_slice(self._identity)]
        if resource is SERVICE_CIDRS:
            return [contents.service_cidr(self._service_range)]
        if resource is LEASES:
            return [contents.identity_lease(self._identity, self._holder, rfc3339_micro(self._clock.now()))]
        assert resource is CONFIG_MAPS, resource
        tracking = contents.token_tracking(self._started.strftime("%Y-%m-%d"))
        data = self._authentication_data()
        return [tracking, contents.extension_authentication(data)] if data else [tracking]

    # --- maintaining --------------------------------------------------------------------------------------------------

    def _restore(self, resource: Resource[Any]) -> None:
        table, now = self._store.table(resource), rfc3339(self._clock.now())
        for desired in self._templates(resource):
            metadata = desired["metadata"]
            key = object_key(metadata.get("namespace", ""), metadata["name"])
            stored = table.get(key)
            if stored is None:
                table.create(key, stamp_object(desired, new_uid(self._rng), now))
            elif changes := _differences(resource, stored.object, desired):
                self._rewrite(resource, stored.object, changes, metadata["managedFields"][-1]["manager"])

    def _rewrite(self, resource: Resource[Any], old: JSON, changes: JSON, manager: str) -> None:
        target = get_served_resource(resource)
        obj = {**old, **changes, "metadata": dict(old["metadata"])}
        if target.generation:
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        track_update(target, obj, old, Writer(manager), lambda: rfc3339(self._clock.now()), subresource="")
        self._store.update(resource, obj)


def _differences(resource: Resource[Any], obj: JSON, desired: JSON) -> JSON:
    """Return the top-level fields of an object that must be restored."""
    if "deletionTimestamp" in obj["metadata"]:
        return {}
    if resource in (FLOW_SCHEMAS, PRIORITY_LEVEL_CONFIGURATIONS) and obj["metadata"]["name"] not in _MANDATORY:
        annotations = obj["metadata"].get("annotations", {})
        if annotations.get(contents.AUTOUPDATED) != "true":
            return {}
    fields = _RESTORED_FIELDS.get(resource, ())
    if desired["metadata"]["name"] == contents.EXTENSION_AUTHENTICATION:
        fields = ("data",)  # an earlier start of the server had other authorities
    return {name: desired[name] for name in fields if obj.get(name) != desired[name]}
