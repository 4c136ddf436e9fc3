"""log, exec, attach and portforward of pods, and proxies, as far as an API server answers them by itself.

Simulated nodes run no containers: a pod on a node has an empty log, and nothing that one could attach to.
Source: pkg/registry/core/{pod,service,node} (strategy.go, rest, storage.go), ValidatePodLogOptions of v1.36.
"""

from __future__ import annotations

import ipaddress
import re
from datetime import datetime
from typing import Any

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.api.request import Request, Response, text_response
from kubeloop.devcluster.api.served_resources import ENDPOINTS
from kubeloop.devcluster.storage.store import Store
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS, SERVICES, Resource

_NUMBER = re.compile(r"[+-]?[0-9]+")
_MOST = 2**63


def check_log_options(request: Request, name: str) -> None:
    """Raises StatusError 400 for options that cannot be read, 422 for those that make no sense."""
    given = {each: _number(request, each) for each in ("sinceSeconds", "tailLines", "limitBytes")}
    since = request.option("sinceTime")
    if since:
        _check_time(since)
    wrong = ErrorList()
    seconds, lines, most = given["sinceSeconds"], given["tailLines"], given["limitBytes"]
    if lines is not None and lines < 0:
        wrong.invalid("tailLines", lines, "must be greater than or equal to 0")
    if most is not None and most < 1:
        wrong.invalid("limitBytes", most, "must be greater than 0")
    if seconds is not None and since:
        wrong.forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif seconds is not None and seconds < 1:
        wrong.invalid("sinceSeconds", seconds, "must be greater than 0")
    if "stream" in request.query:  # a feature that is off
        wrong.forbidden("stream", "may not be specified")
    if wrong:
        causes = [{**each, "field": each["field"] or "[]"} for each in wrong]
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
        told = f'parsing time {quoted(text)} as "2006-01-02T15:04:05Z07:00": cannot parse {quoted(text)} as "2006"'
        raise errors.bad_request(told) from error


def check_ports(request: Request) -> None:
    """Raises StatusError 400 for ports that are no numbers."""
    for text in request.query.get("ports", ()):
        for each in text.split(","):
            if each and not (each.isascii() and each.isdigit()):
                told = f"strconv.ParseUint: parsing {quoted(each)}: invalid syntax"
                raise errors.bad_request(f"cannot convert to []int32: {told}")


def log_of(store: Store, pod: JSON, container: str) -> Response:
    """Raises StatusError 400 for a container that is not there, 404 for a node that is not."""
    _check_container(pod, container)
    if not pod["spec"].get("nodeName"):
        return Response(204, b"", "")  # nobody to ask, and nothing to tell
    _check_node(store, pod)
    return text_response(200, "")


def refuse_stream(store: Store, pod: JSON, subresource: str, container: str) -> Response:
    """Raises StatusError 400 or 404, always."""
    name = pod["metadata"]["name"]
    if subresource != "portforward":
        _check_container(pod, container)
    if not pod["spec"].get("nodeName"):
        raise errors.bad_request(f"pod {name} does not have a host assigned")
    _check_node(store, pod)
    raise _nothing_runs(subresource)


def refuse_proxy(store: Store, resource: Resource[Any], namespace: str, asked: str) -> Response:
    """Raises StatusError 400, 404 or 503, always. `asked`: "name", "http:name:port" and the like."""
    parts = asked.split(":")
    scheme = parts.pop(0) if len(parts) == 3 else ""
    name, port = (*parts, "")[:2]
    if len(parts) > 2 or not name or scheme not in ("", "http", "https"):
        raise errors.bad_request(f"invalid {resource.kind.lower()} request {quoted(asked)}")
    obj = store.get(resource, namespace, name)
    if resource is SERVICES:
        _check_endpoints(store, obj, namespace, name, port, asked)
    elif obj is None:
        raise errors.not_found(resource, name)
    elif resource is PODS and not _reachable((obj.get("status") or {}).get("podIP", "")):
        raise errors.bad_request("address not allowed")
    raise _nothing_runs("proxy")


def _check_endpoints(store: Store, service: JSON | None, namespace: str, name: str, port: str, asked: str) -> None:
    if _NUMBER.fullmatch(port):
        if service is None:
            raise errors.not_found(SERVICES, name)
        ports = service["spec"].get("ports") or ()
        named = [each.get("name", "") for each in ports if each.get("port") == int(port)]
        if not named:
            told = f"no service port {int(port)} found for service {quoted(name)}"
            raise errors.StatusError(503, "ServiceUnavailable", told)
        port = named[0]
    endpoints = store.get(ENDPOINTS, namespace, name)
    if endpoints is None:
        raise errors.not_found(SERVICES, name)
    for subset in endpoints.get("subsets") or ():
        if any(each.get("name", "") == port for each in subset.get("ports") or ()):
            for address in subset.get("addresses") or ():
                if _is_of_a_pod(store, namespace, address):
                    return
    shown = asked if endpoints.get("subsets") else name
    raise errors.StatusError(503, "ServiceUnavailable", f"no endpoints available for service {quoted(shown)}")


def _is_of_a_pod(store: Store, namespace: str, address: JSON) -> bool:
    target = address.get("targetRef") or {}
    pod = store.get(PODS, namespace, target.get("name", "")) if target.get("namespace") == namespace else None
    return pod is not None and any(each["ip"] == address["ip"] for each in pod["status"].get("podIPs") or ())


def _reachable(ip: str) -> bool:
    """Go's IsGlobalUnicast: private addresses are."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return False
    known = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not known and address != ipaddress.IPv4Address("255.255.255.255")


def _check_node(store: Store, pod: JSON) -> None:
    """Raises StatusError 404 for a pod on a node that does not exist: it is the pod that is said not to be there."""
    node = pod["spec"]["nodeName"]
    if store.get(NODES, "", node) is None:
        raise errors.not_found(PODS, node)


def _nothing_runs(asked: str) -> errors.StatusError:
    return errors.bad_request(f"simulated nodes run no containers: there is no {asked}")


def _check_container(pod: JSON, container: str) -> None:
    spec, name = pod["spec"], pod["metadata"]["name"]
    usual, first, later = (
        [each["name"] for each in spec.get(kind) or ()]
        for kind in ("containers", "initContainers", "ephemeralContainers")
    )
    if not container and len(usual) == 1:
        return
    if not container:
        choice = f", choose one of: [{' '.join([*first, *usual, *later])}]" if usual else ""
        raise errors.bad_request(f"a container name must be specified for pod {name}{choice}")
    if container not in (*usual, *first, *later):
        raise errors.bad_request(f"container {container} is not valid for pod {name}")
