"""Dependent fields of Services."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import Write
from kubeloop.devcluster.kinds.core.service import STRATEGY, prepare_update
from kubeloop.devcluster.kinds.core.service_addresses import (
    needs_cluster_ip,
    needs_node_ports,
    prepare_addresses_for_create,
    prepare_addresses_for_update,
)
from support.apiserver.api_requests import InProcessApi
from support.objects.service_responses import SERVICES_PATH, causes_or_message, port
from support.objects.validation_causes import cause_texts

JSON = dict[str, Any]
SINGLE: JSON = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}
DUAL_HEADLESS: JSON = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"], "clusterIPs": ["None"]}


@pytest.mark.parametrize(
    ("spec", "completed"),
    [
        pytest.param({}, SINGLE, id="single stack by default"),
        pytest.param({"clusterIP": "10.0.0.7"}, {**SINGLE, "clusterIPs": ["10.0.0.7"]}, id="clusterIP sets clusterIPs"),
        pytest.param({"ipFamilyPolicy": "PreferDualStack"}, {"ipFamilies": ["IPv4"]}, id="dual stack if available"),
        pytest.param({"clusterIP": "None"}, DUAL_HEADLESS, id="headless without a selector"),
        pytest.param({"type": "ExternalName"}, {}, id="external name"),
    ],
)
def test_address_fields_of_a_new_service_are_completed(spec: JSON, completed: JSON):
    expected = {**spec, **completed}
    assert (prepare_addresses_for_create(spec), spec) == ([], expected)


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param(
            {"ipFamilyPolicy": "RequireDualStack"},
            [
                'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for '
                "dual-stack services"
            ],
            id="dual stack",
        ),
        pytest.param(
            {"ipFamilies": ["IPv6"]},
            ['spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster'],
            id="other family",
        ),
    ],
)
def test_addresses_that_the_cluster_lacks_are_invalid(spec: JSON, causes: list[str]):
    assert cause_texts(prepare_addresses_for_create(spec)) == causes


@pytest.mark.parametrize(
    ("spec", "before", "completed"),
    [
        pytest.param(
            {}, {**SINGLE, "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]},
            {"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ipFamilyPolicy": "SingleStack",
             "ipFamilies": ["IPv4"]},
            id="absent addresses are retained",
        ),
        pytest.param(
            {"type": "NodePort", "ports": [{"name": "a", "port": 80}]},
            {**SINGLE, "type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30080}]},
            {**SINGLE, "type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30080}]},
            id="node ports are retained by name",
        ),
    ],
)  # fmt: skip
def test_update_retains_allocated_values(spec: JSON, before: JSON, completed: JSON):
    assert (prepare_addresses_for_update(spec, before), spec) == ([], completed)


@pytest.mark.parametrize(
    ("spec", "cluster_ip", "ports"),
    [
        ({"type": "ClusterIP"}, True, False),
        ({"type": "NodePort"}, True, True),
        ({"type": "LoadBalancer"}, True, True),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, True, False),
        ({"type": "ExternalName"}, False, False),
    ],
)
def test_allocations_of_a_type(spec: JSON, cluster_ip: bool, ports: bool):
    assert (needs_cluster_ip(spec), needs_node_ports(spec)) == (cluster_ip, ports)


@pytest.mark.parametrize(
    ("spec", "before", "remaining"),
    [
        pytest.param(
            {"type": "ExternalName", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]},
            {"type": "ClusterIP", "clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"]},
            {"type": "ExternalName"},
            id="addresses",
        ),
        pytest.param(
            {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30080}]},
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]},
            {"type": "ClusterIP", "ports": [{"port": 80}]},
            id="unchanged node ports",
        ),
        pytest.param(
            {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30081}]},
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]},
            {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30081}]},
            id="changed node ports remain",
        ),
        pytest.param(
            {"type": "NodePort", "loadBalancerClass": "x", "allocateLoadBalancerNodePorts": True},
            {"type": "LoadBalancer", "loadBalancerClass": "x", "allocateLoadBalancerNodePorts": True},
            {"type": "NodePort"},
            id="load balancer",
        ),
    ],
)
def test_fields_of_the_old_type_are_dropped(spec: JSON, before: JSON, remaining: JSON):
    service: JSON = {"spec": spec, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}
    prepare_update(service, {"spec": before}, Write())
    assert service == {"spec": remaining, "status": {"loadBalancer": {}}}


@pytest.mark.parametrize(("type_", "is_dropped"), [("ExternalName", True), ("ClusterIP", False)])
def test_internal_traffic_policy_of_an_external_name_is_dropped(type_: str, is_dropped: bool):
    spec = {"type": type_, "internalTrafficPolicy": "Cluster"}
    assert STRATEGY.default_on_read is not None
    STRATEGY.default_on_read({"spec": spec})
    assert ("internalTrafficPolicy" not in spec) is is_dropped


# --- requests ---------------------------------------------------------------------------------------------------------


def update_service(before: JSON, after: JSON) -> tuple[int, JSON, JSON]:
    """Create a Service and update it; return the status and the content of the update, and the Service before."""
    api = InProcessApi()
    created = {"metadata": {"name": "s"}, "spec": {"ports": [port()], **before}}
    code, old = api("POST", SERVICES_PATH, created)
    assert code == 201, old
    body = {"metadata": {"name": "s"}, "spec": {"ports": [port()], **after}}
    code, new = api("PUT", f"{SERVICES_PATH}/s", body)
    return code, new, old


LOCAL_LOAD_BALANCER = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerClass": "a.b/c"}


@pytest.mark.parametrize(
    ("before", "after", "retained", "dropped"),
    [
        pytest.param({}, {}, ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"], [], id="no change"),
        pytest.param({}, {"type": "NodePort"}, ["clusterIP"], [], id="ClusterIP becomes NodePort"),
        pytest.param({"type": "NodePort"}, {"type": "NodePort"}, ["clusterIP", "ports"], [], id="NodePort"),
        pytest.param(
            LOCAL_LOAD_BALANCER,
            LOCAL_LOAD_BALANCER,
            ["healthCheckNodePort", "ports", "clusterIP"],
            [],
            id="LoadBalancer",
        ),
        pytest.param(
            LOCAL_LOAD_BALANCER,
            {"loadBalancerClass": "a.b/c"},
            ["clusterIP"],
            ["healthCheckNodePort", "loadBalancerClass", "allocateLoadBalancerNodePorts"],
            id="LoadBalancer becomes ClusterIP",
        ),
        pytest.param({"clusterIP": "None"}, {"clusterIP": "None"}, ["ipFamilies", "ipFamilyPolicy"], [], id="headless"),
        pytest.param(
            {},
            {"type": "ExternalName", "externalName": "a.b"},
            [],
            ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"],
            id="ClusterIP becomes ExternalName",
        ),
    ],
)
async def test_allocated_fields_are_retained_until_the_type_changes(
    before: JSON, after: JSON, retained: list[str], dropped: list[str]
):
    code, new, old = update_service(before, after)
    assert code == 200, new
    assert {name: new["spec"].get(name) for name in retained} == {name: old["spec"][name] for name in retained}
    assert not {*dropped} & {*new["spec"]}


@pytest.mark.parametrize(
    ("before", "after", "causes"),
    [
        pytest.param(
            {"clusterIP": "10.0.0.7"},
            {"clusterIP": "10.0.0.8"},
            ['spec.clusterIPs[0]: Invalid value: ["10.0.0.8"]: may not change once set'],
            id="cluster IP",
        ),
        pytest.param(
            {"clusterIP": "10.0.0.7"},
            {"clusterIP": "None"},
            ['spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set'],
            id="cluster IP becomes headless",
        ),
        pytest.param(
            LOCAL_LOAD_BALANCER,
            {**LOCAL_LOAD_BALANCER, "loadBalancerClass": "a.b/d"},
            ['spec.loadBalancerClass: Invalid value: "a.b/d": may not change once set'],
            id="load balancer class",
        ),
        pytest.param(
            {**LOCAL_LOAD_BALANCER, "healthCheckNodePort": 30002},
            {**LOCAL_LOAD_BALANCER, "healthCheckNodePort": 30003},
            ["spec.healthCheckNodePort: Forbidden: field is immutable"],
            id="health check port",
        ),
        pytest.param(
            {"type": "NodePort"},
            {"type": "NodePort", "ports": [port(nodePort=9)]},
            [
                "spec.ports[0].nodePort: Invalid value: 9: provided port is not in the valid range. "
                "The range of valid ports is 30000-32767"
            ],
            id="node port out of range",
        ),
        pytest.param(
            {"type": "NodePort", "ports": [port(nodePort=30009)]},
            {"ports": [port(nodePort=30010)]},
            ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
            id="node port of a ClusterIP service",
        ),
        pytest.param(
            {},
            {"type": "ExternalName", "externalName": "a.b", "internalTrafficPolicy": "local"},
            ['spec.internalTrafficPolicy: Unsupported value: "local": supported values: "Cluster", "Local"'],
            id="internal traffic policy of an ExternalName service",
        ),
    ],
)
async def test_invalid_changes_of_a_service(before: JSON, after: JSON, causes: list[str]):
    code, body, _ = update_service(before, after)
    assert causes_or_message((code, body)) == causes


async def test_ingress_status_is_dropped_with_the_load_balancer_type():
    api = InProcessApi()
    api("POST", SERVICES_PATH, {"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [port()]}})
    load_balancer = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}
    status = {"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer"}, "status": load_balancer}
    service = api.succeed("PUT", f"{SERVICES_PATH}/s/status", status)
    assert service["status"]["loadBalancer"]["ingress"] == [{"ip": "1.2.3.4", "ipMode": "VIP"}]
    service = api.succeed("PUT", f"{SERVICES_PATH}/s", {"metadata": {"name": "s"}, "spec": {"ports": [port()]}})
    assert service["status"] == {"loadBalancer": {}}
