"""The subresources log, exec, attach, portforward and proxy.

Simulated nodes run no containers: requests have the configured answers (kubelet.container_answers) or are refused; logs
are empty without one.
Source: pkg/registry/core/{pod,service,node} (strategy.go, rest, storage.go), ValidatePodLogOptions of v1.36.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from kubeloop.devcluster.api import errors
from kubeloop.devcluster.api.request import ApiRequest, Response
from kubeloop.devcluster.api.served_resources import ENDPOINTS
from kubeloop.devcluster.api.slow_work import SlowWork
from kubeloop.devcluster.kubelet.containers.container_answers import (
    AttachAnswer,
    ContainerAnswers,
    ExecAnswer,
    LogAnswer,
    PortForwardAnswer,
)
from kubeloop.devcluster.serializer.decoding import DecodeError, decode_time
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import NODES, PODS, SERVICES, Resource
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values.integers import parse_integer

_NUMBER = re.compile(r"[+-]?[0-9]+")
_MOST = 2**63
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_IMAGE_FAILURES = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
LOG_STREAMS = ("All", "Stderr", "Stdout")


def check_log_options(request: ApiRequest, name: str, *, selects_stream: bool) -> None:
    """Raises StatusError 400 for unreadable options, 422 for invalid ones. selects_stream: `stream` may be given."""
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
    if "stream" in request.query:
        stream = request.option("stream")
        if not selects_stream:
            error_list.forbidden("stream", "may not be specified")
        elif stream not in LOG_STREAMS:
            error_list.not_supported("stream", stream, LOG_STREAMS)
        if selects_stream and stream != "All" and tail_lines is not None:
            error_list.forbidden("", "`tailLines` and specific `stream` are mutually exclusive for now")
    if error_list:
        causes = [{**cause, "field": cause["field"] or "[]"} for cause in error_list]
        raise errors.invalid("", "PodLogOptions", name, causes)


def _number(request: ApiRequest, name: str) -> int | None:
    text = request.option(name)
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise errors.bad_request(f"strconv.ParseInt: parsing {quoted(text)}: invalid syntax")
    if not -_MOST <= parse_integer(text) < _MOST:
        raise errors.bad_request(f"strconv.ParseInt: parsing {quoted(text)}: value out of range")
    return parse_integer(text)


def _check_time(text: str) -> None:
    try:
        decode_time(text)
    except DecodeError as error:
        raise errors.bad_request(str(error)) from error


def requested_ports(request: ApiRequest) -> list[int]:
    """Return the ports of a portforward request. Raises StatusError 400 for ports that are not numbers."""
    ports = [port for text in request.query.get("ports", ()) for port in text.split(",") if port]
    for port in ports:
        if not (port.isascii() and port.isdigit()):
            message = f"strconv.ParseUint: parsing {quoted(port)}: invalid syntax"
            raise errors.bad_request(f"cannot convert to []int32: {message}")
        if not 0 < parse_integer(port) < 2**16:
            raise errors.bad_request(f"port {quoted(port)} must be > 0 and < 65536")
    return [parse_integer(port) for port in ports]


class ContainerStreams:
    """Logs and streams of the pods in a store.

    Requests for newer protocols are translated by the API server or, if the gate is enabled there, by the kubelet;
    simulated kubelets have the gates of the server.
    """

    def __init__(self, store: ObjectStore, answers: ContainerAnswers, gates: FeatureGates) -> None:
        self._store = store
        self._answers = answers
        self._selects_stream = gates.enabled("PodLogsQuerySplitStreams")
        by_kubelet = gates.enabled("ExtendWebSocketsToKubelet")
        self._closes_streams = by_kubelet or gates.enabled("TranslateStreamCloseWebsocketRequests")
        self._tunnels_ports = by_kubelet or gates.enabled("PortForwardWebsockets")

    def check_log_options(self, request: ApiRequest, name: str) -> None:
        check_log_options(request, name, selects_stream=self._selects_stream)

    def log(self, request: ApiRequest, pod: JSON, now: datetime) -> Response:
        """Return the pod's log.

        It is empty if none is configured. Raises StatusError 400, also for a container that has not started; 404 for a
        missing node.
        """
        container = _container(pod, request.option("container"))
        if not pod["spec"].get("nodeName"):
            return Response(204, b"", "")  # no kubelet to read from
        _check_node(self._store, pod)
        _check_has_log(pod, container, previous=request.flag("previous"))
        namespace, name, uid = (pod["metadata"].get(field, "") for field in ("namespace", "name", "uid"))
        answer = self._answers.log(namespace, name, container) or LogAnswer()
        from kubeloop.devcluster.handlers.containers.container_logs import LogOptions, log_chunks

        def is_running() -> bool:
            current = self._store.get(PODS, namespace, name)
            if current is None or current["metadata"].get("uid") != uid:
                return False
            if (current.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                return False
            return "terminated" not in (_container_status(current, container).get("state") or {})

        body = log_chunks(answer, LogOptions.of(request, now), container, is_running)
        response = Response(200, body, "text/plain")
        if not request.wants_websocket:
            return response
        from kubeloop.devcluster.handlers.containers.websocket import log_over_websocket

        return log_over_websocket(request, response)

    def connect(self, request: ApiRequest, pod: JSON, subresource: str) -> Response:
        """Return the response that begins exec, attach or portforward. Raises StatusError 400 or 404."""
        namespace, name = pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
        container = "" if subresource == "portforward" else _container(pod, request.option("container"))
        if not pod["spec"].get("nodeName"):
            raise errors.bad_request(f"pod {name} does not have a host assigned")
        _check_node(self._store, pod)
        if subresource == "portforward":
            return self._port_forward(request, namespace, name)
        answer: ExecAnswer | AttachAnswer | None
        if subresource == "exec":
            command = request.query.get("command", ())
            answer = self._answers.command(namespace, name, container, command)
            kinds, detail = "Exec or ClusterExec", f" for the command {list(command)}"
        else:
            answer = self._answers.attach(namespace, name, container)
            kinds, detail = "Attach or ClusterAttach", ""
        if answer is None:
            raise _not_configured(subresource, kinds, detail)
        from kubeloop.devcluster.handlers.containers.remote_command import begin_command

        return begin_command(request, answer, closes_streams=self._closes_streams)

    def _port_forward(self, request: ApiRequest, namespace: str, name: str) -> Response:
        if not self._answers.forwards_ports(namespace, name):
            raise _not_configured("portforward", "PortForward or ClusterPortForward")
        from kubeloop.devcluster.handlers.containers.port_forward import begin_port_forward

        def answer(port: int) -> PortForwardAnswer | None:
            return self._answers.port_forward(namespace, name, port)

        return begin_port_forward(request, requested_ports(request), answer, tunnels=self._tunnels_ports)

    async def proxy(self, request: ApiRequest, resource: Resource[Any], namespace: str, target: str) -> Response:
        """Return the response of the configured target for a port of a pod, Service or node.

        Raises StatusError 400, also if none is configured, 404 or 503.
        """
        scheme, _, _ = _split_target(resource, target)
        destinations = proxy_destinations(self._store, resource, namespace, target)
        for destination in destinations:
            answer = self._answers.port_forward(*destination)
            if answer is not None:
                path = f"/{resource.plural}/{target}/proxy"
                prefix = request.path[: request.path.index(path) + len(path)]
                return await self._proxied(request, prefix, destination, answer, tls=scheme == "https")
        if not destinations:
            where = f" for a pod with host network at this port of node {target.partition(':')[0]}"
        else:
            where = f" for port {destinations[0].port} of pod {destinations[0].pod}"
        raise _not_configured("proxy", "PortForward or ClusterPortForward", where)

    async def _proxied(
        self, request: ApiRequest, prefix: str, destination: _Destination, answer: PortForwardAnswer, *, tls: bool
    ) -> Response:
        from kubeloop.devcluster.handlers.containers.proxy import ProxyTarget, proxy

        target = ProxyTarget(answer, f"{destination.pod}:{destination.port}", tls)
        response: Response = await SlowWork(lambda: proxy(request, prefix, target))
        return response


class _Destination(NamedTuple):
    """A port of a pod."""

    namespace: str
    pod: str
    port: int


def _split_target(resource: Resource[Any], target: str) -> tuple[str, str, str]:
    """Return (scheme, name, port) of "name", "name:port" or "scheme:name:port". Raises StatusError 400."""
    parts = target.split(":")
    scheme = parts.pop(0) if len(parts) == 3 else ""
    name, port = (*parts, "")[:2]
    if len(parts) > 2 or not name or scheme not in ("", "http", "https"):
        raise errors.bad_request(f"invalid {resource.kind.lower()} request {quoted(target)}")
    return scheme, name, port


def proxy_destinations(
    store: ObjectStore, resource: Resource[Any], namespace: str, target: str
) -> Sequence[_Destination]:
    """Return the ports of pods to which a proxy request may go. Raises StatusError 400, 404 or 503.

    target: "name", "name:port" or "scheme:name:port". Of a node, the ports are those of its pods with host network.
    """
    _, name, port = _split_target(resource, target)
    obj = store.get(resource, namespace, name)
    if resource is SERVICES:
        return _of_endpoints(store, obj, namespace, name, port, target)
    if obj is None:
        raise errors.not_found(resource, name)
    number = parse_integer(port) if _NUMBER.fullmatch(port) else 0
    if resource is NODES:
        return [
            _Destination(pod["metadata"]["namespace"], pod["metadata"]["name"], number)
            for pod in store.list(PODS)
            if number and pod["spec"].get("nodeName") == name and pod["spec"].get("hostNetwork")
        ]
    if not _reachable((obj.get("status") or {}).get("podIP", "")):
        raise errors.bad_request("address not allowed")
    if not port:
        ports = (port for container in obj["spec"].get("containers") or () for port in container.get("ports") or ())
        number = next((port["containerPort"] for port in ports), 80)
    return [_Destination(namespace, name, number)]


def _of_endpoints(
    store: ObjectStore, service: JSON | None, namespace: str, name: str, port: str, target: str
) -> list[_Destination]:
    """Return the ports of the Service's pods. Raises StatusError 404 or 503."""
    if _NUMBER.fullmatch(port):
        if service is None:
            raise errors.not_found(SERVICES, name)
        ports = service["spec"].get("ports") or ()
        named = [entry.get("name", "") for entry in ports if entry.get("port") == parse_integer(port)]
        if not named:
            message = f"no service port {parse_integer(port)} found for service {quoted(name)}"
            raise errors.StatusError(503, "ServiceUnavailable", message)
        port = named[0]
    endpoints = store.get(ENDPOINTS, namespace, name)
    if endpoints is None:
        raise errors.not_found(SERVICES, name)
    destinations = [
        _Destination(namespace, address["targetRef"]["name"], entry["port"])
        for subset in endpoints.get("subsets") or ()
        for entry in subset.get("ports") or ()
        if entry.get("name", "") == port
        for address in subset.get("addresses") or ()
        if _is_of_a_pod(store, namespace, address)
    ]
    if destinations:
        return destinations
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


def _container_status(pod: JSON, container: str) -> JSON:
    """Return the status of a container of any kind; {} if the pod has none."""
    statuses = (status for kind in _STATUSES for status in (pod.get("status") or {}).get(kind) or ())
    return next((status for status in statuses if status["name"] == container), {})


def _check_has_log(pod: JSON, container: str, *, previous: bool) -> None:
    """Raises StatusError 400 for a container that has never run. Source: validateContainerLogStatus of the kubelet."""
    status = _container_status(pod, container)
    waiting = (status.get("state") or {}).get("waiting")
    names = f"container {quoted(container)} in pod {quoted(pod['metadata']['name'])}"
    if "terminated" in (status.get("lastState") or {}):
        return
    if previous:
        raise errors.bad_request(f"previous terminated {names} not found")
    if waiting is not None:
        reason = waiting.get("reason", "")
        raise errors.bad_request(f"{names} is waiting to start: {_IMAGE_FAILURES.get(reason, reason)}")


def _not_configured(subresource: str, kinds: str, detail: str = "") -> errors.StatusError:
    return errors.bad_request(
        f"simulated containers run nothing, and no answer to {subresource} is configured{detail}: describe it in a "
        f"document of kind {kinds} in a file of --stages (docs/nodes.md)"
    )


def _container(pod: JSON, container: str) -> str:
    """Return the requested container, by default the only one. Raises StatusError 400."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    containers, init_containers, ephemeral_containers = (
        [container_spec["name"] for container_spec in spec.get(kind) or ()]
        for kind in ("containers", "initContainers", "ephemeralContainers")
    )
    if not container and len(containers) == 1:
        return str(containers[0])
    if not container:
        choice = (
            f", choose one of: [{' '.join([*init_containers, *containers, *ephemeral_containers])}]"
            if containers
            else ""
        )
        raise errors.bad_request(f"a container name must be specified for pod {name}{choice}")
    if container not in (*containers, *init_containers, *ephemeral_containers):
        raise errors.bad_request(f"container {container} is not valid for pod {name}")
    return container
