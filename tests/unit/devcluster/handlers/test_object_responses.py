"""Responses with objects, in the form that the client accepts."""

from __future__ import annotations

import json

import pytest

from kubeloop.devcluster.handlers.object_responses import list_response, object_response
from kubeloop.devcluster.serializer.negotiation import negotiate_output
from support.request_contexts import request_context

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
