"""Watches: the resources that a controller reads, and the requests that their events lead to.

Source: controller-runtime pkg/builder (For, Owns, Watches) and pkg/handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

from kubeloop.controllers.api.objects import ApiObject, Request, group_of, metadata_of
from kubeloop.controllers.api.predicates import Predicate
from kubeloop.informers.store import IndexFunction
from kubeloop.kube.objects.resources import Resource

T = TypeVar("T")

RequestFunction = Callable[[T], Iterable[Request]]
"""Returns the requests that an object leads to; called with the object before and after each event."""


@dataclass(frozen=True)
class Watch(Generic[T]):
    """A watched resource; `For`, `Owns` and `Watches` create it.

    predicates: events count if all are True. indexes: functions by name for Cache.by_index, each returns the values of
    an object. label_selector, field_selector: the objects to watch, in the API's syntax. optional: the controller
    does not wait until the API server serves the resource: it may be defined later.
    """

    resource: Resource[T]
    predicates: Sequence[Predicate[T]] = field(default=(), kw_only=True)
    indexes: Mapping[str, IndexFunction[T]] = field(default_factory=dict, kw_only=True)
    label_selector: str = field(default="", kw_only=True)
    field_selector: str = field(default="", kw_only=True)
    optional: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class For(Watch[T]):
    """The resource that the controller reconciles: an event leads to a request for the object itself."""


@dataclass(frozen=True)
class Owns(Watch[T]):
    """A resource that the controller creates: an event leads to a request for the object's controller.

    match_every_owner: to requests for all owners of the kind of `For`.
    """

    match_every_owner: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Watches(Watch[T]):
    """Any other resource. requests: what an event leads to; without it the resource is only cached.

    cluster: another cluster, whose objects Controller.cluster reads: a context of the kubeconfig, or one of
    Manager(clusters=...). "" for that of `For`.
    """

    requests: RequestFunction[T] | InIndex | None = None
    cluster: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class InIndex:
    """Requests for the objects of `resource` whose index has a value: by default the changed object's key
    ("namespace/name"), else what `value` returns for it, one value or several.

    Watches(SECRETS, InIndex(SITES, "secret")) with For(SITES, indexes={"secret": secrets_of}) reconciles the Sites that
    use a changed Secret.
    """

    resource: Resource[Any]
    index: str
    value: Callable[[Any], str | Iterable[str]] = lambda obj: Request.of(obj).key


def to_self(obj: ApiObject) -> list[Request]:
    """Return the request of the object itself."""
    return [Request.of(obj)]


@cache  # two calls return the same function: equal watches are added once
def by_label(label: str) -> RequestFunction[Any]:
    """Return a function whose request has the name in this label, in the object's namespace."""

    def requests(obj: ApiObject) -> list[Request]:
        metadata = metadata_of(obj)
        name = metadata.labels.get(label, "")
        return [Request(metadata.namespace, name)] if name else []

    return requests


@cache
def by_owner(owner: Resource[Any], *, match_every_owner: bool = False) -> RequestFunction[Any]:
    """Return a function whose request is for the object's controller, if that is of this resource.

    match_every_owner: for each owner of the resource. Source: handler.EnqueueRequestForOwner.
    """

    def requests(obj: ApiObject) -> list[Request]:
        metadata = metadata_of(obj)
        return [
            Request(metadata.namespace if owner.namespaced else "", reference.name)
            for reference in metadata.owner_references
            if (match_every_owner or reference.controller)
            and reference.kind == owner.kind
            and group_of(reference.api_version) == owner.group
        ]

    return requests
