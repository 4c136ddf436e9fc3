"""Admission attributes of a request: k8s.io/apiserver's admission.Attributes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal, Protocol

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.authorizer import RequestAuthorizer
from kubeloop.devcluster.api.delete_options import DeleteOptions
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.request_context import RequestContext
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.served_resources import BY_KIND, BY_PATH, ServedResource
from kubeloop.devcluster.api.subresources import SUBRESOURCE_KINDS, subresource_kind
from kubeloop.devcluster.registry.scale import SCALE, scale_of
from kubeloop.devcluster.serializer import decoding
from kubeloop.devcluster.serializer.conversion import from_stored, prepare_conversions
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES, Resource

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


def kind_of(served: ServedResource, subresource: str) -> tuple[str, str, str]:
    """Return group, version and kind of the body of a request."""
    group, version, kind = subresource_kind(served, subresource)
    return (group, version, kind) if version else (served.resource.group, served.resource.version, kind)


_WRITTEN: dict[str, ServedResource] = {
    subresource: ServedResource(Resource(group, version or "v1", kind, "", True, dict))
    for subresource, (group, version, kind) in SUBRESOURCE_KINDS.items()
}


def written_resource(served: ServedResource, subresource: str) -> ServedResource:
    """Return the resource whose kind the body of a request has; one without plural for some subresources."""
    return _WRITTEN.get(subresource, served)


_STREAM_FLAGS = ("stdin", "stdout", "stderr", "tty")


def connect_options(request: ApiRequest, route: RequestInfo) -> JSON:
    """Return the options object of exec, attach, portforward and proxy, from the query."""
    group, version, kind = kind_of(route.served, route.subresource)
    options: JSON = {"kind": kind, "apiVersion": f"{group}/{version}" if group else version}
    if route.subresource == "proxy":
        path = request.path.partition("/proxy")[2] or request.option("path")
        return options | ({"path": path} if path else {})
    if route.subresource == "portforward":
        ports = [int(port) for text in request.query.get("ports", ()) for port in text.split(",") if port]
        return options | ({"ports": ports} if ports else {})
    options |= {name: True for name in _STREAM_FLAGS if request.flag(name)}
    if container := request.option("container"):
        options["container"] = container
    if route.subresource == "exec" and (command := request.query.get("command")):
        options["command"] = list(command)
    return options


class Attributes(msgspec.Struct):
    """Attributes of one request. object and old: in the stored version; None where the operation has none.

    Of a write to scale, they are Scales or the scaled objects.

    served: the resource of the path. namespace: of a Namespace, its own name. options: CreateOptions and the like.
    """

    operation: Operation
    served: ServedResource
    subresource: str
    namespace: str
    name: str
    object: JSON | None
    old: JSON | None
    options: JSON | None
    dry_run: bool
    user: JSON
    authorizer: RequestAuthorizer

    @property
    def kind(self) -> tuple[str, str, str]:
        return kind_of(self.served, self.subresource)

    @property
    def name_in_message(self) -> str:
        """The object's name as denials show it."""
        return self.name or ("Unknown" if self.object is None else errors.name_in_message(self.object))

    @property
    def is_of_namespace(self) -> bool:
        return self.served.resource is NAMESPACES

    async def seen_as(self, served: ServedResource) -> tuple[JSON | None, JSON | None]:
        """Return object and old object in the API version of a resource, as expressions see them.

        Raises StatusError 500 if a conversion webhook fails.
        """
        if self.subresource != "scale":
            await prepare_conversions(served, [obj for obj in (self.object, self.old) if obj is not None])
        return _in_version(self.object, served, self.subresource), _in_version(self.old, served, self.subresource)


def _in_version(obj: JSON | None, served: ServedResource, subresource: str) -> JSON | None:
    if obj is None:
        return None
    if subresource == "scale" and obj["apiVersion"] != SCALE.api_version:
        crd_version = served.crd_version
        return scale_of(obj) if crd_version is None else crd_version.scale.read(obj)
    if subresource in SUBRESOURCE_KINDS or subresource == "proxy":
        return obj
    return from_stored(served, obj) if served.crd_version is None else served.crd_version.converted(obj)


def decode_admitted(served: ServedResource, obj: JSON) -> tuple[JSON, list[str]]:
    """Return a changed object in decoded form, and its unknown fields. Raises DecodeError.

    A custom resource has its unknown fields until it is stored.
    """
    decoded, unknown = decoding.decode(served.resource, obj)
    return decoded if served.crd_version is None else served.crd_version.normalize_applied(obj), unknown


def set_connect_options(request: ApiRequest, options: JSON) -> None:
    """Set the query to changed options of exec, attach and portforward; the path of a proxy remains."""
    query = {name: values for name, values in request.query.items() if name not in _CONNECT_OPTIONS}
    for name in _STREAM_FLAGS:
        query |= {name: ["true"]} if options.get(name) else {}
    for name in ("command", "ports"):
        query |= {name: [str(value) for value in options[name]]} if options.get(name) else {}
    if options.get("container"):
        query["container"] = [options["container"]]
    request.query = query


_CONNECT_OPTIONS = (*_STREAM_FLAGS, "command", "container", "ports")


class _Version(Protocol):
    @property
    def served(self) -> ServedResource: ...


class CustomResources(Protocol):
    """The custom resources of one server (apiextensions.definitions.Definitions)."""

    def versions(self) -> Iterable[_Version]: ...


@cache
def equivalent_resources(served: ServedResource) -> tuple[ServedResource, ...]:
    """Return the other API versions of a built-in resource."""
    home = served.storage_resource or served.resource
    return tuple(
        resource
        for resource in BY_PATH.values()
        if (resource.storage_resource or resource.resource) is home and resource is not served
    )


def equivalent_versions(definitions: CustomResources, served: ServedResource) -> Sequence[ServedResource]:
    """Return the other API versions of a resource's objects."""
    if served.crd_version is None:
        return equivalent_resources(served)
    versions = (version.served for version in definitions.versions())
    name = served.resource.group_resource
    return [other for other in versions if other.resource.group_resource == name and other is not served]


def resource_of_kind(definitions: CustomResources, api_version: str, kind: str) -> ServedResource | None:
    """Return the resource of a kind, None if the server has none."""
    if (served := BY_KIND.get((api_version, kind))) is not None:
        return served
    for version in definitions.versions():
        resource = version.served.resource
        if (resource.api_version, resource.kind) == (api_version, kind):
            return version.served
    return None


def admission_attributes(
    context: RequestContext,
    operation: Operation,
    obj: JSON | None,
    old: JSON | None,
    deletion: DeleteOptions | None,
    grace_seconds: int | None,
) -> Attributes:
    """Return the attributes of a request. deletion, grace_seconds: see DynamicAdmission.check()."""
    request, info = context.request, context.info
    name = info.name
    if not name and operation == "CREATE" and obj is not None:
        name = obj["metadata"].get("name", "")
    options = None
    if operation in ("CREATE", "UPDATE"):
        options = _write_options(request, operation)
    elif deletion is not None:
        options = deletion.document
        if grace_seconds is not None and name:  # the options of a collection's deletion are not changed
            options["gracePeriodSeconds"] = grace_seconds
    elif operation == "CONNECT":
        obj = connect_options(request, info)
    return Attributes(
        operation,
        info.served,
        info.subresource,
        name if info.served.resource is NAMESPACES else info.namespace,
        name,
        obj,
        old,
        options,
        bool((options or {}).get("dryRun")),
        request.user,
        context.authorizer,
    )


_SET_AFTER_ADMISSION = ("uid", "creationTimestamp")
"""Metadata that is set after admission."""


def _write_options(request: ApiRequest, operation: Operation) -> JSON:
    """Return the CreateOptions or UpdateOptions of a request, from its query."""
    options: JSON = {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"}
    if request.query.get("dryRun"):
        options["dryRun"] = list(request.query["dryRun"])
    for option in ("fieldManager", "fieldValidation"):
        if value := request.option(option):
            options[option] = value
    return options


def hidden_until_stored(obj: JSON, old: JSON | None) -> tuple[JSON, JSON]:
    """Return an object as mutating admission sees it, and the metadata of a new object that is hidden from it."""
    metadata = obj["metadata"]
    hidden = {name: metadata[name] for name in _SET_AFTER_ADMISSION if name in metadata} if old is None else {}
    return {**obj, "metadata": {name: value for name, value in metadata.items() if name not in hidden}}, hidden


def store_changes(obj: JSON, changed: JSON, hidden: JSON) -> None:
    """Replace an object by a changed one of hidden_until_stored(), in place."""
    metadata, changed_metadata = obj["metadata"], {**changed["metadata"], **hidden}
    metadata.clear()
    metadata.update(changed_metadata)
    obj.clear()
    obj.update(changed, metadata=metadata)
