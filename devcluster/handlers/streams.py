"""The subresources log, exec, attach, portforward and proxy, as far as the API server itself answers them.

Simulated nodes run no containers: the log of a pod on a node is empty, and streams are refused. Source:
pkg/registry/core/{pod,service,node} (strategy.go, rest, storage.go), ValidatePodLogOptions of v1.36.
"""

from __future__ import annotations

import ipaddress
import re
from datetime import datetime
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import Request, Response, text_response
from kubeloop.devcluster.api.served_resources import ENDPOINTS
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.field_errors import quoted
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS, SERVICES, Resource

_NUMBER = re.compile(r"[+-]?[0-9]+")
_MOST = 2**63


def check_log_options(request: Request, name: str) -> None:
    """Raises StatusError 400 for unreadable options, 422 for invalid ones."""
    numbers = {option: _number(request, option) for option in ("sinceSeconds", "tailLines", "limitBytes")}
    since = request.option("sinceTime")
    if since:
        _check_time(since)
    error_list = ErrorList()
    seconds, tail_lines, limit_bytes = numbers["sinceSeconds"], numbers["tailLines"], numbers["limitBytes"]
    if tail_lines is not None and tail_lines < 0:
        error_list.invalid("tailLines", tail_lines, "must be greater than or equal to 0")
    if limit_bytes is not None and limit_bytes < 1:
        error_list.invalid("limitBytes", limit_bytes, "must be greater than 0")
    if seconds is not None and since:
        error_list.forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif seconds is not None and seconds < 1:
        error_list.invalid("sinceSeconds", seconds, "must be greater than 0")
    if "stream" in request.query:  # feature gate PodLogsQuerySplitStreams is off by default
        error_list.forbidden("stream", "may not be specified")
    if error_list:
        causes = [{**cause, "field": cause["field"] or "[]"} for cause in error_list]
        raise errors.invalid("", "PodLogOptions", name, causes)


def _number(request: Request, name: str) -> int | None:
    text = request.option(name)
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise errors.bad_request(f"strconv.ParseInt: parsing {quoted(text)}: invalid syntax")
    if not -_MOST <= int(text) < _MOST:
        raise errors.bad_request(f"strconv.ParseInt: parsing {quoted(text)}: value out of range")
    return int(text)


def _check_time(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        message = f'parsing time {quoted(text)} as "2006-01-02T15:04:05Z07:00": cannot parse {quoted(text)} as "2006"'
        raise errors.bad_request(message) from error


def check_ports(request: Request) -> None:
    """Raises StatusError 400 for ports that are not numbers."""
    for text in request.query.get("ports", ()):
        for port in text.split(","):
            if port and not (port.isascii() and port.isdigit()):
                message = f"strconv.ParseUint: parsing {quoted(port)}: invalid syntax"
                raise errors.bad_request(f"cannot convert to []int32: {message}")


def log_of(store: ObjectStore, pod: JSON, container: str) -> Response:
    """Return the pod's log, which is empty. Raises StatusError 400 for an unknown container, 404 for a missing node."""
    _check_container(pod, container)
    if not pod["spec"].get("nodeName"):
        return Response(204, b"", "")  # no kubelet to read from
    _check_node(store, pod)
    return text_response(200, "")


def refuse_stream(store: ObjectStore, pod: JSON, subresource: str, container: str) -> Response:
    """Refuse exec, attach and portforward. Always raises StatusError 400 or 404."""
    name = pod["metadata"]["name"]
    if subresource != "portforward":
        _check_container(pod, container)
    if not pod["spec"].get("nodeName"):
        raise errors.bad_request(f"pod {name} does not have a host assigned")
    _check_node(store, pod)
    raise _no_containers(subresource)


def refuse_proxy(store: ObjectStore, resource: Resource[Any], namespace: str, target: str) -> Response:
    """Refuse a proxy request. Always raises StatusError 400, 404 or 503. `target`: "name", "http:name:port", ..."""
    parts = target.split(":")
    scheme = parts.pop(0) if len(parts) == 3 else ""
    name, port = (*parts, "")[:2]
    if len(parts) > 2 or not name or scheme not in ("", "http", "https"):
        raise errors.bad_request(f"invalid {resource.kind.lower()} request {quoted(target)}")
    obj = store.get(resource, namespace, name)
    if resource is SERVICES:
        _check_endpoints(store, obj, namespace, name, port, target)
    elif obj is None:
        raise errors.not_found(resource, name)
    elif resource is PODS and not _reachable((obj.get("status") or {}).get("podIP", "")):
        raise errors.bad_request("address not allowed")
    raise _no_containers("proxy")


def _check_endpoints(
    store: ObjectStore, service: JSON | None, namespace: str, name: str, port: str, target: str
) -> None:
    if _NUMBER.fullmatch(port):
        if service is None:
            raise errors.not_found(SERVICES, name)
        ports = service["spec"].get("ports") or ()
        named = [entry.get("name", "") for entry in ports if entry.get("port") == int(port)]
        if not named:
            message = f"no service port {int(port)} found for service {quoted(name)}"
            raise errors.StatusError(503, "ServiceUnavailable", message)
        port = named[0]
    endpoints = store.get(ENDPOINTS, namespace, name)
    if endpoints is None:
        raise errors.not_found(SERVICES, name)
    for subset in endpoints.get("subsets") or ():
        if any(entry.get("name", "") == port for entry in subset.get("ports") or ()):
            for address in subset.get("addresses") or ():
                if _is_of_a_pod(store, namespace, address):
                    return
    service_name = target if endpoints.get("subsets") else name
    raise errors.StatusError(503, "ServiceUnavailable", f"no endpoints available for service {quoted(service_name)}")


def _is_of_a_pod(store: ObjectStore, namespace: str, address: JSON) -> bool:
    target = address.get("targetRef") or {}
    pod = store.get(PODS, namespace, target.get("name", "")) if target.get("namespace") == namespace else None
    return pod is not None and any(pod_ip["ip"] == address["ip"] for pod_ip in pod["status"].get("podIPs") or ())


def _reachable(ip: str) -> bool:
    """Return Go's IsGlobalUnicast, which includes private addresses."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return False
    is_special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not is_special and address != ipaddress.IPv4Address("255.255.255.255")


def _check_node(store: ObjectStore, pod: JSON) -> None:
    """Raises StatusError 404 for a pod on a missing node; as in Kubernetes, the message calls it a missing pod."""
    node = pod["spec"]["nodeName"]
    if store.get(NODES, "", node) is None:
        raise errors.not_found(PODS, node)


def _no_containers(subresource: str) -> errors.StatusError:
    return errors.bad_request(f"simulated nodes run no containers: there is no {subresource}")


def _check_container(pod: JSON, container: str) -> None:
    spec, name = pod["spec"], pod["metadata"]["name"]
    containers, init_containers, ephemeral_containers = (
        [container_spec["name"] for container_spec in spec.get(kind) or ()]
        for kind in ("containers", "initContainers", "ephemeralContainers")
    )
    if not container and len(containers) == 1:
        return
    if not container:
        choice = (
            f", choose one of: [{' '.join([*init_containers, *containers, *ephemeral_containers])}]"
            if containers
            else ""
        )
        raise errors.bad_request(f"a container name must be specified for pod {name}{choice}")
    if container not in (*containers, *init_containers, *ephemeral_containers):
        raise errors.bad_request(f"container {container} is not valid for pod {name}")
