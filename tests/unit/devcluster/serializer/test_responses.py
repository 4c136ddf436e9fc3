"""Responses in the negotiated output format."""

from __future__ import annotations

import msgspec
import pytest

from kubeloop.devcluster.api.errors import not_found
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.serializer.negotiation import OutputFormat
from kubeloop.devcluster.serializer.responses import encode_response, error_response
from kubeloop.kube.objects.resources import PODS

POD = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}


@pytest.mark.parametrize(
    ("output", "kind", "content_type", "start"),
    [
        (OutputFormat(), "Pod", "application/json", b'{"kind":"Pod"'),
        (OutputFormat(yaml=True), "Pod", "application/yaml", b"apiVersion: v1\nkind: Pod\n"),
        (OutputFormat(protobuf=True), "Pod", "application/vnd.kubernetes.protobuf", b"k8s\x00"),
        (OutputFormat(protobuf=True), "Widget", "application/json", b'{"kind":"Widget"'),
    ],
    ids=["json", "yaml", "protobuf", "kind without a protobuf form"],
)
def test_response_in_an_output_format(output: OutputFormat, kind: str, content_type: str, start: bytes):
    response = encode_response(201, {**POD, "kind": kind}, output, [("Location", "/p")])
    assert isinstance(response.body, bytes)
    assert (response.status, response.content_type, response.headers) == (201, content_type, [("Location", "/p")])
    assert response.body.startswith(start)


@pytest.mark.parametrize(
    ("accept", "content_type", "is_indented"),
    [
        ("application/json", "application/json", False),
        ("application/yaml", "application/yaml", False),
        ("image/png", "application/json", True),
    ],
)
def test_error_in_an_accepted_format(accept: str, content_type: str, is_indented: bool):
    response = error_response(ApiRequest.of("GET", "/", {"Accept": accept}), not_found(PODS, "p"))
    assert isinstance(response.body, bytes)
    assert (response.status, response.content_type) == (404, content_type)
    assert (b'{\n  "kind": "Status"' in response.body) is is_indented
    if content_type == "application/json":
        assert msgspec.json.decode(response.body)["message"] == 'pods "p" not found'
