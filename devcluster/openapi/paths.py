"""The paths of the API with their operations, as OpenAPI 2 and 3 have them.

Follows from the registry (which verbs a resource has) and from the types of options (`meta/v1.ListOptions`,
`core/v1.PodExecOptions`): their fields are the parameters. Sources: apiserver pkg/endpoints/installer.go, kube-openapi
pkg/builder and pkg/builder3.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Literal

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import JSON_TYPE
from kubeloop.devcluster.api.served_resources import Served
from kubeloop.devcluster.api.subresources import subresource_kind, subresource_verbs
from kubeloop.devcluster.openapi.schemas import Schemas, title
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES

_TEXT: JSON = {"type": "string"}
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_CUSTOM_TYPES = (JSON_TYPE, "application/yaml")


@dataclass(frozen=True, slots=True)
class _Verb:
    """How a verb is published.

    word: what operation ids begin with. action: x-kubernetes-action. text: the description, about "{one}" or "{many}".
    options: the types whose fields are parameters, but those of `without`. more: responses besides 200 and 401.
    """

    method: str
    word: str
    action: str
    text: str
    options: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    body: Literal["", "object", "patch", "options"] = ""
    more: Mapping[str, str] = field(default_factory=dict)


_LISTED = ("meta/v1.ListOptions",)
_CREATED = {"201": "Created"}
_ACCEPTED = {"202": "Accepted"}
_VERBS = {
    "get": _Verb("get", "read", "get", "Reads {one}."),
    "list": _Verb("get", "list", "list", "Lists {many}, or watches them.", _LISTED),
    "watch": _Verb("get", "watch", "watch", "Watches {one}. Deprecated: watch a list.", _LISTED),
    "watchlist": _Verb("get", "watch", "watchlist", "Watches {many}. Deprecated: list with watch=true.", _LISTED),
    "create": _Verb(
        "post", "create", "post", "Creates {one}.", ("meta/v1.CreateOptions",), body="object", more=_CREATED | _ACCEPTED
    ),
    "update": _Verb(
        "put", "replace", "put", "Replaces {one}.", ("meta/v1.UpdateOptions",), body="object", more=_CREATED
    ),
    "patch": _Verb(
        "patch", "patch", "patch", "Changes {one} in part.", ("meta/v1.PatchOptions",), body="patch", more=_CREATED
    ),
    "delete": _Verb(
        "delete", "delete", "delete", "Deletes {one}.", ("meta/v1.DeleteOptions",), body="options", more=_ACCEPTED
    ),
    "deletecollection": _Verb(
        "delete",
        "delete",
        "deletecollection",
        "Deletes {many}.",
        ("meta/v1.DeleteOptions", *_LISTED),
        without=("watch", "allowWatchBookmarks"),
        body="options",
    ),
}
_CUSTOM_VERBS = _VERBS | {
    "get": replace(_VERBS["get"], options=("meta/v1.GetOptions",)),
    "patch": replace(_VERBS["patch"], more={}),
    "deletecollection": replace(_VERBS["deletecollection"], options=_LISTED, without=(), body=""),
}
"""Those of custom resources. Source: apiextensions-apiserver pkg/controller/openapi/builder."""

_CONNECTED = {
    **dict.fromkeys(("attach", "exec", "portforward"), ("get", "post")),
    "proxy": ("delete", "get", "head", "options", "patch", "post", "put"),
}
"""The methods of the subresources that are connections."""

_NO_PARAMETERS = ("kind", "apiVersion")
_PARAMETER_TYPES = {"string": "string", "bool": "boolean", "int32": "integer", "int64": "integer"}
_NEVER_SHARED = ("name", "dryRun", "fieldValidation")
"""Parameters that stand in full where they are used: kubectl up to 1.27 looks for them there."""

_PARAMETER_TEXTS = {
    "allowWatchBookmarks": "Whether a watch is sent bookmarks.",
    "command": "A word of the command line; to be repeated.",
    "container": "The container; may be left out if there is but one.",
    "continue": "The token of the page before.",
    "dryRun": "All: everything is checked and nothing is kept.",
    "fieldManager": "Who writes: the owner of the fields.",
    "fieldSelector": "Fields that objects must have, as metadata.name=web.",
    "fieldValidation": "What becomes of unknown fields: Ignore, Warn or Strict.",
    "follow": "Whether to go on as the log grows.",
    "force": "Whether an applied configuration takes fields from their owners.",
    "gracePeriodSeconds": "For how long the object may go on.",
    "insecureSkipTLSVerifyBackend": "Whether the kubelet's certificate goes unchecked.",
    "labelSelector": "Labels that objects must have, as app=web.",
    "limit": "How many objects a page has at most.",
    "limitBytes": "How many bytes to read at most.",
    "name": "The object's name.",
    "namespace": "The object's namespace.",
    "orphanDependents": "Deprecated: say propagationPolicy.",
    "path": "The path behind the proxy.",
    "ports": "A port to forward; to be repeated.",
    "pretty": "Whether JSON is indented.",
    "previous": "Whether to read the log of the container before its restart.",
    "propagationPolicy": "What becomes of dependents: Orphan, Background or Foreground.",
    "resourceVersion": "As of which version, see resourceVersionMatch.",
    "resourceVersionMatch": "How resourceVersion is meant: Exact or NotOlderThan.",
    "sendInitialEvents": "Whether a watch begins with what is there.",
    "sinceSeconds": "How far back to read.",
    "tailLines": "How many lines to read from the end.",
    "timeoutSeconds": "When a list fails and a watch ends.",
    "timestamps": "Whether lines begin with their time.",
    "watch": "Whether to stream changes instead of listing.",
}
_IN_PATH = re.compile(r"\{(\w+)\}")


def group_name(group: str) -> str:
    """A group as operations are named by it: "Apps", "RbacAuthorization", "Core"."""
    return "".join(title(part) for part in group.removesuffix(".k8s.io").split(".")) or "Core"


def tag_of(group: str, version: str = "") -> str:
    """A group, or a version of one, as operations are sorted by it: "apps", "rbacAuthorization_v1"."""
    name = group_name(group)
    return f"{name[0].lower()}{name[1:]}" + (f"_{version}" if version else "")


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One parameter of an operation; `value` is what the document has."""

    name: str
    place: str
    value: JSON


class Paths:
    """Paths, and what they share. Grows as resources are added.

    parameters: those of OpenAPI 2 that paths refer to.
    """

    def __init__(self, schemas: Schemas, *, v3: bool) -> None:
        self._schemas, self._v3 = schemas, v3
        self._parameters: dict[tuple[str, str, str], _Parameter] = {}
        self.parameters: dict[str, JSON] = {}
        self.paths: dict[str, JSON] = {}

    def add(self, each: Served) -> None:
        """Add all paths of a resource."""
        resource = each.resource
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        everywhere = resource.plural
        collection = f"namespaces/{{namespace}}/{everywhere}" if resource.namespaced else everywhere
        one = f"{collection}/{{name}}"
        for path, verbs in (
            (collection, ("list", "create", "deletecollection")),
            (one, ("get", "update", "patch", "delete")),
        ):
            if allowed := [verb for verb in verbs if verb in each.verbs]:
                self._item(f"{root}/{path}", each, allowed)
        if resource.namespaced and "list" in each.verbs:
            self._item(f"{root}/{everywhere}", each, ("list",), scope="ForAllNamespaces")
        if "watch" in each.verbs and each.custom is None:
            self._item(f"{root}/watch/{collection}", each, ("watchlist",))
            self._item(f"{root}/watch/{one}", each, ("watch",))
            if resource.namespaced:
                self._item(f"{root}/watch/{everywhere}", each, ("watchlist",), scope="ForAllNamespaces")
        for subresource in resource.subresources:
            path = f"{root}/{one}/{subresource}"
            if subresource in _CONNECTED:
                self._connection(path, each, subresource)
                if subresource == "proxy":
                    self._connection(f"{path}/{{path}}", each, subresource)
            else:
                self._item(path, each, subresource_verbs(subresource), subresource)

    def add_document(
        self, path: str, identifier: str, tag: str, answer: JSON, media_types: Sequence[str] = errors.BODY_TYPES
    ) -> None:
        """Add a path that is read only, as those of discovery are."""
        operation: JSON = {"tags": [tag], "operationId": identifier}
        self._finish(operation, answer, media_types, consumed=media_types if "$ref" in answer else ())
        self.paths[path] = {"get": operation}

    # --- items --------------------------------------------------------------------------------------------------------

    def _item(self, path: str, each: Served, verbs: Sequence[str], subresource: str = "", *, scope: str = "") -> None:
        operations: dict[str, JSON] = {}
        parameters: dict[str, list[_Parameter]] = {}
        known = _VERBS if each.custom is None else _CUSTOM_VERBS
        for verb in verbs:
            method = known[verb].method
            operations[method], parameters[method] = self._operation(each, verb, known[verb], subresource, scope)
            parameters[method].append(self._parameter("pretty", "query"))
        self._add(path, operations, parameters)

    def _connection(self, path: str, each: Served, subresource: str) -> None:
        """Connections say nothing of what goes through them; their options are those of a type of their own."""
        resource = each.resource
        _, _, kind = subresource_kind(each, subresource)
        with_path = "WithPath" if path.endswith("{path}") else ""
        operations: dict[str, JSON] = {}
        parameters: dict[str, list[_Parameter]] = {}
        for method in _CONNECTED[subresource]:
            words = f"connect{group_name(resource.group)}{title(resource.version)}{title(method)}"
            operation: JSON = {
                "description": f"Sends {method.upper()} on to the {subresource} of a {resource.kind}.",
                "tags": [tag_of(resource.group, resource.version)],
                "operationId": f"{words}{_scoped(each)}{resource.kind}{title(subresource)}{with_path}",
                "x-kubernetes-action": "connect",
                "x-kubernetes-group-version-kind": {"group": resource.group, "kind": kind, "version": resource.version},
            }
            self._finish(operation, _TEXT, ("*/*",))
            operations[method], parameters[method] = operation, [*self._options(f"core/v1.{kind}")]
        self._add(path, operations, parameters)

    def _add(self, path: str, operations: dict[str, JSON], parameters: dict[str, list[_Parameter]]) -> None:
        """Add an item; what all its operations have in common, but their bodies, is told once."""
        first, *others = parameters.values()
        common = [each for each in first if each.place != "body" and all(each in other for other in others)]
        for method, operation in operations.items():
            if own := [each for each in parameters[method] if each not in common]:
                operation["parameters"] = _in_order(own)
        common += [self._parameter(name, "path") for name in _IN_PATH.findall(path)]
        self.paths[path] = operations | ({"parameters": _in_order(common)} if common else {})

    # --- parameters ---------------------------------------------------------------------------------------------------

    def _options(self, type_name: str) -> Iterator[_Parameter]:
        """The fields of a type of options that a query can carry."""
        struct = schema.type_named(type_name)
        assert struct is not None, type_name
        for name, each in struct.json.items():
            of = each.type.element or each.type
            if name not in _NO_PARAMETERS and of.kind in _PARAMETER_TYPES:
                yield self._parameter(name, "query", _PARAMETER_TYPES[of.kind])

    def _parameter(self, name: str, place: str, type_: str = "string") -> _Parameter:
        key = (name, place, type_)
        if key not in self._parameters:
            form = {"type": type_, "uniqueItems": True}
            value: JSON = {"name": name, "in": place, **({"schema": form} if self._v3 else form)}
            if name in _PARAMETER_TEXTS:
                value["description"] = _PARAMETER_TEXTS[name]
            if place == "path":
                value["required"] = True
            if not self._v3 and name not in _NEVER_SHARED:
                value = self._shared(value)
            self._parameters[key] = _Parameter(name, place, value)
        return self._parameters[key]

    def _shared(self, parameter: JSON) -> JSON:
        """A reference to a parameter, which is kept for the end of the document."""
        digest = sha256(msgspec.json.encode(parameter)).digest()[:6]
        name = f"{parameter['name']}-{urlsafe_b64encode(digest).decode()}"
        self.parameters[name] = parameter
        return {"$ref": f"#/parameters/{name}"}

    # --- operations ---------------------------------------------------------------------------------------------------

    def _operation(
        self, each: Served, verb: str, published: _Verb, subresource: str, scope: str
    ) -> tuple[JSON, list[_Parameter]]:
        resource, custom = each.resource, each.custom is not None
        group, version, kind = subresource_kind(each, subresource) if subresource else ("", "", "")
        group, version, kind = group or resource.group, version or resource.version, kind or resource.kind
        words = f"{published.word}{group_name(resource.group)}{title(resource.version)}"
        words += "Collection" if verb == "deletecollection" else ""
        words += ("" if scope else _scoped(each)) + resource.kind + title(subresource)
        words += "List" if verb == "watchlist" else ""
        one = f"the {subresource} of a {resource.kind}" if subresource else f"a {resource.kind}"
        acted = (resource.group, resource.kind, resource.version) if custom else (group, kind, version)
        operation: JSON = {
            "description": published.text.format(one=one, many=f"objects of kind {resource.kind}"),
            "tags": [tag_of(resource.group, resource.version)],
            "operationId": words + scope,
            "x-kubernetes-action": published.action,
            "x-kubernetes-group-version-kind": dict(zip(("group", "kind", "version"), acted, strict=True)),
        }
        parameters = [
            parameter
            for options in published.options
            for parameter in self._options(options)
            if parameter.name not in published.without
        ]
        produced: tuple[str, ...] = _CUSTOM_TYPES if custom else errors.BODY_TYPES
        if subresource == "log":
            parameters += self._options("core/v1.PodLogOptions")
            self._finish(operation, _TEXT, ("text/plain", *produced))
            return operation, parameters
        type_name = self._schemas.type_of(group, version, kind)
        list_type = self._schemas.type_of(group, version, f"{kind}List" if subresource else each.list_kind)
        consumed: Sequence[str] = _CUSTOM_TYPES if custom else ("*/*",)
        if published.body == "patch":
            consumed = _PATCH_TYPES if each.custom is None else each.custom.patch_types
        if published.body:
            self._body(operation, parameters, published.body, type_name, consumed)
        if "meta/v1.ListOptions" in published.options and published.method == "get" and not custom:
            produced += tuple(f"{media};stream=watch" for media in produced if media != "application/yaml")
        self._finish(operation, self._answer(each, verb, type_name, list_type), produced, published.more, consumed)
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
            parameters.append(_Parameter("body", "body", value if kind == "object" else self._shared(value)))

    def _answer(self, each: Served, verb: str, type_name: str, list_type: str) -> JSON:
        """The schema of a verb's answer.

        What was deleted is told of by a Status, or answered whole where it is not gone yet. Kubernetes publishes the
        first only. Where an object is no Status (its status is no text), OpenAPI 3 names both here.
        """
        match verb:
            case "list":
                return self._schemas.reference(list_type)
            case "watch" | "watchlist":
                return self._schemas.reference("meta/v1.WatchEvent")
            case "delete" if not each.deleted_whole or each.resource is NAMESPACES:
                status = self._schemas.reference("meta/v1.Status")
                if self._v3 and self._schemas.has_status(type_name):
                    return {"anyOf": [status, self._schemas.reference(type_name)]}
                return status
            case "deletecollection":
                return self._schemas.reference("meta/v1.Status")
        return self._schemas.reference(type_name)

    def _finish(
        self,
        operation: JSON,
        answer: JSON,
        produced: Sequence[str],
        more: Mapping[str, str] | None = None,
        consumed: Sequence[str] = ("*/*",),
    ) -> None:
        """Add the answers to an operation; `more` are the codes that answer the same as 200."""
        if self._v3:
            whole: JSON = {"content": {each: {"schema": answer} for each in sorted(produced)}}
        else:
            whole = {"schema": answer}
            operation |= {"schemes": ["https"], "produces": list(produced)}
            if consumed:
                operation["consumes"] = list(consumed)
        told = {"200": "OK", **(more or {})}
        responses: JSON = {code: {"description": text, **whole} for code, text in told.items()}
        operation["responses"] = responses | {"401": {"description": "Unauthorized"}}


def _scoped(each: Served) -> str:
    return "Namespaced" if each.resource.namespaced else ""


def _in_order(parameters: Sequence[_Parameter]) -> list[JSON]:
    return [each.value for each in sorted(parameters, key=lambda each: (each.name, each.place))]
