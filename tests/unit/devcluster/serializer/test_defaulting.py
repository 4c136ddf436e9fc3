"""What the API server fills in, per kind; and the label keys it copies into selectors."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import (
    BY_PATH,
    CRON_JOBS,
    DAEMON_SETS,
    JOBS,
    LIMIT_RANGES,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
)
from kubeloop.devcluster.registry.match_label_keys import merge_match_label_keys
from kubeloop.devcluster.serializer.decoding import decode
from kubeloop.devcluster.serializer.defaulting import apply_defaults, image_pull_policy
from kubeloop.kube.objects import resources
from kubeloop.kube.objects.resources import Resource

JSON = dict[str, Any]
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
def test_images_are_pulled_again_if_they_may_have_changed(image, policy):
    assert image_pull_policy(image) == policy


def test_a_pod_gets_service_links_and_a_template_does_not():
    assert defaulted(resources.PODS, **TEMPLATE)["spec"] == {**POD_SPEC, "enableServiceLinks": True}
    spec = defaulted(resources.REPLICA_SETS, spec={"selector": {}, "template": TEMPLATE})["spec"]
    assert spec["template"]["spec"] == POD_SPEC
    assert spec["replicas"] == 1


def test_limits_of_a_pod_become_requests():
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"},
                                                          "requests": {"cpu": "0.5"}}}  # fmt: skip
    pod = defaulted(resources.PODS, spec={"containers": [container]})
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_host_network_makes_ports_host_ports():
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80}]}
    pod = defaulted(resources.PODS, spec={"hostNetwork": True, "containers": [container]})
    assert pod["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]


def test_probes_handlers_and_environment():
    container = {
        "name": "c",
        "image": "i",
        "livenessProbe": {"httpGet": {"port": 80}},
        "readinessProbe": {"grpc": {"port": 80}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    found = defaulted(resources.PODS, spec={"containers": [container]})["spec"]["containers"][0]
    numbers = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert found["livenessProbe"] == {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, **numbers}
    assert found["readinessProbe"] == {"grpc": {"port": 80, "service": ""}, **numbers}
    assert found["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param({}, {"emptyDir": {}}, id="a name alone"),
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
def test_volumes(given, kept):
    spec = {"containers": [], "volumes": [{"name": "v", **given}]}
    assert defaulted(resources.PODS, spec=spec)["spec"]["volumes"] == [{"name": "v", **kept}]


def test_a_deployment_rolls_by_a_quarter():
    spec = defaulted(resources.DEPLOYMENTS, spec={"selector": {}, "template": TEMPLATE})["spec"]
    del spec["template"], spec["selector"]
    assert spec == {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
    }


def test_zero_replicas_stay_zero():
    spec = defaulted(resources.DEPLOYMENTS, spec={"replicas": 0, "selector": {}, "template": TEMPLATE})["spec"]
    assert spec["replicas"] == 0


def test_the_other_workloads():
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


def test_a_replication_controller_takes_the_labels_of_its_template():
    obj = defaulted(resources.REPLICATION_CONTROLLERS, spec={"template": TEMPLATE})
    assert obj["spec"]["selector"] == obj["metadata"]["labels"] == {"app": "a"}


def test_text_of_a_secret_becomes_data():
    obj = defaulted(resources.SECRETS, data={"k": "dg=="}, stringData={"t": "text"})
    assert obj["data"] == {"k": "dg==", "t": "dGV4dA=="}
    assert "stringData" not in obj
    assert obj["type"] == "Opaque"


def test_services():
    spec = defaulted(resources.SERVICES, spec={"ports": [{"port": 80}], "type": "NodePort"})["spec"]
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (spec["sessionAffinity"], spec["externalTrafficPolicy"], spec["internalTrafficPolicy"]) == (
        "None",
        "Cluster",
        "Cluster",
    )


def test_limit_ranges_fill_defaults_from_the_most_and_the_least():
    item = {"type": "Container", "default": {"cpu": "500m"}, "max": {"memory": "1Gi"}}
    found = defaulted(LIMIT_RANGES, spec={"limits": [item]})["spec"]["limits"][0]
    assert found["default"] == found["defaultRequest"] == {"cpu": "500m", "memory": "1Gi"}


def test_nodes_policies_and_bindings():
    node = defaulted(resources.NODES, spec={"podCIDR": "10.1.0.0/24"}, status={"capacity": {"cpu": "4"}})
    assert node["status"]["allocatable"] == {"cpu": "4"}
    assert node["spec"]["podCIDRs"] == ["10.1.0.0/24"]
    assert defaulted(NETWORK_POLICIES, spec={"egress": [{}]})["spec"]["policyTypes"] == ["Ingress", "Egress"]
    binding = defaulted(ROLE_BINDINGS, roleRef={"kind": "Role", "name": "r"}, subjects=[{"kind": "User", "name": "u"}])
    assert binding["roleRef"]["apiGroup"] == binding["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"


def test_claims_ask_for_one_device_each():
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


def test_match_label_keys_become_requirements_of_the_pods_own_labels():
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
