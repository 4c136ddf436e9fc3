"""Device taints beside Kubernetes: evictions by kube-controller-manager, and DeviceTaintRules of kube-apiserver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.apiserver.api_response import ApiResponse
from support.apiserver.http_api import JSON_TYPE, server_pair
from support.comparison.compared_clusters import MERGE_PATCH, ComparedCluster, assert_same_state, stable
from support.comparison.differential import comparable
from support.comparison.real_apiserver import RealApiServer
from support.objects.resource_claims import claim_spec

JSON = dict[str, Any]
CONTROLLER = ("device-taint-eviction-controller", "device-taint-eviction-controller")
GATES = "DRADeviceTaintRules=true"
SERVES_RULES = {"runtime-config": "resource.k8s.io/v1beta2/devicetaintrules=true"}
PODS = "/api/v1/namespaces/x/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/x/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
DRIVER = "gpu.example.com"
TAINT = {"key": "example.com/broken", "effect": "NoExecute"}


def toleration(seconds: int) -> JSON:
    return {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}


class TaintedCluster(ComparedCluster):
    """User, DRA driver, scheduler and kubelet of one cluster."""

    def publish(self, pool: str, *taints: JSON, **fields: Any) -> None:
        """Create or replace the slice of a pool with one device, "gpu"."""
        spec = {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
            "devices": [{"name": "gpu", "taints": list(taints)}],
        }
        if any(it["metadata"]["name"] == pool for it in self.objects(SLICES)):
            self.patch(f"{SLICES}/{pool}", spec=spec)
        else:
            self.server.request("POST", SLICES, {"metadata": {"name": pool}, "spec": spec})

    def start_pod(self, name: str, pool: str, *tolerations: JSON, bound: bool = True) -> None:
        """Create a pod whose claim, of the same name, has the device of the pool and is reserved for the pod."""
        spec: JSON = {
            "containers": [{"name": "main", "image": "app:1"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "terminationGracePeriodSeconds": 0,
            **({"nodeName": "n"} if bound else {}),
        }
        pod = self.server.request("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        self.server.request("POST", CLAIMS, {"metadata": {"name": name}, "spec": claim_spec()})
        result = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": "gpu", "tolerations": list(tolerations)}
        reserved = [{"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}]
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
        self.server.request("PATCH", f"{CLAIMS}/{name}/status", {"status": status}, content_type=MERGE_PATCH)

    def pods(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.objects(PODS))

    def pod_versions(self) -> dict[str, list[JSON]]:
        """Return each change of each pod, by name."""
        versions: dict[str, list[JSON]] = {}
        for type_, pod in self.versions(PODS):
            versions.setdefault(pod["metadata"]["name"], []).append({"type": type_, "pod": stable(pod)})
        return versions

    def wait_for_pods(self, *names: str) -> None:
        self.wait(lambda: self.pods() == sorted(names), f"pods {names}, but {self.pods()} exist")

    def wait_for_reason(self, rule: str, reason: str) -> None:
        """Wait for the condition of a rule; its updates are 10 seconds apart."""
        self.wait(lambda: self.reasons(rule) == [reason], f"rule {rule} {reason}, but it is {self.reasons(rule)}")

    def reasons(self, rule: str) -> list[str]:
        status = self.server.request("GET", f"{RULES}/{rule}").get("status", {})
        return [condition["reason"] for condition in status.get("conditions", ())]


def evictions(server: RealApiServer) -> JSON:
    cluster = TaintedCluster(server, (PODS,))
    for pool in ("a", "b", "c"):
        cluster.publish(pool)
    cluster.start_pod("evicted", "a")
    cluster.start_pod("short", "a", toleration(3))
    cluster.start_pod("long", "a", toleration(3600))
    cluster.start_pod("tolerant", "a", {"operator": "Exists", "effect": "NoExecute"})
    cluster.start_pod("unbound", "a", bound=False)
    cluster.start_pod("other", "b")
    cluster.publish("a", TAINT, {"key": "example.com/cordoned", "effect": "NoSchedule"})
    cluster.wait_for_pods("long", "tolerant", "unbound", "other")
    cluster.publish("a")
    cluster.wait(lambda: any("Cancelling" in event for event in cluster.events()), "cancelled eviction")
    cluster.settle()
    return {"events": cluster.events(), "pods": cluster.pod_versions()}


def rules(server: RealApiServer) -> JSON:
    cluster = TaintedCluster(server, (PODS, RULES))
    for pool in ("a", "b"):
        cluster.publish(pool)
    cluster.start_pod("first", "a")
    cluster.start_pod("second", "a", toleration(3600))
    cluster.start_pod("other", "b")
    rule = {"deviceSelector": {"driver": DRIVER, "pool": "a"}, "taint": {**TAINT, "effect": "None"}}
    server.request("POST", RULES, {"metadata": {"name": "broken"}, "spec": rule})
    cluster.wait_for_reason("broken", "NoEffect")
    cluster.patch(f"{RULES}/broken", spec={"taint": {"effect": "NoExecute"}})
    cluster.wait_for_pods("second", "other")
    server.request("DELETE", f"{PODS}/second")
    cluster.wait_for_reason("broken", "Completed")
    server.request(
        "POST", RULES, {"metadata": {"name": "cordoned"}, "spec": {"taint": {**TAINT, "effect": "NoSchedule"}}}
    )
    server.request(
        "POST", RULES, {"metadata": {"name": "unused"}, "spec": {"deviceSelector": {"driver": "x"}, "taint": TAINT}}
    )
    cluster.wait_for_reason("cordoned", "OtherEffect")
    cluster.wait_for_reason("unused", "NotStarted")
    cluster.settle()
    states = {name: [] for name in ("broken", "cordoned", "unused")}
    for _, state in cluster.versions(RULES):
        managers = [
            (it["manager"], it["operation"]) for it in state["metadata"]["managedFields"] if "subresource" in it
        ]
        conditions = stable(state.get("status", {}).get("conditions", ()))
        if (entry := (conditions, managers)) not in states[state["metadata"]["name"]]:
            states[state["metadata"]["name"]].append(entry)
    return {"events": cluster.events(), "pods": cluster.pod_versions(), "rules": states}


def test_evictions_match_kube_controller_manager(tmp_path: Path):
    state = assert_same_state(tmp_path, CONTROLLER, evictions)
    assert len([event for event in state["events"] if "Marking" in event]) == 2


def test_rules_match_kube_controller_manager(tmp_path: Path):
    state = assert_same_state(tmp_path, CONTROLLER, rules, feature_gates=GATES, flags=SERVES_RULES)
    assert len(state["rules"]["broken"]) >= 4


# --- API --------------------------------------------------------------------------------------------------------------

SPEC: JSON = {"deviceSelector": {"driver": DRIVER, "pool": "node-0/large", "device": "gpu"}, "taint": TAINT}
CONDITION = {"type": "X", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-03-01T00:00:00Z"}
RULE, STATUS = f"{RULES}/broken", f"{RULES}/broken/status"
APPLY = "application/apply-patch+yaml"
HEAD = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "broken"}}
REQUESTS: tuple[tuple[str, str, JSON | None, str], ...] = (
    ("GET", "/apis/resource.k8s.io/v1beta2", None, ""),
    ("GET", "/apis/resource.k8s.io", None, ""),
    ("POST", RULES, {"metadata": {"name": "a"}, "spec": {}}, ""),
    ("POST", RULES, {"metadata": {"name": "a"}, "spec": {"taint": {"key": "", "value": "-", "effect": "X"}}}, ""),
    (
        "POST",
        RULES,
        {"metadata": {"name": "a"}, "spec": {**SPEC, "deviceSelector": {"pool": "a//B", "device": "A"}}},
        "",
    ),
    (
        "POST",
        RULES,
        {"metadata": {"name": "a"}, "spec": {**SPEC, "deviceSelector": {"driver": "x" * 64, "pool": ""}}},
        "",
    ),
    ("POST", RULES, {"metadata": {"name": "broken"}, "spec": SPEC, "status": {"conditions": [CONDITION]}}, ""),
    ("PATCH", RULE, {"spec": {"taint": {"effect": "NoSchedule"}}}, MERGE_PATCH),
    ("PATCH", RULE, {"spec": {"taint": {"effect": "Y"}}}, MERGE_PATCH),
    ("PATCH", RULE, {"status": {"conditions": [CONDITION]}}, MERGE_PATCH),
    ("PATCH", STATUS, {"metadata": {"labels": {"a": "b"}}, "status": {"conditions": [CONDITION]}}, MERGE_PATCH),
    (
        "PATCH",
        STATUS,
        {"spec": {"taint": {"key": "k"}}, "status": {"conditions": [{**CONDITION, "reason": ""}]}},
        MERGE_PATCH,
    ),
    ("PATCH", STATUS, {"status": {"conditions": [{**CONDITION, "type": f"t{i}"} for i in range(9)]}}, MERGE_PATCH),
    ("PATCH", f"{STATUS}?fieldManager=m", {**HEAD, "status": {"conditions": [{**CONDITION, "type": "Y"}]}}, APPLY),
    (
        "PATCH",
        f"{RULE}?fieldManager=n",
        {**HEAD, "spec": {"deviceSelector": {}, "taint": {**TAINT, "key": "new"}}},
        APPLY,
    ),
    ("GET", RULE, None, ""),
    ("DELETE", RULE, None, ""),
    ("GET", RULE, None, ""),
)


def without_times(value: Any) -> Any:
    """Return the value without times, and with the owned fields of the managers."""
    if isinstance(value, dict):
        return {name: without_times(inner) for name, inner in value.items() if name not in ("timeAdded", "time")}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def owners(response: ApiResponse) -> Any:
    if not isinstance(response.content, dict):
        return None
    entries = response.content.get("metadata", {}).get("managedFields", ())
    return [(it["manager"], it["operation"], it.get("subresource"), it["fieldsV1"]) for it in entries]


def test_requests_match_kube_apiserver(tmp_path: Path):
    with server_pair(tmp_path, {"feature-gates": GATES, **SERVES_RULES}) as servers:
        for method, path, body, content_type in REQUESTS:
            real, ours = (
                server.request(method, path, body, content_type or JSON_TYPE) for server in (servers.real, servers.ours)
            )
            about = f"{method} {path} {json.dumps(body)}"
            assert without_times(comparable(ours)) == without_times(comparable(real)), about
            assert owners(ours) == owners(real), about


@pytest.mark.parametrize("path", ["/apis/resource.k8s.io/v1beta2", RULES])
def test_rules_are_not_served_without_their_gate(tmp_path: Path, path: str):
    with server_pair(tmp_path) as servers:
        real, ours = (servers.real.request("GET", path), servers.ours.request("GET", path))
    assert comparable(ours) == comparable(real)
