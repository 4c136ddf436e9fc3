"""Predicates: which events of a watched resource lead to a reconcile. Source: controller-runtime pkg/predicate.

A predicate is a function of the object before and after the event: `old` is None for a new object, `new` is None for a
deleted one, both are the same object on a resync. It returns True if the event counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kubeloop.controllers.api.objects import ApiObject, metadata_of
from kubeloop.kube.objects.api_types import ObjectMeta

T = TypeVar("T")
T_obj = TypeVar("T_obj", bound=ApiObject)

Predicate = Callable[[T | None, T | None], bool]


def _changed(old: ApiObject | None, new: ApiObject | None, field: Callable[[ObjectMeta], object]) -> bool:
    return old is None or new is None or field(metadata_of(old)) != field(metadata_of(new))


def generation_changed(old: ApiObject | None, new: ApiObject | None) -> bool:
    """Return False for an update that leaves metadata.generation, and so the spec, unchanged."""
    return _changed(old, new, lambda metadata: metadata.generation)


def labels_changed(old: ApiObject | None, new: ApiObject | None) -> bool:
    """Return False for an update that leaves the labels unchanged."""
    return _changed(old, new, lambda metadata: metadata.labels)


def annotations_changed(old: ApiObject | None, new: ApiObject | None) -> bool:
    """Return False for an update that leaves the annotations unchanged."""
    return _changed(old, new, lambda metadata: metadata.annotations)


def resource_version_changed(old: ApiObject | None, new: ApiObject | None) -> bool:
    """Return False for a resync."""
    return _changed(old, new, lambda metadata: metadata.resource_version)


def matches(condition: Callable[[T_obj], bool]) -> Predicate[T_obj]:
    """Return a predicate that is True if the object fulfils `condition` before or after the event."""
    return lambda old, new: (old is not None and condition(old)) or (new is not None and condition(new))


def is_deleted(old: ApiObject | None, new: ApiObject | None) -> bool:
    """Return True for a deleted object only."""
    return new is None


def and_(*predicates: Predicate[Any]) -> Predicate[Any]:
    """Return a predicate that is True if all are."""
    return lambda old, new: all(predicate(old, new) for predicate in predicates)


def or_(*predicates: Predicate[Any]) -> Predicate[Any]:
    """Return a predicate that is True if one of them is."""
    return lambda old, new: any(predicate(old, new) for predicate in predicates)


def not_(predicate: Predicate[Any]) -> Predicate[Any]:
    """Return a predicate that is True if `predicate` is not."""
    return lambda old, new: not predicate(old, new)
