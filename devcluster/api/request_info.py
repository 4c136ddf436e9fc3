"""Request info: resource and verb of a path and method. Source: apiserver pkg/endpoints/request/requestinfo.go."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import (
    BY_PATH,
    CREATE_ONLY,
    NO_API_GATES,
    VERSIONS,
    ServedResource,
    is_served,
    versions_of_group,
)
from kubeloop.devcluster.api.subresources import subresource_verbs
from kubeloop.kube.json_object import JSON


class RequestInfo(msgspec.Struct, frozen=True):
    """The resource of a path: a collection (no name), an object, or a subresource of an object."""

    served: ServedResource
    namespace: str
    name: str
    subresource: str


@lru_cache(maxsize=4096)
def route(path: str, api_gates: frozenset[str] = NO_API_GATES) -> RequestInfo | None:
    """Return the resource of a path, or None if the path names no group version, as those of discovery.

    api_gates: see served_resources.api_gates(). Raises StatusError 404 for paths below a served group that name no
    resource.
    """
    parts = path.strip("/").split("/") if not path.startswith("//") else [""]
    if parts[0] == "api" and len(parts) >= 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if group not in VERSIONS:
        return None
    if version not in VERSIONS[group] or (not rest and version not in versions_of_group(group, api_gates)):
        raise errors.path_not_found()
    if not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    served = BY_PATH.get((group, version, rest[0]))
    if served is None or not is_served(served, api_gates):
        raise errors.path_not_found()
    if len(rest) > 3 and rest[2] != "proxy":  # a proxied path may follow
        raise errors.path_not_found()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    resource = served.resource
    if bool(namespace) != resource.namespaced and not (resource.namespaced and not name):
        raise errors.path_not_found()
    if subresource and subresource not in resource.subresources:
        raise errors.path_not_found()
    return RequestInfo(served, namespace, name, subresource)


_WATCH_PATH = re.compile(r"(/api/[^/]+|/apis/[^/]+/[^/]+)/watch(/.*)")


def route_watch_path(path: str, method: str, api_gates: frozenset[str] = NO_API_GATES) -> RequestInfo | None:
    """Return the resource of a deprecated watch path, with "watch" after the version; None for other paths.

    api_gates: as of route(). Raises StatusError 404 for a resource that cannot be watched, 405 for methods other than
    GET.
    """
    parts = _WATCH_PATH.fullmatch(path)
    info = route(parts[1] + parts[2], api_gates) if parts is not None else None
    if info is None:
        return None
    if info.subresource or "watch" not in info.served.verbs:
        raise errors.path_not_found()
    if method != "GET":
        raise errors.method_not_allowed()
    return info


_COLLECTION = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_OBJECT = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}


def request_verb(info: RequestInfo, method: str) -> str:
    """Return the verb of a method at this path. Raises StatusError 404, 405."""
    if info.subresource == "proxy" and method in ("HEAD", "OPTIONS"):
        method = "GET"  # proxied requests may have any method
    if info.subresource:
        verb = _OBJECT.get(method, "")
        if verb not in subresource_verbs(info.subresource):
            raise errors.method_not_allowed()
        return verb
    verb = (_OBJECT if info.name else _COLLECTION).get(method, "")
    all_namespaces = info.served.resource.namespaced and not info.namespace
    if info.served.verbs == CREATE_ONLY and (info.name or all_namespaces):  # create-only kinds have a single path
        raise errors.path_not_found()
    if verb not in info.served.verbs or (info.name and verb == "create") or (all_namespaces and verb != "list"):
        raise errors.method_not_allowed()
    return verb


OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"


def check_names(info: RequestInfo, obj: JSON) -> None:
    """Check that the path names the object; set a missing namespace. Raises StatusError 400."""
    metadata = obj["metadata"]
    if not info.served.resource.namespaced:
        metadata.pop("namespace", None)
    elif (metadata.get("namespace") or info.namespace) != info.namespace:
        raise errors.bad_request(OTHER_NAMESPACE)
    else:
        metadata["namespace"] = info.namespace
    name = metadata.get("name")
    if not name:
        raise errors.bad_request(
            f"the name of the object ({info.name} based on URL) was undeterminable: name must be provided"
        )
    if name != info.name:
        raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({info.name})")
