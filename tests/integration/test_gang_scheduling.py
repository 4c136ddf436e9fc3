"""A Job with gang scheduling in a whole cluster: its Workload, its PodGroup, its Pods, and their deletion."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.resources import POD_GROUPS, PODS, WORKLOADS
from kubeloop.testing.in_memory import memory_cluster
from support.apiserver.api_requests import InProcessApi

JOBS = "/apis/batch/v1/namespaces/default/jobs"
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}}
JOB: dict[str, Any] = {
    "metadata": {"name": "train"},
    "spec": {"parallelism": 3, "completions": 3, "completionMode": "Indexed", "template": TEMPLATE},
}


@pytest.mark.virtual_time
async def test_objects_of_a_gang_exist_as_long_as_its_job(clock):
    async with memory_cluster(clock=clock, nodes=2, gang_scheduling=True) as cluster:
        api, store = InProcessApi(cluster.api), cluster.api.store
        api.create(JOBS, JOB)
        await cluster.until(lambda: api("GET", f"{JOBS}/train")[1].get("status", {}).get("succeeded") == 3)
        (pod_group,) = store.list(POD_GROUPS)
        assert [group["spec"]["schedulingPolicy"] for group in store.list(POD_GROUPS)] == [{"gang": {"minCount": 3}}]
        groups = [pod["spec"]["schedulingGroup"] for pod in store.list(PODS)]
        assert groups == [{"podGroupName": pod_group["metadata"]["name"]}] * 3
        api.succeed("DELETE", f"{JOBS}/train?propagationPolicy=Background")
        await cluster.until(lambda: not [*store.list(PODS), *store.list(POD_GROUPS), *store.list(WORKLOADS)])
