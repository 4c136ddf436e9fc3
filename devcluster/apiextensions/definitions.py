"""Which custom resources a server serves: the life of its CustomResourceDefinitions.

What apiextensions-apiserver has controllers for happens here at once, after the request that asks for it: names are
accepted, the definition is established and served, or, if it is being deleted, its objects are deleted and it goes when
they are gone. So clients see the same changes in the same order, and the next request finds them done. Sources: the
controllers and customresource_handler.go of apiextensions-apiserver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.conditions import condition_of, is_true
from kubeloop.devcluster.api.deferred_work import DeferredWork
from kubeloop.devcluster.api.delete_options import DeleteOptions
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.served_resources import CUSTOM_RESOURCE_DEFINITIONS, ServedResource, get_served_resource
from kubeloop.devcluster.api.writer import Writer
from kubeloop.devcluster.apiextensions.definition_validation import DEFINITION_VALIDATORS
from kubeloop.devcluster.apiextensions.served_version import Version, version_rank
from kubeloop.devcluster.handlers.delete import ObjectDeleter
from kubeloop.devcluster.managedfields.field_sets import track_update
from kubeloop.devcluster.registry.custom_resource_definitions import (
    CLEANUP_FINALIZER,
    approval_condition,
    is_protected_group,
    with_condition,
)
from kubeloop.devcluster.storage.store import Change, Store
from kubeloop.devcluster.validation.kind_validators import KIND_VALIDATORS
from kubeloop.kube.clock import Clock, rfc3339
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.devcluster.apiextensions.conversion_webhook import ConversionWebhook


KIND_VALIDATORS[CUSTOM_RESOURCE_DEFINITIONS.group, CUSTOM_RESOURCE_DEFINITIONS.kind] = DEFINITION_VALIDATORS

_DEFINITIONS = get_served_resource(CUSTOM_RESOURCE_DEFINITIONS)
_OURSELVES = Writer("kube-apiserver")
_NAMES = ("plural", "singular", "kind", "listKind")


class Definitions:
    """The definitions of one store, and what they serve.

    `changed` is called with the resource whose definition has changed or gone, for its watches to end.
    """

    def __init__(
        self,
        store: Store,
        deleting: ObjectDeleter,
        clock: Clock,
        deferred_work: DeferredWork,
        changed: Callable[[ServedResource], None],
    ) -> None:
        self._store = store
        self._deferred_work = deferred_work
        self._deleting = deleting
        self._clock = clock
        self._changed = changed
        self._served: dict[str, dict[str, Version]] = {}  # by definition, then version
        self._unsubscribe: dict[str, Callable[[], None]] = {}
        self._by_path: dict[tuple[str, str, str], Version] = {}
        self._pending: dict[str, None] = {}  # names of definitions to look at, oldest first
        self.revision = 0
        """Changes with what is served."""
        for each in store.list(CUSTOM_RESOURCE_DEFINITIONS):
            self._pending[each["metadata"]["name"]] = None
        store.subscribe(CUSTOM_RESOURCE_DEFINITIONS, self._note)
        self.settle()

    @property
    def pending(self) -> bool:
        """Is there anything to settle()?"""
        return bool(self._pending)

    def _note(self, change: Change) -> None:
        self._pending[change.now.key] = None
        if change.type == "DELETED":  # its names are free
            group = change.now.object["spec"]["group"]
            for each in self._store.list(CUSTOM_RESOURCE_DEFINITIONS):
                if each["spec"]["group"] == group:
                    self._pending[each["metadata"]["name"]] = None

    def settle(self) -> None:
        """Do what the changes of definitions ask for, until nothing is left to do. Raises NotDurable."""
        while self._pending:
            name = next(iter(self._pending))
            del self._pending[name]
            self._sync(name)

    def _sync(self, name: str) -> None:
        definition = self._store.get(CUSTOM_RESOURCE_DEFINITIONS, "", name)
        if definition is None:
            self._serve(name, None)
            return
        definition = self._named(definition)
        definition = self._approved(definition)
        if is_true(definition, "NamesAccepted") and not is_true(definition, "Established"):
            told = ("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
            definition = self._write(definition, conditions=[told])
        self._serve(name, definition)
        metadata = definition["metadata"]
        if "deletionTimestamp" in metadata and CLEANUP_FINALIZER in metadata.get("finalizers", ()):
            self._clean_up(definition)

    def _write(self, definition: JSON, *, conditions: Iterable[tuple[str, str, str, str]] = (), **changes: Any) -> JSON:
        """Store another status, as the server's own controllers write it. Nothing changes: nothing is stored."""
        status = {**definition["status"], **changes}
        now = rfc3339(self._clock.now())
        for condition in conditions:
            status["conditions"] = with_condition(status.get("conditions") or [], *condition, now=now)
        if status == definition["status"]:
            return definition
        written = {**definition, "metadata": dict(definition["metadata"]), "status": status}
        track_update(_DEFINITIONS, written, definition, _OURSELVES, lambda: now, subresource="status")
        return self._store.update(CUSTOM_RESOURCE_DEFINITIONS, written)

    # --- names --------------------------------------------------------------------------------------------------------

    def _named(self, definition: JSON) -> JSON:
        """Accept the names that nobody else in the group has."""
        wanted, accepted = definition["spec"]["names"], definition["status"]["acceptedNames"]
        if wanted == accepted:
            return definition
        resources, kinds = self._taken(definition)
        names, conflict = dict(accepted), ("", "")
        for name in _NAMES:
            ours, value = accepted.get(name, ""), wanted.get(name, "")
            if value != ours and value in (kinds if name in ("kind", "listKind") else resources):
                conflict = (f"{name[0].upper()}{name[1:]}Conflict", f'"{value}" is already in use')
            else:
                names[name] = value
            if name == "singular":
                short = wanted.get("shortNames") or []
                new = [each for each in short if each not in (accepted.get("shortNames") or ())]
                taken = [f'"{each}" is already in use' for each in new if each in resources]
                if taken:
                    told = taken[0] if len(taken) == 1 else f"[{', '.join(taken)}]"
                    conflict = ("ShortNamesConflict", told)
                else:
                    names["shortNames"] = short
        names["categories"] = wanted.get("categories") or []
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

    def _taken(self, definition: JSON) -> tuple[set[str], set[str]]:
        """Names of resources and of kinds that definitions of the group have, its own included."""
        resources: set[str] = set()
        kinds: set[str] = set()
        for each in self._store.list(CUSTOM_RESOURCE_DEFINITIONS):
            if each["spec"]["group"] == definition["spec"]["group"]:
                names = each["status"]["acceptedNames"]
                resources |= {names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or ())}
                kinds |= {names.get("kind", ""), names.get("listKind", "")}
        return resources, kinds

    def _approved(self, definition: JSON) -> JSON:
        """Groups of the Kubernetes community need an approval; whether there is one is a condition."""
        if not is_protected_group(definition["spec"]["group"]):
            return definition
        status, reason, message = approval_condition(definition)
        return self._write(definition, conditions=[("KubernetesAPIApprovalPolicyConformant", status, reason, message)])

    # --- serving ------------------------------------------------------------------------------------------------------

    def _serve(self, name: str, definition: JSON | None) -> None:
        """Serve what the definition says, in place of what it said before."""
        before = self._served.get(name, {})
        established = definition is not None and is_true(definition, "Established")
        terminating = definition is not None and is_true(definition, "Terminating")
        after: dict[str, Version] = {}
        home: Version | None = None
        if established and definition is not None:
            if before and _same_service(next(iter(before.values())), definition, terminating):
                return
            webhook = self._webhook(definition)
            versions = {
                each["name"]: Version(definition, each, self._deferred_work, webhook, terminating=terminating)
                for each in definition["spec"]["versions"]
            }
            home = next(versions[each["name"]] for each in definition["spec"]["versions"] if each.get("storage"))
            for version in versions.values():
                version.home = home
            after = {key: each for key, each in versions.items() if each.spec.get("served")}
            for version in versions.values():
                version.others = tuple(each for each in after.values() if each is not home)
            self._reread(home)
        elif not before:
            return
        self._served[name] = after
        self._by_path = {
            (each.served.resource.group, each.served.resource.version, each.served.resource.plural): each
            for versions in self._served.values()
            for each in versions.values()
        }
        self.revision += 1
        for version in before.values():
            self._changed(version.served)
        self._follow(name, home)
        if definition is None:
            del self._served[name]

    def _webhook(self, definition: JSON) -> ConversionWebhook | None:
        if (definition["spec"].get("conversion") or {}).get("strategy") != "Webhook":
            return None
        from kubeloop.devcluster.apiextensions.conversion_webhook import ConversionWebhook  # few definitions have one

        return ConversionWebhook(definition, self._deferred_work)

    def _reread(self, home: Version) -> None:
        """Bring what is stored into the form that the definition now has, as if it were read from etcd again."""
        table = self._store.table(home.served.resource)
        if len(table):
            table.convert_versions(home.reread)

    def _follow(self, name: str, home: Version | None) -> None:
        """Look at the definition again when the last of its objects has gone."""
        unsubscribe = self._unsubscribe.pop(name, None)
        if unsubscribe is not None:
            unsubscribe()
        if home is None or not home.terminating:
            return

        def note(change: Change) -> None:
            if change.type == "DELETED":
                self._pending[name] = None

        self._unsubscribe[name] = self._store.subscribe(home.served.resource, note)

    def versions(self) -> list[Version]:
        """Everything that is served: by group, versions in the order of discovery, by name."""
        return sorted(
            self._by_path.values(),
            key=lambda each: (
                each.served.resource.group,
                version_rank(each.served.resource.version),
                each.served.resource.plural,
            ),
        )

    def route(self, path: str, method: str) -> RequestInfo | None:
        """What a path names, None if it is no custom resource. Raises StatusError 404 for what it lacks."""
        parts = path.strip("/").split("/")
        if len(parts) < 4 or parts[0] != "apis":
            return None
        group, version, rest = parts[1], parts[2], parts[3:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) >= 3:
            namespace, rest = rest[1], rest[2:]
        found = self._by_path.get((group, version, rest[0]))
        if found is None or len(rest) > 3:
            return None
        resource = found.served.resource
        name = rest[1] if len(rest) > 1 else ""
        subresource = rest[2] if len(rest) > 2 else ""
        across = resource.namespaced and not name and method == "GET"
        if bool(namespace) != resource.namespaced and not across:
            return None
        if subresource and subresource not in resource.subresources:
            raise errors.not_found(resource, name)
        return RequestInfo(found.served, namespace, name, subresource)

    # --- deletion -----------------------------------------------------------------------------------------------------

    def _clean_up(self, definition: JSON) -> None:
        """Delete all objects of a definition that is being deleted; when there are none left, let it go."""
        name = definition["metadata"]["name"]
        versions = self._served.get(name) or {}
        if not is_true(definition, "Established"):
            ended = ("Terminating", "False", "NeverEstablished", "resource was never established")
        elif not self._delete_objects(definition, versions):
            told = ("Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
            self._write(definition, conditions=[told])
            self._pending.pop(name, None)  # what is to come is heard of from the objects' table
            return
        else:
            ended = ("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
        definition = self._write(definition, conditions=[ended])
        metadata = dict(definition["metadata"])
        metadata["finalizers"] = [each for each in metadata.get("finalizers", ()) if each != CLEANUP_FINALIZER]
        if metadata["finalizers"]:
            self._store.update(CUSTOM_RESOURCE_DEFINITIONS, {**definition, "metadata": metadata})
        else:
            self._store.delete(CUSTOM_RESOURCE_DEFINITIONS, "", name)

    def _delete_objects(self, definition: JSON, versions: dict[str, Version]) -> bool:
        """Delete them; True if none is left."""
        version = next(iter(versions.values()), None)
        if version is None:
            stored = next(each for each in definition["spec"]["versions"] if each.get("storage"))
            version = Version(definition, stored, self._deferred_work, None, terminating=True)
        table = self._store.table(version.served.resource)
        for stored_object in table.list():
            if "deletionTimestamp" not in stored_object.object["metadata"]:
                self._deleting.delete(version.served, stored_object, DeleteOptions())
        return not len(table)


def _same_service(version: Version, definition: JSON, terminating: bool) -> bool:
    before = version.definition
    return (
        before["spec"] == definition["spec"]
        and before["status"]["acceptedNames"] == definition["status"]["acceptedNames"]
        and version.terminating == terminating
    )
