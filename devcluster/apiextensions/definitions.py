"""CustomResourceDefinitions of a server: their conditions, their names, what they serve, and their finalization.

apiextensions-apiserver uses controllers for this. Here it is done at once, after the request that made it necessary:
names are accepted, and the definition is established and served; or, if it is being deleted, its objects are deleted,
and it is removed after the last of them. Clients see the same changes in the same order, and the next request finds
them complete. Sources: the controllers and customresource_handler.go of apiextensions-apiserver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.api.delete_options import DeleteOptions
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.served_resources import CUSTOM_RESOURCE_DEFINITIONS, ServedResource, get_served_resource
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.handlers.writing.delete import ObjectDeleter
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.outgoing.webhook_client import WebhookClient
from kubeloop.devcluster.registry.custom_resource_definitions import (
    CLEANUP_FINALIZER,
    approval_condition,
    is_protected_group,
    with_condition,
)
from kubeloop.devcluster.storage.store import Change, ObjectStore
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.devcluster.apiextensions.conversion_webhook import ConversionWebhook
    from kubeloop.devcluster.apiextensions.served_version import ServedVersion


# The modules that check and serve definitions are imported for the first definition: most clusters have none.


_DEFINITIONS = get_served_resource(CUSTOM_RESOURCE_DEFINITIONS)
_API_SERVER = Writer("kube-apiserver")
_NAMES = ("plural", "singular", "kind", "listKind")


class Definitions:
    """The definitions of one store, and the versions they serve.

    `on_served_change` is called with each resource whose definition has changed or was removed, so that its watches
    end.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        on_served_change: Callable[[ServedResource], None],
        webhook_client: WebhookClient,
    ) -> None:
        self._store = store
        self._webhook_client = webhook_client
        self._deleter = ObjectDeleter(store, clock)
        self._clock = clock
        self._on_served_change = on_served_change
        self._served: dict[str, dict[str, ServedVersion]] = {}  # by definition, then version
        self._unsubscribe: dict[str, Callable[[], None]] = {}
        self._by_path: dict[tuple[str, str, str], ServedVersion] = {}
        self._pending: dict[str, None] = {}  # names of definitions to reconcile, oldest first
        self.revision = 0
        """Increases when the served versions change."""
        for definition in store.list(CUSTOM_RESOURCE_DEFINITIONS):
            self._pending[definition["metadata"]["name"]] = None
        store.subscribe(CUSTOM_RESOURCE_DEFINITIONS, self._on_change)
        self.settle()

    @property
    def pending(self) -> bool:
        """True if settle() has work to do."""
        return bool(self._pending)

    def _on_change(self, change: Change) -> None:
        self._pending[change.now.key] = None
        if change.type == "DELETED":  # other definitions of the group may take its names
            group = change.now.object["spec"]["group"]
            for other in self._store.list(CUSTOM_RESOURCE_DEFINITIONS):
                if other["spec"]["group"] == group:
                    self._pending[other["metadata"]["name"]] = None

    def settle(self) -> None:
        """Reconcile all definitions that have changed. Raises NotDurable."""
        while self._pending:
            name = next(iter(self._pending))
            del self._pending[name]
            self._sync(name)

    def _sync(self, name: str) -> None:
        definition = self._store.get(CUSTOM_RESOURCE_DEFINITIONS, "", name)
        if definition is None:
            self._serve(name, None)
            return
        definition = self._accept_names(definition)
        definition = self._set_approval_condition(definition)
        if is_true(definition, "NamesAccepted") and not is_true(definition, "Established"):
            condition = ("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
            definition = self._write(definition, conditions=[condition])
        self._serve(name, definition)
        metadata = definition["metadata"]
        if "deletionTimestamp" in metadata and CLEANUP_FINALIZER in metadata.get("finalizers", ()):
            self._clean_up(definition)

    def _write(self, definition: JSON, *, conditions: Iterable[tuple[str, str, str, str]] = (), **changes: Any) -> JSON:
        """Store a changed status, as the API server, and return the definition. An equal status is not written."""
        status = {**definition["status"], **changes}
        now = rfc3339(self._clock.now())
        for condition in conditions:
            status["conditions"] = with_condition(status.get("conditions") or [], *condition, now=now)
        if status == definition["status"]:
            return definition
        written = {**definition, "metadata": dict(definition["metadata"]), "status": status}
        track_update(_DEFINITIONS, written, definition, _API_SERVER, lambda: now, subresource="status")
        return self._store.update(CUSTOM_RESOURCE_DEFINITIONS, written)

    # --- names --------------------------------------------------------------------------------------------------------

    def _accept_names(self, definition: JSON) -> JSON:
        """Accept the names that no other definition of the group uses; set NamesAccepted and Established."""
        requested, accepted = definition["spec"]["names"], definition["status"]["acceptedNames"]
        if requested == accepted:
            return definition
        resources, kinds = self._names_in_group(definition)
        names, conflict = dict(accepted), ("", "")
        for name in _NAMES:
            ours, value = accepted.get(name, ""), requested.get(name, "")
            if value != ours and value in (kinds if name in ("kind", "listKind") else resources):
                conflict = (f"{name[0].upper()}{name[1:]}Conflict", f'"{value}" is already in use')
            else:
                names[name] = value
            if name == "singular":
                short = requested.get("shortNames") or []
                new = [short_name for short_name in short if short_name not in (accepted.get("shortNames") or ())]
                taken = [f'"{short_name}" is already in use' for short_name in new if short_name in resources]
                if taken:
                    message = taken[0] if len(taken) == 1 else f"[{', '.join(taken)}]"
                    conflict = ("ShortNamesConflict", message)
                else:
                    names["shortNames"] = short
        names["categories"] = requested.get("categories") or []
        names = {name: value for name, value in names.items() if value or name in ("plural", "kind")}
        if conflict[0]:
            accepting = ("NamesAccepted", "False", *conflict)
            installing = ("Established", "False", "NotAccepted", "not all names are accepted")
        else:
            accepting = ("NamesAccepted", "True", "NoConflicts", "no conflicts found")
            installing = ("Established", "False", "Installing", "the initial names have been accepted")
        conditions = [accepting]
        established = condition_of(definition, "Established")
        if established is None or (established["status"] != "True" and not conflict[0]):
            conditions.append(installing)
        return self._write(definition, conditions=conditions, acceptedNames=names)

    def _names_in_group(self, definition: JSON) -> tuple[set[str], set[str]]:
        """Return the resource names and the kinds accepted for definitions of the group, its own included."""
        resources: set[str] = set()
        kinds: set[str] = set()
        for other in self._store.list(CUSTOM_RESOURCE_DEFINITIONS):
            if other["spec"]["group"] == definition["spec"]["group"]:
                names = other["status"]["acceptedNames"]
                resources |= {names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or ())}
                kinds |= {names.get("kind", ""), names.get("listKind", "")}
        return resources, kinds

    def _set_approval_condition(self, definition: JSON) -> JSON:
        """Set KubernetesAPIApprovalPolicyConformant, for definitions in groups of the Kubernetes community."""
        if not is_protected_group(definition["spec"]["group"]):
            return definition
        status, reason, message = approval_condition(definition)
        return self._write(definition, conditions=[("KubernetesAPIApprovalPolicyConformant", status, reason, message)])

    # --- serving ------------------------------------------------------------------------------------------------------

    def _serve(self, name: str, definition: JSON | None) -> None:
        """Replace the served versions of a definition by those of its current state."""
        before = self._served.get(name, {})
        established = definition is not None and is_true(definition, "Established")
        terminating = definition is not None and is_true(definition, "Terminating")
        after: dict[str, ServedVersion] = {}
        storage_version: ServedVersion | None = None
        if established and definition is not None:
            if before and _serves_the_same(next(iter(before.values())), definition, terminating):
                return
            webhook = self._webhook(definition)
            versions = {
                spec["name"]: _served_version(definition, spec, webhook, terminating=terminating)
                for spec in definition["spec"]["versions"]
            }
            storage_version = next(
                versions[spec["name"]] for spec in definition["spec"]["versions"] if spec.get("storage")
            )
            for version in versions.values():
                version.storage_version = storage_version
            after = {key: version for key, version in versions.items() if version.spec.get("served")}
            unreadable = self._convert_stored_objects(storage_version, versions.values())
            for version in versions.values():
                version.others = tuple(other for other in after.values() if other is not storage_version)
                version.unreadable = unreadable
        elif not before:
            return
        self._served[name] = after
        self._by_path = {
            (version.served.resource.group, version.served.resource.version, version.served.resource.plural): version
            for versions in self._served.values()
            for version in versions.values()
        }
        self.revision += 1
        for version in before.values():
            version.is_current = False
            self._on_served_change(version.served)
        self._watch_objects(name, storage_version)
        if definition is None:
            del self._served[name]

    def _webhook(self, definition: JSON) -> ConversionWebhook | None:
        if (definition["spec"].get("conversion") or {}).get("strategy") != "Webhook":
            return None
        from kubeloop.devcluster.apiextensions.conversion_webhook import ConversionWebhook  # few definitions have one

        return ConversionWebhook(definition, self._webhook_client)

    def _convert_stored_objects(
        self, storage_version: ServedVersion, versions: Iterable[ServedVersion]
    ) -> dict[str, str]:
        """Convert stored objects to the current storage version and schema, as if they were read from etcd again.

        With a webhook, which converts them when they are read, they stay in the version in which they were written.
        Returns the keys of objects that were written in a version that the definition no longer has, and the version.
        """
        table = self._store.table(storage_version.served.resource)
        if not len(table):
            return {}
        readers = {version.served.resource.api_version: version for version in versions if version.has_webhook}
        table.convert_versions(
            lambda obj: readers.get(obj["apiVersion"], storage_version).read_with_current_schema(obj)
        )
        stored_api_version = storage_version.served.resource.api_version
        storage_version.reads_other_versions = any(
            stored.object["apiVersion"] != stored_api_version for stored in table.list()
        )
        written = {stored.key: stored.written_version for stored in table.list()}
        return {key: version for key, version in written.items() if version not in storage_version.api_versions}

    def _watch_objects(self, name: str, storage_version: ServedVersion | None) -> None:
        """Reconcile a definition that is being deleted again when its last object is removed."""
        unsubscribe = self._unsubscribe.pop(name, None)
        if unsubscribe is not None:
            unsubscribe()
        if storage_version is None or not storage_version.terminating:
            return

        def note(change: Change) -> None:
            if change.type == "DELETED":
                self._pending[name] = None

        self._unsubscribe[name] = self._store.subscribe(storage_version.served.resource, note)

    @property
    def serves_custom_resources(self) -> bool:
        return bool(self._by_path)

    def versions(self) -> list[ServedVersion]:
        """Return all served versions by group, then version in discovery order, then plural."""
        return sorted(self._by_path.values(), key=lambda version: version.discovery_rank)

    def route(self, path: str, method: str) -> RequestInfo | None:
        """Return the parsed path, None if no custom resource. Raises StatusError 404 for an unknown subresource."""
        parts = path.strip("/").split("/")
        if len(parts) < 4 or parts[0] != "apis":
            return None
        group, version, rest = parts[1], parts[2], parts[3:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) >= 3:
            namespace, rest = rest[1], rest[2:]
        served_version = self._by_path.get((group, version, rest[0]))
        if served_version is None or len(rest) > 3:
            return None
        resource = served_version.served.resource
        name = rest[1] if len(rest) > 1 else ""
        subresource = rest[2] if len(rest) > 2 else ""
        across = resource.namespaced and not name and method == "GET"
        if bool(namespace) != resource.namespaced and not across:
            return None
        if subresource and subresource not in resource.subresources:
            raise errors.not_found(resource, name)
        return RequestInfo(served_version.served, namespace, name, subresource)

    # --- deletion -----------------------------------------------------------------------------------------------------

    def _clean_up(self, definition: JSON) -> None:
        """Delete all objects of a definition that is being deleted; remove the finalizer when none is left."""
        name = definition["metadata"]["name"]
        versions = self._served.get(name) or {}
        if not is_true(definition, "Established"):
            condition = ("Terminating", "False", "NeverEstablished", "resource was never established")
        elif problem := next((version.list_problem for version in versions.values() if version.unreadable), ""):
            condition = ("Terminating", "True", "InstanceDeletionFailed", f"could not list instances: {problem}")
            self._write(definition, conditions=[condition])
            self._pending.pop(name, None)  # a definition with the old version makes it pending again
            return
        elif not self._delete_objects(definition, versions):
            condition = ("Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
            self._write(definition, conditions=[condition])
            self._pending.pop(name, None)  # the deletion of the objects makes it pending again
            return
        else:
            condition = ("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
        definition = self._write(definition, conditions=[condition])
        metadata = dict(definition["metadata"])
        metadata["finalizers"] = [
            finalizer for finalizer in metadata.get("finalizers", ()) if finalizer != CLEANUP_FINALIZER
        ]
        if metadata["finalizers"]:
            self._store.update(CUSTOM_RESOURCE_DEFINITIONS, {**definition, "metadata": metadata})
        else:
            self._store.delete(CUSTOM_RESOURCE_DEFINITIONS, "", name)

    def _delete_objects(self, definition: JSON, versions: dict[str, ServedVersion]) -> bool:
        """Delete the objects; return True if none is left."""
        version = next(iter(versions.values()), None)
        if version is None:
            stored = next(spec for spec in definition["spec"]["versions"] if spec.get("storage"))
            version = _served_version(definition, stored, None, terminating=True)
        table = self._store.table(version.served.resource)
        for stored_object in table.list():
            if "deletionTimestamp" not in stored_object.object["metadata"]:
                self._deleter.delete(version.served, stored_object, DeleteOptions())
        return not len(table)


def _served_version(
    definition: JSON, spec: JSON, webhook: ConversionWebhook | None, *, terminating: bool
) -> ServedVersion:
    from kubeloop.devcluster.apiextensions.served_version import ServedVersion  # few clusters have definitions

    return ServedVersion(definition, spec, webhook, terminating=terminating)


def _serves_the_same(version: ServedVersion, definition: JSON, terminating: bool) -> bool:
    before = version.definition
    return (
        before["spec"] == definition["spec"]
        and before["status"]["acceptedNames"] == definition["status"]["acceptedNames"]
        and version.terminating == terminating
    )
