"""Responses with objects, in the form that the client accepts: JSON, YAML, protobuf, a table, or metadata only."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kubeloop.devcluster.api.request import PROTOBUF_TYPE, Response
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.printers.table import table
from kubeloop.devcluster.serializer.conversion import from_stored
from kubeloop.devcluster.serializer.negotiation import OutputFormat, check_metadata_form, negotiate_output
from kubeloop.devcluster.serializer.responses import encode_response
from kubeloop.devcluster.storage.store import StoredObject, encode_object
from kubeloop.kube.json_object import JSON

if TYPE_CHECKING:
    from kubeloop.devcluster.handlers.reading.protobuf_responses import ProtobufWriter


def object_response(
    context: RequestContext,
    status: int,
    obj: JSON,
    *,
    stored: StoredObject | None = None,
    output: OutputFormat | None = None,
) -> Response:
    """Encode one object in the form that the client accepts."""
    target = context.info.served
    output = output or negotiate_output(context.request.headers.get("accept", ""))
    if output.protobuf and stored is not None and output.form == "objects" and target.crd_version is None:
        return Response(status, protobuf_writer(target).body(stored), PROTOBUF_TYPE)
    if output.form == "objects" and not output.yaml and not output.protobuf and target.reads_as_stored:
        return Response(status, (stored.json() if stored is not None else encode_object(obj)) + b"\n")
    if context.info.subresource != "scale":
        obj = from_stored(target, obj)
    if output.form == "table":
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        obj = table_content(context, [obj], metadata, output)
    elif output.form == "metadata":
        check_metadata_form(output, target.resource, is_list=False)
        obj = metadata_of(obj, output)
    return _encoded(status, obj, output)


def list_response(context: RequestContext, objects: list[JSON], metadata: JSON, output: OutputFormat) -> Response:
    """Encode objects as a list in the form that the client accepts. metadata: of the list."""
    target = context.info.served
    resource = target.resource
    check_metadata_form(output, resource, is_list=True)
    if output.form == "table":
        return encode_response(200, table_content(context, objects, metadata, output), output)
    if output.form == "metadata":
        # a null list, as Go encodes a nil slice
        items = [metadata_of(obj, output) for obj in objects] or None
        kind, api_version = "PartialObjectMetadataList", f"meta.k8s.io/{output.version}"
    else:
        left_out = () if target.crd_version is not None else ("kind", "apiVersion")
        metadata = metadata if target.crd_version is None else {"continue": "", **metadata}
        items = [{name: value for name, value in obj.items() if name not in left_out} for obj in objects]
        kind, api_version = target.list_kind, resource.api_version
    content = {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items}
    if output.form == "objects" and target.crd_version is not None:
        content = {"apiVersion": api_version, **content}
    return _encoded(200, content, output)


def _encoded(status: int, obj: JSON, output: OutputFormat) -> Response:
    if output.form == "objects" and not output.yaml and not output.protobuf:
        return Response(status, encode_object(obj) + b"\n")
    return encode_response(status, obj, output)


def table_content(context: RequestContext, objects: list[JSON], metadata: JSON, output: OutputFormat) -> JSON:
    include = context.request.option("includeObject") or "Metadata"
    return table(
        context.info.served,
        objects,
        now=context.clock.now(),
        include_object=include,
        list_metadata=metadata,
        api_version=f"meta.k8s.io/{output.version}",
    )


@cache
def protobuf_writer(target: ServedResource) -> ProtobufWriter:
    """Return the protobuf encoder of a resource; imported with the first protobuf request."""
    from kubeloop.devcluster.handlers.reading.protobuf_responses import ProtobufWriter

    return ProtobufWriter(target)


def metadata_of(obj: JSON, output: OutputFormat) -> JSON:
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{output.version}", "metadata": obj["metadata"]}
