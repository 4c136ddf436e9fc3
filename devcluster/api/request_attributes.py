"""Verb, resource and names of a request by its path alone, whether or not the resource is served.

Source: apiserver pkg/endpoints/request/requestinfo.go of v1.36.
"""

from __future__ import annotations

import msgspec

from kubeloop.devcluster.api.request import ApiRequest

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCES_OF_NAMESPACES = ("status", "finalize")


class RequestAttributes(msgspec.Struct, frozen=True):
    """A request to an object, a collection or, without resource, a path. verb: of no resource, the HTTP method.

    field_selector: of a list, watch or deletecollection.
    """

    verb: str
    path: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""

    @property
    def is_resource_request(self) -> bool:
        return bool(self.version)

    @property
    def combined_resource(self) -> str:
        """The resource as rules write it, such as "pods/log"."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def request_attributes(request: ApiRequest) -> RequestAttributes:
    """Return the attributes of a request."""
    path = request.path
    no_resource = RequestAttributes(request.method.lower(), path)
    parts = path.strip("/").split("/")
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return no_resource
    verb = _VERBS.get(request.method, "")
    by_path = rest[0] in ("proxy", "watch")
    if by_path:
        verb, *rest = rest
        if not rest:
            return no_resource
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _SUBRESOURCES_OF_NAMESPACES:
            rest = rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 and verb != "proxy" else ""
    if not name and verb == "get":
        verb = "watch" if request.flag("watch") else "list"
        name = _selected_name(request.option("fieldSelector"))
    elif not name and verb == "delete":
        verb = "deletecollection"
    has_selector = not by_path and verb in ("list", "watch", "deletecollection")
    field_selector = request.option("fieldSelector") if has_selector else ""
    return RequestAttributes(verb, path, group, version, rest[0], subresource, namespace, name, field_selector)


def _selected_name(field_selector: str) -> str:
    """Return the name that a field selector requires, if it can be one."""
    for requirement in field_selector.split(","):
        field, _, value = requirement.replace("==", "=").partition("=")
        if field == "metadata.name" and value and "/" not in value and "%" not in value and value not in (".", ".."):
            return value
    return ""
