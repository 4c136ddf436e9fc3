"""Responses encoded in the negotiated output format: JSON, YAML or protobuf."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import PROTOBUF_TYPE, ApiRequest, Response, json_response
from kubeloop.devcluster.serializer.negotiation import OutputFormat, negotiate_error_output
from kubeloop.kube.json_object import JSON


def encode_response(
    status: int, value: JSON, output: OutputFormat, headers: Sequence[tuple[str, str]] = ()
) -> Response:
    """Return a response with `value`, which has kind and apiVersion; JSON if its kind has no protobuf form."""
    if output.yaml:
        return Response(status, encode_yaml(msgspec.to_builtins(value)), "application/yaml", list(headers))
    if output.protobuf and (body := encode_protobuf(value)) is not None:
        return Response(status, body, PROTOBUF_TYPE, list(headers))
    return json_response(status, value, headers)


def encode_yaml(value: JSON) -> bytes:
    from kubeloop.kube import yaml  # imported on first use: rarely requested

    return yaml.write(value).encode()


def encode_protobuf(value: JSON) -> bytes | None:
    """Return an object in protobuf, None if its kind has no such form."""
    from kubeloop.devcluster.serializer.protobuf import codec  # imported on first use: rarely requested

    return codec.encode(value) if codec.has_protobuf_form(value.get("apiVersion", ""), value["kind"]) else None


def error_response(request: ApiRequest, error: StatusError) -> Response:
    """Return the response for an error; indented JSON if the client accepts no available format, as kube-apiserver."""
    output = negotiate_error_output(request.headers.get("accept", ""))
    if output is not None:
        return encode_response(error.code, error.status, output, error.headers)
    text = msgspec.json.format(msgspec.json.encode(error.status), indent=2)
    return Response(error.code, text, headers=list(error.headers))
