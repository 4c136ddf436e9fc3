"""What admission knows of one request: k8s.io/apiserver's admission.Attributes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import Request
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.served_resources import BY_PATH, ServedResource
from kubeloop.devcluster.registry.scale import scale_of
from kubeloop.devcluster.serializer.conversion import from_stored
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NAMESPACES

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]

_SCALE = ("autoscaling", "v1", "Scale")
_SUBRESOURCE_KINDS: dict[str, tuple[str, str, str]] = {
    "scale": _SCALE,
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
    "attach": ("", "v1", "PodAttachOptions"),
    "exec": ("", "v1", "PodExecOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
}
"""Of what is sent to subresources that have another kind than the object."""


def kind_of(served: ServedResource, subresource: str) -> tuple[str, str, str]:
    """Group, version and kind of what is written."""
    resource = served.resource
    if subresource == "proxy":
        return "", "v1", f"{resource.kind}ProxyOptions"
    return _SUBRESOURCE_KINDS.get(subresource) or (resource.group, resource.version, resource.kind)


_STREAM_FLAGS = ("stdin", "stdout", "stderr", "tty")


def connect_options(request: Request, route: RequestInfo) -> JSON:
    """What is sent to exec, attach, portforward and proxy: the query as an object."""
    group, version, kind = kind_of(route.served, route.subresource)
    options: JSON = {"kind": kind, "apiVersion": f"{group}/{version}" if group else version}
    if route.subresource == "proxy":
        path = request.path.partition("/proxy")[2] or request.option("path")
        return options | ({"path": path} if path else {})
    if route.subresource == "portforward":
        ports = [int(each) for text in request.query.get("ports", ()) for each in text.split(",") if each]
        return options | ({"ports": ports} if ports else {})
    options |= {name: True for name in _STREAM_FLAGS if request.flag(name)}
    if container := request.option("container"):
        options["container"] = container
    if route.subresource == "exec" and (command := request.query.get("command")):
        options["command"] = list(command)
    return options


@dataclass(slots=True)
class Attributes:
    """One request. object and old: in the form in which objects are stored, None where the operation has none.

    served: what the path names. namespace: of a namespace, its own name. options: CreateOptions and its like.
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

    @property
    def kind(self) -> tuple[str, str, str]:
        return kind_of(self.served, self.subresource)

    @property
    def name_in_message(self) -> str:
        """As refusals have it."""
        return self.name or ("Unknown" if self.object is None else errors.name_in_message(self.object))

    @property
    def is_of_namespace(self) -> bool:
        return self.served.resource is NAMESPACES

    def seen_as(self, served: ServedResource) -> tuple[JSON | None, JSON | None]:
        """(object, old) in the version of that resource, as expressions see them."""
        return _in_version(self.object, served, self.subresource), _in_version(self.old, served, self.subresource)


def _in_version(obj: JSON | None, served: ServedResource, subresource: str) -> JSON | None:
    if obj is None:
        return None
    if subresource == "scale":
        crd_version = served.crd_version
        return scale_of(obj) if crd_version is None else crd_version.scale_of(obj)
    if subresource in _SUBRESOURCE_KINDS or subresource == "proxy":
        return obj
    return from_stored(served, obj)


@cache
def equivalent_resources(served: ServedResource) -> tuple[ServedResource, ...]:
    """Built-in resources that are other versions of the same objects."""
    home = served.storage_resource or served.resource
    return tuple(
        each for each in BY_PATH.values() if (each.storage_resource or each.resource) is home and each is not served
    )
