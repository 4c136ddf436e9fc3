"""Validation in Kubernetes' words: which causes an object gives, where, and in which order."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.devcluster.validation.common.go_values import go_json
from kubeloop.devcluster.validation.validate import validate_create, validate_update
from kubeloop.kube.objects.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    Resource,
)
from support.validation_causes import (
    cause_texts,
    create_causes,
    defaulted,
    pod,
    pod_with_container,
    update_causes,
    workload,
)

JSON = dict[str, Any]


C = "spec.containers[0]"
NOT_NEGATIVE = "must be greater than or equal to 0"


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        pytest.param(pod(), [], id="a small pod is valid"),
        pytest.param({}, ["spec.containers: Required value"], id="no containers"),
        pytest.param(
            pod(containers=[{}]), [f"{C}.name: Required value", f"{C}.image: Required value"], id="an empty container"
        ),
        pytest.param(
            pod(containers=[{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]),
            ['spec.containers[1].name: Duplicate value: "c"'],
            id="two containers of one name",
        ),
        pytest.param(
            pod_with_container(image=" nginx"),
            [f'{C}.image: Invalid value: " nginx": must not have leading or trailing whitespace'],
            id="blanks around the image",
        ),
        pytest.param(
            pod_with_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            [f'{C}.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
            id="more requested than allowed",
        ),
        pytest.param(
            pod_with_container(resources={"requests": {"example.com/gpu": "1"}}),
            [f"{C}.resources.limits: Required value: Limit must be set for non overcommitable resources"],
            id="extended resources need a limit",
        ),
        pytest.param(
            pod_with_container(ports=[{"containerPort": 80, "hostPort": 1}, {"containerPort": 81, "hostPort": 1}]),
            [f'{C}.ports[1].hostPort: Duplicate value: "TCP//1"'],
            id="one host port twice",
        ),
        pytest.param(
            pod_with_container(volumeMounts=[{"name": "nope", "mountPath": "/x"}]),
            [f'{C}.volumeMounts[0].name: Not found: "nope"'],
            id="a mount of no volume",
        ),
        pytest.param(
            pod(
                containers=[
                    {"name": "c", "image": "i", "volumeDevices": [{"name": "v", "devicePath": "/a/../b"}] * 2},
                ],
                volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "p"}}],
            ),
            [
                f"{C}.volumeDevices[0].devicePath: Invalid value: \"/a/../b\": can not contain backsteps ('..')",
                f'{C}.volumeDevices[1].name: Invalid value: "v": must be unique',
                f"{C}.volumeDevices[1].devicePath: Invalid value: \"/a/../b\": can not contain backsteps ('..')",
            ],
            id="a device twice, and out of its folder",
        ),
        pytest.param(
            pod(
                containers=[
                    {
                        "name": "c",
                        "image": "i",
                        "volumeMounts": [{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}],
                    }
                ],
                volumes=[{"name": "v", "emptyDir": {}}],
            ),
            [
                f"{C}.volumeMounts.mountPropagation: Forbidden: "
                "Bidirectional mount propagation is available only to privileged containers"
            ],
            id="mounts that reach the host",
        ),
        pytest.param(
            pod_with_container(livenessProbe={"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}),
            [f"{C}.livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"],
            id="a probe does one thing",
        ),
        pytest.param(
            pod_with_container(securityContext={"seccompProfile": {"type": "Localhost"}}),
            [
                f"{C}.securityContext.seccompProfile.localhostProfile: Required value: "
                "must be set when seccomp type is Localhost"
            ],
            id="a local seccomp profile has a name",
        ),
        pytest.param(
            pod(securityContext={"sysctls": [{"name": "BAD"}], "fsGroup": -1}),
            [
                "spec.securityContext.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                'spec.securityContext.sysctls[0].name: Invalid value: "BAD": must have at most 253 characters and '
                r"match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            ],
            id="the pod's security context",
        ),
        pytest.param(
            pod(
                containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}],
                resources={"requests": {"cpu": "1"}},
            ),
            [
                'spec.resources.requests[cpu]: Invalid value: "1": '
                "must be greater than or equal to aggregate container requests of 2"
            ],
            id="the pod's resources hold those of its containers",
        ),
        pytest.param(
            pod(nodeName="n", schedulingGates=[{"name": "a"}]),
            ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
            id="a gated pod has no node",
        ),
        pytest.param(
            pod(tolerations=[{"operator": "Equal"}]),
            [
                'spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, '
                'which means "match all values and all keys"'
            ],
            id="a toleration without key",
        ),
        pytest.param(
            pod(
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt"}]}]
                        }
                    }
                }
            ),
            [
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]."
                "matchExpressions[0].values: Required value: "
                "must be specified single value when `operator` is 'Lt' or 'Gt'"
            ],
            id="Gt takes one value",
        ),
        pytest.param(
            pod(topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "X"}]),
            [
                "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                'spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "X": '
                'supported values: "DoNotSchedule", "ScheduleAnyway"',
            ],
            id="a spread constraint",
        ),
        pytest.param(
            pod(restartPolicy="X", dnsPolicy="Y", activeDeadlineSeconds=0),
            [
                'spec.restartPolicy: Unsupported value: "X": supported values: "Always", "OnFailure", "Never"',
                'spec.dnsPolicy: Unsupported value: "Y": '
                'supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"',
                "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
            ],
            id="several errors come in Kubernetes' order",
        ),
    ],
)
def test_a_new_pod(body: JSON, causes: list[str]) -> None:
    assert create_causes(PODS, body) == causes


def test_a_spec_once_found_valid_is_still_refused_when_it_changes() -> None:
    valid = defaulted(PODS, pod())
    assert validate_create(PODS, valid) == []
    valid["spec"]["containers"][0]["name"] = "UPPER"
    assert [cause["field"] for cause in validate_create(PODS, valid)] == [f"{C}.name"]


@pytest.mark.parametrize(
    ("metadata", "causes"),
    [
        pytest.param({"labels": {"a": "b"}}, [], id="good labels"),
        pytest.param(
            {"name": "Bad_Name"},
            [
                'metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain must consist of lower case '
                "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
            ],
            id="a name in upper case",
        ),
        pytest.param(
            {"labels": {"/x": "v"}},
            ['metadata.labels: Invalid value: "/x": prefix part must be non-empty'],
            id="a label with an empty prefix",
        ),
        pytest.param(
            {"finalizers": ["unknown"]},
            [
                'metadata.finalizers[0]: Invalid value: "unknown": '
                "name is neither a standard finalizer name nor is it fully qualified"
            ],
            id="a finalizer nobody knows",
        ),
        pytest.param(
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": ""}]},
            ['metadata.ownerReferences.uid: Invalid value: "": must not be empty'],
            id="an owner without uid",
        ),
        pytest.param(
            {"annotations": {"a": "x" * (1 << 18)}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
            id="annotations of more than 256 KiB",
        ),
    ],
)
def test_metadata_of_a_new_object(metadata: JSON, causes: list[str]) -> None:
    assert create_causes(CONFIG_MAPS, {"metadata": metadata}) == causes


@pytest.mark.parametrize("resource", [each.resource for each in BY_PATH.values() if each.is_stored], ids=str)
def test_every_kind_refuses_a_missing_name(resource: Resource[Any]) -> None:
    obj = {"metadata": {"namespace": "default"} if resource.namespaced else {}, "spec": {}}
    assert "metadata.name: Required value: name or generateName is required" in cause_texts(
        validate_create(resource, obj)
    )


def test_what_two_layers_of_kubernetes_find_is_told_twice() -> None:
    old, new = defaulted(DEPLOYMENTS, workload()), defaulted(DEPLOYMENTS, workload())
    new["metadata"]["uid"] = "other"
    assert (
        cause_texts(validate_update(DEPLOYMENTS, new, old))
        == ['metadata.uid: Invalid value: "other": field is immutable'] * 2
    )


def test_finalizers_cannot_be_added_to_what_is_being_deleted() -> None:
    old = defaulted(PODS, {"metadata": {"finalizers": ["a.b/c"]}, **pod()})
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    new = deepcopy(old)
    new["metadata"]["finalizers"] = ["a.b/c", "a.b/d", 'a.b/"']
    wrong = (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"a.b/\\"", "a.b/d"}'
    )
    assert wrong in cause_texts(validate_update(PODS, new, old))


MISMATCH = "`selector` does not match template `labels`"


@pytest.mark.parametrize("resource", [DEPLOYMENTS, REPLICA_SETS], ids=str)
@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({}, [], id="valid"),
        pytest.param({"replicas": -1}, [f"spec.replicas: Invalid value: -1: {NOT_NEGATIVE}"], id="replicas"),
        pytest.param(
            {"selector": {"matchLabels": {"app": "b"}}},
            [f'spec.template.metadata.labels: Invalid value: {{"app":"a"}}: {MISMATCH}'],
            id="the selector selects others",
        ),
        pytest.param(
            {"selector": {}},
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
            id="an empty selector",
        ),
        pytest.param(
            {"selector": None},
            [
                "spec.selector: Required value",
                f'spec.template.metadata.labels: Invalid value: {{"app":"a"}}: {MISMATCH}',
            ],
            id="no selector",
        ),
    ],
)
def test_a_new_deployment_or_replica_set(resource: Resource[Any], spec: JSON, causes: list[str]) -> None:
    assert create_causes(resource, workload(**spec)) == causes


@pytest.mark.parametrize(
    ("strategy", "causes"),
    [
        pytest.param(
            {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}},
            ['spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0'],
            id="no way to make progress",
        ),
        pytest.param(
            {"rollingUpdate": {"maxUnavailable": "101%"}},
            ['spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%'],
            id="more than all",
        ),
        pytest.param(
            {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
            ["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
            id="Recreate has no parameters",
        ),
        pytest.param(
            {"type": "Bad"},
            [
                'spec.strategy: Unsupported value: {"Type":"Bad","RollingUpdate":null}: '
                'supported values: "Recreate", "RollingUpdate"'
            ],
            id="an unknown type, told as Go's internal struct",
        ),
    ],
)
def test_the_strategy_of_a_deployment(strategy: JSON, causes: list[str]) -> None:
    assert create_causes(DEPLOYMENTS, workload(strategy=strategy)) == causes


def test_selectors_cannot_change() -> None:
    other = workload(selector={"matchLabels": {"app": "b"}}, template={"metadata": {"labels": {"app": "b"}}, **pod()})
    for resource in (DEPLOYMENTS, REPLICA_SETS):
        assert update_causes(resource, workload(), other) == [
            'spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable'
        ]


@pytest.mark.parametrize(
    ("resource", "old", "new", "causes"),
    [
        pytest.param(
            DEPLOYMENTS,
            {},
            {"replicas": 1, "availableReplicas": 2},
            [
                "status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas",
                "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas",
            ],
            id="more available than there are",
        ),
        pytest.param(
            DEPLOYMENTS,
            {"collisionCount": 2},
            {"collisionCount": 1},
            ["status.collisionCount: Invalid value: 1: cannot be decremented"],
            id="collisions only grow",
        ),
        pytest.param(
            REPLICA_SETS,
            {},
            {"replicas": 1, "fullyLabeledReplicas": 2},
            ["status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas"],
            id="of a ReplicaSet",
        ),
        pytest.param(
            STATEFUL_SETS,
            {},
            {"replicas": 1, "readyReplicas": 1, "currentReplicas": 2},
            ["status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas"],
            id="of a StatefulSet",
        ),
    ],
)
def test_the_status_of_workloads(resource: Resource[Any], old: JSON, new: JSON, causes: list[str]) -> None:
    body = workload(serviceName="s")
    if resource is not STATEFUL_SETS:
        del body["spec"]["serviceName"]
    assert update_causes(resource, {**body, "status": old}, {**body, "status": new}, "status") == causes


def test_most_of_a_stateful_set_cannot_change() -> None:
    old = workload(serviceName="s")
    assert update_causes(STATEFUL_SETS, old, workload(serviceName="s", replicas=3)) == []
    assert update_causes(STATEFUL_SETS, old, workload(serviceName="t")) == [
        "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
        "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' "
        "are forbidden"
    ]


@pytest.mark.parametrize(
    ("resource", "body", "causes"),
    [
        pytest.param(
            NODES,
            {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}] * 2}},
            [
                'metadata.taints[1]: Duplicate value: {"Key":"k","Value":"","Effect":"NoSchedule","TimeAdded":null}: '
                "taints must be unique by key and effect pair"
            ],
            id="a node tainted twice",
        ),
        pytest.param(
            NODES,
            {"spec": {"podCIDRs": ["10.0.0.0/24", "10.1.0.0/24"]}},
            [
                'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: '
                "may specify no more than one CIDR for each IP family"
            ],
            id="two ranges of one family",
        ),
        pytest.param(SERVICES, {"spec": {}}, ["spec.ports: Required value"], id="a service without ports"),
        pytest.param(
            CONFIG_MAPS,
            {"data": {"a": "x"}, "binaryData": {"a": "AA=="}},
            ['data[a]: Invalid value: "a": duplicate of key present in binaryData'],
            id="one key, two values",
        ),
        pytest.param(
            CONFIG_MAPS,
            {"data": {"a": "x" * ((1 << 20) + 1)}},
            ["[]: Too long: may not be more than 1048576 bytes"],
            id="a config map of more than 1 MiB",
        ),
        pytest.param(
            SECRETS,
            {"type": "kubernetes.io/tls", "data": {"tls.crt": "AA=="}},
            ["data[tls.key]: Required value"],
            id="a secret lacking its key",
        ),
        pytest.param(
            POD_DISRUPTION_BUDGETS,
            {"spec": {"minAvailable": 1, "maxUnavailable": "50%"}},
            [
                'spec: Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":"50%",'
                '"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set'
            ],
            id="both bounds of a budget",
        ),
        pytest.param(
            LEASES,
            {"spec": {"leaseDurationSeconds": 0}},
            ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
            id="a lease of no duration",
        ),
        pytest.param(
            PRIORITY_CLASSES,
            {"value": 1_000_000_001},
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
            id="a priority that is the system's",
        ),
        pytest.param(
            EVENTS,
            {"involvedObject": {"namespace": "elsewhere"}},
            ['involvedObject.namespace: Invalid value: "elsewhere": does not match event.namespace'],
            id="an event about another namespace",
        ),
        pytest.param(
            EVENTS, {"involvedObject": {"kind": "Node"}}, [], id="an event about a node, in the default namespace"
        ),
    ],
)
def test_other_new_objects(resource: Resource[Any], body: JSON, causes: list[str]) -> None:
    assert create_causes(resource, body) == causes


@pytest.mark.parametrize(
    ("resource", "old", "new", "causes"),
    [
        pytest.param(
            NODES,
            {"spec": {"podCIDRs": ["10.0.0.0/24"]}},
            {"spec": {"podCIDRs": ["10.1.0.0/24"]}},
            ['spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid'],
            id="the range of a node",
        ),
        pytest.param(
            SECRETS,
            {"type": "a"},
            {"type": "b"},
            ['type: Invalid value: "b": field is immutable'],
            id="the type of a secret",
        ),
        pytest.param(
            CONFIG_MAPS,
            {"data": {"a": "1"}, "immutable": True},
            {"data": {"a": "2"}, "immutable": True},
            ["data: Forbidden: field is immutable when `immutable` is set"],
            id="the data of an immutable config map",
        ),
        pytest.param(
            PRIORITY_CLASSES,
            {"value": 1},
            {"value": 2},
            ["value: Forbidden: may not be changed in an update."],
            id="the value of a priority class",
        ),
        pytest.param(
            STORAGE_CLASSES,
            {"provisioner": "a", "volumeBindingMode": "Immediate"},
            {"provisioner": "b", "volumeBindingMode": "WaitForFirstConsumer"},
            [
                'provisioner: Invalid value: "b": field is immutable',
                'volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable',
            ],
            id="a storage class",
        ),
    ],
)
def test_what_cannot_change(resource: Resource[Any], old: JSON, new: JSON, causes: list[str]) -> None:
    assert update_causes(resource, old, new) == causes


def test_the_phase_of_a_namespace_follows_its_deletion() -> None:
    active, ending = {"status": {"phase": "Active"}}, {"status": {"phase": "Terminating"}}
    assert update_causes(NAMESPACES, active, active, "status") == []
    assert update_causes(NAMESPACES, active, ending, "status") == [
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    ]


@pytest.mark.parametrize(
    ("value", "type_name", "told_as"),
    [
        pytest.param({"b": "1", "a": "2"}, "", '{"a":"2","b":"1"}', id="maps are sorted"),
        pytest.param(
            {"uid": "u", "name": "n"}, "meta/v1.OwnerReference", '{"name":"n","uid":"u"}', id="meta/v1 has JSON tags"
        ),
        pytest.param(
            {"effect": "NoSchedule", "key": "k"},
            "core/v1.Taint",
            '{"Key":"k","Value":"","Effect":"NoSchedule","TimeAdded":null}',
            id="internal versions have none",
        ),
        pytest.param(
            {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "z"},
            "core/v1.PodAffinityTerm",
            '{"LabelSelector":{"matchLabels":{"a":"b"}},"Namespaces":null,"TopologyKey":"z","NamespaceSelector":null,'
            '"MatchLabelKeys":null,"MismatchLabelKeys":null}',
            id="both inside one another",
        ),
    ],
)
def test_values_are_told_as_go_encodes_them(value: Any, type_name: str, told_as: str) -> None:
    assert go_json(value, type_name) == told_as
