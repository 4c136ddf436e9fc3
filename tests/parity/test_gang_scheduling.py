"""Workloads, PodGroups and pods of groups: the same responses as kube-apiserver, for several sets of feature gates.

Controllers are compared with kube-controller-manager: the Workload and PodGroup of a Job, the finalizer of PodGroups,
and the ResourceClaims that PodGroups share with their Pods. Skipped if the binaries are not installed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kubeloop.kube.feature_gates import gang_scheduling_text
from support.apiserver.http_api import JSON_TYPE, ServerPair, server_pair
from support.comparison.compared_clusters import MERGE_PATCH, ComparedCluster, assert_same_state, stable
from support.comparison.differential import (
    compare,
    create_requests,
    create_valid_objects,
    delete_valid_objects,
    same_but_for_order,
    update_requests,
    valid_objects,
)
from support.comparison.real_apiserver import RealApiServer
from support.objects.token_volumes import masked_token_volumes

JSON = dict[str, Any]
SEED = 20
NAMESPACE = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default"
WORKLOADS, GROUPS, PODS = f"{NAMESPACE}/workloads", f"{NAMESPACE}/podgroups", "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
GATE_SETS = {
    "all": gang_scheduling_text(),
    "generic": "GenericWorkload=true",
    "preemption": "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true",
    "claims": "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,DRAWorkloadResourceClaims=true",
}
FLAGS = {"runtime-config": "scheduling.k8s.io/v1alpha2=true", "authorization-mode": "AlwaysAllow,RBAC"}


@pytest.fixture(scope="module", params=GATE_SETS)
def servers(tmp_path_factory, request) -> Iterator[ServerPair]:
    flags = {**FLAGS, "feature-gates": GATE_SETS[request.param]}
    with server_pair(tmp_path_factory.mktemp("servers"), flags, "tester/1") as servers:
        yield servers


GANG: JSON = {"gang": {"minCount": 2}}


def template(**fields: Any) -> JSON:
    return {"name": "t", "schedulingPolicy": GANG, **fields}


def workload(*templates: JSON, name: str = "w", **spec: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"podGroupTemplates": list(templates), **spec}}


def group(name: str = "c", **spec: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": GANG, **spec}}


def reference(workload_name: str, template_name: str) -> JSON:
    return {"workload": {"workloadName": workload_name, "podGroupTemplateName": template_name}}


def pod(name: str, **spec: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def job(name: str, **spec: Any) -> JSON:
    pod_spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}], **spec}
    indexed = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    return {"metadata": {"name": name}, "spec": {**indexed, "template": {"spec": pod_spec}}}


CLAIMS = [{"name": f"c{i}", "resourceClaimName": "x"} for i in range(5)]
CLAIM_AND_TEMPLATE = [{"name": "rc", "resourceClaimName": "x"}, {"name": "rt", "resourceClaimTemplateName": "x"}]
RACK = {"topology": [{"key": "rack"}]}
CONDITION = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": ""}
CONDITION["lastTransitionTime"] = "2026-01-01T00:00:00Z"

REQUESTS: tuple[tuple[str, str, JSON | None], ...] = (
    ("POST", WORKLOADS, workload(template())),
    ("POST", WORKLOADS, workload()),
    ("POST", WORKLOADS, {"metadata": {"name": "x"}}),
    ("POST", WORKLOADS, {"metadata": {"name": "x"}, "spec": {}}),
    ("POST", WORKLOADS, workload(template(), template())),
    ("POST", WORKLOADS, workload(*(template(name=f"t{i}") for i in range(9)))),
    ("POST", WORKLOADS, workload(template(name="A.b"), template(name=""))),
    ("POST", WORKLOADS, workload(template(), controllerRef={"apiGroup": "Batch!", "kind": "", "name": "a/b"})),
    ("POST", WORKLOADS, workload(template(), controllerRef={"kind": "..", "name": "."})),
    ("POST", WORKLOADS, workload(
        template(schedulingPolicy={}),
        template(name="u", schedulingPolicy={"basic": {}, "gang": {"minCount": 0}}),
        template(name="v", schedulingPolicy={"gang": {"minCount": -1}}),
        {"name": "x"},
    )),
    ("POST", WORKLOADS, workload(
        template(schedulingConstraints={"topology": [{"key": "a"}, {"key": "b"}]}),
        template(name="u", schedulingConstraints={"topology": [{"key": ""}]}),
        template(name="v", schedulingConstraints={"topology": [{"key": "!"}]}),
    )),
    ("POST", WORKLOADS, workload(template(resourceClaims=[
        {"name": "a"}, {"name": "a", "resourceClaimName": "x"},
        {"name": "", "resourceClaimName": "X_", "resourceClaimTemplateName": "y"},
    ]))),
    ("POST", WORKLOADS, workload(template(resourceClaims=CLAIMS))),
    ("POST", WORKLOADS, workload(template(disruptionMode="X", priorityClassName="P!", priority=2000000000))),
    ("POST", WORKLOADS, workload(
        template(priority=5, disruptionMode="PodGroup", priorityClassName="none", schedulingConstraints=RACK), name="v",
    )),
    ("POST", GROUPS, group("g")),
    ("GET", f"{GROUPS}/g", None),
    ("POST", GROUPS, group("b", schedulingPolicy={"basic": {}})),
    ("POST", GROUPS, group("Bad_")),
    ("POST", GROUPS, group(schedulingPolicy={})),
    ("POST", GROUPS, {"metadata": {"name": "c"}}),
    ("POST", GROUPS, group(podGroupTemplateRef={})),
    ("POST", GROUPS, group(podGroupTemplateRef={"workload": {}})),
    ("POST", GROUPS, group(podGroupTemplateRef=reference("A", "a.b"))),
    ("POST", GROUPS, group(podGroupTemplateRef=reference("nope", "t"))),
    ("POST", GROUPS, group(podGroupTemplateRef=reference("w", "x"))),
    ("POST", GROUPS, group("r", podGroupTemplateRef=reference("w", "t"))),
    ("POST", GROUPS, group(priorityClassName="nope")),
    ("POST", GROUPS, group("n", priorityClassName="system-node-critical")),
    ("POST", GROUPS, group("p", priority=7)),
    ("POST", GROUPS, group("m", disruptionMode="x")),
    ("POST", GROUPS, group("k", resourceClaims=CLAIMS)),
    ("POST", GROUPS, group(
        "d", disruptionMode="PodGroup", resourceClaims=CLAIM_AND_TEMPLATE, schedulingConstraints=RACK)),
    ("PATCH", f"{GROUPS}/d", {"spec": {
        "priority": 3, "priorityClassName": "x", "disruptionMode": "Pod", "schedulingConstraints": None,
        "resourceClaims": None, "schedulingPolicy": {"gang": {"minCount": 4}},
        "podGroupTemplateRef": reference("w", "t"),
    }}),
    ("PATCH", f"{GROUPS}/d", {"spec": {"schedulingConstraints": {"topology": []}, "resourceClaims": CLAIMS}}),
    ("PATCH", f"{GROUPS}/d", {"metadata": {"labels": {"a": "b"}, "finalizers": []}}),
    ("PATCH", f"{GROUPS}/d/status", {"status": {"conditions": [CONDITION], "resourceClaimStatuses": [
        {"name": "rc", "resourceClaimName": "Bad_"}, {"name": "zz"}, {"name": "zz"}]}}),
    ("PATCH", f"{GROUPS}/d/status", {"metadata": {"labels": {"x": "y"}}, "status": {
        "conditions": [CONDITION], "resourceClaimStatuses": [{"name": "rt", "resourceClaimName": "good"}]}}),
    ("PATCH", f"{GROUPS}/g/status", {"status": {"conditions": [{**CONDITION, "status": "Perhaps"}]}}),
    ("PATCH", f"{GROUPS}/b/status", {"status": {"conditions": [{**CONDITION, "type": "DisruptionTarget"}]}}),
    ("PATCH", f"{GROUPS}/r", {"status": {"conditions": [{"type": "PodGroupScheduled"}]}}),
    ("PATCH", f"{WORKLOADS}/w", {"spec": {"controllerRef": {"kind": "Job", "name": "j"}, "podGroupTemplates": []}}),
    ("PATCH", f"{WORKLOADS}/w", {"metadata": {"labels": {"a": "b"}}}),
    ("POST", PODS, pod("p", schedulingGroup={"podGroupName": "g"})),
    ("POST", PODS, pod("q", schedulingGroup={})),
    ("POST", PODS, pod("q", schedulingGroup={"podGroupName": "G_"})),
    ("PATCH", f"{PODS}/p", {"spec": {"schedulingGroup": {"podGroupName": "h"}}}),
    ("PATCH", f"{PODS}/p", {"spec": {"schedulingGroup": None}}),
    ("POST", JOBS, job("plain")),
    ("PATCH", f"{JOBS}/plain", {"spec": {"parallelism": 1}}),
    ("POST", JOBS, job("gang", schedulingGroup={"podGroupName": "g"})),
    ("PATCH", f"{JOBS}/gang", {"spec": {"parallelism": 1}}),
    ("POST", JOBS, job("basic", schedulingGroup={"podGroupName": "b"})),
    ("PATCH", f"{JOBS}/basic", {"spec": {"parallelism": 1}}),
    ("DELETE", f"{WORKLOADS}/w", None),
    ("DELETE", f"{GROUPS}/g", None),
    ("GET", "/apis/scheduling.k8s.io", None),
    ("GET", "/apis/scheduling.k8s.io/v1alpha2", None),
    ("GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha2.scheduling.k8s.io", None),
    *(
        ("GET", f"{RBAC}/clusterroles/system:{name}", None)
        for name in (
            "kube-scheduler", "controller:job-controller", "controller:resource-claim-controller",
            "controller:podgroup-protection-controller", "aggregate-to-view", "aggregate-to-edit",
        )
    ),
    ("GET", f"{RBAC}/clusterrolebindings/system:controller:podgroup-protection-controller", None),
)  # fmt: skip
"""Requests in order: later ones use the objects of earlier ones."""

_GENERATED = {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "time", "lastTransitionTime"}


def comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items() if name not in _GENERATED}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "(uid)", value) if isinstance(value, str) else value


def test_responses_match_kube_apiserver(servers: ServerPair):
    differences = []
    for method, path, body in (*REQUESTS, ("GET", GROUPS, None), ("GET", WORKLOADS, None)):
        accept = TABLE if path in (GROUPS, WORKLOADS) and method == "GET" else JSON_TYPE
        content_type = MERGE_PATCH if method == "PATCH" else JSON_TYPE
        real, ours = (
            server.request(method, path, body, content_type, accept) for server in (servers.real, servers.ours)
        )
        expected, response = (
            (one.status, comparable(masked_token_volumes(one.content)), one.warnings) for one in (real, ours)
        )
        if expected != response:
            differences.append(f"{method} {path} {body}\n  real {expected}\n  ours {response}")
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("kind", ["Workload", "PodGroup"])
def test_mutated_objects_match_kube_apiserver(servers: ServerPair, kind: str):
    """Send created objects, updates and status updates. The order of several causes is not compared."""
    valid, rng = valid_objects(kind), random.Random(SEED)
    both = (servers.real, servers.ours)
    for server in both:
        server.request("POST", WORKLOADS, workload(template(name="workers"), name="reference"))
    created = compare(servers.real, servers.ours, create_requests(valid, 60, rng))
    for server in both:
        create_valid_objects(server, valid)
    try:
        updates = update_requests(valid, 40, rng)
        if kind == "PodGroup":
            updates += update_requests(valid, 30, rng, subresource="status")
        updated = compare(servers.real, servers.ours, updates)
    finally:
        for server in both:
            delete_valid_objects(server, valid)
    for comparison in (created, updated):
        comparison.differences = [d for d in comparison.differences if not same_but_for_order(d.real, d.ours)]
        assert not comparison.differences, comparison.report()
    assert created.accepted


# --- controllers ------------------------------------------------------------------------------------------------------

_X = "/apis/scheduling.k8s.io/v1alpha2/namespaces/x"
_X_JOBS, _X_PODS = "/apis/batch/v1/namespaces/x/jobs", "/api/v1/namespaces/x/pods"
_X_CLAIMS, _X_TEMPLATES = (
    f"/apis/resource.k8s.io/v1/namespaces/x/{plural}" for plural in ("resourceclaims", "resourceclaimtemplates")
)


class GangCluster(ComparedCluster):
    """User and kubelet of one cluster."""

    def __init__(self, server: RealApiServer) -> None:
        super().__init__(server, (_X_JOBS, _X_PODS, f"{_X}/workloads", f"{_X}/podgroups", _X_CLAIMS))

    def run(self) -> JSON:
        request = self.server.request
        request("POST", _X_JOBS, job("train"))
        request("POST", _X_JOBS, {**job("single"), "spec": {**job("single")["spec"], "completionMode": "NonIndexed"}})
        request("POST", _X_TEMPLATES, {"metadata": {"name": "gpus"}, "spec": {"spec": {"devices": {}}}})
        entry = {"name": "gpu", "resourceClaimTemplateName": "gpus"}
        request("POST", f"{_X}/podgroups", group("sharing", resourceClaims=[entry]))
        request("POST", f"{_X}/podgroups", group("unused"))
        # one claim per pod: kube-controller-manager records those of two entries in turns, without end
        for name, claim in (("a", entry), ("b", entry), ("c", {**entry, "name": "own"})):
            body = pod(name, schedulingGroup={"podGroupName": "sharing"}, resourceClaims=[claim])
            request("POST", _X_PODS, body)
        self.settle()
        first = self._state()
        for name in ("sharing", "unused"):
            request("DELETE", f"{_X}/podgroups/{name}")
        for name in ("a", "c"):
            request("DELETE", f"{_X_PODS}/{name}?gracePeriodSeconds=0")
        self.settle()
        in_use = self._names(f"{_X}/podgroups")
        self.patch(f"{_X_PODS}/b/status", status={"phase": "Succeeded"})
        request("DELETE", f"{_X_JOBS}/train?propagationPolicy=Background")
        self.settle()
        return {"first": first, "in use": in_use, "last": self._state(), "events": _without_hashes(self.events())}

    def _names(self, path: str) -> list[str]:
        return sorted(self._named(obj)["metadata"]["name"] for obj in self.objects(path))

    def _named(self, obj: JSON) -> JSON:
        """Return the object without the hashes of UIDs in its names and references."""
        named: JSON = stable(obj)
        return comparable(_without_hashes(named))

    def _state(self) -> JSON:
        paths = (f"{_X}/workloads", f"{_X}/podgroups", _X_PODS, _X_CLAIMS)
        return {
            path: sorted((self._named(obj) for obj in self.objects(path)), key=lambda obj: obj["metadata"]["name"])
            for path in paths
        }


def _without_hashes(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_hashes(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_hashes(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"train-[a-z0-9]{6,10}(-train-pgt-0-[a-z0-9]{6,10})?", "train-HASH", value)
    return value


def test_controllers_match_kube_controller_manager(tmp_path):
    names = (
        "job-controller",
        "podgroup-protection-controller",
        "resourceclaim-controller",
        "garbage-collector-controller",
    )
    controllers = ",".join(names)
    state = assert_same_state(
        tmp_path,
        (controllers, controllers),
        lambda server: GangCluster(server).run(),
        feature_gates=gang_scheduling_text(),
        flags=FLAGS,
    )
    assert len(state["first"][f"{_X}/podgroups"]) == 3
    assert state["in use"] == ["sharing", "train-HASH"]
