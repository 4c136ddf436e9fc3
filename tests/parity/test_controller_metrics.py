"""Metrics of controllers beside those of kube-controller-manager: names, labels, buckets, and counts of one scenario.

Each runs on its own kube-apiserver. The test reports the states of pods, as kubelets would.
"""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from support.comparison.real_apiserver import RealApiServer, free_ports, needs_binaries, real_apiserver
from support.objects.resource_claims import ALLOCATION, claim_spec, template_body
from support.processes.cli_processes import Kubeloop

JSON = dict[str, Any]
CONTROLLERS = (
    "job-controller,cronjob-controller,ttl-after-finished-controller,statefulset-controller,endpointslice-controller,"
    "endpointslice-mirroring-controller,"
    "horizontal-pod-autoscaler-controller,taint-eviction-controller,node-lifecycle-controller,"
    "pod-garbage-collector-controller,root-ca-certificate-publisher-controller,resourceclaim-controller,"
    "device-taint-eviction-controller"
)
FLAGS = (
    f"--controllers={CONTROLLERS}",
    "--terminated-pod-gc-threshold=1",
    "--feature-gates=MaxUnavailableStatefulSet=true",
)
PREFIXES = (
    "job_controller_",
    "cronjob_controller_",
    "ttl_after_finished_controller_",
    "statefulset_controller_",
    "endpoint_slice_controller_",
    "endpoint_slice_mirroring_controller_",
    "horizontal_pod_autoscaler_controller_",
    "taint_eviction_controller_",
    "node_collector_",
    "pod_gc_collector_",
    "root_ca_cert_publisher_",
    "resourceclaim_controller_",
    "device_taint_eviction_controller_",
)
COUNTED = (
    "job_controller_jobs_finished",
    "job_controller_job_pods_finished",
    "job_controller_job_pods_creation",
    "job_controller_job_finished_indexes",
    "job_controller_jobs_by_external_controller",
    "job_controller_pod_failures_handled_by_failure_policy",
    "job_controller_terminated_pods_tracking_finalizer",
    "cronjob_controller_job_creation_skew_duration_seconds_count",
    "ttl_after_finished_controller_job_deletion_duration_seconds_count",
    "statefulset_controller_statefulset_max_unavailable",
    "statefulset_controller_statefulset_unavailable_replicas",
    "endpoint_slice_controller_changes",
    "endpoint_slice_controller_endpoints_desired",
    "endpoint_slice_controller_num_endpoint_slices",
    "endpoint_slice_controller_desired_endpoint_slices",
    "endpoint_slice_controller_services_count_by_traffic_distribution",
    "endpoint_slice_mirroring_controller_changes",
    "endpoint_slice_mirroring_controller_endpoints_desired",
    "endpoint_slice_mirroring_controller_num_endpoint_slices",
    "endpoint_slice_mirroring_controller_desired_endpoint_slices",
    "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
    "node_collector_zone_size",
    "node_collector_zone_health",
    "node_collector_unhealthy_nodes_in_zone",
    "pod_gc_collector_force_delete_pods",
    "resourceclaim_controller_creates",
    "resourceclaim_controller_resource_claims",
    "device_taint_eviction_controller_pod_deletions",
    "device_taint_eviction_controller_pod_deletion_duration_seconds_count",
)
DEFAULT = "/namespaces/default"
PODS = f"/api/v1{DEFAULT}/pods"
JOBS = f"/apis/batch/v1{DEFAULT}/jobs"
DEVICES = f"/apis/resource.k8s.io/v1{DEFAULT}"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
CONTAINERS = [{"name": "main", "image": "app:1"}]
POD_SPEC: JSON = {"restartPolicy": "Never", "containers": CONTAINERS}
TEMPLATE: JSON = {"metadata": {"labels": {"app": "web"}}, "spec": POD_SPEC}
FAIL_JOB = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
JOB_SPECS: Mapping[str, JSON] = {
    "two": {"completions": 2, "parallelism": 2, "ttlSecondsAfterFinished": 0},
    "indexed": {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1},
    "policy": {"podFailurePolicy": {"rules": [FAIL_JOB]}, "backoffLimit": 3},
    "external": {"managedBy": "example.com/other"},
}


class Metrics(NamedTuple):
    """families: label names and upper bounds of buckets by name. counts: values of COUNTED by name and labels."""

    families: dict[str, tuple[frozenset[str], tuple[str, ...]]]
    counts: dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Metrics:
    families: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {}
    counts = {}
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    for sample in samples:
        if not sample.name.startswith(PREFIXES) or sample.name.endswith(("_created", "_stale_sync_skips_total")):
            continue  # a sync is skipped only if a watch is slow
        bounds = {float(it.labels["le"]) for it in samples if it.name == sample.name and "le" in it.labels}
        # the parser adds _total to a counter without it
        name = sample.name.removesuffix("_total")
        families[name] = (frozenset(sample.labels) - {"le"}, tuple(map(str, sorted(bounds))))
        if name in COUNTED:
            counts[name, frozenset(sample.labels.items())] = sample.value
    return Metrics(families, counts)


def create(server: RealApiServer) -> None:
    """Create what exists before the controllers start."""
    node = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "maintenance", "effect": "NoExecute"}]}}
    server.request("POST", "/api/v1/nodes", node)
    for name in ("finished-0", "finished-1"):
        server.request("POST", PODS, {"metadata": {"name": name}, "spec": POD_SPEC})
        set_status(server, name, {"phase": "Succeeded"})
    server.request("POST", PODS, {"metadata": {"name": "evicted"}, "spec": {**POD_SPEC, "nodeName": "n"}})
    service = {"selector": {"app": "web"}, "ports": [{"port": 80}], "trafficDistribution": "PreferClose"}
    server.request("POST", f"/api/v1{DEFAULT}/services", {"metadata": {"name": "web"}, "spec": service})
    server.request(
        "POST", f"/api/v1{DEFAULT}/services", {"metadata": {"name": "own"}, "spec": {"ports": [{"port": 80}]}}
    )
    subset = {"addresses": [{"ip": "10.1.0.1"}, {"ip": "10.1.0.2"}], "ports": [{"port": 80}]}
    server.request("POST", f"/api/v1{DEFAULT}/endpoints", {"metadata": {"name": "own"}, "subsets": [subset]})
    stateful = {"selector": {"matchLabels": {"app": "web"}}, "serviceName": "web", "replicas": 2}
    stateful |= {"podManagementPolicy": "Parallel", "template": {**TEMPLATE, "spec": {"containers": CONTAINERS}}}
    server.request("POST", f"/apis/apps/v1{DEFAULT}/statefulsets", {"metadata": {"name": "db"}, "spec": stateful})
    server.request("POST", f"{DEVICES}/resourceclaimtemplates", template_body())
    entry = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
    server.request("POST", PODS, {"metadata": {"name": "claiming"}, "spec": {**POD_SPEC, "resourceClaims": [entry]}})
    taint_device(server)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "missing"}
    server.request(
        "POST",
        f"/apis/autoscaling/v2{DEFAULT}/horizontalpodautoscalers",
        {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}},
    )
    for name, spec in JOB_SPECS.items():
        server.request("POST", JOBS, {"metadata": {"name": name}, "spec": {**spec, "template": TEMPLATE}})


def taint_device(server: RealApiServer) -> None:
    """Create a tainted device, and a pod that uses it."""
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    spec = {
        "driver": "gpu.example.com",
        "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
        "allNodes": True,
        "devices": [{"name": "gpu-0", "taints": [taint]}],
    }
    server.request("POST", "/apis/resource.k8s.io/v1/resourceslices", {"metadata": {"name": "s"}, "spec": spec})
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    body = {"metadata": {"name": "using"}, "spec": {**POD_SPEC, "nodeName": "m", "resourceClaims": claims}}
    pod = server.request("POST", PODS, body)
    server.request("POST", f"{DEVICES}/resourceclaims", {"metadata": {"name": "gpu"}, "spec": claim_spec()})
    reserved = [{"resource": "pods", "name": "using", "uid": pod["metadata"]["uid"]}]
    status = {"status": {"allocation": ALLOCATION, "reservedFor": reserved}}
    server.request("PATCH", f"{DEVICES}/resourceclaims/gpu/status", status, content_type=MERGE)


def names(server: RealApiServer, path: str, **labels: str) -> list[str]:
    return [
        it["metadata"]["name"]
        for it in server.request("GET", path)["items"]
        if labels.items() <= it["metadata"].get("labels", {}).items()
    ]


def set_status(server: RealApiServer, pod: str, status: JSON) -> None:
    server.request("PATCH", f"{PODS}/{pod}/status", {"status": status}, content_type=STRATEGIC)


def wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "the controllers did not react in time"
        time.sleep(0.2)


def finish(server: RealApiServer) -> None:
    """End the pods of the Jobs, and wait for what follows."""
    for job, count in {"two": 2, "indexed": 2, "policy": 1}.items():
        label = {"batch.kubernetes.io/job-name": job}
        wait(lambda: len(names(server, PODS, **label)) == count)  # noqa: B023
        for pod in names(server, PODS, **label):
            disrupted = {"conditions": [{"type": "DisruptionTarget", "status": "True"}], "phase": "Failed"}
            set_status(server, pod, disrupted if job == "policy" else {"phase": "Succeeded"})
    wait(lambda: is_terminating(server, f"{JOBS}/two"))  # no garbage collector runs
    for job in ("indexed", "policy"):
        wait(lambda: has_ended(server, job))  # noqa: B023
    for name in ("evicted", "using"):
        wait(lambda: is_terminating(server, f"{PODS}/{name}"))  # noqa: B023


def is_terminating(server: RealApiServer, path: str) -> bool:
    return "deletionTimestamp" in server.request("GET", path)["metadata"]


def has_ended(server: RealApiServer, job: str) -> bool:
    conditions: Iterable[JSON] = server.request("GET", f"{JOBS}/{job}")["status"].get("conditions", ())
    return any(it["type"] in ("Complete", "Failed") and it["status"] == "True" for it in conditions)


class Cluster:
    """A kube-apiserver with kube-controller-manager, or with kubeloop."""

    def __init__(self, folder: Path, stack: ExitStack, *, is_real: bool) -> None:
        self.server = stack.enter_context(real_apiserver(folder))
        create(self.server)
        if is_real:
            port = free_ports(1)[0]
            root_ca = f"--root-ca-file={folder / 'certificates' / 'ca.crt'}"
            flags = ("--leader-elect=false", f"--secure-port={port}", root_ca, *FLAGS)
            self.server.start_component("kube-controller-manager", *flags)
            self._url = f"https://127.0.0.1:{port}/metrics"
        else:
            arguments = (f"--kubeconfig={self.server.kubeconfig}", "--trace-journal=", "--endpoint-port=0", *FLAGS)
            process = stack.enter_context(Kubeloop(folder).running("run", *arguments))
            self._url = process.wait_for(r"endpoint (http://\S+)")[1] + "/metrics"
        finish(self.server)

    def metrics(self) -> Metrics:
        request = urllib.request.Request(self._url, headers={"Authorization": f"Bearer {self.server.token}"})
        context = ssl._create_unverified_context()  # kube-controller-manager's certificate is its own
        with urllib.request.urlopen(request, timeout=30, context=context) as response:
            return parsed(response.read().decode())


def test_metrics_match_kube_controller_manager(tmp_path):
    needs_binaries("kube-controller-manager")
    with ExitStack() as stack, ThreadPoolExecutor(2) as executor:
        starting = [
            executor.submit(Cluster, tmp_path / name, stack, is_real=name == "kubernetes")
            for name in ("kubernetes", "kubeloop")
        ]
        kubernetes, kubeloop = (future.result() for future in starting)
        end = time.monotonic() + 60
        while (real := kubernetes.metrics()) != (ours := kubeloop.metrics()) and time.monotonic() < end:
            time.sleep(1.0)
    assert ours.families == real.families
    assert ours.counts == real.counts
    assert {name for name, _ in ours.counts} >= {*COUNTED} - {
        "cronjob_controller_job_creation_skew_duration_seconds_count"
    }
