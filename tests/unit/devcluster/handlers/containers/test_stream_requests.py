"""log, exec, attach, portforward and proxy requests that are answered without a kubelet."""

from __future__ import annotations

import pytest

from support.apiserver.api_requests import InProcessApi

PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
CONTAINERS = [{"name": "c", "image": "i"}]
NO_PROXY = (
    "simulated containers run nothing, and no answer to proxy is configured for port {} of pod lost: describe it in a "
    "document of kind PortForward or ClusterPortForward in a file of --stages (docs/nodes.md)"
)


@pytest.fixture
async def api() -> InProcessApi:
    """An API with the pods "new" and "lost" (on a missing node) and the Services "alone", "empty" and "found"."""
    api = InProcessApi()
    for name, node in (("new", {}), ("lost", {"nodeName": "gone"})):
        api.create(PODS, {"metadata": {"name": name}, "spec": {"containers": CONTAINERS, **node}})
    for name in ("alone", "empty", "found"):
        api.create(SERVICES, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80, "name": "http"}]}})
    status = {"podIP": "172.16.0.5", "podIPs": [{"ip": "172.16.0.5"}]}
    api("PATCH", f"{PODS}/lost/status", {"status": status}, "application/merge-patch+json")
    target = {"kind": "Pod", "name": "lost", "namespace": "default"}
    subset = {"addresses": [{"ip": "172.16.0.5", "targetRef": target}], "ports": [{"name": "http", "port": 8080}]}
    for name, subsets in (("empty", []), ("found", [subset])):
        path = "/api/v1/namespaces/default/endpoints"
        api.create(path, {"metadata": {"name": name}, "subsets": subsets})
    return api


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        (f"{PODS}/lost/log", 404, 'pods "gone" not found'),
        (f"{PODS}/lost/exec?command=ls", 404, 'pods "gone" not found'),
        (f"{PODS}/lost/portforward", 404, 'pods "gone" not found'),
        (f"{PODS}/new/attach", 400, "pod new does not have a host assigned"),
        (f"{PODS}/new/proxy/", 400, "address not allowed"),
        (f"{PODS}/http:new:80/proxy/", 400, "address not allowed"),
        (f"{PODS}/lost:80/proxy/", 400, NO_PROXY.format(80)),
        (f"{PODS}/none:80/proxy/", 404, 'pods "none" not found'),
        (f"{PODS}/a:b:c:d/proxy/", 400, 'invalid pod request "a:b:c:d"'),
        (f"{SERVICES}/ftp:alone:80/proxy/", 400, 'invalid service request "ftp:alone:80"'),
        (f"{SERVICES}/alone/proxy/", 404, 'services "alone" not found'),
        (f"{SERVICES}/alone:80/proxy/", 404, 'services "alone" not found'),
        (f"{SERVICES}/alone:81/proxy/", 503, 'no service port 81 found for service "alone"'),
        (f"{SERVICES}/empty:80/proxy/", 503, 'no endpoints available for service "empty"'),
        (f"{SERVICES}/found/proxy/", 503, 'no endpoints available for service "found"'),
        (f"{SERVICES}/found:http/proxy/", 400, NO_PROXY.format(8080)),
        (f"{SERVICES}/found:80/proxy/", 400, NO_PROXY.format(8080)),
        (f"{SERVICES}/empty/proxy/a/b/c", 503, 'no endpoints available for service "empty"'),
        ("/api/v1/nodes/gone:99/proxy/", 404, 'nodes "gone" not found'),
    ],
)
async def test_unreachable_target_is_rejected_with_reason(api: InProcessApi, path: str, status: int, message: str):
    response = api("GET", path)
    assert (response[0], response[1]["message"]) == (status, message)


async def test_log_of_unscheduled_pod_is_empty(api: InProcessApi):
    assert api("GET", f"{PODS}/new/log") == (204, "")
