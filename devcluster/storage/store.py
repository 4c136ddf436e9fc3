"""What etcd and the watch cache are to kube-apiserver: every object, its versions, and who watches.

A version of an object is a plain JSON dict that nobody changes once it is stored; a write stores a new dict. One
counter, the revision, numbers all writes and is the resourceVersion. Each table keeps its latest changes, so that
watches resume and lists read an earlier revision; older ones are compacted away. Everything here is synchronous:
between two awaits of its callers the store stands still. With a journal a write is durable before anything else
happens: if that fails, it has not taken place. May import the standard library, msgspec, journal, registry and errors
only.

    revision            1 ... compacted ... now
    a table's changes      [oldest kept, ..., newest]

Watches resume from any change that is kept, as they do from a watch cache; lists of the past need, moreover, a revision
that is not compacted, as they do with etcd. A table keeps its latest few changes however old they are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.devcluster.storage.sqlite import ChangeType, Journal, Row
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import Resource

_encode = msgspec.json.Encoder().encode
METADATA_FIELDS = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers",
    "managedFields",
)  # fmt: skip
"""Of every object, in the order in which Go writes them."""
_KEPT_CHANGES = 100  # a watch cache's smallest capacity


def object_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def key_of(obj: JSON) -> str:
    """Of a stored object, which has a namespace if its kind has."""
    metadata = obj["metadata"]
    return object_key(metadata.get("namespace", ""), metadata["name"])


class Stored:
    """One version of one object. `object` is complete, with kind, apiVersion and its resourceVersion.

    is_completed: was something added when it was read back, so that the next write is one even if it changes nothing?
    """

    __slots__ = ("_json", "_message", "is_completed", "key", "object", "revision")

    def __init__(self, key: str, obj: JSON, revision: int) -> None:
        self.key = key
        self.object = obj
        self.revision = revision
        self.is_completed = False
        self._json: bytes | None = None
        self._message: bytes | None = None

    def json(self) -> bytes:
        """The object as JSON; encoded once, however many lists and watchers send it."""
        if self._json is None:
            self._json = _encode(self.object)
        return self._json

    def message(self, write: Callable[[JSON], bytes]) -> bytes:
        """The object as `write` writes it, which is the one writer of its kind's messages; written once, as well."""
        if self._message is None:
            self._message = write(self.object)
        return self._message

    def reread(self, read: Callable[[JSON], JSON]) -> None:
        self.object = read(self.object)
        self._json = self._message = None


Versions: TypeAlias = list[Stored]


class Change:
    """One write. `before` is None for ADDED; `now` of a DELETED is the last state under the deletion's revision."""

    __slots__ = ("_frame", "_message_frame", "before", "now", "revision", "seconds", "type")

    def __init__(self, type_: ChangeType, now: Stored, before: Stored | None, seconds: float) -> None:
        self.type: ChangeType = type_
        self.now = now
        self.before = before
        self.revision = now.revision
        self.seconds = seconds
        self._frame: bytes | None = None
        self._message_frame: bytes | None = None

    def frame(self) -> bytes:
        """The change as a line of a JSON watch; encoded once."""
        if self._frame is None:
            self._frame = b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.now.json())
        return self._frame

    def message_frame(self, frame: Callable[[Change], bytes]) -> bytes:
        """The change as `frame` words it for the watches in protobuf; encoded once, as well."""
        if self._message_frame is None:
            self._message_frame = frame(self)
        return self._message_frame

    def forget_frame(self) -> None:
        self._frame = self._message_frame = None


Changes: TypeAlias = list[Change]


def with_revision(obj: JSON, revision: int) -> JSON:
    """`obj` with that resourceVersion, its metadata in Go's order; shares everything else with it."""
    metadata = {**obj["metadata"], "resourceVersion": str(revision)}
    return {**obj, "metadata": {name: metadata[name] for name in METADATA_FIELDS if name in metadata}}


class Table:
    """All objects of one resource, in etcd's order of keys, and their latest changes."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._objects: dict[str, Stored] = {}
        self._keys: list[str] = []
        self._changes: deque[Change] = deque()
        self._subscribers: dict[Callable[[Change], None], None] = {}
        self._compacted = 0
        self.revision = 0

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def compacted(self) -> int:
        """The newest revision whose change is no longer kept: watches start here at the earliest."""
        return self._compacted

    def get(self, key: str) -> Stored | None:
        return self._objects.get(key)

    def list(self, namespace: str = "") -> Versions:
        """All objects, or those of a namespace, ordered by key."""
        return self.after(f"{namespace}/" if namespace else "", namespace)

    def after(self, key: str, namespace: str = "") -> Versions:
        """As list(), from `key` on."""
        objects, keys = self._objects, self._keys
        start = bisect_left(keys, key)
        stop = bisect_left(keys, f"{namespace}0") if namespace else len(keys)  # "0" follows "/"
        return [objects[each] for each in keys[start:stop]]

    def create(self, key: str, obj: JSON) -> Stored:
        """Store a new object; the caller has made sure that the key is free. Raises NotDurable."""
        assert key not in self._objects, key
        stored = self._next("ADDED", key, obj)
        self._objects[key] = stored
        insort(self._keys, key)
        self._publish(Change("ADDED", stored, None, self._store.seconds()))
        return stored

    def begin(self, revision: int, beginning: Beginning) -> None:
        """Take over what there was from the beginning, of revisions from `revision` on. Raises NotDurable."""
        versions = [
            Stored(key_of(obj), with_revision(obj, number), number)
            for number, obj in enumerate(beginning.make(), revision)
        ]
        assert len(versions) <= beginning.room, self._name
        if self._store.journal is not None:
            self._store.journal.append_all(
                Row(each.revision, self._name, each.key, "ADDED", each.json()) for each in versions
            )
        self._objects = {each.key: each for each in versions}
        self._keys = sorted(self._objects)
        self._changes.extend(Change("ADDED", each, None, self._store.seconds()) for each in versions)
        self.revision = versions[-1].revision

    def update(self, before: Stored, obj: JSON) -> Stored:
        """Store a new version of `before`, which is the current one. Raises NotDurable."""
        assert self._objects.get(before.key) is before, before.key
        stored = self._next("MODIFIED", before.key, obj)
        self._objects[before.key] = stored
        self._publish(Change("MODIFIED", stored, before, self._store.seconds()))
        return stored

    def delete(self, before: Stored, last: JSON | None = None) -> Stored:
        """Remove `before`. `last` is the state its watchers see, if the deletion itself changed the object.

        Raises NotDurable.
        """
        assert self._objects.get(before.key) is before, before.key
        stored = self._next("DELETED", before.key, before.object if last is None else last)
        del self._objects[before.key]
        del self._keys[bisect_left(self._keys, before.key)]
        self._publish(Change("DELETED", stored, before, self._store.seconds()))
        return stored

    def _next(self, type_: ChangeType, key: str, obj: JSON) -> Stored:
        """The next version of all: durable, and not yet seen by anybody."""
        revision = self._store.revision + 1
        stored = Stored(key, with_revision(obj, revision), revision)
        if self._store.journal is not None:
            self._store.journal.append(revision, self._name, key, type_, stored.json())
        self._store.revision = revision
        return stored

    def restore(self, row: Row, *, compacted: int) -> None:
        """Take over a row of the journal; rows come in the order of their revisions, once, before anything else.

        Of those up to `compacted` only what they leave behind counts. Raises ValueError if the row makes no sense.
        """
        before = self._objects.get(row.key)
        if row.revision > compacted and (before is None) != (row.type == "ADDED"):
            raise ValueError(f"{row.type} of {self._name} {row.key} at revision {row.revision} does not follow")
        stored = Stored(row.key, msgspec.json.decode(row.object, type=dict[str, Any]), row.revision)
        if row.type == "DELETED":
            self._objects.pop(row.key, None)
        else:
            self._objects[row.key] = stored
        self.revision = row.revision
        if row.revision > compacted:
            self._changes.append(Change(row.type, stored, before, self._store.seconds()))
            self._trim()
            return
        self._compacted = row.revision
        if before is not None:
            self._store.garbage.append(before.revision)
        if row.type == "DELETED":
            self._store.garbage.append(row.revision)

    def restored(self, compacted: int) -> None:
        """The last row has come."""
        self._keys = sorted(self._objects)
        self._compacted = max(self._compacted, compacted)
        self.revision = max(self.revision, compacted)

    def reread(self, read: Callable[[JSON], JSON]) -> None:
        """Bring all versions that are kept into another form, under their revisions; the journal stays as it is.

        So does a definition that changes: its objects are read differently, and nothing is written.
        """
        kept = {id(stored): stored for stored in self._objects.values()}
        for change in self._changes:
            kept[id(change.now)] = change.now
            if change.before is not None:
                kept[id(change.before)] = change.before
            change.forget_frame()
        for stored in kept.values():
            stored.reread(read)

    def changes_since(self, revision: int) -> Changes:
        """The changes after `revision`, oldest first. Raises 410 Expired if some of them are compacted."""
        if revision < self.compacted:
            raise errors.expired(f"too old resource version: {revision} ({self.compacted})")
        found: Changes = []
        for change in reversed(self._changes):
            if change.revision <= revision:
                break
            found.append(change)
        found.reverse()
        return found

    def snapshot_at(self, revision: int, namespace: str = "") -> Versions:
        """The objects as they were at `revision`, ordered by key. Raises 410 Expired if that is compacted."""
        if revision < max(self._store.compacted, self._compacted):
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
        """Call `receive` with every change, from within the write. Returns what ends it."""
        self._subscribers[receive] = None

        def unsubscribe() -> None:
            self._subscribers.pop(receive, None)

        return unsubscribe

    def compact(self, before_seconds: float) -> None:
        """Forget changes made before that time of the store's clock, but for the latest few."""
        while len(self._changes) > _KEPT_CHANGES and self._changes[0].seconds < before_seconds:
            self._drop_oldest()

    def _publish(self, change: Change) -> None:
        self.revision = change.revision
        self._changes.append(change)
        self._trim()
        for receive in tuple(self._subscribers):
            receive(change)

    def _trim(self) -> None:
        if len(self._changes) > self._store.history:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Forget the oldest change, and with it the version that it replaced."""
        change = self._changes.popleft()
        self._compacted = change.revision
        if self._store.journal is not None:
            if change.before is not None:
                self._store.garbage.append(change.before.revision)
            if change.type == "DELETED":
                self._store.garbage.append(change.revision)

    def check(self) -> None:
        """The invariants, for tests."""
        assert self._keys == sorted(self._objects)
        assert all(stored.object["metadata"]["resourceVersion"] == str(stored.revision) for stored in self.list())
        revisions = [change.revision for change in self._changes]
        assert revisions == sorted(set(revisions))
        assert not revisions or revisions[0] > self._compacted


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a resource has before anybody asks: objects that `make` makes when somebody first asks for one.

    room: how many revisions to set aside for them. follow: hears of every change from then on.
    """

    room: int
    make: Callable[[], Iterable[JSON]]
    follow: Callable[[Change], None] | None = None


class Store:
    """All tables and the revision they share.

    `seconds` is a monotonic clock (the event loop's `time`); `history` the changes kept per table, at most;
    `compaction_seconds` the age after which changes are forgotten by compact(), etcd's default of 5 minutes. `journal`
    makes it durable: the store begins with what is in there. Raises UserError if that is damaged.

    `garbage` are revisions whose rows the journal may forget (see collect).
    """

    def __init__(
        self,
        *,
        seconds: Callable[[], float],
        history: int = 20_000,
        compaction_seconds: float = 300.0,
        journal: Journal | None = None,
    ) -> None:
        self.seconds = seconds
        self.history = history
        self.compaction_seconds = compaction_seconds
        self.journal = journal
        self.garbage: deque[int] = deque()
        self.revision = 1
        self.compacted = 0
        self._tables: dict[str, Table] = {}
        self._beginnings: dict[str, tuple[int, Beginning]] = {}  # with the revision of the first object
        self._seen: deque[tuple[float, int]] = deque()
        self._notes: dict[str, int] = {}
        if journal is not None:
            self._restore(journal)

    def table(self, resource: Resource[Any]) -> Table:
        each = BY_PATH.get((resource.group, resource.version, resource.plural))
        if each is not None and each.stored_as is not None:
            resource = each.stored_as
        return self._table(resource.group_resource)

    def _table(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            table = Table(self, name)
            if name in self._beginnings:
                revision, beginning = self._beginnings[name]
                table.begin(revision, beginning)
                del self._beginnings[name]
                if beginning.follow is not None:
                    table.subscribe(beginning.follow)
            self._tables[name] = table
        return table

    def begin(self, beginnings: Mapping[Resource[Any], Beginning]) -> None:
        """Let resources have objects before anybody asks for any.

        They have the next revisions whenever they are made, so that nobody can tell, and what nobody asks for costs
        nothing. Where the journal has had objects of a resource, those are created that it lacks. Raises NotDurable.
        """
        for resource, beginning in beginnings.items():
            name = resource.group_resource
            if (table := self._tables.get(name)) is None:
                self._beginnings[name] = (self.revision + 1, beginning)
                self.revision += beginning.room
                continue
            if beginning.follow is not None:
                table.subscribe(beginning.follow)
            for obj in beginning.make():
                if table.get(key := key_of(obj)) is None:
                    table.create(key, obj)
        if self.journal is not None:
            self.journal.mark(_REVISION, self.revision)

    def noted(self, name: str) -> int:
        """A number that users of the store keep beside its objects; 0 at first."""
        return self._notes.get(name, 0)

    def note(self, name: str, number: int) -> None:
        """Keep it, as long as the objects are kept. Raises NotDurable."""
        if self.journal is not None:
            self.journal.mark(_NOTE + name, number)
        self._notes[name] = number

    def has_begun(self, resource: Resource[Any]) -> bool:
        """Has anybody asked for what the resource begins with?"""
        return resource.group_resource not in self._beginnings

    def tables(self) -> Iterator[tuple[str, Table]]:
        """Group-resource ("pods", "deployments.apps") and table of all that ever held an object or were asked."""
        for name in tuple(self._beginnings):
            self._table(name)
        yield from self._tables.items()

    def get(self, resource: Resource[Any], namespace: str, name: str) -> JSON | None:
        """The object, not to be changed."""
        stored = self.table(resource).get(object_key(namespace if resource.namespaced else "", name))
        return None if stored is None else stored.object

    def list(self, resource: Resource[Any], namespace: str = "") -> list[JSON]:
        """The objects, not to be changed, ordered by namespace and name."""
        return [stored.object for stored in self.table(resource).list(namespace)]

    def create(self, resource: Resource[Any], obj: JSON) -> JSON:
        """Store a complete object past all admission. Raises StatusError AlreadyExists."""
        metadata = obj["metadata"]
        key = object_key(metadata.get("namespace", "") if resource.namespaced else "", metadata["name"])
        table = self.table(resource)
        if table.get(key) is not None:
            raise errors.already_exists(resource, metadata["name"])
        return table.create(key, obj).object

    def update(self, resource: Resource[Any], obj: JSON) -> JSON:
        """Store the next version of an object past all admission; a resourceVersion in it must be the current one.

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
        """Remove an object whatever its finalizers; returns its last state. Raises StatusError NotFound."""
        table = self.table(resource)
        before = table.get(object_key(namespace if resource.namespaced else "", name))
        if before is None:
            raise errors.not_found(resource, name)
        return table.delete(before).object

    def subscribe(self, resource: Resource[Any], receive: Callable[[Change], None]) -> Callable[[], None]:
        """Call `receive` with every change of the resource, synchronously. Returns what ends it."""
        return self.table(resource).subscribe(receive)

    def compact(self) -> None:
        """Forget what is older than `compaction_seconds`; called from time to time, as etcd is by kube-apiserver."""
        now = self.seconds()
        self._seen.append((now, self.revision))
        while self._seen and self._seen[0][0] <= now - self.compaction_seconds:
            self.compacted = self._seen.popleft()[1]
        for table in self._tables.values():
            table.compact(now - self.compaction_seconds)

    def collect(self, at_most: int) -> bool:
        """Let the journal forget that many rows nobody can ask for any more; False when there are none left.

        Raises sqlite3.Error if the journal cannot be written; they are then tried again the next time.
        """
        if self.journal is None or not self.garbage:
            return False
        revisions = [self.garbage.popleft() for _ in range(min(at_most, len(self.garbage)))]
        marks = {_REVISION: self.revision, _COMPACTED: self.compacted}
        marks |= {name: table.compacted for name, table in self._tables.items()}
        try:
            self.journal.forget(revisions, marks)
        except BaseException:
            self.garbage.extendleft(reversed(revisions))
            raise
        return bool(self.garbage)

    def _restore(self, journal: Journal) -> None:
        marks = journal.marks()
        self.revision = marks.pop(_REVISION, self.revision)
        self.compacted = marks.pop(_COMPACTED, 0)
        self._notes = {name.removeprefix(_NOTE): marks.pop(name) for name in tuple(marks) if name.startswith(_NOTE)}
        for row in journal.rows():
            try:
                self._table(row.resource).restore(row, compacted=marks.get(row.resource, 0))
            except (ValueError, msgspec.MsgspecError) as error:
                raise journal.damaged(str(error)) from None
            self.revision = max(self.revision, row.revision)
        for name in {*self._tables, *marks}:
            self._table(name).restored(marks.get(name, 0))


_REVISION, _COMPACTED = "*revision", "*compacted"  # of the whole store, among marks that are named for tables
_NOTE = "+"  # before the names of users' notes
