"""ResourceQuota admission: usage charged to quotas, and exceeded quotas."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.admission.resource_quota import charge
from kubeloop.devcluster.api.errors import StatusError
from kubeloop.kube.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES

JSON = dict[str, Any]


def quota(hard: JSON, used: JSON | None = None, **spec: Any) -> JSON:
    zero = dict.fromkeys(hard, "0")
    return {
        "metadata": {"name": "q"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": zero if used is None else used},
    }


def pod(*resources: JSON, **spec: Any) -> JSON:
    containers = [{"name": f"c{i}", "image": "i", "resources": amounts} for i, amounts in enumerate(resources or ({},))]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


def scope_selector(name: str, operator: str, *values: str) -> JSON:
    return {"scopeSelector": {"matchExpressions": [{"scopeName": name, "operator": operator, "values": values}]}}


CPU = {"requests": {"cpu": "1"}}
EXCEEDED = "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0"


@pytest.mark.parametrize(
    ("limit", "new", "detail"),
    [
        pytest.param(
            quota({"requests.cpu": "9"}),
            pod(CPU, {}),
            "failed quota: q: must specify requests.cpu for: c1",
            id="container without a request",
        ),
        pytest.param(quota({"requests.cpu": "9"}), pod(resources=CPU), "", id="pod-level request"),
        pytest.param(
            quota({"pods": "0"}, **scope_selector("PriorityClass", "In", "low")),
            pod(priorityClassName="high"),
            "",
            id="other priority class",
        ),
        pytest.param(
            quota({"pods": "0"}, **scope_selector("PriorityClass", "In", "high")),
            pod(priorityClassName="high"),
            EXCEEDED,
            id="selected priority class",
        ),
        pytest.param(
            quota({"pods": "0"}, **scope_selector("PriorityClass", "DoesNotExist")),
            pod(),
            EXCEEDED,
            id="no priority class",
        ),
        pytest.param(quota({"pods": "0"}, scopes=["BestEffort"]), pod(), EXCEEDED, id="best-effort pod"),
        pytest.param(
            quota({"pods": "0"}, scopes=["BestEffort"]), pod(CPU), "", id="pod with a request is not best-effort"
        ),
        pytest.param(
            quota({"pods": "0"}, scopes=["Terminating"]), pod(activeDeadlineSeconds=1), EXCEEDED, id="terminating pod"
        ),
        pytest.param(
            quota({"pods": "0"}, scopes=["NotTerminating"]),
            pod(activeDeadlineSeconds=1),
            "",
            id="terminating pod in another scope",
        ),
        pytest.param(
            quota({"pods": "1", "cpu": "1"}, {"pods": "0"}),
            pod(CPU),
            "status unknown for quota: q, resources: cpu,pods",
            id="unknown usage",
        ),
        pytest.param(
            quota({"requests.a.b/c": "1"}),
            pod({"requests": {"a.b/c": "2"}}),
            "exceeded quota: q, requested: requests.a.b/c=2, used: requests.a.b/c=0, limited: requests.a.b/c=1",
            id="extended resource",
        ),
        pytest.param(quota({"services": "0"}), pod(), "", id="quota of another resource"),
    ],
)
def test_new_pod_is_charged_to_the_quotas_whose_scopes_match(limit: JSON, new: JSON, detail: str):
    if not detail:
        charge([limit], PODS, new)
        return
    with pytest.raises(StatusError) as raised:
        charge([limit], PODS, new)
    assert raised.value.message == f'pods "p" is forbidden: {detail}'


def claim(size: str, **spec: Any) -> JSON:
    return {"metadata": {"name": "c"}, "spec": {"resources": {"requests": {"storage": size}}, **spec}}


def service(kind: str, ports: int = 1) -> JSON:
    return {"metadata": {"name": "s"}, "spec": {"type": kind, "ports": [{"port": i} for i in range(ports)]}}


@pytest.mark.parametrize(
    ("resource", "old", "new", "hard", "used"),
    [
        pytest.param(
            PERSISTENT_VOLUME_CLAIMS,
            claim("1Gi"),
            claim("3Gi"),
            {"requests.storage": "9Gi"},
            {"requests.storage": "2Gi"},
            id="claim grows",
        ),
        pytest.param(
            PERSISTENT_VOLUME_CLAIMS, claim("3Gi"), claim("1Gi"), {"requests.storage": "9Gi"}, None, id="claim shrinks"
        ),
        pytest.param(
            PERSISTENT_VOLUME_CLAIMS,
            None,
            claim("1Gi", storageClassName="x"),
            {"x.storageclass.storage.k8s.io/persistentvolumeclaims": "2", "count/persistentvolumeclaims": "2"},
            {"x.storageclass.storage.k8s.io/persistentvolumeclaims": "1", "count/persistentvolumeclaims": "1"},
            id="claim of a storage class",
        ),
        pytest.param(
            SERVICES,
            service("ClusterIP"),
            service("NodePort", 2),
            {"services.nodeports": "2"},
            {"services.nodeports": "2"},
            id="service gets node ports",
        ),
        pytest.param(
            SERVICES,
            service("NodePort"),
            service("LoadBalancer"),
            {"services": "1", "services.nodeports": "1", "services.loadbalancers": "1"},
            {"services": "0", "services.nodeports": "0", "services.loadbalancers": "1"},
            id="NodePort becomes LoadBalancer",
        ),
        pytest.param(
            SERVICES,
            service("LoadBalancer"),
            service("ClusterIP"),
            {"services.loadbalancers": "1"},
            None,
            id="LoadBalancer becomes ClusterIP",
        ),
    ],
)
def test_update_is_charged_for_its_increase(resource: Any, old: JSON | None, new: JSON, hard: JSON, used: JSON | None):
    charged = charge([quota(hard)], resource, new, old)
    assert [charged_quota["status"]["used"] for charged_quota in charged] == ([] if used is None else [used])


def test_resize_is_charged_beyond_the_larger_of_spec_and_status():
    running = {"containerStatuses": [{"name": "c0", "resources": {"requests": {"cpu": "3"}}}]}
    old, new = {**pod(CPU), "status": running}, {**pod({"requests": {"cpu": "5"}}), "status": running}
    charged = charge([quota({"cpu": "9"})], PODS, new, old, "resize")
    assert charged[0]["status"]["used"] == {"cpu": "2"}
