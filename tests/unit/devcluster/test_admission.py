"""LimitRanges, quotas, priorities and default classes: what is filled in, what is refused, in which order."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.resource_quota import charge
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES
from support.api_requests import InProcessApi

JSON = dict[str, Any]
CORE = "/api/v1/namespaces/default"


def quota(hard: JSON, used: JSON | None = None, **spec: Any) -> JSON:
    nothing = dict.fromkeys(hard, "0")
    return {
        "metadata": {"name": "q"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": nothing if used is None else used},
    }


def pod(*resources: JSON, **spec: Any) -> JSON:
    containers = [{"name": f"c{i}", "image": "i", "resources": each} for i, each in enumerate(resources or ({},))]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


def in_scope(name: str, operator: str, *values: str) -> JSON:
    return {"scopeSelector": {"matchExpressions": [{"scopeName": name, "operator": operator, "values": values}]}}


CPU = {"requests": {"cpu": "1"}}
EXCEEDED = "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0"


@pytest.mark.parametrize(
    ("limit", "new", "why"),
    [
        (quota({"requests.cpu": "9"}), pod(CPU, {}), "failed quota: q: must specify requests.cpu for: c1"),
        (quota({"requests.cpu": "9"}), pod(resources=CPU), ""),
        (quota({"pods": "0"}, **in_scope("PriorityClass", "In", "low")), pod(priorityClassName="high"), ""),
        (quota({"pods": "0"}, **in_scope("PriorityClass", "In", "high")), pod(priorityClassName="high"), EXCEEDED),
        (quota({"pods": "0"}, **in_scope("PriorityClass", "DoesNotExist")), pod(), EXCEEDED),
        (quota({"pods": "0"}, scopes=["BestEffort"]), pod(), EXCEEDED),
        (quota({"pods": "0"}, scopes=["BestEffort"]), pod(CPU), ""),
        (quota({"pods": "0"}, scopes=["Terminating"]), pod(activeDeadlineSeconds=1), EXCEEDED),
        (quota({"pods": "0"}, scopes=["NotTerminating"]), pod(activeDeadlineSeconds=1), ""),
        (quota({"pods": "1", "cpu": "1"}, {"pods": "0"}), pod(CPU),
            "status unknown for quota: q, resources: cpu,pods"),
        (quota({"requests.a.b/c": "1"}), pod({"requests": {"a.b/c": "2"}}),
            "exceeded quota: q, requested: requests.a.b/c=2, used: requests.a.b/c=0, limited: requests.a.b/c=1"),
        (quota({"services": "0"}), pod(), ""),
    ],
)  # fmt: skip
def test_a_quota_asks_every_container_and_counts_what_its_scope_selects(limit: JSON, new: JSON, why: str):
    if not why:
        charge([limit], PODS, new)
        return
    with pytest.raises(StatusError) as refused:
        charge([limit], PODS, new)
    assert refused.value.message == f'pods "p" is forbidden: {why}'


def claim(size: str, **spec: Any) -> JSON:
    return {"metadata": {"name": "c"}, "spec": {"resources": {"requests": {"storage": size}}, **spec}}


def service(kind: str, ports: int = 1) -> JSON:
    return {"metadata": {"name": "s"}, "spec": {"type": kind, "ports": [{"port": i} for i in range(ports)]}}


@pytest.mark.parametrize(
    ("resource", "old", "new", "hard", "used"),
    [
        (PERSISTENT_VOLUME_CLAIMS, claim("1Gi"), claim("3Gi"), {"requests.storage": "9Gi"},
            {"requests.storage": "2Gi"}),
        (PERSISTENT_VOLUME_CLAIMS, claim("3Gi"), claim("1Gi"), {"requests.storage": "9Gi"}, None),
        (PERSISTENT_VOLUME_CLAIMS, None, claim("1Gi", storageClassName="x"),
            {"x.storageclass.storage.k8s.io/persistentvolumeclaims": "2", "count/persistentvolumeclaims": "2"},
            {"x.storageclass.storage.k8s.io/persistentvolumeclaims": "1", "count/persistentvolumeclaims": "1"}),
        (SERVICES, service("ClusterIP"), service("NodePort", 2), {"services.nodeports": "2"},
            {"services.nodeports": "2"}),
        (SERVICES, service("NodePort"), service("LoadBalancer"),
            {"services": "1", "services.nodeports": "1", "services.loadbalancers": "1"},
            {"services": "0", "services.nodeports": "0", "services.loadbalancers": "1"}),
        (SERVICES, service("LoadBalancer"), service("ClusterIP"), {"services.loadbalancers": "1"}, None),
    ],
)  # fmt: skip
def test_an_update_is_charged_for_what_it_needs_beyond_the_version_before(
    resource: Any, old: JSON | None, new: JSON, hard: JSON, used: JSON | None
):
    counted = charge([quota(hard)], resource, new, old)
    assert [each["status"]["used"] for each in counted] == ([] if used is None else [used])


def test_a_resize_is_charged_for_the_more_of_what_is_asked_and_what_is_there():
    running = {"containerStatuses": [{"name": "c0", "resources": {"requests": {"cpu": "3"}}}]}
    old, new = {**pod(CPU), "status": running}, {**pod({"requests": {"cpu": "5"}}), "status": running}
    counted = charge([quota({"cpu": "9"})], PODS, new, old, "resize")
    assert counted[0]["status"]["used"] == {"cpu": "2"}


async def limited(limits: list[JSON], *pods: JSON) -> list[tuple[int, Any]]:
    """The status and, of a refusal, what is said after "is forbidden: ", or the pod."""
    api, result = InProcessApi(), []
    api("POST", f"{CORE}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    for each in pods:
        code, body = api("POST", f"{CORE}/pods", each)
        result.append((code, body if code < 300 else body["message"].partition(" is forbidden: ")[2]))
    return result


async def test_a_limit_too_large_for_an_int64_counts_as_none_in_a_ratio():
    limits = [{"type": "Container", "maxLimitRequestRatio": {"memory": "2"}}]
    ((_, told),) = await limited(limits, pod({"limits": {"memory": "10E"}, "requests": {"memory": "1Gi"}}))
    assert told.endswith("per Container is 2, but no limit is specified or limit is 0")


async def test_limits_are_filled_in_before_a_pod_is_looked_at_and_bounds_come_afterwards():
    limits = [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}, "max": {"cpu": "2"},
               "min": {"cpu": "100m"}, "maxLimitRequestRatio": {"cpu": "4"}}]  # fmt: skip
    big, small = {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}, {"requests": {"cpu": "50m"}}
    wrong = pod(big, restartPolicy="Sometimes")
    answers = await limited(limits, pod({}), pod(big), pod(small), pod(big, small), wrong)
    made = answers[0][1]
    assert made["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}
    assert made["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container c0; cpu limit for container c0"
    }
    most = "maximum cpu usage per Container is 2, but limit is 3"
    least = "minimum cpu usage per Container is 100m, but request is 50m"
    ratio = "cpu max limit to request ratio per Container is 4, but provided ratio is 20.000000"
    assert answers[1:4] == [(403, most), (403, f"[{least}, {ratio}]"), (403, f"[{most}, {least}, {ratio}]")]
    assert answers[4][0] == 422


async def test_a_pod_as_a_whole_is_held_to_its_bounds_without_its_overhead():
    limits = [{"type": "Pod", "max": {"memory": "2Gi"}}]
    part = {"limits": {"memory": "1Gi"}}
    answers = await limited(limits, pod(part, part), pod(part, part, part))
    assert [answers[0][0], answers[1]] == [201, (403, "maximum memory usage per Pod is 2Gi, but limit is 3Gi")]


async def test_a_claim_grows_only_when_it_is_bound_and_its_class_lets_it():
    api, path = InProcessApi(), f"{CORE}/persistentvolumeclaims"
    made = {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "x"}}
    sizes = iter(("1Gi", "2Gi", "3Gi", "9Gi", "4Gi"))

    async def write(method: str, target: str) -> str:
        body = {**made, "spec": {**made["spec"], "resources": {"requests": {"storage": next(sizes)}}}}
        if method == "PUT":
            body["spec"] = {**api("GET", target)[1]["spec"], **body["spec"]}
        code, answer = api(method, target, body)
        return "" if code < 300 else answer["message"].partition(": ")[2]

    assert await write("POST", path) == ""
    assert (await write("PUT", f"{path}/c")).startswith("spec: Forbidden: spec is immutable after creation except")
    api("PUT", f"{path}/c/status", {**made, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
    assert (await write("PUT", f"{path}/c")).startswith("only dynamically provisioned pvc can be resized and the")
    expanding = {"metadata": {"name": "x"}, "provisioner": "a.b/c", "allowVolumeExpansion": True}
    api("POST", "/apis/storage.k8s.io/v1/storageclasses", expanding)
    bounds = [{"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}}]
    api("POST", f"{CORE}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": bounds}})
    most = "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 9Gi"
    assert await write("PUT", f"{path}/c") == most
    assert await write("PUT", f"{path}/c") == ""


async def test_an_ingress_gets_the_newest_default_class_unless_it_has_one():
    api, path = InProcessApi(), "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
    marked = {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}
    for name in ("b", "a"):
        body = {"metadata": {"name": name, **marked}, "spec": {"controller": "a.b/c"}}
        api("POST", "/apis/networking.k8s.io/v1/ingressclasses", body)
    spec = {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}
    classes = []
    for i, more in enumerate(({}, {"annotations": {"kubernetes.io/ingress.class": "x"}})):
        _, made = api("POST", path, {"metadata": {"name": f"i{i}", **more}, "spec": spec})
        classes.append(made["spec"].get("ingressClassName"))
    assert classes == ["a", None]


async def test_there_is_one_default_priority_whichever_way_a_second_is_made():
    api, path = InProcessApi(), "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, default in (("a", True), ("b", False)):
        api("POST", path, {"metadata": {"name": name}, "value": 1, "globalDefault": default})
    second = "is forbidden: PriorityClass a is already marked as default. Only one default can exist"
    again = api("POST", path, {"metadata": {"name": "c"}, "value": 1, "globalDefault": True})
    other = api("PUT", f"{path}/b", {"metadata": {"name": "b"}, "value": 1, "globalDefault": True})
    assert [again[0], other[0]] == [403, 403]
    assert all(body["message"].endswith(second) for _, body in (again, other))
    body = {"metadata": {"generateName": "g-"}, "spec": {**pod()["spec"], "priorityClassName": "none"}}
    _, refused = api("POST", f"{CORE}/pods", body)
    assert refused["message"] == 'pods "g-" is forbidden: no PriorityClass with name none was found'


async def test_what_is_left_of_a_namespace_that_is_gone_is_not_written_any_more():
    api, path = InProcessApi(), "/api/v1/namespaces/n"
    api("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    api("POST", f"{path}/configmaps", {"metadata": {"name": "a"}})
    api("DELETE", path)
    assert api("PUT", f"{path}/configmaps/a", {"metadata": {"name": "a"}})[0] == 200
    api("PUT", f"{path}/finalize", {"metadata": {"name": "n"}, "spec": {}})
    code, refused = api("PUT", f"{path}/configmaps/a", {"metadata": {"name": "a"}})
    assert (code, refused["message"]) == (404, 'namespaces "n" not found')
    assert api("DELETE", f"{path}/configmaps/a")[0] == 200


async def test_labels_of_pod_security_say_something_known():
    api, key = InProcessApi(), "pod-security.kubernetes.io/enforce"
    good, bad = {key: "baseline", f"{key}-version": "v1.36"}, {key: "strict", f"{key}-version": "1"}
    wrong = [
        f'metadata.labels[{key}]: Invalid value: "strict": must be one of privileged, baseline, restricted',
        f'metadata.labels[{key}-version]: Invalid value: "1": must be "latest" or "v1.x"',
    ]
    assert api("POST", "/api/v1/namespaces", {"metadata": {"name": "n", "labels": good}})[0] == 201
    for method, name in (("POST", ""), ("PUT", "/n")):
        code, body = api(method, f"/api/v1/namespaces{name}", {"metadata": {"name": "n", "labels": bad}})
        assert code == 422
        assert [f"{each['field']}: {each['message']}" for each in body["details"]["causes"]] == wrong
