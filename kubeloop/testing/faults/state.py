"""The stored objects without what differs between two runs of one scenario: times, UIDs and random names."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kubeloop.devcluster.storage.store import ObjectStore

JSON = dict[str, Any]
_VOLATILE = {"uid", "resourceVersion", "generateName", "managedFields", "observedGeneration", "generation"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z")
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?![a-z0-9-])")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TRACES = {"tracing.k8s.io/traceparent", "kubeloop.dev/pod-trace", "touched"}
_UNCOMPARED = {"events", "leases.coordination.k8s.io", "nodes", "events.events.k8s.io"}

ObjectNames = tuple[str, str, str]
"""Kind, namespace and name, whose random suffix is replaced by "*"."""


def stable(value: Any) -> Any:
    """Return a JSON value without times, UIDs, random names and trace contexts; lists are sorted."""
    if isinstance(value, dict):
        return {
            name: stable(item)
            for name, item in value.items()
            if name not in _VOLATILE | _TRACES and not (isinstance(item, str) and _TIME.fullmatch(item))
        }
    if isinstance(value, list):
        items = [stable(item) for item in value]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    return stable_text(_UID.sub("UID", value)) if isinstance(value, str) else value


def stable_text(text: str) -> str:
    """Return a text with "*" in the place of the random suffix of a generated name."""
    return _SUFFIX.sub("-*", text)


class StoredState:
    """The objects of a store at the end of a run, by kind and name. since: those that changed after this revision.

    Objects whose owners are gone do not count: a garbage collector deletes them. with_status: resources whose status is
    compared; that of others is up to other controllers.
    """

    def __init__(self, store: ObjectStore, since: int, with_status: Collection[str] = ()) -> None:
        self._names: dict[ObjectNames, list[str]] = {}
        self._contents: Counter[tuple[ObjectNames, str]] = Counter()
        stored = [(resource, entry) for resource, table in store.tables() for entry in table.list()]
        uids = {entry.object["metadata"].get("uid") for _, entry in stored}
        for resource, entry in stored:
            obj, metadata = entry.object, entry.object["metadata"]
            owners = [owner.get("uid") for owner in metadata.get("ownerReferences", ())]
            if resource in _UNCOMPARED or entry.revision <= since or (owners and uids.isdisjoint(owners)):
                continue
            names = obj.get("kind") or resource, metadata.get("namespace", ""), stable_text(metadata["name"])
            self._names.setdefault(names, []).append(metadata["name"])
            self._contents[
                names, json.dumps(_comparable(obj, with_status=resource in with_status), sort_keys=True)
            ] += 1

    def differences(self, expected: StoredState) -> list[str]:
        """Return how this state differs from the expected one, as sentences about what was, or was not, done."""
        sentences = []
        for names in sorted(self._names.keys() | expected._names.keys()):
            found, wanted = self._names.get(names, []), expected._names.get(names, [])
            kind, namespace, name = names
            title = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
            if len(found) > len(wanted):
                count = "a second" if len(wanted) == 1 and len(found) == 2 else f"{len(found) - len(wanted)} more"
                which = f"{count} {title}" if wanted else title
                sentences.append(f"{which} was created and never deleted")
            elif len(found) < len(wanted):
                sentences.append(f"{title} does not exist in the end")
        return sentences or [*self._content_differences(expected)]

    def _content_differences(self, expected: StoredState) -> Iterator[str]:
        extra, missing = self._contents - expected._contents, expected._contents - self._contents
        wanted = dict(missing.keys())
        for names, content in sorted(extra):
            if names in wanted:
                kind, namespace, name = names
                changes = ", ".join(_changes(json.loads(wanted[names]), json.loads(content)))
                yield f"{kind} {namespace}/{name} has {changes} in the end"


def _comparable(obj: JSON, *, with_status: bool) -> JSON:
    kind, metadata = obj.get("kind"), obj["metadata"]
    if kind == "Pod":  # nodes are choices of the scheduler, and other fields follow from them
        return {}
    omitted = ("metadata",) if with_status else ("metadata", "status")
    kept = ("labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp")
    kept_metadata = stable({name: metadata[name] for name in kept if name in metadata})
    fields: JSON = stable({name: value for name, value in obj.items() if name not in omitted})
    return {**fields, "metadata": {name: value for name, value in kept_metadata.items() if value}}


def _changes(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Yield "spec.replicas 3 instead of 2" for each field that differs."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name in sorted(wanted.keys() | found.keys()):
            yield from _changes(wanted.get(name), found.get(name), f"{path}.{name}" if path else name)
    elif wanted != found:
        yield f"{path} {json.dumps(found)} instead of {json.dumps(wanted)}"
