"""Resources: API paths and lookup by group and kind."""

from __future__ import annotations

from kubeloop.kube.objects.resources import (
    BY_GROUP_KIND,
    DEPLOYMENTS,
    ENDPOINTS,
    IP_ADDRESSES,
    NODES,
    POD_GROUPS,
    PODS,
    VALIDATING_ADMISSION_POLICIES,
)


def test_paths_of_collections_objects_and_subresources():
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("shop", "web", "status") == "/api/v1/namespaces/shop/pods/web/status"
    assert DEPLOYMENTS.path("shop") == "/apis/apps/v1/namespaces/shop/deployments"
    assert NODES.path("ignored", "n1") == "/api/v1/nodes/n1"


def test_names_of_resource():
    assert (DEPLOYMENTS.api_version, DEPLOYMENTS.group_resource) == ("apps/v1", "deployments.apps")
    assert (PODS.api_version, PODS.group_resource, PODS.singular) == ("v1", "pods", "pod")
    assert BY_GROUP_KIND["apps", "Deployment"] is DEPLOYMENTS
    assert BY_GROUP_KIND["scheduling.k8s.io", "PodGroup"] is POD_GROUPS
    assert POD_GROUPS.path("shop", "web", "status") == (
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/shop/podgroups/web/status"
    )


def test_plurals_follow_the_rule_of_kubernetes():
    plurals = [resource.plural for resource in (PODS, ENDPOINTS, IP_ADDRESSES, VALIDATING_ADMISSION_POLICIES)]
    assert plurals == ["pods", "endpoints", "ipaddresses", "validatingadmissionpolicies"]
