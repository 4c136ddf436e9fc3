"""Validation of writes to pods/ephemeralcontainers and pods/resize."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.registry.strategies import prepare_for_pod_subresource_update
from kubeloop.devcluster.validation.validate import validate_update
from kubeloop.kube.objects.resources import PODS
from support.validation_causes import cause_texts, defaulted, pod, pod_with_container, update_causes

JSON = dict[str, Any]


def test_ephemeral_containers_can_only_be_added():
    old = defaulted(PODS, pod(nodeName="n"))
    debug = {"name": "debug", "image": "busybox", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}
    new = defaulted(PODS, pod(nodeName="m", ephemeralContainers=[debug]))
    stored = prepare_for_pod_subresource_update(new, old, "ephemeralcontainers")
    assert stored["spec"]["nodeName"] == "n"
    assert stored["metadata"]["generation"] == 1
    assert validate_update(PODS, stored, old, subresource="ephemeralcontainers") == []
    without = prepare_for_pod_subresource_update(defaulted(PODS, pod()), stored, "ephemeralcontainers")
    causes = cause_texts(validate_update(PODS, without, stored, subresource="ephemeralcontainers"))
    assert causes == ['spec.ephemeralContainers: Forbidden: existing ephemeral containers "debug" may not be removed\n']


def test_resize_changes_amounts_and_keeps_the_qos_class():
    def pod_with_resources(**resources: Any) -> JSON:
        return defaulted(PODS, pod_with_container(resources=resources))

    old = pod_with_resources(requests={"cpu": "1"})
    increased = prepare_for_pod_subresource_update(pod_with_resources(requests={"cpu": "2"}), old, "resize")
    assert validate_update(PODS, increased, old, subresource="resize") == []
    removed = prepare_for_pod_subresource_update(pod_with_resources(), old, "resize")
    assert cause_texts(validate_update(PODS, removed, old, subresource="resize")) == [
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
