"""DynamicResources: pods with resource claims stay pending."""

from __future__ import annotations

from typing import Any

from kubeloop.scheduler.config import plugin_args
from kubeloop.scheduler.plugins.dynamic_resources import DynamicResources, needs_claims
from support.plugin_cluster import rejections

CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]


def test_pod_with_claims_is_rejected(plugin_cluster: Any, node: Any, pod: Any) -> None:
    cluster = plugin_cluster([node("a")])
    plugin = DynamicResources(plugin_args.DynamicResourcesArgs(), cluster)
    reason = "resource claims are not supported: kubeloop allocates no devices"
    assert rejections(plugin, cluster, pod("p", resourceClaims=CLAIMS)) == {"": (reason,)}
    assert rejections(plugin, cluster, pod("q")) == {}


def test_claims_that_the_status_marks_as_not_needed(pod: Any) -> None:
    assert needs_claims(pod("p", resourceClaims=CLAIMS))
    assert not needs_claims(pod("p", resourceClaims=CLAIMS, status={"resourceClaimStatuses": [{"name": "gpu"}]}))
    generated = {"name": "gpu", "resourceClaimName": "p-gpu"}
    assert needs_claims(pod("p", resourceClaims=CLAIMS, status={"resourceClaimStatuses": [generated]}))
