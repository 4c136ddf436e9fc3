"""Verbs and body kinds of subresources."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import get_served_resource
from kubeloop.devcluster.api.subresources import subresource_kind, subresource_verbs
from kubeloop.kube.objects.resources import DEPLOYMENTS, NODES, PODS, Resource


@pytest.mark.parametrize(
    ("subresource", "verbs"),
    [
        ("status", ("get", "patch", "update")), ("scale", ("get", "patch", "update")), ("binding", ("create",)),
        ("log", ("get",)), ("finalize", ("update",)), ("exec", ("create", "get")),
        ("proxy", ("create", "delete", "get", "patch", "update")),
    ],
)  # fmt: skip
def test_verbs_of_a_subresource(subresource: str, verbs: tuple[str, ...]):
    assert subresource_verbs(subresource) == verbs


@pytest.mark.parametrize(
    ("resource", "subresource", "kind"),
    [
        (PODS, "status", ("", "", "Pod")),
        (PODS, "eviction", ("policy", "v1", "Eviction")),
        (PODS, "exec", ("", "", "PodExecOptions")),
        (PODS, "proxy", ("", "", "PodProxyOptions")),
        (NODES, "proxy", ("", "", "NodeProxyOptions")),
        (DEPLOYMENTS, "scale", ("autoscaling", "v1", "Scale")),
        (DEPLOYMENTS, "status", ("", "", "Deployment")),
    ],
)
def test_kind_of_a_subresource(resource: Resource[Any], subresource: str, kind: tuple[str, str, str]):
    assert subresource_kind(get_served_resource(resource), subresource) == kind
