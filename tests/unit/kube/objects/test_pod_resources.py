"""Requests and limits of a pod as a whole."""

from __future__ import annotations

from kubeloop.kube.objects.pod_resources import container_totals, pod_requests, pod_resource_totals


def container(cpu, **more):
    return {"name": cpu, "resources": {"requests": {"cpu": cpu}}, **more}


def test_containers_are_added_and_init_containers_take_the_maximum():
    spec = {"containers": [container("1"), container("500m")], "initContainers": [container("3"), container("2")]}
    assert container_totals(spec, "requests") == {"cpu": "3"}


def test_sidecars_add_to_containers_and_later_init_containers():
    sidecar = container("1", restartPolicy="Always")
    spec = {"containers": [container("1")], "initContainers": [sidecar, container("2")]}
    assert container_totals(spec, "requests") == {"cpu": "3"}


def test_pod_requests_include_overhead_and_pod_level_resources():
    spec = {"containers": [container("1")], "overhead": {"cpu": "250m"}}
    assert pod_requests(spec) == {"cpu": "1250m"}
    assert pod_requests({**spec, "resources": {"requests": {"cpu": "4"}}}) == {"cpu": "4250m"}


def test_larger_actual_resources_count_unless_resize_infeasible():
    status = {"containerStatuses": [{"name": "1", "resources": {"requests": {"cpu": "3"}}}]}
    pod = {"spec": {"containers": [container("1")]}, "status": status}
    assert pod_resource_totals(pod, actual=True)["requests"] == {"cpu": "3"}
    assert pod_resource_totals(pod)["requests"] == {"cpu": "1"}
    status["containerStatuses"][0]["resources"]["requests"]["cpu"] = "500m"
    assert pod_resource_totals(pod, actual=True)["requests"] == {"cpu": "1"}
    status["conditions"] = [{"type": "PodResizePending", "reason": "Infeasible"}]
    assert pod_resource_totals(pod, actual=True)["requests"] == {"cpu": "500m"}
