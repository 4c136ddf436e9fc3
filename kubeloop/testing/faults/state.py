"""The stored objects without what differs between two runs of one scenario: times, UIDs and random names."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import msgspec

from kubeloop.devcluster.storage.store import ObjectStore

JSON = dict[str, Any]
_VOLATILE = {"uid", "resourceVersion", "generateName", "managedFields", "observedGeneration", "generation"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z")
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?![a-z0-9-])")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BOOKKEEPING = ("/last-handled-configuration",)  # kopf's annotation of what its handlers have seen
_TRACES = {"tracing.k8s.io/traceparent", "kubeloop.dev/pod-trace", "touched"}
_CERTIFICATES_OF_THE_RUN = "kube-system/extension-apiserver-authentication"
_VALUE_LENGTH = 120  # of values in sentences
_UNCOMPARED = {"events", "leases.coordination.k8s.io", "nodes", "events.events.k8s.io"}

ObjectNames = tuple[str, str, str]
"""Kind, namespace and name, whose random suffix is replaced by "*"."""


def stable(value: Any) -> Any:
    """Return a JSON value without times, UIDs, random names and trace contexts; lists are sorted."""
    if isinstance(value, dict):
        return {
            name: stable(item)
            for name, item in value.items()
            if name not in _VOLATILE | _TRACES
            and not name.endswith(_BOOKKEEPING)
            and not (isinstance(item, str) and _TIME.fullmatch(item))
        }
    if isinstance(value, list):
        items = [stable(item) for item in value]
        return sorted(items, key=_encoded)
    return stable_text(_UID.sub("UID", value)) if isinstance(value, str) else value


def stable_text(text: str) -> str:
    """Return a text with "*" in the place of the random suffix of a generated name."""
    return _SUFFIX.sub("-*", text)


@dataclass(frozen=True)
class Variations:
    """Differences between runs without faults, in addition to times, UIDs and names that the server generates.

    fields: kinds and paths, joined by dots; entries of lists have no index. names: kind,
    namespace and the beginning of names.
    """

    fields: frozenset[str] = frozenset()
    names: frozenset[ObjectNames] = frozenset()

    def stable_name(self, kind: str, namespace: str, name: str) -> str:
        """Return the name with "*" in the place of what varies."""
        for other_kind, other_namespace, beginning in self.names:
            if (kind, namespace) == (other_kind, other_namespace) and name.startswith(beginning):
                return f"{beginning}*"
        return stable_text(name)


class StoredState:
    """The objects of a store at the end of a run, by kind and name. since: those that changed after this revision.

    Objects whose owners are gone do not count: a garbage collector deletes them. with_status: resources whose status is
    compared; that of others is up to other controllers. variations: what is not compared. earlier: a state of the same
    store with the same variations, whose unchanged objects need no new work.
    """

    def __init__(
        self,
        store: ObjectStore,
        since: int,
        with_status: Collection[str] = (),
        variations: Variations | None = None,
        earlier: StoredState | None = None,
    ) -> None:
        stored = [(resource, entry) for resource, table in store.tables() for entry in table.list()]
        uids = {entry.object["metadata"].get("uid") for _, entry in stored}
        self._objects: list[tuple[str, JSON, bool]] = []  # kind, object, whether its status is compared
        for resource, entry in stored:
            obj = entry.object
            owners = [owner.get("uid") for owner in obj["metadata"].get("ownerReferences", ())]
            is_new = entry.revision > since and entry.key != _CERTIFICATES_OF_THE_RUN
            if resource in _UNCOMPARED or not is_new or (owners and uids.isdisjoint(owners)):
                continue
            self._objects.append((obj.get("kind") or resource, obj, resource in with_status))
        self.leave_out(variations or Variations(), earlier)

    def leave_out(self, variations: Variations, earlier: StoredState | None = None) -> None:
        """Compare without these variations from now on."""
        self._names: dict[ObjectNames, list[str]] = {}
        self._contents: Counter[tuple[ObjectNames, bytes]] = Counter()
        self._compared: dict[tuple[str, str, bool], tuple[ObjectNames, bytes]] = {}  # by UID and resourceVersion
        known = {} if earlier is None else earlier._compared
        for kind, obj, with_status in self._objects:
            metadata = obj["metadata"]
            key = metadata["uid"], metadata["resourceVersion"], with_status
            compared = known.get(key) or _compared(kind, obj, variations, with_status=with_status)
            self._compared[key] = compared
            self._names.setdefault(compared[0], []).append(metadata["name"])
            self._contents[compared] += 1

    def _contents_by_names(self) -> dict[ObjectNames, list[JSON]]:
        contents: dict[ObjectNames, list[JSON]] = {}
        for names, content in sorted(self._contents.elements()):
            contents.setdefault(names, []).append(msgspec.json.decode(content))
        return contents

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
                changes = ", ".join(_changes(msgspec.json.decode(wanted[names]), msgspec.json.decode(content)))
                yield f"{kind} {namespace}/{name} has {changes} in the end"


def variations_between(states: Sequence[StoredState]) -> Variations:
    """Return what differs between the ends of runs without faults; leave it out of these states.

    Names that are not in all of them become a beginning: up to the last separator before they differ.
    """
    names = {key for state in states for key in state._names if any(key not in other._names for other in states)}
    beginnings: dict[tuple[str, str, int], list[str]] = {}
    for kind, namespace, name in names:
        beginnings.setdefault((kind, namespace, name.count("-")), []).append(name)
    varying = {
        (kind, namespace, re.split(r"[^-.]*$", _common_beginning(min(group), max(group)))[0])
        for (kind, namespace, _), group in beginnings.items()
        if len(group) > 1
    }
    fields: set[str] = set()
    while True:
        variations = Variations(frozenset(fields), frozenset(varying))
        for state in states:
            state.leave_out(variations)
        contents = [state._contents_by_names() for state in states]
        before = len(fields)
        for one, other in combinations(contents, 2):
            for key in one.keys() & other.keys():
                for first, second in zip(one[key], other[key], strict=False):
                    fields.update(_varying_paths(first, second, key[0]))
        if len(fields) == before:
            return variations


def _common_beginning(one: str, other: str) -> str:
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _varying_paths(one: Any, other: Any, path: str) -> Iterator[str]:
    """Yield the paths at which two values differ; that of a list whose length differs."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one.keys() | other.keys():
            yield from _varying_paths(one.get(name), other.get(name), f"{path}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for first, second in zip(one, other, strict=True):
            yield from _varying_paths(first, second, path)
    elif one != other:
        yield path


def _without(value: Any, path: str, fields: Collection[str]) -> Any:
    """Return a value without the fields at these paths."""
    if not fields:
        return value
    if isinstance(value, dict):
        return {
            name: _without(item, f"{path}.{name}", fields)
            for name, item in value.items()
            if f"{path}.{name}" not in fields
        }
    return [_without(item, path, fields) for item in value] if isinstance(value, list) else value


def _compared(kind: str, obj: JSON, variations: Variations, *, with_status: bool) -> tuple[ObjectNames, bytes]:
    """Return the names of an object, and its content as JSON, without what varies."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace", "")
    content = stable(_without(_comparable(obj, with_status=with_status), kind, variations.fields))
    content["metadata"] = {field: value for field, value in content.get("metadata", {}).items() if value}
    return (kind, namespace, variations.stable_name(kind, namespace, metadata["name"])), _encoded(content)


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _comparable(obj: JSON, *, with_status: bool) -> JSON:
    kind, metadata = obj.get("kind"), obj["metadata"]
    if kind == "Pod":  # nodes are choices of the scheduler, and other fields follow from them
        return {}
    if with_status and isinstance((status := obj.get("status") or {}).get("conditions"), list):
        conditions = [entry for entry in status["conditions"] if not _is_false(entry)]
        obj = {**obj, "status": {**status, "conditions": conditions}}
    omitted = ("metadata",) if with_status else ("metadata", "status")
    compared = ("labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp")
    compared_metadata = {name: metadata[name] for name in compared if name in metadata}
    if "deletionTimestamp" in compared_metadata:
        compared_metadata["deletionTimestamp"] = True  # whatever the time
    return {**{name: value for name, value in obj.items() if name not in omitted}, "metadata": compared_metadata}


def _is_false(condition: Any) -> bool:
    """Return True for a condition that means what its absence means: whether it is there depends on what was before."""
    return isinstance(condition, dict) and condition.get("status") == "False"


def _changes(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Yield "spec.replicas 3 instead of 2" for each field that differs."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name in sorted(wanted.keys() | found.keys()):
            yield from _changes(wanted.get(name), found.get(name), f"{path}.{name}" if path else name)
    elif wanted != found:
        yield f"{path} {_shortened(found)} instead of {_shortened(wanted)}"


def _shortened(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _VALUE_LENGTH else f"{text[:_VALUE_LENGTH]}..."
