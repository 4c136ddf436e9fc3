"""Validation of writes to pods/ephemeralcontainers and pods/resize."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.kinds.core.pod import prepare_part
from kubeloop.devcluster.validation.pod.pod_subresources import (
    is_write_refused,
    validate_ephemeral_containers_update,
    validate_pod_resize,
)
from kubeloop.devcluster.validation.validate import validate_update
from kubeloop.kube.objects.resources import PODS
from support.objects.validation_causes import (
    cause_texts,
    defaulted,
    pod,
    pod_with_container,
    update_causes,
    validator_causes,
)

JSON = dict[str, Any]


def test_ephemeral_containers_can_only_be_added():
    old = defaulted(PODS, pod(nodeName="n"))
    debug = {"name": "debug", "image": "busybox", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}
    new = defaulted(PODS, pod(nodeName="m", ephemeralContainers=[debug]))
    stored = prepare_part(new, old, "ephemeralcontainers")
    assert stored["spec"]["nodeName"] == "n"
    assert stored["metadata"]["generation"] == 1
    assert validate_update(strategy_of(PODS), PODS, stored, old, subresource="ephemeralcontainers") == []
    without = prepare_part(defaulted(PODS, pod()), stored, "ephemeralcontainers")
    causes = cause_texts(validate_update(strategy_of(PODS), PODS, without, stored, subresource="ephemeralcontainers"))
    assert causes == ['spec.ephemeralContainers: Forbidden: existing ephemeral containers "debug" may not be removed\n']


def test_resize_changes_amounts_and_keeps_the_qos_class():
    def pod_with_resources(**resources: Any) -> JSON:
        return defaulted(PODS, pod_with_container(resources=resources))

    old = pod_with_resources(requests={"cpu": "1"})
    increased = prepare_part(pod_with_resources(requests={"cpu": "2"}), old, "resize")
    assert validate_update(strategy_of(PODS), PODS, increased, old, subresource="resize") == []
    removed = prepare_part(pod_with_resources(), old, "resize")
    assert cause_texts(validate_update(strategy_of(PODS), PODS, removed, old, subresource="resize")) == [
        'spec: Invalid value: "": Pod QOS Class may not change as a result of resizing',
        "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
    ]


def test_resize_cannot_rename_containers():
    old = pod(containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}])
    renamed = {**old, "spec": {**old["spec"], "containers": [{**old["spec"]["containers"][0], "name": "d"}]}}
    assert update_causes(PODS, old, renamed, "resize") == [
        "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"
    ]


def pod_with_images_and_cpu(**images_and_cpu: tuple[str, str]) -> JSON:
    """Return a pod with a container for each keyword argument: name=(image, CPU request)."""
    return pod(
        containers=[
            {"name": name, "image": image, "resources": {"requests": {"cpu": cpu}}}
            for name, (image, cpu) in images_and_cpu.items()
        ]
    )


def test_resize_compares_each_container_with_its_old_version():
    old = pod_with_images_and_cpu(a=("i", "1"), b=("j", "1"))
    assert update_causes(PODS, old, pod_with_images_and_cpu(a=("i", "2"), b=("j", "3")), "resize") == []
    assert update_causes(PODS, old, pod_with_images_and_cpu(a=("x", "2"), b=("j", "1")), "resize") == [
        "spec: Forbidden: only cpu and memory resources are mutable"
    ]


MIRROR = {"annotations": {"kubernetes.io/config.mirror": "x"}}


@pytest.mark.parametrize(
    ("subresource", "metadata", "system", "refused"),
    [
        pytest.param("resize", {}, "linux", False, id="Linux pod"),
        pytest.param("resize", {}, "windows", True, id="resize of a Windows pod"),
        pytest.param("ephemeralcontainers", {}, "windows", False, id="debugging of a Windows pod"),
        pytest.param("ephemeralcontainers", MIRROR, "linux", True, id="static pod"),
        pytest.param("status", MIRROR, "linux", False, id="status of a static pod"),
    ],
)
def test_refused_writes(subresource: str, metadata: dict[str, Any], system: str, refused: bool) -> None:
    assert is_write_refused(subresource, {"metadata": metadata, "spec": {"os": {"name": system}}}) == refused


def test_existing_ephemeral_container_cannot_be_removed() -> None:
    old, new = (
        defaulted(PODS, pod(ephemeralContainers=[{"name": name, "image": "i"} for name in names]))
        for names in (["a"], ["b"])
    )
    assert validator_causes(validate_ephemeral_containers_update, new, old) == [
        'spec.ephemeralContainers: Forbidden: existing ephemeral containers "a" may not be removed\n'
    ]


def resources(part: str, **amounts: str) -> dict[str, Any]:
    return defaulted(PODS, pod_with_container(resources={part: amounts}))


@pytest.mark.parametrize(
    ("new", "causes"),
    [
        pytest.param(resources("requests", cpu="2"), [], id="more CPU"),
        pytest.param(
            resources("limits", cpu="1", memory="1Gi"),
            ['spec: Invalid value: "": Pod QOS Class may not change as a result of resizing'],
            id="another QoS class",
        ),
        pytest.param(
            defaulted(PODS, pod(containers=[{"name": "d", "image": "nginx", "resources": {"requests": {"cpu": "1"}}}])),
            ["spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"],
            id="renamed container",
        ),
        pytest.param(
            resources("requests", cpu="1", **{"ephemeral-storage": "1Gi"}),
            ["spec: Forbidden: only cpu and memory resources are mutable"],
            id="another resource",
        ),
    ],
)
def test_pod_resize_causes(new: dict[str, Any], causes: list[str]) -> None:
    assert validator_causes(validate_pod_resize, new, resources("requests", cpu="1")) == causes


def test_pod_with_claims_that_take_resources_of_the_node_cannot_be_resized() -> None:
    old = resources("requests", cpu="1")
    old = {**old, "status": {**old.get("status", {}), "nodeAllocatableResourceClaimStatuses": [{}]}}
    assert validator_causes(validate_pod_resize, resources("requests", cpu="2"), old) == [
        "spec: Forbidden: pods with node allocatable resource claims cannot be resized"
    ]
