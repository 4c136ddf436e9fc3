"""From a request's path and method to what it asks for. Source: apiserver pkg/endpoints/request/requestinfo.go."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.served_resources import BY_PATH, CREATE_ONLY, VERSIONS, ServedResource
from kubeloop.devcluster.api.subresources import subresource_verbs
from kubeloop.kube.json_object import JSON


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A path that names a resource: a collection (no name), an object, or a subresource of it."""

    served: ServedResource
    namespace: str
    name: str
    subresource: str


@lru_cache(maxsize=4096)
def route(path: str) -> RequestInfo | None:
    """None for paths that name no API group and version; those are discovery's, or nobody's.

    Raises StatusError 404 for paths below a served group that name nothing.
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
    if version not in VERSIONS[group]:
        raise errors.path_not_found()
    if not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    served = BY_PATH.get((group, version, rest[0]))
    if served is None or (len(rest) > 3 and rest[2] != "proxy"):  # what is behind a proxy has paths of its own
        raise errors.path_not_found()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    resource = served.resource
    if bool(namespace) != resource.namespaced and not (resource.namespaced and not name):
        raise errors.path_not_found()
    if subresource and subresource not in resource.subresources:
        raise errors.path_not_found()
    return RequestInfo(served, namespace, name, subresource)


_WATCHED = re.compile(r"(/api/[^/]+|/apis/[^/]+/[^/]+)/watch(/.*)")


def watched(path: str, method: str) -> RequestInfo | None:
    """What is watched at a path of old, with "watch" after the version; None for all other paths.

    Raises StatusError 404 for what cannot be watched, 405 for other methods than GET.
    """
    parts = _WATCHED.fullmatch(path)
    found = route(parts[1] + parts[2]) if parts is not None else None
    if found is None:
        return None
    if found.subresource or "watch" not in found.served.verbs:
        raise errors.path_not_found()
    if method != "GET":
        raise errors.method_not_allowed()
    return found


_COLLECTION = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_OBJECT = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "POST": "create"}


def request_verb(found: RequestInfo, method: str) -> str:
    """The verb of a method at this path. Raises StatusError 404, 405."""
    if found.subresource == "proxy" and method in ("HEAD", "OPTIONS"):
        method = "GET"  # whatever the method is: it is meant for somebody else
    if found.subresource:
        asked = _OBJECT.get(method, "")
        if asked not in subresource_verbs(found.subresource):
            raise errors.method_not_allowed()
        return asked
    asked = (_OBJECT if found.name else _COLLECTION).get(method, "")
    across = found.served.resource.namespaced and not found.namespace
    if found.served.verbs == CREATE_ONLY and (found.name or across):  # what is only created has one path
        raise errors.path_not_found()
    if asked not in found.served.verbs or (found.name and asked == "create") or (across and asked != "list"):
        raise errors.method_not_allowed()
    return asked


OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"


def check_names(found: RequestInfo, obj: JSON) -> None:
    """Is an object the one that its path names? A namespace that is left out is filled in. Raises StatusError 400."""
    metadata = obj["metadata"]
    if not found.served.resource.namespaced:
        metadata.pop("namespace", None)
    elif (metadata.get("namespace") or found.namespace) != found.namespace:
        raise errors.bad_request(OTHER_NAMESPACE)
    else:
        metadata["namespace"] = found.namespace
    name = metadata.get("name")
    if not name:
        raise errors.bad_request(
            f"the name of the object ({found.name} based on URL) was undeterminable: name must be provided"
        )
    if name != found.name:
        raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({found.name})")
