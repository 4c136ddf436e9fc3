"""Services: the fields that hang together, addresses and ports, before and after a type changes."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import pytest

from kubeloop.kube.objects.resources import SERVICES
from support.api_requests import InProcessApi
from support.validation_causes import create_causes

JSON = dict[str, Any]
PATH = "/api/v1/namespaces/default/services"


def service(**spec: Any) -> JSON:
    return {"spec": {"ports": [{"port": 80}], **spec}}


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        pytest.param(service(), [], id="a small service"),
        pytest.param(
            service(externalIPs=["127.0.0.1"]),
            [
                'spec.externalIPs[0]: Invalid value: "127.0.0.1": '
                "may not be in the loopback range (127.0.0.0/8, ::1/128)"
            ],
            id="an external address that is none",
        ),
        pytest.param(
            service(loadBalancerClass="x/y", allocateLoadBalancerNodePorts=True, loadBalancerSourceRanges=["1.2.3.4"]),
            [
                "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
                'spec.LoadBalancerSourceRanges[0]: Invalid value: "1.2.3.4": must be a valid CIDR value,',
                "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
                "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
            ],
            id="what load balancers alone have",
        ),
        pytest.param(
            service(trafficDistribution="Near"),
            [
                'spec.trafficDistribution: Unsupported value: "Near": '
                'supported values: "PreferClose", "PreferSameZone", "PreferSameNode"'
            ],
            id="trafficDistribution",
        ),
    ],
)
def test_a_service(body: JSON, causes: list[str]):
    assert create_causes(SERVICES, body) == causes


def port(number: int = 1, **more: Any) -> JSON:
    return {"name": f"p{number}", "port": number, **more}


def refused(answer: tuple[int, JSON]) -> list[str]:
    """The causes of a 422, or the message of another refusal."""
    code, body = answer
    causes = (body.get("details") or {}).get("causes", ()) if code >= 400 else ()
    return [f"{each['field']}: {each['message']}" for each in causes if "field" in each] or (
        [body["message"]] if code >= 400 else []
    )


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"ipFamilyPolicy": "RequireDualStack"}, ['spec.ipFamilyPolicy: Invalid value: "RequireDualStack": '
            "this cluster is not configured for dual-stack services"]),
        ({"ipFamilies": ["IPv6"]}, ['spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster']),
        ({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]},
            ['spec.clusterIPs: Invalid value: ["10.0.0.2"]: first value must match `clusterIP`']),
        ({"clusterIPs": ["10.0.0.2"]},
            ['spec.clusterIPs: Invalid value: ["10.0.0.2"]: must be empty when `clusterIP` is not specified']),
        ({"clusterIP": "10.1.0.1"}, ['spec.clusterIPs: Invalid value: ["10.1.0.1"]: failed to allocate IP 10.1.0.1: '
            "the provided network does not match the current range"]),
        ({"clusterIP": "fd00::1"},
            ['spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster']),
        ({"type": "NodePort", "ports": [port(nodePort=80)]}, ["spec.ports[0].nodePort: Invalid value: 80: provided "
            "port is not in the valid range. The range of valid ports is 30000-32767"]),
        ({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 80}, ["Internal error "
            "occurred: failed to allocate requested HealthCheck NodePort 80: provided port is not in the valid range. "
            "The range of valid ports is 30000-32767"]),
    ],
)  # fmt: skip
async def test_what_is_wrong_with_addresses_and_ports_of_a_new_service_is_said_alone(spec: JSON, causes: list[str]):
    body = {"metadata": {"name": "A_b"}, "spec": {"ports": [port()], "sessionAffinity": "x", **spec}}
    assert refused(InProcessApi()("POST", PATH, body)) == causes


@pytest.mark.parametrize(
    ("address", "query", "told"),
    [
        ("1.2.3.4", "", "the provided network does not match the current range"),
        ("1.2.3.4", "?dryRun=All", "the provided IP (1.2.3.4) is not in the valid range. The range of valid IPs is"),
        ("10.0.0.0", "", "the provided IP (10.0.0.0) is not in the valid range. The range of valid IPs is"),
    ],
)
async def test_addresses_out_of_range_are_refused_in_one_way_and_in_a_dry_run_in_another(
    address: str, query: str, told: str
):
    body = {"metadata": {"name": "s"}, "spec": {"ports": [port()], "clusterIP": address}}
    (cause,) = refused(InProcessApi()("POST", f"{PATH}{query}", body))
    assert f"failed to allocate IP {address}: {told}" in cause


async def changed(before: JSON, after: JSON) -> tuple[int, JSON, JSON]:
    """The status and body of an answer to a change, and what was there before."""
    api = InProcessApi()
    first = {"metadata": {"name": "s"}, "spec": {"ports": [port()], **before}}
    code, old = api("POST", PATH, first)
    assert code == 201, old
    body = {"metadata": {"name": "s"}, "spec": {"ports": [port()], **after}}
    code, new = api("PUT", f"{PATH}/s", body)
    return code, new, old


BALANCED = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerClass": "a.b/c"}


@pytest.mark.parametrize(
    ("before", "after", "same", "gone"),
    [
        ({}, {}, ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"], []),
        ({}, {"type": "NodePort"}, ["clusterIP"], []),
        ({"type": "NodePort"}, {"type": "NodePort"}, ["clusterIP", "ports"], []),
        (BALANCED, BALANCED, ["healthCheckNodePort", "ports", "clusterIP"], []),
        (BALANCED, {"loadBalancerClass": "a.b/c"}, ["clusterIP"],
            ["healthCheckNodePort", "loadBalancerClass", "allocateLoadBalancerNodePorts"]),
        ({"clusterIP": "None"}, {"clusterIP": "None"}, ["ipFamilies", "ipFamilyPolicy"], []),
        ({}, {"type": "ExternalName", "externalName": "a.b"}, [],
            ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]),
    ],
)  # fmt: skip
async def test_what_was_allocated_stays_where_it_is_left_out_and_goes_with_its_type(
    before: JSON, after: JSON, same: list[str], gone: list[str]
):
    code, new, old = await changed(before, after)
    assert code == 200, new
    assert {name: new["spec"].get(name) for name in same} == {name: old["spec"][name] for name in same}
    assert not {*gone} & {*new["spec"]}


@pytest.mark.parametrize(
    ("before", "after", "causes"),
    [
        ({"clusterIP": "10.0.0.7"}, {"clusterIP": "10.0.0.8"},
            ['spec.clusterIPs[0]: Invalid value: ["10.0.0.8"]: may not change once set']),
        ({"clusterIP": "10.0.0.7"}, {"clusterIP": "None"},
            ['spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set']),
        (BALANCED, {**BALANCED, "loadBalancerClass": "a.b/d"},
            ['spec.loadBalancerClass: Invalid value: "a.b/d": may not change once set']),
        ({**BALANCED, "healthCheckNodePort": 30002}, {**BALANCED, "healthCheckNodePort": 30003},
            ["spec.healthCheckNodePort: Forbidden: field is immutable"]),
        ({"type": "NodePort"}, {"type": "NodePort", "ports": [port(nodePort=9)]}, ["spec.ports[0].nodePort: Invalid "
            "value: 9: provided port is not in the valid range. The range of valid ports is 30000-32767"]),
        ({"type": "NodePort", "ports": [port(nodePort=30009)]}, {"ports": [port(nodePort=30010)]},
            ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"]),
        ({}, {"type": "ExternalName", "externalName": "a.b", "internalTrafficPolicy": "local"},
            ['spec.internalTrafficPolicy: Unsupported value: "local": supported values: "Cluster", "Local"']),
    ],
)  # fmt: skip
async def test_what_may_not_change_once_set(before: JSON, after: JSON, causes: list[str]):
    code, body, _ = await changed(before, after)
    assert refused((code, body)) == causes


async def test_ports_of_one_number_share_a_node_port_and_keep_it_by_name():
    api = InProcessApi()
    ports = [{"name": "t", "port": 53}, {"name": "u", "port": 53, "protocol": "UDP"}]
    _, made = api("POST", PATH, {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}})
    given = [each["nodePort"] for each in made["spec"]["ports"]]
    assert given[0] == given[1] >= 30000
    _, now = api("PUT", f"{PATH}/s", {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [
        {"name": "t", "port": 54}, {"name": "x", "port": 55}]}})  # fmt: skip
    assert now["spec"]["ports"][0]["nodePort"] == given[0] != now["spec"]["ports"][1]["nodePort"]
    taken = {"metadata": {"name": "z"}, "spec": {"type": "NodePort", "ports": [port(nodePort=given[0])]}}
    why = f"spec.ports[0].nodePort: Invalid value: {given[0]}: provided port is already allocated"
    assert refused(api("POST", PATH, taken)) == [why]


async def test_a_balanced_service_that_is_no_more_loses_its_ingresses():
    api = InProcessApi()
    api("POST", PATH, {"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [port()]}})
    balancing = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}
    status = {"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer"}, "status": balancing}
    _, shown = api("PUT", f"{PATH}/s/status", status)
    assert shown["status"]["loadBalancer"]["ingress"] == [{"ip": "1.2.3.4", "ipMode": "VIP"}]
    _, shown = api("PUT", f"{PATH}/s", {"metadata": {"name": "s"}, "spec": {"ports": [port()]}})
    assert shown["status"] == {"loadBalancer": {}}


async def test_services_get_addresses_of_the_range_until_all_are_taken():
    network = IPv4Network("10.9.0.0/29")
    api = InProcessApi(service_range=network)
    answers = [api("POST", PATH, {"metadata": {"name": name}, "spec": {"ports": [port()]}}) for name in "abcdef"]
    assert [status for status, _ in answers] == [201] * 5 + [500]
    given = sorted(service["spec"]["clusterIP"] for _, service in answers[:5])
    assert given == [str(network[number]) for number in range(2, 7)]
    refusal = 'failed to allocate a serviceIP for Service "f": range is full'
    assert answers[5][1]["message"] == f"Internal error occurred: {refusal}"
