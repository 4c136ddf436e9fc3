"""Verbs and body kinds of subresources.

Source: apiserver pkg/endpoints/installer.go, pkg/registry of Kubernetes v1.36.
"""

from __future__ import annotations

from kubeloop.devcluster.api.served_resources import ServedResource

_READ_WRITE = ("get", "patch", "update")
_PROXY = ("create", "delete", "get", "patch", "update")
_CONNECT = ("create", "get")

_SUBRESOURCE_VERBS: dict[str, tuple[str, ...]] = {
    "attach": _CONNECT,
    "binding": ("create",),
    "eviction": ("create",),
    "exec": _CONNECT,
    "finalize": ("update",),
    "log": ("get",),
    "portforward": _CONNECT,
    "proxy": _PROXY,
    "token": ("create",),
}
"""Verbs of subresources other than get, patch and update."""

SUBRESOURCE_KINDS: dict[str, tuple[str, str, str]] = {
    "attach": ("", "", "PodAttachOptions"),
    "binding": ("", "", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "exec": ("", "", "PodExecOptions"),
    "portforward": ("", "", "PodPortForwardOptions"),
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}
"""Group, version ("" for the resource's own) and kind of subresources with a kind of their own."""


def subresource_verbs(subresource: str) -> tuple[str, ...]:
    return _SUBRESOURCE_VERBS.get(subresource, _READ_WRITE)


def subresource_kind(served: ServedResource, subresource: str) -> tuple[str, str, str]:
    """Return (group, version, kind) of a subresource's bodies; group and version are "" for the resource's own."""
    if subresource == "proxy":
        return "", "", f"{served.resource.kind}ProxyOptions"
    return SUBRESOURCE_KINDS.get(subresource, ("", "", served.resource.kind))
