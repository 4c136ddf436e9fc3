"""Default values per kind; and label keys that are merged into selectors."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import (
    BY_PATH,
    CRON_JOBS,
    JOBS,
    LIMIT_RANGES,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
)
from kubeloop.devcluster.kinds.core.match_label_keys import merge_match_label_keys
from kubeloop.devcluster.serializer.decoding import decode
from kubeloop.devcluster.serializer.defaulting import apply_defaults, apply_time_defaults, image_pull_policy
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects import resources
from kubeloop.kube.objects.resources import DAEMON_SETS, Resource

TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}
POD_SPEC = {
    "containers": [
        {
            "name": "c",
            "image": "nginx:1",
            "imagePullPolicy": "IfNotPresent",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
    ],
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}


def defaulted(resource: Resource[Any], **parts: Any) -> JSON:
    obj, strict = decode(resource, {"metadata": {"name": "x"}, **parts})
    assert strict == []
    apply_defaults(resource, obj)
    return obj


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.25", "IfNotPresent"),
        ("reg:5000/nginx", "Always"),
        ("reg:5000/nginx:v1", "IfNotPresent"),
        ("nginx@sha256:" + "a" * 64, "IfNotPresent"),
        ("", "IfNotPresent"),
        ("Not An Image", "IfNotPresent"),
    ],
)
def test_image_pull_policy(image, policy):
    assert image_pull_policy(image) == policy


def test_enable_service_links_is_defaulted_for_pods_only():
    assert defaulted(resources.PODS, **TEMPLATE)["spec"] == {**POD_SPEC, "enableServiceLinks": True}
    spec = defaulted(resources.REPLICA_SETS, spec={"selector": {}, "template": TEMPLATE})["spec"]
    assert spec["template"]["spec"] == POD_SPEC
    assert spec["replicas"] == 1


def test_requests_default_to_limits():
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"},
                                                          "requests": {"cpu": "0.5"}}}  # fmt: skip
    pod = defaulted(resources.PODS, spec={"containers": [container]})
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_host_ports_default_to_container_ports_on_the_host_network():
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80}]}
    pod = defaulted(resources.PODS, spec={"hostNetwork": True, "containers": [container]})
    assert pod["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]


def test_defaults_of_probes_and_environment():
    container = {
        "name": "c",
        "image": "i",
        "livenessProbe": {"httpGet": {"port": 80}},
        "readinessProbe": {"grpc": {"port": 80}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    defaulted_container = defaulted(resources.PODS, spec={"containers": [container]})["spec"]["containers"][0]
    numbers = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert defaulted_container["livenessProbe"] == {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, **numbers}
    assert defaulted_container["readinessProbe"] == {"grpc": {"port": 80, "service": ""}, **numbers}
    assert defaulted_container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param({}, {"emptyDir": {}}, id="only a name"),
        pytest.param({"secret": {"secretName": "s"}}, {"secret": {"secretName": "s", "defaultMode": 420}}, id="secret"),
        pytest.param({"hostPath": {"path": "/"}}, {"hostPath": {"path": "/", "type": ""}}, id="host path"),
        pytest.param(
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {"projected": {"defaultMode": 420,
                           "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}},
            id="projected",
        ),
    ],
)  # fmt: skip
def test_defaults_of_volumes(source, expected):
    spec = {"containers": [], "volumes": [{"name": "v", **source}]}
    assert defaulted(resources.PODS, spec=spec)["spec"]["volumes"] == [{"name": "v", **expected}]


def test_deployment_defaults():
    spec = defaulted(resources.DEPLOYMENTS, spec={"selector": {}, "template": TEMPLATE})["spec"]
    del spec["template"], spec["selector"]
    assert spec == {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
    }


def test_zero_replicas_are_kept():
    spec = defaulted(resources.DEPLOYMENTS, spec={"replicas": 0, "selector": {}, "template": TEMPLATE})["spec"]
    assert spec["replicas"] == 0


def test_defaults_of_other_workloads():
    spec = defaulted(resources.STATEFUL_SETS, spec={"selector": {}, "template": TEMPLATE})["spec"]
    assert spec["podManagementPolicy"] == "OrderedReady"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    spec = defaulted(DAEMON_SETS, spec={"selector": {}, "template": TEMPLATE})["spec"]
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    spec = defaulted(JOBS, spec={"template": TEMPLATE})["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 6)
    spec = defaulted(CRON_JOBS, spec={"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}})["spec"]
    assert (spec["concurrencyPolicy"], spec["successfulJobsHistoryLimit"]) == ("Allow", 3)
    assert spec["jobTemplate"]["spec"]["template"]["spec"] == POD_SPEC


def test_replication_controller_labels_default_to_the_template():
    obj = defaulted(resources.REPLICATION_CONTROLLERS, spec={"template": TEMPLATE})
    assert obj["spec"]["selector"] == obj["metadata"]["labels"] == {"app": "a"}


def test_secret_string_data_is_merged_into_data():
    obj = defaulted(resources.SECRETS, data={"k": "dg=="}, stringData={"t": "text"})
    assert obj["data"] == {"k": "dg==", "t": "dGV4dA=="}
    assert "stringData" not in obj
    assert obj["type"] == "Opaque"


def test_service_defaults():
    spec = defaulted(resources.SERVICES, spec={"ports": [{"port": 80}], "type": "NodePort"})["spec"]
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (spec["sessionAffinity"], spec["externalTrafficPolicy"], spec["internalTrafficPolicy"]) == (
        "None",
        "Cluster",
        "Cluster",
    )


def test_limit_range_defaults_come_from_max_and_min():
    item = {"type": "Container", "default": {"cpu": "500m"}, "max": {"memory": "1Gi"}}
    limit = defaulted(LIMIT_RANGES, spec={"limits": [item]})["spec"]["limits"][0]
    assert limit["default"] == limit["defaultRequest"] == {"cpu": "500m", "memory": "1Gi"}


def test_defaults_of_nodes_network_policies_and_role_bindings():
    node = defaulted(resources.NODES, spec={"podCIDR": "10.1.0.0/24"}, status={"capacity": {"cpu": "4"}})
    assert node["status"]["allocatable"] == {"cpu": "4"}
    assert node["spec"]["podCIDRs"] == ["10.1.0.0/24"]
    assert defaulted(NETWORK_POLICIES, spec={"egress": [{}]})["spec"]["policyTypes"] == ["Ingress", "Egress"]
    binding = defaulted(ROLE_BINDINGS, roleRef={"kind": "Role", "name": "r"}, subjects=[{"kind": "User", "name": "u"}])
    assert binding["roleRef"]["apiGroup"] == binding["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"


def test_device_requests_default_to_one_device():
    one = {"allocationMode": "ExactCount", "count": 1}
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "c"}},
        {"name": "b", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
        {"name": "d", "firstAvailable": [{"name": "s", "deviceClassName": "c", "count": 2}]},
    ]
    expected = [
        {"name": "a", "exactly": {"deviceClassName": "c", **one}},
        {"name": "b", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
        {"name": "d", "firstAvailable": [{"name": "s", "deviceClassName": "c", **one, "count": 2}]},
    ]
    spec = {"devices": {"requests": requests}}
    claims = BY_PATH["resource.k8s.io", "v1", "resourceclaims"].resource
    templates = BY_PATH["resource.k8s.io", "v1", "resourceclaimtemplates"].resource
    assert defaulted(claims, spec=spec)["spec"]["devices"]["requests"] == expected
    assert defaulted(templates, spec={"spec": spec})["spec"]["spec"]["devices"]["requests"] == expected


def test_tolerations_of_devices_default_to_equal():
    tolerations = [{"key": "k", "value": "v"}, {"operator": "Exists"}]
    request = {"name": "r", "exactly": {"deviceClassName": "c", "tolerations": tolerations}}
    claim = defaulted(resources.RESOURCE_CLAIMS, spec={"devices": {"requests": [request]}})
    (entry,) = claim["spec"]["devices"]["requests"]
    assert [toleration["operator"] for toleration in entry["exactly"]["tolerations"]] == ["Equal", "Exists"]


def test_taints_of_devices_default_to_the_current_time():
    taints = [{"key": "k", "effect": "NoExecute"}, {"key": "k", "effect": "None", "timeAdded": "2026-01-01T00:00:00Z"}]
    devices: JSON = {"spec": {"devices": [{"name": "d", "taints": taints}, {"name": "e"}]}}
    apply_time_defaults(resources.RESOURCE_SLICES, devices, lambda: "2026-03-01T00:00:00Z")
    times = [taint["timeAdded"] for taint in devices["spec"]["devices"][0]["taints"]]
    assert times == ["2026-03-01T00:00:00Z", "2026-01-01T00:00:00Z"]
    rule: JSON = {"spec": {"taint": {"key": "k", "effect": "NoExecute"}}}
    apply_time_defaults(resources.DEVICE_TAINT_RULES, rule, lambda: "2026-03-01T00:00:00Z")
    assert rule["spec"]["taint"]["timeAdded"] == "2026-03-01T00:00:00Z"


def test_match_label_keys_become_selector_requirements():
    pod: JSON = {
        "metadata": {"labels": {"hash": "1", "tenant": "t"}},
        "spec": {
            "topologySpreadConstraints": [
                {"labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["hash", "absent"]},
                {"matchLabelKeys": ["hash"]},
            ],
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"labelSelector": {}, "mismatchLabelKeys": ["tenant"]}
                    ]
                }
            },
        },
    }
    merge_match_label_keys(pod)
    spread, without_selector = pod["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchExpressions"] == [{"key": "hash", "operator": "In", "values": ["1"]}]
    assert "labelSelector" not in without_selector
    (term,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchExpressions"] == [{"key": "tenant", "operator": "NotIn", "values": ["t"]}]
