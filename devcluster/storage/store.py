"""Object store: in the role of etcd and of kube-apiserver's watch cache.

A version of an object is a JSON dict that is immutable once it is stored; a write stores a new dict. One counter, the
revision, numbers all writes and is the resourceVersion. Each table keeps its latest changes, from which watches resume
and lists of an earlier revision are built; older changes are compacted. Everything is synchronous: the store does not
change between two awaits of its callers. With a data directory, a write is durable before it becomes visible; if it
cannot be made durable, it does not take place. May import `data_directory`, `devcluster.api` and
`kube`.

    revision            1 ... compacted ... now
    a table's changes      [oldest kept, ..., newest]

Watches resume from any change that a table keeps, as from a watch cache. Lists of an earlier revision also need the
revision not to be compacted, as with etcd; otherwise both get 410 Expired. A table keeps its latest changes
(_MIN_CHANGES) regardless of their age.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import BY_PATH, storage_version_of
from kubeloop.devcluster.storage.data_directory import ChangeType, DataDirectory, Row
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def encode_object(obj: JSON) -> bytes:
    """Encode an object in Go's order of fields.

    Go encodes custom resources and their lists, which begin with apiVersion here, as maps: all fields are sorted.
    """
    return (_encode_sorted if next(iter(obj), "") == "apiVersion" else _encode)(obj)


METADATA_FIELDS = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
    "managedFields",
)  # fmt: skip
"""Fields of ObjectMeta in the order of Go's encoding."""
_ENCODED_CHANGES = 1_000  # newest changes of a table that stay encoded, for watches that are about to read them
_MIN_CHANGES = 100  # minimum capacity of kube-apiserver's watch cache


def object_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def key_of(obj: JSON) -> str:
    """Return the key of a stored object, which has a namespace if its kind is namespaced."""
    metadata = obj["metadata"]
    return object_key(metadata.get("namespace", ""), metadata["name"])


class StoredObject:
    """One version of one object. `object` is complete, with kind, apiVersion and resourceVersion.

    needs_rewrite: it was completed or converted when it was read, so the next update writes even if nothing else
    changed. written_version: the apiVersion in which it was written, "" for the one that it has.
    """

    __slots__ = ("_json", "_protobuf", "key", "needs_rewrite", "object", "revision", "written_version")

    def __init__(self, key: str, obj: JSON, revision: int) -> None:
        self.key = key
        self.object = obj
        self.revision = revision
        self.needs_rewrite = False
        self.written_version = ""
        self._json: bytes | None = None
        self._protobuf: bytes | None = None

    def json(self) -> bytes:
        """Return the object as JSON; encoded once for all lists and watches."""
        if self._json is None:
            self._json = encode_object(self.object)
        return self._json

    def protobuf(self, write: Callable[[JSON], bytes]) -> bytes:
        """Return the object in protobuf; encoded once. `write` must be the same function for all calls."""
        if self._protobuf is None:
            self._protobuf = write(self.object)
        return self._protobuf

    def convert(self, convert: Callable[[JSON], JSON]) -> None:
        self.written_version = self.written_version or self.object["apiVersion"]
        converted = convert(self.object)
        self.needs_rewrite = self.needs_rewrite or converted != self.object
        self.object = converted
        self.clear_encoded()

    def clear_encoded(self) -> None:
        self._json = self._protobuf = None


Versions: TypeAlias = list[StoredObject]


class Change:
    """One write. `before` is None for ADDED; `now` of DELETED is the last state with the revision of the deletion."""

    __slots__ = ("_json_event", "_protobuf_event", "before", "now", "revision", "seconds", "type")

    def __init__(self, type_: ChangeType, now: StoredObject, before: StoredObject | None, seconds: float) -> None:
        self.type: ChangeType = type_
        self.now = now
        self.before = before
        self.revision = now.revision
        self.seconds = seconds
        self._json_event: bytes | None = None
        self._protobuf_event: bytes | None = None

    def json_event(self) -> bytes:
        """Return the change as a JSON watch event; encoded once."""
        if self._json_event is None:
            self._json_event = b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.now.json())
        return self._json_event

    def protobuf_event(self, json_event: Callable[[Change], bytes]) -> bytes:
        """Return the change as a protobuf watch event, created by `frame`; encoded once."""
        if self._protobuf_event is None:
            self._protobuf_event = json_event(self)
        return self._protobuf_event

    def clear_encoded(self) -> None:
        self._json_event = self._protobuf_event = None

    def release(self) -> None:
        """Drop the encodings of the change and of the versions that it made obsolete: a reader creates them again."""
        self.clear_encoded()
        for version in (self.before, self.now if self.type == "DELETED" else None):
            if version is not None:
                version.clear_encoded()


Changes: TypeAlias = list[Change]


def with_revision(obj: JSON, revision: int) -> JSON:
    """Return `obj` with this resourceVersion and its metadata in Go's field order; other values are shared."""
    metadata = {**obj["metadata"], "resourceVersion": str(revision)}
    return {**obj, "metadata": {name: metadata[name] for name in METADATA_FIELDS if name in metadata}}


class Table:
    """All objects of one resource, in etcd's key order, and their latest changes (the resource's watch cache)."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store = store
        self._name = name
        self._objects: dict[str, StoredObject] = {}
        self._keys: list[str] = []
        self._changes: deque[Change] = deque()
        self._subscribers: dict[Callable[[Change], None], None] = {}
        self.compacted = 0
        """The newest revision whose change is dropped: watches can resume from here at the earliest."""
        self.revision = 0

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> StoredObject | None:
        return self._objects.get(key)

    def list(self, namespace: str = "") -> Versions:
        """Return all objects, or those of a namespace, ordered by key."""
        return self.after(f"{namespace}/" if namespace else "", namespace)

    def after(self, key: str, namespace: str = "") -> Versions:
        """Return the objects of list(), starting at `key`."""
        objects, keys = self._objects, self._keys
        if not keys:
            return []
        start = bisect_left(keys, key)
        stop = bisect_left(keys, f"{namespace}0") if namespace else len(keys)  # "0" follows "/"
        return [objects[key] for key in keys[start:stop]]

    def create(self, key: str, obj: JSON) -> StoredObject:
        """Store a new object; the caller has checked that the key is free. Raises NotDurable."""
        assert key not in self._objects, key
        stored = self._next("ADDED", key, obj)
        self._objects[key] = stored
        insort(self._keys, key)
        self._publish(Change("ADDED", stored, None, self._store.seconds()))
        return stored

    def create_initial(self, revision: int, initial: InitialObjects) -> None:
        """Store the initial objects under the reserved revisions from `revision` on. Raises NotDurable."""
        versions = [
            StoredObject(key_of(obj), with_revision(obj, number), number)
            for number, obj in enumerate(initial.create(), revision)
        ]
        assert len(versions) <= initial.revisions, self._name
        if self._store.data_directory is not None:
            self._store.data_directory.append_all(
                Row(version.revision, self._name, version.key, "ADDED", version.json()) for version in versions
            )
        self._objects = {version.key: version for version in versions}
        self._keys = sorted(self._objects)
        self._changes.extend(Change("ADDED", version, None, self._store.seconds()) for version in versions)
        self.revision = versions[-1].revision

    def update(self, before: StoredObject, obj: JSON) -> StoredObject:
        """Store a new version of `before`, which must be the current one. Raises NotDurable."""
        assert self._objects.get(before.key) is before, before.key
        stored = self._next("MODIFIED", before.key, obj)
        self._objects[before.key] = stored
        self._publish(Change("MODIFIED", stored, before, self._store.seconds()))
        return stored

    def delete(self, before: StoredObject, last: JSON | None = None) -> StoredObject:
        """Remove `before`. `last` is the state in the watch event, if the deletion itself changed the object.

        Raises NotDurable.
        """
        assert self._objects.get(before.key) is before, before.key
        stored = self._next("DELETED", before.key, before.object if last is None else last)
        del self._objects[before.key]
        del self._keys[bisect_left(self._keys, before.key)]
        self._publish(Change("DELETED", stored, before, self._store.seconds()))
        return stored

    def _next(self, type_: ChangeType, key: str, obj: JSON) -> StoredObject:
        """Create the next version and make it durable; it is not yet visible."""
        revision = self._store.revision + 1
        stored = StoredObject(key, with_revision(obj, revision), revision)
        if self._store.data_directory is not None:
            self._store.data_directory.append(revision, self._name, key, type_, stored.json())
        self._store.revision = revision
        return stored

    def restore(self, row: Row, *, compacted: int) -> None:
        """Restore a row of the data directory. Rows come once, in the order of their revisions, before all else.

        Rows up to `compacted` only contribute to the objects, not to the changes. Raises ValueError for a row that does
        not follow from the previous ones.
        """
        before = self._objects.get(row.key)
        if row.revision > compacted and (before is None) != (row.type == "ADDED"):
            raise ValueError(f"{row.type} of {self._name} {row.key} at revision {row.revision} does not follow")
        stored = StoredObject(row.key, msgspec.json.decode(row.object, type=dict[str, Any]), row.revision)
        if row.type == "DELETED":
            self._objects.pop(row.key, None)
        else:
            self._objects[row.key] = stored
        self.revision = row.revision
        if row.revision > compacted:
            self._changes.append(Change(row.type, stored, before, self._store.seconds()))
            self._trim()
            return
        self.compacted = row.revision
        if before is not None:
            self._store.superseded.append(before.revision)
        if row.type == "DELETED":
            self._store.superseded.append(row.revision)

    def finish_restore(self, compacted: int) -> None:
        """End the restore after the last row."""
        self._keys = sorted(self._objects)
        self.compacted = max(self.compacted, compacted)
        self.revision = max(self.revision, compacted)

    def convert_versions(self, convert: Callable[[JSON], JSON]) -> None:
        """Convert all stored versions, which keep their revisions; the data directory is not changed.

        Called when a CustomResourceDefinition changes: its objects are read differently, and nothing is written.
        """
        versions = {id(stored): stored for stored in self._objects.values()}
        for change in self._changes:
            versions[id(change.now)] = change.now
            if change.before is not None:
                versions[id(change.before)] = change.before
            change.clear_encoded()
        for stored in versions.values():
            stored.convert(convert)

    def changes_since(self, revision: int) -> Changes:
        """Return the changes after `revision`, oldest first. Raises 410 Expired if some of them are compacted."""
        if revision < self.compacted:
            raise errors.expired(f"too old resource version: {revision} ({self.compacted})")
        changes: Changes = []
        for change in reversed(self._changes):
            if change.revision <= revision:
                break
            changes.append(change)
        changes.reverse()
        return changes

    def snapshot_at(self, revision: int, namespace: str = "") -> Versions:
        """Return the objects as of `revision`, ordered by key. Raises 410 Expired if the revision is compacted."""
        if revision < max(self._store.compacted, self.compacted):
            raise errors.expired()
        if revision >= self.revision:
            return self.list(namespace)
        objects = dict(self._objects)
        for change in reversed(self.changes_since(revision)):
            if change.before is None:
                objects.pop(change.now.key, None)
            else:
                objects[change.now.key] = change.before
        prefix = f"{namespace}/" if namespace else ""
        return [objects[key] for key in sorted(objects) if key.startswith(prefix)]

    def subscribe(self, receive: Callable[[Change], None]) -> Callable[[], None]:
        """Call `receive` with every change, from within the write. Returns a function that ends the subscription."""
        self._subscribers[receive] = None

        def unsubscribe() -> None:
            self._subscribers.pop(receive, None)

        return unsubscribe

    @property
    def is_watched(self) -> bool:
        """True if changes are received by a watch or a part of the server."""
        return bool(self._subscribers)

    def compact(self, before_seconds: float) -> None:
        """Drop changes made before that time of the store's clock, except the latest ones."""
        while len(self._changes) > _MIN_CHANGES and self._changes[0].seconds < before_seconds:
            self._drop_oldest()

    def _publish(self, change: Change) -> None:
        self.revision = change.revision
        self._changes.append(change)
        self._trim()
        if len(self._changes) > _ENCODED_CHANGES:
            self._changes[-_ENCODED_CHANGES].release()
        for receive in tuple(self._subscribers):
            receive(change)

    def _trim(self) -> None:
        if len(self._changes) > self._store.max_changes:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Drop the oldest change; the version that it replaced becomes superseded."""
        change = self._changes.popleft()
        self.compacted = change.revision
        if self._store.data_directory is not None:
            if change.before is not None:
                self._store.superseded.append(change.before.revision)
            if change.type == "DELETED":
                self._store.superseded.append(change.revision)

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert self._keys == sorted(self._objects)
        assert all(stored.object["metadata"]["resourceVersion"] == str(stored.revision) for stored in self.list())
        revisions = [change.revision for change in self._changes]
        assert revisions == sorted(set(revisions))
        assert not revisions or revisions[0] > self.compacted


@dataclass(frozen=True, slots=True)
class InitialObjects:
    """Objects that a resource has from the start. `create` creates them when the resource is first accessed.

    revisions: number of revisions reserved for them.
    """

    revisions: int
    create: Callable[[], Iterable[JSON]]


class ObjectStore:
    """All tables and their common revision.

    `seconds` is a monotonic clock (the event loop's `time`). `max_changes` limits the changes kept per table.
    `compaction_seconds` is the age after which compact() drops changes (etcd's default: 5 minutes). `data_directory`
    makes the store durable: it starts with the directory's content; raises UserError if that is damaged.

    `superseded`: revisions whose rows can be deleted from the data directory (see purge).
    """

    def __init__(
        self,
        *,
        seconds: Callable[[], float],
        max_changes: int = 20_000,
        compaction_seconds: float = 300.0,
        data_directory: DataDirectory | None = None,
    ) -> None:
        self.seconds = seconds
        self.max_changes = max_changes
        self.compaction_seconds = compaction_seconds
        self.data_directory = data_directory
        self.superseded: deque[int] = deque()
        self.revision = 1
        self.compacted = 0
        self._tables: dict[str, Table] = {}
        # by id(), as hashing a Resource takes longer than all else; those of BY_PATH exist as long as the process
        self._tables_of_served: dict[int, Table] = {}
        self._initial_objects: dict[str, tuple[int, InitialObjects]] = {}  # with the first reserved revision
        self._followers: dict[str, list[Callable[[Change], None]]] = {}
        self._refreshers: dict[str, list[Callable[[str], None]]] = {}
        self._revisions_by_time: deque[tuple[float, int]] = deque()
        self._numbers: dict[str, int] = {}
        if data_directory is not None:
            self._restore(data_directory)

    def table(self, resource: Resource[Any]) -> Table:
        if (table := self._tables_of_served.get(id(resource))) is not None:
            return table
        served = BY_PATH.get((resource.group, resource.version, resource.plural))
        table = self._table((resource if served is None else storage_version_of(served).resource).group_resource)
        if served is not None and served.resource is resource:
            self._tables_of_served[id(resource)] = table
        return table

    def _table(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            table = Table(self, name)
            if name in self._initial_objects:
                revision, initial = self._initial_objects[name]
                table.create_initial(revision, initial)
                del self._initial_objects[name]
            for receive in self._followers.pop(name, ()):
                table.subscribe(receive)
            self._tables[name] = table
        return table

    def add_initial_objects(self, initial_objects: Mapping[Resource[Any], InitialObjects]) -> None:
        """Give resources initial objects, which are created on first access.

        Their revisions are reserved now, so late creation is not observable, and unused resources cost nothing. For a
        resource that the data directory has restored, only missing objects are created. Raises NotDurable.
        """
        for resource, initial in initial_objects.items():
            name = resource.group_resource
            if (table := self._tables.get(name)) is None:
                self._initial_objects[name] = (self.revision + 1, initial)
                self.revision += initial.revisions
                continue
            for obj in initial.create():
                if table.get(key := key_of(obj)) is None:
                    table.create(key, obj)
        if self.data_directory is not None:
            self.data_directory.mark(_REVISION, self.revision)

    def get_number(self, name: str) -> int:
        """Return a number that is stored in addition to the objects; 0 if it was never set."""
        return self._numbers.get(name, 0)

    def set_number(self, name: str, number: int) -> None:
        """Store the number as durably as the objects. Raises NotDurable."""
        if self.data_directory is not None:
            self.data_directory.mark(_NUMBER_PREFIX + name, number)
        self._numbers[name] = number

    def initial_objects_created(self, resource: Resource[Any]) -> bool:
        """Return True once the resource's initial objects exist, or if it has none."""
        return resource.group_resource not in self._initial_objects

    def tables(self) -> Iterator[tuple[str, Table]]:
        """Yield (group-resource such as "deployments.apps", table) of every table, creating initial objects."""
        for name in tuple(self._initial_objects):
            self._table(name)
        yield from self._tables.items()

    def get(self, resource: Resource[Any], namespace: str, name: str) -> JSON | None:
        """Return the object, which must not be modified, or None."""
        stored = self.table(resource).get(object_key(namespace if resource.namespaced else "", name))
        return None if stored is None else stored.object

    def list(self, resource: Resource[Any], namespace: str = "") -> list[JSON]:
        """Return the objects, which must not be modified, ordered by namespace and name."""
        return [stored.object for stored in self.table(resource).list(namespace)]

    def create(self, resource: Resource[Any], obj: JSON) -> JSON:
        """Store a complete object, without admission. Raises StatusError AlreadyExists."""
        metadata = obj["metadata"]
        key = object_key(metadata.get("namespace", "") if resource.namespaced else "", metadata["name"])
        table = self.table(resource)
        if table.get(key) is not None:
            raise errors.already_exists(resource, metadata["name"])
        return table.create(key, obj).object

    def update(self, resource: Resource[Any], obj: JSON) -> JSON:
        """Store the next version of an object, without admission; a resourceVersion in it must be the current one.

        Raises StatusError NotFound or Conflict.
        """
        metadata = obj["metadata"]
        table = self.table(resource)
        before = table.get(object_key(metadata.get("namespace", "") if resource.namespaced else "", metadata["name"]))
        if before is None:
            raise errors.not_found(resource, metadata["name"])
        if metadata.get("resourceVersion", str(before.revision)) != str(before.revision):
            raise errors.conflict(resource, metadata["name"])
        return table.update(before, obj).object

    def delete(self, resource: Resource[Any], namespace: str, name: str) -> JSON:
        """Remove an object regardless of its finalizers and return its last state. Raises StatusError NotFound."""
        table = self.table(resource)
        before = table.get(object_key(namespace if resource.namespaced else "", name))
        if before is None:
            raise errors.not_found(resource, name)
        return table.delete(before).object

    def subscribe(self, resource: Resource[Any], receive: Callable[[Change], None]) -> Callable[[], None]:
        """Call `receive` synchronously with every change of the resource. Returns a function that unsubscribes."""
        return self.table(resource).subscribe(receive)

    def follow(self, resource: Resource[Any], receive: Callable[[Change], None]) -> None:
        """Call `receive` with every later change of a resource, whose initial objects this does not create.

        resource: in its storage version.
        """
        if (table := self._tables.get(resource.group_resource)) is not None:
            table.subscribe(receive)
        else:
            self._followers.setdefault(resource.group_resource, []).append(receive)

    def refresh_before_reads(self, resource: Resource[Any], refresh: Callable[[str], None]) -> None:
        """Call `refresh` before a client reads objects of a resource that are a function of time.

        It receives the key of the object, or "" for all objects, and updates them.
        """
        self._refreshers.setdefault(resource.group_resource, []).append(refresh)

    def refresh(self, resource: Resource[Any], key: str = "") -> None:
        """Update the object with this key, or all objects of the resource, if they are a function of time."""
        if self._refreshers:
            for refresh in self._refreshers.get(resource.group_resource, ()):
                refresh(key)

    def compact(self) -> None:
        """Drop changes older than `compaction_seconds`; called periodically, as kube-apiserver compacts etcd."""
        now = self.seconds()
        self._revisions_by_time.append((now, self.revision))
        while self._revisions_by_time and self._revisions_by_time[0][0] <= now - self.compaction_seconds:
            self.compacted = self._revisions_by_time.popleft()[1]
        for table in self._tables.values():
            if len(table._changes) > _MIN_CHANGES:
                table.compact(now - self.compaction_seconds)

    def purge(self, at_most: int) -> bool:
        """Delete up to that many superseded rows from the data directory. Returns True if more are left.

        Raises sqlite3.Error if the directory cannot be written; the rows are then retried by the next call.
        """
        if self.data_directory is None or not self.superseded:
            return False
        revisions = [self.superseded.popleft() for _ in range(min(at_most, len(self.superseded)))]
        marks = {_REVISION: self.revision, _COMPACTED: self.compacted}
        marks |= {name: table.compacted for name, table in self._tables.items()}
        try:
            self.data_directory.delete_versions(revisions, marks)
        except BaseException:
            self.superseded.extendleft(reversed(revisions))
            raise
        return bool(self.superseded)

    def _restore(self, data_directory: DataDirectory) -> None:
        marks = data_directory.marks()
        self.revision = marks.pop(_REVISION, self.revision)
        self.compacted = marks.pop(_COMPACTED, 0)
        self._numbers = {
            name.removeprefix(_NUMBER_PREFIX): marks.pop(name)
            for name in tuple(marks)
            if name.startswith(_NUMBER_PREFIX)
        }
        for row in data_directory.rows():
            try:
                self._table(row.resource).restore(row, compacted=marks.get(row.resource, 0))
            except (ValueError, msgspec.MsgspecError) as error:
                raise data_directory.damaged_error(str(error)) from None
            self.revision = max(self.revision, row.revision)
        for name in {*self._tables, *marks}:
            self._table(name).finish_restore(marks.get(name, 0))


_REVISION, _COMPACTED = "*revision", "*compacted"  # marks of the whole store; other marks are named after tables
_NUMBER_PREFIX = "+"  # of the marks that hold numbers
