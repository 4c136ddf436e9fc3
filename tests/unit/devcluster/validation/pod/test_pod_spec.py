"""Validation of pod specs: the causes that a new pod gives, and their order."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.validation.pod.pod_spec import (
    validate_image_whitespace,
    validate_pod,
    validate_pod_annotations,
    validate_pod_template_spec,
)
from kubeloop.devcluster.validation.validate import validate_create
from kubeloop.kube.objects.resources import PODS
from support.objects.validation_causes import create_causes, defaulted, pod, pod_with_container, validator_causes

JSON = dict[str, Any]

C = "spec.containers[0]"


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        pytest.param(pod(), [], id="minimal pod"),
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
            id="whitespace around the image",
        ),
        pytest.param(
            pod_with_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            [f'{C}.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
            id="request above the limit",
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
            id="mount of a missing volume",
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
            id="duplicate device with a backstep",
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
            id="bidirectional mount propagation",
        ),
        pytest.param(
            pod_with_container(livenessProbe={"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}),
            [f"{C}.livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"],
            id="probe with two handlers",
        ),
        pytest.param(
            pod_with_container(securityContext={"seccompProfile": {"type": "Localhost"}}),
            [
                f"{C}.securityContext.seccompProfile.localhostProfile: Required value: "
                "must be set when seccomp type is Localhost"
            ],
            id="localhost seccomp profile without a name",
        ),
        pytest.param(
            pod(securityContext={"sysctls": [{"name": "BAD"}], "fsGroup": -1}),
            [
                "spec.securityContext.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                'spec.securityContext.sysctls[0].name: Invalid value: "BAD": must have at most 253 characters and '
                r"match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            ],
            id="pod security context",
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
            id="pod-level requests below the containers'",
        ),
        pytest.param(
            pod(nodeName="n", schedulingGates=[{"name": "a"}]),
            ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
            id="gated pod with a node",
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
            id="several errors in Kubernetes' order",
        ),
    ],
)
def test_new_pod_causes(body: JSON, causes: list[str]) -> None:
    assert create_causes(PODS, body) == causes


def test_changed_spec_is_validated_again_despite_the_cache() -> None:
    valid = defaulted(PODS, pod())
    assert validate_create(strategy_of(PODS), PODS, valid) == []
    valid["spec"]["containers"][0]["name"] = "UPPER"
    assert [cause["field"] for cause in validate_create(strategy_of(PODS), PODS, valid)] == [f"{C}.name"]


SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)


def file_variable(**reference: str) -> JSON:
    return {"name": "A", "valueFrom": {"fileKeyRef": reference}}


PORTAL = {"targetPortal": "p" * 63, "iqn": "naa." + "0" * 32, "initiatorName": "eui." + "0" * 16}

RESTART_ON_RESIZE = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]


def annotated(body: JSON, **annotations: str) -> JSON:
    return {**body, "metadata": {"name": "p", "annotations": annotations}}


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        pytest.param(
            pod(hostnameOverride="A", setHostnameAsFQDN=True),
            [
                "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
                f'spec.hostnameOverride: Invalid value: "A": {SUBDOMAIN}',
            ],
            id="hostnameOverride",
        ),
        pytest.param(
            pod_with_container(env=[file_variable(volumeName="v", path="../x", key="K")]),
            [
                f"{C}.env[0].valueFrom.fileKeyRef.path: Invalid value: \"../x\": must not contain '..'",
                f'{C}.env[0].valueFrom.fileKeyRef.volumeName: Not found: "v"',
            ],
            id="fileKeyRef",
        ),
        pytest.param(
            pod_with_container(env=[{"name": "A", "valueFrom": {}}]),
            [
                f'{C}.env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, '
                "`configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            ],
            id="empty valueFrom",
        ),
        pytest.param(
            pod_with_container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name['a']"}}}]),
            [
                f"{C}.env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"metadata.name['a']\": error converting "
                "fieldPath: field label does not support subscript: metadata.name['a']"
            ],
            id="subscript of metadata.name",
        ),
        pytest.param(
            pod_with_container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.host"}}}]),
            [],
            id="field name of v1beta1",
        ),
        pytest.param(
            pod_with_container(name="a.b"),
            [f'{C}.name: Invalid value: "a.b": must not contain dots'],
            id="dots in a container name",
        ),
        pytest.param(
            pod(hostAliases=[{"ip": "010.0.0.1"}, {"ip": "::ffff:1.2.3.4"}, {"ip": "fe80::1%eth0"}]),
            [
                'spec.hostAliases[0].ip: Invalid value: "010.0.0.1": must not have leading 0s',
                'spec.hostAliases[1].ip: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address',
                'spec.hostAliases[2].ip: Invalid value: "fe80::1%eth0": must be a valid IP address,',
            ],
            id="addresses",
        ),
        pytest.param(
            pod_with_container(resources={"limits": {"hugepages-x": "1", "cpu": "1"}}),
            [
                f'{C}.resources.limits[hugepages-x]: Invalid value: "1": 1 is not positive integer multiple of '
                "hugepages-x",
                f'{C}.resources.requests[hugepages-x]: Invalid value: "1": 1 is not positive integer multiple of '
                "hugepages-x",
            ],
            id="invalid huge page size",
        ),
        pytest.param(
            pod(resources={"limits": {"hugepages-2Mi": "2Mi"}}),
            ["spec.resources: Forbidden: HugePages require cpu or memory"],
            id="pod-level huge pages",
        ),
        pytest.param(
            pod(os={"name": "windows"}, resources={"limits": {"cpu": "1"}}),
            ["spec.resources: Forbidden: may not be set for a windows pod"],
            id="pod-level resources on windows",
        ),
        pytest.param(
            pod(securityContext={"seLinuxChangePolicy": "MountOption"}),
            [
                'spec.securityContext.seLinuxChangePolicy: Unsupported value: "MountOption": supported values: '
                '"Recursive"'
            ],
            id="policy of a disabled feature",
        ),
        pytest.param(
            pod(tolerations=[{"key": "a", "operator": "Gt", "value": "1"}]),
            ['spec.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"'],
            id="toleration operator of a disabled feature",
        ),
        pytest.param(
            pod(volumes=[{"name": "v", "quobyte": {"registry": "a,b:1", "volume": "v"}}]),
            [
                'spec.volumes[0].quobyte.registry: Invalid value: "a,b:1": must be a host:port pair or multiple pairs '
                "separated by commas"
            ],
            id="quobyte",
        ),
        pytest.param(
            pod(volumes=[{"name": "v", "iscsi": PORTAL}]),
            [
                'spec.volumes[0].name: Invalid value: "v": Total length of <volume name>:<iscsi.targetPortal> must be '
                "under 64 characters if iscsi.initiatorName is specified."
            ],
            id="iscsi, too long a portal",
        ),
        pytest.param(
            annotated(pod(), **{"container.apparmor.security.beta.kubernetes.io/x": "bogus"}),
            [
                'metadata.annotations[container.apparmor.security.beta.kubernetes.io/x]: Invalid value: "x": container '
                "not found",
                "metadata.annotations[container.apparmor.security.beta.kubernetes.io/x]: Invalid value: "
                '"bogus": invalid AppArmor profile name: "bogus"',
            ],
            id="profile of a missing container",
        ),
        pytest.param(
            annotated(pod(), **{"scheduler.alpha.kubernetes.io/tolerations": "x"}),
            [
                'metadata.annotations: Invalid value: "scheduler.alpha.kubernetes.io/tolerations": invalid character '
                "'x' looking for beginning of value"
            ],
            id="tolerations in an annotation",
        ),
        pytest.param(
            annotated(
                pod(securityContext={"seccompProfile": {"type": "RuntimeDefault"}}),
                **{"seccomp.security.alpha.kubernetes.io/pod": "unconfined"},
            ),
            [
                "spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"
            ],
            id="seccomp annotation and field differ",
        ),
        pytest.param(
            pod(initContainers=[{"name": "i", "image": "i", "resizePolicy": RESTART_ON_RESIZE}]),
            [
                'spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be '
                "set to 'RestartContainer' for non-sidecar initContainers"
            ],
            id="resize restart of an init container",
        ),
    ],
)  # fmt: skip
def test_new_pod_field_causes(body: JSON, causes: list[str]):
    assert create_causes(PODS, body) == causes


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({}, [], id="valid"),
        pytest.param(
            {"nodeName": "n", "schedulingGates": [{"name": "g"}]},
            ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
            id="node of a gated pod",
        ),
    ],
)
def test_whole_pod_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_pod, defaulted(PODS, pod(**spec))) == causes


def test_ephemeral_containers_are_not_allowed_in_a_template() -> None:
    container = {"name": "e", "image": "i"}
    template = defaulted(PODS, pod(ephemeralContainers=[container]))
    assert validator_causes(validate_pod_template_spec, "template", template) == [
        "template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"
    ]


@pytest.mark.parametrize(
    ("annotations", "causes"),
    [
        pytest.param({"controller.kubernetes.io/pod-deletion-cost": "-5"}, [], id="deletion cost"),
        pytest.param(
            {"controller.kubernetes.io/pod-deletion-cost": "05"},
            ['m[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "05": must be a 32bit integer'],
            id="deletion cost with a leading zero",
        ),
        pytest.param(
            {"kubernetes.io/config.mirror": "x"},
            [
                'm[kubernetes.io/config.mirror]: Invalid value: "x": '
                "must set spec.nodeName if mirror pod annotation is set"
            ],
            id="mirror pod without node",
        ),
    ],
)
def test_pod_annotation_causes(annotations: dict[str, str], causes: list[str]) -> None:
    assert validator_causes(validate_pod_annotations, "m", {"annotations": annotations}, {}) == causes


def test_stored_invalid_deletion_cost_may_stay() -> None:
    metadata = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "05"}}
    assert validator_causes(validate_pod_annotations, "m", metadata, {}, metadata) == []


def test_image_has_no_surrounding_whitespace() -> None:
    assert validator_causes(validate_image_whitespace, "i", "a b") == []
    assert validator_causes(validate_image_whitespace, "i", " a") == [
        'i: Invalid value: " a": must not have leading or trailing whitespace'
    ]
