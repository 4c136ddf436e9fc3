"""Responses with objects, in the form that the client accepts."""

from __future__ import annotations

import json

import msgspec
import pytest

from kubeloop.devcluster.handlers.reading.object_responses import list_response, object_response
from kubeloop.devcluster.serializer.negotiation import negotiate_output
from support.apiserver.api_requests import InProcessApi
from support.apiserver.request_contexts import request_context

MAPS = "/api/v1/namespaces/default/configmaps"
MAP = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "resourceVersion": "5"}, "data": {"k": "v"}}


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        pytest.param("", "ConfigMapList", id="objects"),
        pytest.param(";as=Table;g=meta.k8s.io;v=v1", "Table", id="table"),
        pytest.param(";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "PartialObjectMetadataList", id="metadata"),
    ],
)
def test_list_has_the_accepted_form(form: str, kind: str):
    accept = f"application/json{form}"
    response = list_response(
        request_context("GET", MAPS), [MAP], {"resourceVersion": "7"}, negotiate_output(accept, "list")
    )
    assert isinstance(response.body, bytes)
    content = json.loads(response.body)
    assert (content["kind"], content["metadata"]["resourceVersion"]) == (kind, "7")


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        pytest.param("", "ConfigMap", id="object"),
        pytest.param(";as=Table;g=meta.k8s.io;v=v1", "Table", id="table"),
        pytest.param(";as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "PartialObjectMetadata", id="metadata"),
    ],
)
def test_object_has_the_accepted_form(form: str, kind: str):
    response = object_response(request_context("GET", f"{MAPS}/a", accept=f"application/json{form}"), 201, MAP)
    assert isinstance(response.body, bytes)
    content = json.loads(response.body)
    assert (response.status, content["kind"], content["metadata"]["resourceVersion"]) == (201, kind, "5")


async def test_custom_resources_are_encoded_with_sorted_fields():
    api, path = InProcessApi(), "/apis/example.com/v1/gears"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "gears", "kind": "Gear"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.create(definitions, {"metadata": {"name": "gears.example.com"}, "spec": spec})
    gear = {"kind": "Gear", "apiVersion": "example.com/v1", "metadata": {"name": "a", "labels": {"z": "", "b": ""}}}
    created = api.respond("POST", path, {**gear, "spec": {"y": 1, "c": {"x": 1, "d": [{"w": 1, "e": 2}]}}}).body
    assert isinstance(created, bytes)
    expected = msgspec.json.encode(msgspec.json.decode(created), order="sorted")
    assert created == expected + b"\n"
    assert api.respond("GET", f"{path}/a").body == created
    items = api.respond("GET", path).body
    assert isinstance(items, bytes)
    assert items == msgspec.json.encode(msgspec.json.decode(items), order="sorted") + b"\n"
    watch = api.respond("GET", f"{path}?watch=1").body
    assert not isinstance(watch, bytes)
    assert await anext(watch.__aiter__()) == b'{"type":"ADDED","object":%b}\n' % expected


async def test_label_that_the_server_adds_is_in_order():
    namespace = {"metadata": {"name": "new", "labels": {"z": "1", "a": "2"}}}
    for options in ("?dryRun=All", ""):
        created = InProcessApi().create(f"/api/v1/namespaces{options}", namespace)
        assert [*created["metadata"]["labels"]] == ["a", "kubernetes.io/metadata.name", "z"]
