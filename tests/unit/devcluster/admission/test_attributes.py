"""Admission attributes: kinds of request bodies and options of connect requests."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.attributes import connect_options, equivalent_resources, kind_of
from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.served_resources import BY_KIND, get_served_resource
from kubeloop.kube.objects.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PODS, Resource
from support.apiserver.admission_attributes import create_attributes


@pytest.mark.parametrize(
    ("resource", "subresource", "kind"),
    [
        pytest.param(DEPLOYMENTS, "", ("apps", "v1", "Deployment"), id="object"),
        pytest.param(DEPLOYMENTS, "status", ("apps", "v1", "Deployment"), id="status"),
        pytest.param(DEPLOYMENTS, "scale", ("autoscaling", "v1", "Scale"), id="scale"),
        pytest.param(PODS, "exec", ("", "v1", "PodExecOptions"), id="exec"),
        pytest.param(PODS, "proxy", ("", "v1", "PodProxyOptions"), id="proxy"),
    ],
)
def test_kind_of_a_request_body(resource: Resource[Any], subresource: str, kind: tuple[str, str, str]):
    assert kind_of(get_served_resource(resource), subresource) == kind


@pytest.mark.parametrize(
    ("path", "options"),
    [
        pytest.param(
            "exec?command=ls&command=-l&container=c&stdout=true",
            {"kind": "PodExecOptions", "stdout": True, "container": "c", "command": ["ls", "-l"]},
            id="exec",
        ),
        pytest.param("attach?stdin=true", {"kind": "PodAttachOptions", "stdin": True}, id="attach"),
        pytest.param(
            "portforward?ports=80,443&ports=8080",
            {"kind": "PodPortForwardOptions", "ports": [80, 443, 8080]},
            id="portforward",
        ),
        pytest.param("proxy/metrics", {"kind": "PodProxyOptions", "path": "/metrics"}, id="proxy"),
    ],
)
def test_connect_options_are_read_from_the_query(path: str, options: dict[str, Any]):
    subresource = path.partition("?")[0].partition("/")[0]
    info = RequestInfo(get_served_resource(PODS), "default", "a", subresource)
    request = ApiRequest.of("POST", f"/api/v1/namespaces/default/pods/a/{path}", {}, b"")
    assert connect_options(request, info) == {"apiVersion": "v1", **options}


async def test_scale_is_seen_as_a_scale_object():
    deployment = {"apiVersion": "apps/v1", "metadata": {"name": "a", "namespace": "default"}, "spec": {"replicas": 3}}
    attributes = create_attributes(DEPLOYMENTS, object=deployment, subresource="scale")
    obj, old = await attributes.seen_as(attributes.served)
    assert obj is not None
    assert (obj["kind"], obj["spec"], old) == ("Scale", {"replicas": 3}, None)


def test_unnamed_request_has_the_object_name_in_messages():
    assert create_attributes(name="").name_in_message == "a"
    assert create_attributes(name="", object=None).name_in_message == "Unknown"


def test_is_of_namespace_is_true_for_namespaces_only():
    assert create_attributes(NAMESPACES).is_of_namespace
    assert not create_attributes(CONFIG_MAPS).is_of_namespace


def test_equivalent_resources_are_the_other_api_versions():
    core_events = BY_KIND["v1", "Event"]
    (other,) = equivalent_resources(core_events)
    assert other.resource.api_version == "events.k8s.io/v1"
    assert equivalent_resources(other) == (core_events,)
