"""Resource metrics of pods at /metrics/resources."""

from __future__ import annotations

from typing import Any

from kubeloop.kube.objects.api_types import Pod, convert
from kubeloop.process.endpoint.pod_resource_metrics import pod_resources


def pod(name: str, phase: str = "", **spec: Any) -> Pod:
    resources = {"requests": {"cpu": "250m", "memory": "1Ki", "example.com/gpu": "2"}, "limits": {"cpu": "1"}}
    body = {"containers": [{"name": "c", "resources": resources}], "schedulerName": "default-scheduler", **spec}
    return convert(Pod, {"metadata": {"name": name, "namespace": "ns"}, "spec": body, "status": {"phase": phase}})


async def test_pod_resources_have_requests_and_limits_with_units():
    page = (await pod_resources([pod("p", nodeName="n", priority=7)])).body.decode().splitlines()
    of_pod = 'namespace="ns",pod="p",node="n",scheduler="default-scheduler",priority="7"'
    assert [line for line in page if not line.startswith("#")] == [
        f'kube_pod_resource_limit{{{of_pod},resource="cpu",unit="cores"}} 1.0',
        f'kube_pod_resource_request{{{of_pod},resource="cpu",unit="cores"}} 0.25',
        f'kube_pod_resource_request{{{of_pod},resource="example.com/gpu",unit="integer"}} 2.0',
        f'kube_pod_resource_request{{{of_pod},resource="memory",unit="bytes"}} 1024.0',
    ]
    assert "# TYPE kube_pod_resource_request gauge" in page


async def test_pod_resources_exclude_terminated_pods():
    page = (await pod_resources([pod("p", "Succeeded", nodeName="n"), pod("q", "Failed", nodeName="n")])).body
    assert not [line for line in page.decode().splitlines() if not line.startswith("#")]
    assert b'pod="waiting"' in (await pod_resources([pod("waiting", "Pending")])).body
