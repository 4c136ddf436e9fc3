"""Warnings about written objects."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import JOBS
from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.validation.validate import write_warnings
from kubeloop.kube.objects.resources import (
    DEPLOYMENTS,
    PERSISTENT_VOLUMES,
    PODS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from support.objects.validation_causes import pod, workload


def test_warnings_of_pods_templates_and_services():
    assert write_warnings(strategy_of(DEPLOYMENTS), {**workload(), "metadata": {"name": "a.b"}})[0].startswith(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
        "a DNS label is recommended: [must not contain dots]"
    )
    two_ports = [{"containerPort": 80, "protocol": "TCP"}]
    body = pod(
        containers=[{"name": "a", "ports": two_ports}, {"name": "b", "ports": two_ports}],
        topologySpreadConstraints=[{"topologyKey": "failure-domain.beta.kubernetes.io/zone"}],
        volumes=[{"name": "v", "gitRepo": {}}],
    )
    body["metadata"] = {"name": "p"}
    assert write_warnings(strategy_of(PODS), body) == [
        "spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since "
        'v1.17; use "topology.kubernetes.io/zone" instead',
        "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
        "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
        "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]",
    ]
    assert write_warnings(strategy_of(PODS), body, pod()) == []
    assert write_warnings(strategy_of(SERVICES), {"spec": {"type": "ClusterIP", "externalName": "x"}}) == [
        'spec.externalName is ignored when spec.type is not "ExternalName"'
    ]


JSON = dict[str, Any]


def workload_object(generation: int, image: str = "i", **spec: Any) -> JSON:
    containers = [{"name": "c", "image": image, "resources": {"limits": {"memory": "1m"}}}]
    template = {"metadata": {}, "spec": {"containers": containers if image == "i" else []}}
    return {"metadata": {"name": "a", "generation": generation}, "spec": {"template": template, **spec}}


FRACTIONAL_BYTES = 'fractional byte value "1m" is invalid, must be an integer'

TEMPLATE_WARNING = f"spec.template.spec.containers[0].resources.limits[memory]: {FRACTIONAL_BYTES}"


@pytest.mark.parametrize(
    ("resource", "old", "new", "warnings"),
    [
        (REPLICATION_CONTROLLERS, workload_object(1, "x"), workload_object(2), []),
        (REPLICATION_CONTROLLERS, workload_object(1), workload_object(2, "x"), [TEMPLATE_WARNING]),
        (STATEFUL_SETS, workload_object(1), workload_object(1), []),
        (STATEFUL_SETS, None, workload_object(1, "x", volumeClaimTemplates=[
            {"spec": {"resources": {"requests": {"storage": "1m"}}}}]),
            [f"spec.volumeClaimTemplates[0].resources.requests[storage]: {FRACTIONAL_BYTES}"]),
        (STATEFUL_SETS, workload_object(1), workload_object(1, volumeClaimTemplates=[
            {"spec": {"resources": {"requests": {"storage": "1m"}}}}]),
            [f"spec.volumeClaimTemplates[0].Spec.resources.requests[storage]: {FRACTIONAL_BYTES}"]),
        (JOBS, workload_object(1), workload_object(2), [TEMPLATE_WARNING]),
    ],
)  # fmt: skip
def test_workload_warnings_are_about_the_new_template(
    resource: Resource[Any], old: JSON | None, new: JSON, warnings: list[str]
):
    assert write_warnings(strategy_of(resource), new, old) == warnings


def test_persistent_volume_warnings():
    assert (
        write_warnings(
            strategy_of(PERSISTENT_VOLUMES), {"spec": {"persistentVolumeReclaimPolicy": "Retain", "csi": {}}}
        )
        == []
    )
    assert write_warnings(
        strategy_of(PERSISTENT_VOLUMES), {"spec": {"persistentVolumeReclaimPolicy": "Recycle", "rbd": {}}}
    ) == [
        "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended "
        "approach is to use dynamic provisioning.",
        "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
    ]
