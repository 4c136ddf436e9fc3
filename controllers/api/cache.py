"""Cache: reads of the objects that a controller watches, from the informers of the process."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from kubeloop.controllers.api.objects import ApiObject, Request, metadata_of
from kubeloop.controllers.api.watches import Watch
from kubeloop.informers.factory import InformerFactory
from kubeloop.informers.shared_informer import SharedInformer
from kubeloop.kube.objects.resources import BY_GROUP_KIND, Resource
from kubeloop.kube.selectors.selectors import parse_label_selector

T = TypeVar("T")


class NotWatched(LookupError):
    """The cache does not have the resource: the controller declares no watch of it."""


class Cache:
    """Objects of the watched resources, as of their last events: reads send no request, and may be a moment behind.

    After a write of a reconcile, its next reconcile of the same object runs when the cache shows the write. Structs are
    shared by the whole process and immutable; dicts are copies, which may be changed.
    """

    def __init__(self, controller: str, informers: InformerFactory, namespaces: Sequence[str]) -> None:
        """controller: its name, part of the names of its indexes. namespaces: those to read; none for all."""
        self._controller = controller
        self._factory = informers
        self._namespaces = tuple(namespaces)
        self._informers: dict[tuple[str, str, str], dict[str, SharedInformer[Any]]] = {}  # by namespace, "" for all
        self._index_names: dict[tuple[SharedInformer[Any], str], str] = {}
        self._selectors: dict[tuple[str, str, str], Callable[[ApiObject], bool]] = {}

    def get(self, resource: Resource[T], name: str | Request, namespace: str = "") -> T | None:
        """Return an object, None if it does not exist."""
        request = name if isinstance(name, Request) else Request(namespace, name)
        return cast("T | None", _find(self._of(resource), request))

    def list(self, resource: Resource[T], namespace: str = "", *, label_selector: str = "") -> builtins.list[T]:
        """Return all objects, or those of a namespace, that match."""
        objects = [
            obj
            for informer in self._of(resource).values()
            for obj in (informer.store.by_index("namespace", namespace) if namespace else informer.store.values())
        ]
        if label_selector:
            matches = parse_label_selector(label_selector).matches
            objects = [obj for obj in objects if matches(metadata_of(cast("ApiObject", obj)).labels)]
        return [_copy(obj) for obj in objects]

    def by_index(self, resource: Resource[T], index: str, value: str) -> builtins.list[T]:
        """Return the objects for which the index function returns `value`; see Watch.indexes. Raises KeyError for an
        unknown index."""
        return [_copy(obj) for obj in self._in_index(resource, index, value)]

    def owned_by(self, resource: Resource[T], owner: ApiObject) -> builtins.list[T]:
        """Return the objects that `owner` controls."""
        informers, uid = self._of(resource).values(), metadata_of(owner).uid
        return [_copy(obj) for informer in informers for obj in informer.store.by_index("owner", uid)]

    # --- for the runner ----------------------------------------------------------------------------------------------

    def requests_by_index(self, resource: Resource[Any], index: str, value: str) -> builtins.list[Request]:
        """Return the requests of the objects for which the index function returns `value`, as `by_index`."""
        return [Request.of(obj) for obj in self._in_index(resource, index, value)]

    def _in_index(self, resource: Resource[T], index: str, value: str) -> Iterator[T]:
        for informer in self._of(resource).values():
            yield from informer.store.by_index(self._index_names[informer, index], value)

    def add(self, watch: Watch[T]) -> Iterable[SharedInformer[T]]:
        """Cache the objects of a watch, and return their informers."""
        resource = watch.resource
        namespaces = self._namespaces if resource.namespaced and self._namespaces else ("",)
        informers = {
            namespace: self._factory.informer(
                resource,
                namespace,
                awaited=(resource.group, resource.kind) in BY_GROUP_KIND,  # others may be defined later
                label_selector=watch.label_selector,
                field_selector=watch.field_selector,
            )
            for namespace in namespaces
        }
        for informer in informers.values():
            for name, function in watch.indexes.items():
                shared = informer.store.shared_index(f"{self._controller}/{name}", function)
                self._index_names[informer, name] = shared
        key = _key(resource)
        if self._informers.setdefault(key, informers) != informers:
            raise ValueError(f"{resource.group_resource} is watched twice, with different selectors")
        if watch.field_selector:
            self._selectors[key] = lambda obj: False
        elif watch.label_selector:
            matches = parse_label_selector(watch.label_selector).matches
            self._selectors[key] = lambda obj: matches(metadata_of(obj).labels)
        return informers.values()

    def informer_of(self, resource: Resource[Any], obj: ApiObject) -> SharedInformer[Any] | None:
        """Return the informer that will show a written object; None if none does."""
        key = _key(resource)
        informers = self._informers.get(key, {})
        if key in self._selectors and not self._selectors[key](obj):
            return None
        return informers.get(metadata_of(obj).namespace) or informers.get("")

    def informers_of(self, resource: Resource[Any]) -> Iterable[SharedInformer[Any]]:
        """Return the informers of a resource; none if it is not watched."""
        return self._informers.get(_key(resource), {}).values()

    def find(self, resource: Resource[Any], request: Request) -> Any:
        """Return an object in the form in which it is watched; None if it does not exist, or is not watched."""
        return _find(self._informers.get(_key(resource), {}), request)

    def has(self, resource: Resource[Any]) -> bool:
        """Return True if the resource is watched."""
        return _key(resource) in self._informers

    def _of(self, resource: Resource[T]) -> dict[str, SharedInformer[T]]:
        informers = self._informers.get(_key(resource))
        if informers is None:
            raise NotWatched(
                f"{resource.group_resource} is not in the cache: add Watches({resource.kind}) to the watches of the "
                "controller, or read it with client.get"
            )
        for informer in informers.values():
            if informer.resource.type is not resource.type:
                raise NotWatched(
                    f"{resource.group_resource} is watched as {informer.resource.type.__name__}, "
                    f"not {resource.type.__name__}: read it by the resource of the watch"
                )
        return informers


def _find(informers: Mapping[str, SharedInformer[Any]], request: Request) -> Any:
    """Return a copy of an object, or None. informers: by namespace, "" for all."""
    informer = informers.get(request.namespace) or informers.get("")
    obj = informer.store.get(request.key) if informer is not None else None
    return None if obj is None else _copy(obj)


def _key(resource: Resource[Any]) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural


def _copy(obj: Any) -> Any:
    """Return a Struct itself, which is immutable, and a copy of a dict."""
    return cast("Any", msgspec.json.decode(msgspec.json.encode(obj))) if isinstance(obj, dict) else obj
