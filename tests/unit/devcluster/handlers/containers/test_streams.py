"""Logs, streams and proxies of simulated pods."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.served_resources import ENDPOINTS
from kubeloop.devcluster.handlers.containers.streams import (
    ContainerStreams,
    check_log_options,
    requested_ports,
)
from kubeloop.devcluster.kubelet.containers.container_answers import ContainerAnswers
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES
from kubeloop.kube.objects.resources import NODES, PODS, SERVICES, Resource

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
INVALID = 'PodLogOptions "p" is invalid: '


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("tailLines=-1", 422, f"{INVALID}tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("limitBytes=0", 422, f"{INVALID}limitBytes: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=0", 422, f"{INVALID}sinceSeconds: Invalid value: 0: must be greater than 0"),
        (
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            422,
            f"{INVALID}[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ("stream=All", 422, f"{INVALID}stream: Forbidden: may not be specified"),
        ("tailLines=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (f"tailLines={2**63}", 400, f'strconv.ParseInt: parsing "{2**63}": value out of range'),
        (
            "sinceTime=x",
            400,
            'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        ),
    ],
)
def test_invalid_log_options(query: str, code: int, message: str):
    with pytest.raises(StatusError) as raised:
        check_log_options(ApiRequest.of("GET", f"/x?{query}"), "p", selects_stream=False)
    assert (raised.value.code, raised.value.message) == (code, message)


@pytest.mark.parametrize(
    ("query", "cause"),
    [
        ("", ""),
        ("tailLines=1", ""),
        ("stream=Stdout", ""),
        ("stream=All&tailLines=1", ""),
        ("stream=x", 'stream: Unsupported value: "x": supported values: "All", "Stderr", "Stdout"'),
        ("stream=", 'stream: Unsupported value: "": supported values: "All", "Stderr", "Stdout"'),
        (
            "stream=Stderr&tailLines=1",
            "[]: Forbidden: `tailLines` and specific `stream` are mutually exclusive for now",
        ),
    ],
)
def test_stream_of_a_log(query: str, cause: str):
    request = ApiRequest.of("GET", f"/x?{query}")
    if cause:
        with pytest.raises(StatusError) as raised:
            check_log_options(request, "p", selects_stream=True)
        assert raised.value.message == f"{INVALID}{cause}"
    else:
        check_log_options(request, "p", selects_stream=True)


def test_ports_must_be_numbers():
    assert requested_ports(ApiRequest.of("GET", "/x?ports=80,443&ports=&ports=1")) == [80, 443, 1]
    with pytest.raises(StatusError) as raised:
        requested_ports(ApiRequest.of("GET", "/x?ports=80,http"))
    assert raised.value.message == 'cannot convert to []int32: strconv.ParseUint: parsing "http": invalid syntax'


def pod(node: str = "", containers: tuple[str, ...] = ("a",)) -> JSON:
    spec: JSON = {"containers": [{"name": name} for name in containers], "initContainers": [{"name": "init"}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": "p"}, "spec": spec}


@pytest.fixture
def store() -> ObjectStore:
    """A store with the node n, the pod ns/p, and the Service ns/s with the pod as its endpoint."""
    store = ObjectStore(seconds=lambda: 0.0)
    store.create(NODES, {"metadata": {"name": "n"}})
    metadata = {"name": "p", "namespace": "ns"}
    store.create(
        PODS,
        {
            "metadata": metadata,
            "spec": {"nodeName": "n"},
            "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
        },
    )
    store.create(SERVICES, {"metadata": {"name": "s", "namespace": "ns"}, "spec": {"ports": [{"port": 80}]}})
    subset = {"addresses": [{"ip": "10.0.0.1", "targetRef": metadata}], "ports": [{"port": 8080}]}
    store.create(ENDPOINTS, {"metadata": {"name": "s", "namespace": "ns"}, "subsets": [subset]})
    return store


NOT_CONFIGURED = (
    "simulated containers run nothing, and no answer to {} is configured{}: describe it in a document of kind "
)


PORT_FORWARD = "PortForward or ClusterPortForward in a file of --stages (docs/nodes.md)"
OF_NODE = " for a pod with host network at this port of node n"


def streams_of(store: ObjectStore) -> ContainerStreams:
    return ContainerStreams(store, ContainerAnswers(), DEFAULT_FEATURE_GATES)


def test_log_of_pod_without_a_node_is_empty(store: ObjectStore):
    response = streams_of(store).log(ApiRequest.of("GET", "/x"), pod(), NOW)
    assert (response.status, response.body) == (204, b"")


async def test_log_without_configuration_is_empty(store: ObjectStore):
    assert streams_of(store).log(ApiRequest.of("GET", "/x"), pod("n"), NOW).body == b""


async def test_followed_empty_log_ends_with_its_container(store: ObjectStore):
    running = {**pod("n"), "status": {"containerStatuses": [{"name": "a", "state": {"running": {}}}]}}
    running["metadata"] = {"name": "q", "namespace": "ns", "uid": "u"}
    store.create(PODS, running)
    body = streams_of(store).log(ApiRequest.of("GET", "/x?follow=true"), running, NOW).body
    assert not isinstance(body, bytes)
    chunk = asyncio.ensure_future(anext(body, b"end"))
    await asyncio.sleep(0.01)
    assert not chunk.done()
    ended = {"containerStatuses": [{"name": "a", "state": {"terminated": {}}}]}
    store.update(PODS, {**running, "status": ended})
    assert await chunk == b"end"


def log_error(store: ObjectStore, status: JSON, query: str = "container=a") -> str:
    with pytest.raises(StatusError) as raised:
        streams_of(store).log(ApiRequest.of("GET", f"/x?{query}"), {**pod("n"), "status": status}, NOW)
    assert raised.value.code == 400
    return raised.value.message


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ContainerCreating", "ContainerCreating"),
        ("ErrImagePull", "image can't be pulled"),
        ("ImagePullBackOff", "trying and failing to pull image"),
    ],
)
def test_log_of_waiting_container_is_refused(store: ObjectStore, reason: str, message: str):
    state = {"waiting": {"reason": reason}}
    status = {"containerStatuses": [{"name": "b", "state": {"running": {}}}, {"name": "a", "state": state}]}
    assert log_error(store, status) == f'container "a" in pod "p" is waiting to start: {message}'


def test_log_of_waiting_init_container_is_refused(store: ObjectStore):
    status = {"initContainerStatuses": [{"name": "init", "state": {"waiting": {"reason": "PodInitializing"}}}]}
    message = 'container "init" in pod "p" is waiting to start: PodInitializing'
    assert log_error(store, status, "container=init") == message


@pytest.mark.parametrize("query", ["container=a", "container=a&previous=true"])
async def test_log_of_waiting_container_that_ran_before(store: ObjectStore, query: str):
    waiting = {"name": "a", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {}}}
    crashing = {**pod("n"), "status": {"containerStatuses": [waiting]}}
    assert streams_of(store).log(ApiRequest.of("GET", f"/x?{query}"), crashing, NOW).status == 200


def test_previous_log_of_container_without_restart_is_refused(store: ObjectStore):
    status = {"containerStatuses": [{"name": "a", "state": {"running": {}}, "lastState": {}}]}
    message = 'previous terminated container "a" in pod "p" not found'
    assert log_error(store, status, "container=a&previous=true") == message


@pytest.mark.parametrize(
    ("subresource", "message"),
    [
        ("exec", NOT_CONFIGURED.format("exec", " for the command ['ls', '-l']") + "Exec or ClusterExec"),
        ("attach", NOT_CONFIGURED.format("attach", "") + "Attach or ClusterAttach"),
        ("portforward", NOT_CONFIGURED.format("portforward", "") + "PortForward or ClusterPortForward"),
    ],
)
def test_stream_is_refused_without_configuration(store: ObjectStore, subresource: str, message: str):
    request = ApiRequest.of("GET", "/x?command=ls&command=-l&stdout=true")
    with pytest.raises(StatusError) as raised:
        streams_of(store).connect(request, pod("n"), subresource)
    assert (raised.value.code, raised.value.message.startswith(message)) == (400, True), raised.value.message


@pytest.mark.parametrize(
    ("obj", "container", "code", "message"),
    [
        (pod("n"), "x", 400, "container x is not valid for pod p"),
        (
            pod("n", ("a", "b")),
            "",
            400,
            "a container name must be specified for pod p, choose one of: [init a b]",
        ),
        (pod(), "a", 400, "pod p does not have a host assigned"),
        (pod("gone"), "a", 404, 'pods "gone" not found'),
    ],
    ids=["unknown container", "two containers", "pod without a node", "missing node"],
)
def test_exec_is_refused(store: ObjectStore, obj: JSON, container: str, code: int, message: str):
    with pytest.raises(StatusError) as raised:
        streams_of(store).connect(ApiRequest.of("GET", f"/x?container={container}"), obj, "exec")
    assert (raised.value.code, raised.value.message) == (code, message)


@pytest.mark.parametrize(
    ("resource", "target", "code", "message"),
    [
        (PODS, "p:80", 400, NOT_CONFIGURED.format("proxy", " for port 80 of pod p") + PORT_FORWARD),
        (PODS, "x", 404, 'pods "x" not found'),
        (PODS, "ftp:p:80", 400, 'invalid pod request "ftp:p:80"'),
        (SERVICES, "s:80", 400, NOT_CONFIGURED.format("proxy", " for port 8080 of pod p") + PORT_FORWARD),
        (SERVICES, "s:81", 503, 'no service port 81 found for service "s"'),
        (SERVICES, "s:http", 503, 'no endpoints available for service "s:http"'),
        (NODES, "x", 404, 'nodes "x" not found'),
        (NODES, "n:80", 400, NOT_CONFIGURED.format("proxy", OF_NODE) + PORT_FORWARD),
    ],
)
async def test_proxy_is_refused(store: ObjectStore, resource: Resource[Any], target: str, code: int, message: str):
    namespace = "ns" if resource.namespaced else ""
    with pytest.raises(StatusError) as raised:
        await streams_of(store).proxy(ApiRequest.of("GET", "/x/proxy/"), resource, namespace, target)
    assert (raised.value.code, raised.value.message) == (code, message)
