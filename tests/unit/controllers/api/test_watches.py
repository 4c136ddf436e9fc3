"""Requests of watched objects."""

from __future__ import annotations

from kubeloop.controllers.api.objects import Request
from kubeloop.controllers.api.watches import by_label, by_owner, to_self
from kubeloop.kube.objects.resources import NODES
from support.controllers.sites import SITES


def owned(*references: dict[str, object]) -> dict[str, object]:
    return {"metadata": {"name": "web", "namespace": "ns", "ownerReferences": [*references]}}


SITE = {"apiVersion": "example.com/v2", "kind": "Site", "name": "blog", "controller": True}
OTHER_OWNER = {**SITE, "name": "shop", "controller": False}


def test_requests_by_owner_are_for_its_kind_and_group():
    assert by_owner(SITES)(owned(SITE)) == [Request("ns", "blog")]
    assert by_owner(SITES)(owned({**SITE, "apiVersion": "other.com/v1"})) == []
    assert by_owner(SITES)(owned({**SITE, "kind": "Page"})) == []
    assert by_owner(SITES)(owned(OTHER_OWNER)) == []
    requests = by_owner(SITES, match_every_owner=True)(owned(SITE, OTHER_OWNER))
    assert requests == [Request("ns", "blog"), Request("ns", "shop")]


def test_request_of_cluster_scoped_owner_has_no_namespace():
    reference = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "controller": True}
    assert by_owner(NODES)(owned(reference)) == [Request("", "node-1")]


def test_requests_by_label_and_of_the_object_itself():
    obj = {"metadata": {"name": "web", "namespace": "ns", "labels": {"site": "blog"}}}
    assert by_label("site")(obj) == [Request("ns", "blog")]
    assert by_label("page")(obj) == []
    assert to_self(obj) == [Request("ns", "web")]
