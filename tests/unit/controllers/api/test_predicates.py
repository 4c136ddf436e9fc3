"""Predicates on events of dicts and Structs."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.api.predicates import (
    Predicate,
    and_,
    annotations_changed,
    generation_changed,
    is_deleted,
    labels_changed,
    matches,
    not_,
    or_,
    resource_version_changed,
)


def obj(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "generation": 1, "resourceVersion": "1", **metadata}}


@pytest.mark.parametrize(
    ("predicate", "changed"),
    [
        (generation_changed, {"generation": 2}),
        (labels_changed, {"labels": {"a": "b"}}),
        (annotations_changed, {"annotations": {"a": "b"}}),
        (resource_version_changed, {"resourceVersion": "2"}),
    ],
)
def test_predicate_is_true_for_changes_of_its_field(predicate: Predicate[Any], changed: dict[str, Any]):
    others = {"generation": 1, "labels": {}, "annotations": {}, "resourceVersion": "1", "finalizers": ["x"]}
    assert predicate(obj(), obj(**changed))
    assert not predicate(obj(), obj(**{**others}))
    assert predicate(None, obj())
    assert predicate(obj(), None)


def test_predicates_are_combined():
    either, both = or_(generation_changed, labels_changed), and_(generation_changed, labels_changed)
    changed = obj(generation=2)
    assert either(obj(), changed)
    assert not both(obj(), changed)
    assert both(obj(), obj(generation=2, labels={"a": "b"}))
    assert not_(both)(obj(), changed)


def test_matches_holds_before_or_after_the_event():
    predicate = matches(lambda obj: obj["metadata"].get("labels") == {"a": "b"})
    assert predicate(obj(labels={"a": "b"}), obj())
    assert predicate(None, obj(labels={"a": "b"}))
    assert not predicate(obj(), None)


def test_is_deleted_is_true_for_deletions_only():
    assert is_deleted(obj(), None)
    assert not is_deleted(None, obj())
    assert not is_deleted(obj(), obj())
