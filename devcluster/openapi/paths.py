"""Paths of the API with their operations, in the forms of OpenAPI 2 and 3.

They follow from the registry (verbs of each resource) and from the option types (`meta/v1.ListOptions`,
`core/v1.PodExecOptions`), whose fields are the parameters. Sources: apiserver pkg/endpoints/installer.go, kube-openapi
pkg/builder and pkg/builder3.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import JSON_TYPE
from kubeloop.devcluster.api.served_resources import CUSTOM_RESOURCE_PATCHES, ServedResource
from kubeloop.devcluster.api.subresources import subresource_kind, subresource_verbs
from kubeloop.devcluster.openapi.schemas import Schemas, title
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES

_STRING_SCHEMA: JSON = {"type": "string"}
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_CUSTOM_MEDIA_TYPES = (JSON_TYPE, "application/yaml")


@dataclass(frozen=True, slots=True)
class _Verb:
    """OpenAPI representation of a verb.

    prefix: first part of operation ids. action: x-kubernetes-action. description: with "{one}" or "{many}". options:
    types whose fields are parameters, except excluded_parameters. extra_responses: codes besides 200 and 401.
    """

    method: str
    prefix: str
    action: str
    description: str
    options: tuple[str, ...] = ()
    body: Literal["", "object", "patch", "options"] = ""
    extra_responses: tuple[str, ...] = ()
    excluded_parameters: tuple[str, ...] = ()


_LIST_OPTIONS = ("meta/v1.ListOptions",)
_RESPONSES = {"200": "OK", "201": "Created", "202": "Accepted", "401": "Unauthorized"}
_DELETE_OPTIONS = ("meta/v1.DeleteOptions",)
_VERBS = {
    "get": _Verb("get", "read", "get", "Reads {one}."),
    "list": _Verb("get", "list", "list", "Lists {many}, or watches them.", _LIST_OPTIONS),
    "watch": _Verb("get", "watch", "watch", "Watches {one}. Deprecated: watch a list.", _LIST_OPTIONS),
    "watchlist": _Verb("get", "watch", "watchlist", "Watches {many}. Deprecated: list with watch=true.", _LIST_OPTIONS),
    "create": _Verb(
        "post", "create", "post", "Creates {one}.", ("meta/v1.CreateOptions",), "object", ("201", "202")
    ),
    "update": _Verb("put", "replace", "put", "Replaces {one}.", ("meta/v1.UpdateOptions",), "object", ("201",)),
    "patch": _Verb("patch", "patch", "patch", "Changes {one} in part.", ("meta/v1.PatchOptions",), "patch", ("201",)),
    "delete": _Verb("delete", "delete", "delete", "Deletes {one}.", _DELETE_OPTIONS, "options", ("202",)),
    "deletecollection": _Verb(
        "delete", "delete", "deletecollection", "Deletes {many}.", _DELETE_OPTIONS + _LIST_OPTIONS, "options",
        excluded_parameters=("watch", "allowWatchBookmarks"),
    ),
}  # fmt: skip
_CUSTOM_VERBS = _VERBS | {
    "get": replace(_VERBS["get"], options=("meta/v1.GetOptions",)),
    "patch": replace(_VERBS["patch"], extra_responses=()),
    "deletecollection": replace(_VERBS["deletecollection"], options=_LIST_OPTIONS, excluded_parameters=(), body=""),
}
"""Verbs of custom resources. Source: apiextensions-apiserver pkg/controller/openapi/builder."""

_CONNECT_METHODS = {
    **dict.fromkeys(("attach", "exec", "portforward"), ("get", "post")),
    "proxy": ("delete", "get", "head", "options", "patch", "post", "put"),
}
"""Methods of connect subresources."""

_NO_PARAMETERS = ("kind", "apiVersion")
_PARAMETER_TYPES = {"string": "string", "bool": "boolean", "int32": "integer", "int64": "integer"}
_INLINED_PARAMETERS = ("name", "dryRun", "fieldValidation")
"""Parameters that are not shared by reference: kubectl up to 1.27 only finds them inline."""

_PARAMETER_DESCRIPTIONS = {
    "allowWatchBookmarks": "Whether a watch sends bookmarks.",
    "command": "An argument of the command line; may be repeated.",
    "container": "The container; may be omitted if the pod has only one.",
    "continue": "The continue token of the previous page.",
    "dryRun": "All: all checks run, and nothing is stored.",
    "fieldManager": "The manager that owns the written fields.",
    "fieldSelector": "Selector of object fields, such as metadata.name=web.",
    "fieldValidation": "Handling of unknown and duplicate fields: Ignore, Warn or Strict.",
    "follow": "Whether to stream the log as it grows.",
    "force": "Whether server-side apply takes over fields of other managers.",
    "gracePeriodSeconds": "Seconds until the object is deleted.",
    "insecureSkipTLSVerifyBackend": "Whether to skip verification of the kubelet's certificate.",
    "labelSelector": "Selector of labels, such as app=web.",
    "limit": "Maximum number of objects per page.",
    "limitBytes": "Maximum number of bytes to return.",
    "name": "Name of the object.",
    "namespace": "Namespace of the object.",
    "orphanDependents": "Deprecated: use propagationPolicy.",
    "path": "Path of the proxied request.",
    "ports": "A port to forward; may be repeated.",
    "pretty": "Whether JSON is indented.",
    "previous": "Whether to return the log of the previous container instance.",
    "propagationPolicy": "Handling of dependents: Orphan, Background or Foreground.",
    "resourceVersion": "The resource version to read, see resourceVersionMatch.",
    "resourceVersionMatch": "How resourceVersion is applied: Exact or NotOlderThan.",
    "sendInitialEvents": "Whether a watch starts with events of existing objects.",
    "sinceSeconds": "Maximum age of returned lines in seconds.",
    "tailLines": "Number of lines to return from the end of the log.",
    "timeoutSeconds": "Seconds after which a list fails or a watch ends.",
    "timestamps": "Whether each line starts with its timestamp.",
    "watch": "Whether to stream changes instead of listing.",
}
_PATH_PARAMETER = re.compile(r"\{(\w+)\}")


def group_name(group: str) -> str:
    """Return a group in the form of operation ids: "Apps", "RbacAuthorization", "Core"."""
    return "".join(title(part) for part in group.removesuffix(".k8s.io").split(".")) or "Core"


def operation_tag(group: str, version: str = "") -> str:
    """Return the tag of a group's operations: "apps", "rbacAuthorization_v1"."""
    name = group_name(group)
    return f"{name[0].lower()}{name[1:]}" + (f"_{version}" if version else "")


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One parameter of an operation; `value` is its JSON in the document."""

    name: str
    place: str
    value: JSON


class Paths:
    """Paths of a document; grows as resources are added.

    parameters: shared parameters of OpenAPI 2, which paths refer to.
    """

    def __init__(self, schemas: Schemas, *, v3: bool) -> None:
        self._schemas, self._v3 = schemas, v3
        self._parameters: dict[tuple[str, str, str], _Parameter] = {}
        self.parameters: dict[str, JSON] = {}
        self.paths: dict[str, JSON] = {}

    def add(self, served: ServedResource) -> None:
        """Add all paths of a resource."""
        resource = served.resource
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        everywhere = resource.plural
        collection = f"namespaces/{{namespace}}/{everywhere}" if resource.namespaced else everywhere
        one = f"{collection}/{{name}}"
        for path, verbs in (
            (collection, ("list", "create", "deletecollection")),
            (one, ("get", "update", "patch", "delete")),
        ):
            if allowed := [verb for verb in verbs if verb in served.verbs]:
                self._item(f"{root}/{path}", served, allowed)
        if resource.namespaced and "list" in served.verbs:
            self._item(f"{root}/{everywhere}", served, ("list",), scope="ForAllNamespaces")
        if "watch" in served.verbs and served.crd_version is None:
            self._item(f"{root}/watch/{collection}", served, ("watchlist",))
            self._item(f"{root}/watch/{one}", served, ("watch",))
            if resource.namespaced:
                self._item(f"{root}/watch/{everywhere}", served, ("watchlist",), scope="ForAllNamespaces")
        for subresource in resource.subresources:
            path = f"{root}/{one}/{subresource}"
            if subresource in _CONNECT_METHODS:
                self._connection(path, served, subresource)
                if subresource == "proxy":
                    self._connection(f"{path}/{{path}}", served, subresource)
            else:
                self._item(path, served, subresource_verbs(subresource), subresource)

    def add_document(
        self, path: str, identifier: str, tag: str, response: JSON, media_types: Sequence[str] = errors.BODY_TYPES
    ) -> None:
        """Add a read-only path, such as one of discovery."""
        operation: JSON = {"tags": [tag], "operationId": identifier}
        self._add_responses(operation, response, media_types, consumes=media_types if "$ref" in response else ())
        self.paths[path] = {"get": operation}

    # --- items --------------------------------------------------------------------------------------------------------

    def _item(
        self, path: str, served: ServedResource, verbs: Sequence[str], subresource: str = "", *, scope: str = ""
    ) -> None:
        operations: dict[str, JSON] = {}
        parameters: dict[str, list[_Parameter]] = {}
        verbs_ = _VERBS if served.crd_version is None else _CUSTOM_VERBS
        for verb in verbs:
            method = verbs_[verb].method
            operations[method], parameters[method] = self._operation(served, verb, verbs_[verb], subresource, scope)
            parameters[method].append(self._parameter("pretty", "query"))
        self._add(path, operations, parameters)

    def _connection(self, path: str, served: ServedResource, subresource: str) -> None:
        """Add a connect subresource: content types are unknown, parameters come from its own options type."""
        resource = served.resource
        _, _, kind = subresource_kind(served, subresource)
        with_path = "WithPath" if path.endswith("{path}") else ""
        operations: dict[str, JSON] = {}
        parameters: dict[str, list[_Parameter]] = {}
        for method in _CONNECT_METHODS[subresource]:
            prefix = f"connect{group_name(resource.group)}{title(resource.version)}{title(method)}"
            operation: JSON = {
                "description": f"Sends {method.upper()} on to the {subresource} of a {resource.kind}.",
                "tags": [operation_tag(resource.group, resource.version)],
                "operationId": f"{prefix}{_namespaced_infix(served)}{resource.kind}{title(subresource)}{with_path}",
                "x-kubernetes-action": "connect",
                "x-kubernetes-group-version-kind": {"group": resource.group, "kind": kind, "version": resource.version},
            }
            self._add_responses(operation, _STRING_SCHEMA, ("*/*",))
            operations[method], parameters[method] = operation, [*self._query_parameters(f"core/v1.{kind}")]
        self._add(path, operations, parameters)

    def _add(self, path: str, operations: dict[str, JSON], parameters: dict[str, list[_Parameter]]) -> None:
        """Add a path item; parameters common to all operations, except bodies, are declared once."""
        first, *others = parameters.values()
        common = [served for served in first if served.place != "body" and all(served in other for other in others)]
        for method, operation in operations.items():
            if own := [served for served in parameters[method] if served not in common]:
                operation["parameters"] = _sorted_values(own)
        common += [self._parameter(name, "path") for name in _PATH_PARAMETER.findall(path)]
        self.paths[path] = operations | ({"parameters": _sorted_values(common)} if common else {})

    # --- parameters ---------------------------------------------------------------------------------------------------

    def _query_parameters(self, type_name: str) -> Iterator[_Parameter]:
        """Yield the fields of an options type that a query can carry."""
        struct = schema.type_named(type_name)
        assert struct is not None, type_name
        for name, served in struct.json.items():
            of = served.type.element or served.type
            if name not in _NO_PARAMETERS and of.kind in _PARAMETER_TYPES:
                yield self._parameter(name, "query", _PARAMETER_TYPES[of.kind])

    def _parameter(self, name: str, place: str, type_: str = "string") -> _Parameter:
        key = (name, place, type_)
        if key not in self._parameters:
            form = {"type": type_, "uniqueItems": True}
            value: JSON = {"name": name, "in": place, **({"schema": form} if self._v3 else form)}
            if name in _PARAMETER_DESCRIPTIONS:
                value["description"] = _PARAMETER_DESCRIPTIONS[name]
            if place == "path":
                value["required"] = True
            if not self._v3 and name not in _INLINED_PARAMETERS:
                value = self._shared_reference(value)
            self._parameters[key] = _Parameter(name, place, value)
        return self._parameters[key]

    def _shared_reference(self, parameter: JSON) -> JSON:
        """Return a reference to a parameter, which is added to the document's shared parameters."""
        digest = sha256(msgspec.json.encode(parameter)).digest()[:6]
        name = f"{parameter['name']}-{urlsafe_b64encode(digest).decode()}"
        self.parameters[name] = parameter
        return {"$ref": f"#/parameters/{name}"}

    # --- operations ---------------------------------------------------------------------------------------------------

    def _operation(
        self, served: ServedResource, verb: str, spec: _Verb, subresource: str, scope: str
    ) -> tuple[JSON, list[_Parameter]]:
        resource, crd_version = served.resource, served.crd_version is not None
        group, version, kind = subresource_kind(served, subresource) if subresource else ("", "", "")
        group, version, kind = group or resource.group, version or resource.version, kind or resource.kind
        operation_id = f"{spec.prefix}{group_name(resource.group)}{title(resource.version)}"
        operation_id += "Collection" if verb == "deletecollection" else ""
        operation_id += ("" if scope else _namespaced_infix(served)) + resource.kind + title(subresource)
        operation_id += "List" if verb == "watchlist" else ""
        one = f"the {subresource} of a {resource.kind}" if subresource else f"a {resource.kind}"
        kind_parts = (resource.group, resource.kind, resource.version) if crd_version else (group, kind, version)
        operation: JSON = {
            "description": spec.description.format(one=one, many=f"objects of kind {resource.kind}"),
            "tags": [operation_tag(resource.group, resource.version)],
            "operationId": operation_id + scope,
            "x-kubernetes-action": spec.action,
            "x-kubernetes-group-version-kind": dict(zip(("group", "kind", "version"), kind_parts, strict=True)),
        }
        parameters = [
            parameter
            for options in spec.options
            for parameter in self._query_parameters(options)
            if parameter.name not in spec.excluded_parameters
        ]
        produces: tuple[str, ...] = _CUSTOM_MEDIA_TYPES if crd_version else errors.BODY_TYPES
        if subresource == "log":
            parameters += self._query_parameters("core/v1.PodLogOptions")
            self._add_responses(operation, _STRING_SCHEMA, ("text/plain", *produces))
            return operation, parameters
        type_name = self._schemas.type_name(group, version, kind)
        list_type = self._schemas.type_name(group, version, f"{kind}List" if subresource else served.list_kind)
        consumes: Sequence[str] = _CUSTOM_MEDIA_TYPES if crd_version else ("*/*",)
        if spec.body == "patch":
            consumes = _PATCH_TYPES if served.crd_version is None else CUSTOM_RESOURCE_PATCHES
        if spec.body:
            self._body(operation, parameters, spec.body, type_name, consumes)
        if "meta/v1.ListOptions" in spec.options and spec.method == "get" and not crd_version:
            produces += tuple(f"{media};stream=watch" for media in produces if media != "application/yaml")
        response = self._response_schema(served, verb, type_name, list_type)
        self._add_responses(operation, response, produces, spec.extra_responses, consumes)
        return operation, parameters

    def _body(
        self, operation: JSON, parameters: list[_Parameter], kind: str, type_name: str, media_types: Sequence[str]
    ) -> None:
        match kind:
            case "patch":
                body = self._schemas.patch()
            case "options":
                body = self._schemas.reference("meta/v1.DeleteOptions")
            case _:
                body = self._schemas.reference(type_name)
        required = {"required": True} if kind != "options" else {}
        if self._v3:
            operation["requestBody"] = {"content": {media: {"schema": body} for media in media_types}, **required}
        else:
            value: JSON = {"name": "body", "in": "body", "schema": body, **required}
            parameters.append(_Parameter("body", "body", value if kind == "object" else self._shared_reference(value)))

    def _response_schema(self, served: ServedResource, verb: str, type_name: str, list_type: str) -> JSON:
        """Return the schema of a verb's response.

        A DELETE returns a Status, or the object if it still exists; Kubernetes only publishes the former. For objects
        that are not a Status (whose `status` is not a string), OpenAPI 3 declares both here.
        """
        match verb:
            case "list":
                return self._schemas.reference(list_type)
            case "watch" | "watchlist":
                return self._schemas.reference("meta/v1.WatchEvent")
            case "delete" if not served.return_deleted_object or served.resource is NAMESPACES:
                status = self._schemas.reference("meta/v1.Status")
                if self._v3 and self._schemas.has_status(type_name):
                    return {"anyOf": [status, self._schemas.reference(type_name)]}
                return status
            case "deletecollection":
                return self._schemas.reference("meta/v1.Status")
        return self._schemas.reference(type_name)

    def _add_responses(
        self,
        operation: JSON,
        response: JSON,
        produces: Sequence[str],
        extra_responses: Sequence[str] = (),
        consumes: Sequence[str] = ("*/*",),
    ) -> None:
        """Add responses to an operation; extra_responses: codes with the same content as 200."""
        if self._v3:
            content: JSON = {"content": {served: {"schema": response} for served in sorted(produces)}}
        else:
            content = {"schema": response}
            operation |= {"schemes": ["https"], "produces": list(produces)}
            if consumes:
                operation["consumes"] = list(consumes)
        responses: JSON = {code: {"description": _RESPONSES[code], **content} for code in ("200", *extra_responses)}
        operation["responses"] = responses | {"401": {"description": _RESPONSES["401"]}}


def _namespaced_infix(served: ServedResource) -> str:
    return "Namespaced" if served.resource.namespaced else ""


def _sorted_values(parameters: Sequence[_Parameter]) -> list[JSON]:
    return [served.value for served in sorted(parameters, key=lambda served: (served.name, served.place))]
