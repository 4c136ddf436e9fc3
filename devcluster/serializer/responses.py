"""Documents that are made for one answer, in the form the client has asked for: JSON, YAML or protobuf."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import PROTOBUF_TYPE, Request, Response, json_response
from kubeloop.devcluster.serializer.negotiation import OutputFormat, negotiate_error_output
from kubeloop.kube.json_object import JSON


def encode_response(
    status: int, value: JSON, output: OutputFormat, headers: Sequence[tuple[str, str]] = ()
) -> Response:
    """An answer with `value`, which carries kind and apiVersion. In JSON if there is no protobuf of its kind."""
    if output.yaml:
        from kubeloop.kube import yaml  # few ask for it

        text = yaml.write(msgspec.to_builtins(value))
        return Response(status, text.encode(), "application/yaml", list(headers))
    if output.protobuf:
        from kubeloop.devcluster.serializer.protobuf import codec  # few ask for it

        if codec.has_protobuf_form(value["apiVersion"], value["kind"]):
            return Response(status, codec.encode(value), PROTOBUF_TYPE, list(headers))
    return json_response(status, value, headers)


def error_response(request: Request, error: StatusError) -> Response:
    """The answer that is a failure; in JSON for people to those who take none of its forms, as in kube-apiserver."""
    output = negotiate_error_output(request.headers.get("accept", ""))
    if output is not None:
        return encode_response(error.code, error.status, output, error.headers)
    text = msgspec.json.format(msgspec.json.encode(error.status), indent=2)
    return Response(error.code, text, headers=list(error.headers))
