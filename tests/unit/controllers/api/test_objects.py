"""Requests and owner references, of dicts and Structs."""

from __future__ import annotations

import pytest

from kubeloop.controllers.api.objects import (
    AlreadyOwnedError,
    Request,
    get_controller_of,
    is_controlled_by,
    metadata_of,
    set_controller_reference,
    set_owner_reference,
)
from kubeloop.kube.objects.api_types import ObjectMeta, Pod
from support.controllers.sites import Site

SITE = Site(api_version="example.com/v1", kind="Site", metadata=ObjectMeta(name="blog", namespace="ns", uid="1"))
CONFIG = {"kind": "ConfigMap", "metadata": {"name": "blog", "namespace": "ns"}}


@pytest.mark.parametrize("key", ["ns/blog", "blog"])
def test_request_has_the_key_that_it_was_parsed_from(key: str):
    assert str(Request.parse(key)) == key


def test_request_of_dict_and_struct_is_the_same():
    assert Request.of(CONFIG) == Request.of(SITE) == Request("ns", "blog")


def test_null_in_metadata_is_an_empty_value():
    metadata = metadata_of({"metadata": {"name": "blog", "labels": None, "annotations": {"a": "b", "c": None}}})
    assert (metadata.name, metadata.labels, metadata.annotations) == ("blog", {}, {"a": "b"})


def test_controller_reference_is_set_on_a_copy():
    owned = set_controller_reference(SITE, CONFIG)
    assert owned["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "example.com/v1",
            "kind": "Site",
            "name": "blog",
            "uid": "1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert "ownerReferences" not in CONFIG["metadata"]
    assert is_controlled_by(owned, SITE)
    assert set_controller_reference(SITE, owned) == owned


def test_second_controller_is_rejected():
    other = Site(api_version="example.com/v1", kind="Site", metadata=ObjectMeta(name="b", namespace="ns", uid="2"))
    owned = set_controller_reference(SITE, CONFIG)
    with pytest.raises(AlreadyOwnedError, match="ConfigMap ns/blog has the controller Site blog"):
        set_controller_reference(other, owned)
    references = set_owner_reference(other, owned)["metadata"]["ownerReferences"]
    assert [(reference["name"], reference.get("controller")) for reference in references] == [
        ("blog", True),
        ("b", None),
    ]
    assert not is_controlled_by(owned, other)


@pytest.mark.parametrize(
    ("owner", "problem"),
    [
        pytest.param(Site(metadata=ObjectMeta(name="blog", namespace="ns")), "has no uid", id="not stored"),
        pytest.param(
            Site(metadata=ObjectMeta(name="blog", namespace="other", uid="1")), "not in the namespace", id="namespace"
        ),
    ],
)
def test_owner_that_cannot_own_the_object_is_rejected(owner: Site, problem: str):
    with pytest.raises(ValueError, match=problem):
        set_controller_reference(owner, CONFIG)


def test_object_without_controller_has_none():
    assert get_controller_of(Pod()) is None
