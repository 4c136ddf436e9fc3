"""What a comparison with kube-apiserver v1.36.2 showed of pods, pinned where no kube-apiserver is at hand."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.registry.strategies import prepare_for_pod_subresource_update
from kubeloop.devcluster.serializer.decoding import DecodeError, decode
from kubeloop.devcluster.serializer.defaulting import image_pull_policy
from kubeloop.devcluster.validation.warnings.object_warnings import write_warnings
from kubeloop.kube.objects.resources import DEPLOYMENTS, PODS
from support.api_requests import InProcessApi
from support.validation_causes import create_causes, pod, pod_with_container, update_causes, workload

JSON = dict[str, Any]
C = "spec.containers[0]"
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)


def named(**spec: Any) -> JSON:
    return {**pod(**spec), "metadata": {"name": "p"}}


def from_file(**reference: str) -> JSON:
    return {"name": "A", "valueFrom": {"fileKeyRef": reference}}


PORTAL = {"targetPortal": "p" * 63, "iqn": "naa." + "0" * 32, "initiatorName": "eui." + "0" * 16}
RESTARTS = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]


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
            pod_with_container(env=[from_file(volumeName="v", path="../x", key="K")]),
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
            id="a variable from nowhere",
        ),
        pytest.param(
            pod_with_container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name['a']"}}}]),
            [
                f"{C}.env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"metadata.name['a']\": error converting "
                "fieldPath: field label does not support subscript: metadata.name['a']"
            ],
            id="a subscript of a field that has none",
        ),
        pytest.param(
            pod_with_container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.host"}}}]),
            [],
            id="the name of a field in v1beta1",
        ),
        pytest.param(
            pod_with_container(name="a.b"), [f'{C}.name: Invalid value: "a.b": must not contain dots'], id="dots"
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
            id="pages of no size",
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
            id="a policy that needs a feature",
        ),
        pytest.param(
            pod(tolerations=[{"key": "a", "operator": "Gt", "value": "1"}]),
            ['spec.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"'],
            id="a comparison that needs a feature",
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
            id="a profile of no container",
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
            id="a profile said twice, in two ways",
        ),
        pytest.param(
            pod(initContainers=[{"name": "i", "image": "i", "resizePolicy": RESTARTS}]),
            [
                'spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be '
                "set to 'RestartContainer' for non-sidecar initContainers"
            ],
            id="an init container that would restart",
        ),
    ],
)  # fmt: skip
def test_a_new_pod(body: JSON, causes: list[str]):
    assert create_causes(PODS, body) == causes


def test_a_template_may_name_no_image_for_a_volume_and_a_pod_may_not():
    spec = {"volumes": [{"name": "v", "image": {}}]}
    assert create_causes(PODS, pod(**spec)) == ["spec.volumes[0].image.reference: Required value"]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod(**spec)["spec"]}
    assert create_causes(DEPLOYMENTS, workload(selector={"matchLabels": {"a": "b"}}, template=template)) == []


def test_an_update_of_annotations_looks_at_them_twice_and_at_the_spec_not_at_all():
    wrong = annotated(pod(), **{"controller.kubernetes.io/pod-deletion-cost": "+1"})
    cause = (
        'metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "+1": must be a 32bit integer'
    )
    assert update_causes(PODS, named(), wrong) == [cause, cause]
    assert update_causes(PODS, wrong, annotated(pod(), **{"controller.kubernetes.io/pod-deletion-cost": "x"})) == []


def test_a_pod_that_has_a_policy_of_a_feature_may_have_the_other_one():
    old, new = (pod(securityContext={"seLinuxChangePolicy": each}) for each in ("Recursive", "MountOption"))
    causes = update_causes(PODS, old, new)
    assert len(causes) == 1
    assert causes[0].startswith("spec: Forbidden: pod updates may not change fields other than")
    assert '-  "SELinuxChangePolicy": "Recursive"' in causes[0]


def ended(*, action: str = "Restart", operator: str = "In", **state: Any) -> tuple[JSON, JSON]:
    rules = [{"action": action, "exitCodes": {"operator": operator, "values": [42]}}]
    old = pod(containers=[{"name": "c", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rules}])
    status = {"name": "c", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    old["status"] = {"containerStatuses": [{**status, "state": {"terminated": {"exitCode": 42}}}]}
    return old, {**old, "status": {"containerStatuses": [{**status, "state": state}]}}


@pytest.mark.parametrize(
    ("action", "operator", "may"),
    [("Restart", "In", True), ("Restart", "NotIn", False), ("RestartAllContainers", "NotIn", True)],
)
def test_what_has_ended_starts_again_by_its_rules(action: str, operator: str, may: bool):
    old, new = ended(action=action, operator=operator, running={})
    forbidden = ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"]
    assert update_causes(PODS, old, new, "status") == ([] if may else forbidden)


def test_a_resize_may_neither_add_nor_rename_containers():
    old = pod(containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}])
    renamed = {**old, "spec": {**old["spec"], "containers": [{**old["spec"]["containers"][0], "name": "d"}]}}
    assert update_causes(PODS, old, renamed, "resize") == [
        "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"
    ]


def test_a_resize_keeps_no_pod_level_resources_that_the_request_leaves_out():
    old = {"metadata": {"name": "p", "uid": "1"}, "spec": {"resources": {"limits": {"cpu": "1"}}, "containers": []}}
    new = {"metadata": {"name": "p"}, "spec": {"containers": []}}
    assert "resources" not in prepare_for_pod_subresource_update(new, old, "resize")["spec"]


async def test_fields_of_features_that_are_off_are_dropped():
    api = InProcessApi()
    sources = [{"clusterTrustBundle": {"path": "a", "name": "b"}}, {"podCertificate": {"signerName": "a/b"}}]
    body = named(
        schedulingGroup={"podGroupName": "g"},
        containers=[{"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGTERM"}}],
        volumes=[{"name": "v", "projected": {"sources": sources}}],
    )
    status, answer = api("POST", "/api/v1/namespaces/default/pods", body)
    assert status == 201, answer
    assert answer["spec"]["volumes"][0]["projected"]["sources"] == [{}, {}]
    assert "schedulingGroup" not in answer["spec"]
    assert "lifecycle" not in answer["spec"]["containers"][0]


async def test_app_armor_in_an_annotation_becomes_the_field():
    api = InProcessApi()
    body = annotated(pod(), **{"container.apparmor.security.beta.kubernetes.io/c": "localhost/mine"})
    _, answer = api("POST", "/api/v1/namespaces/default/pods", body)
    profile = {"type": "Localhost", "localhostProfile": "mine"}
    assert answer["spec"]["containers"][0]["securityContext"] == {"appArmorProfile": profile}


async def test_a_runtime_class_gives_a_pod_its_overhead_and_its_place():
    api, pods = InProcessApi(), "/api/v1/namespaces/default/pods"
    status, answer = api("POST", pods, named(runtimeClassName="none"))
    assert (status, answer["message"]) == (403, 'pods "p" is forbidden: pod rejected: RuntimeClass "none" not found')
    status, answer = api("POST", pods, named(overhead={"cpu": "1"}))
    why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    assert (status, answer["message"]) == (403, f'pods "p" is forbidden: {why}')
    runtime = {
        "metadata": {"name": "small"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
    }
    status, answer = api("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    assert status == 201, answer
    _, answer = api("POST", pods, named(runtimeClassName="small", nodeSelector={"c": "d"}))
    assert answer["spec"]["overhead"] == {"cpu": "250m"}
    assert answer["spec"]["nodeSelector"] == {"a": "b", "c": "d"}
    assert answer["spec"]["tolerations"][-1] == {"key": "k", "operator": "Exists"}


async def test_a_bound_pod_is_resized_to_what_its_node_has():
    api, path = InProcessApi(), "/api/v1/namespaces/default/pods"
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}}
    assert api("POST", "/api/v1/nodes", node)[0] == 201
    resources = {"requests": {"cpu": "1"}}
    body = named(nodeName="n", containers=[{"name": "c", "image": "i", "resources": resources}])
    assert api("POST", path, body)[0] == 201
    _, live = api("GET", f"{path}/p")
    live["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    status, answer = api("PUT", f"{path}/p/resize", live)
    why = "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000"
    assert (status, answer["message"]) == (403, f'pods "p" is forbidden: {why}')
    live["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    assert api("PUT", f"{path}/p/resize", live)[0] == 200


def test_mismatches_name_the_structs_they_are_embedded_in():
    with pytest.raises(DecodeError, match=r"field NFSVolumeSource.spec.volumes.VolumeSource.nfs.server of type string"):
        decode(PODS, pod(volumes=[{"name": "v", "nfs": {"server": 7}}]))


def test_a_value_that_its_own_type_refuses_is_told_before_a_mismatch():
    body = named(nodeName=7, containers=[{"name": "c", "resources": {"limits": {"cpu": "abc"}}}])
    with pytest.raises(DecodeError, match="quantities must match the regular expression"):
        decode(PODS, body)


@pytest.mark.parametrize(
    ("image", "policy"),
    [("web", "Always"), ("a" * 64, "IfNotPresent"), ("g" * 254, "IfNotPresent"), ("r.io/" + "g" * 240, "Always")],
)
def test_the_pull_policy_of_names_that_are_none(image: str, policy: str):
    assert image_pull_policy(image) == policy


def test_warnings_of_addresses_and_of_port_names():
    body = named(
        hostAliases=[{"ip": "FE80::1"}],
        containers=[
            {"name": n, "image": "i", "ports": [{"name": "http", "containerPort": p, "protocol": "TCP"}]}
            for n, p in (("a", 80), ("b", 81))
        ],
    )
    assert write_warnings(PODS, body) == [
        'spec.containers[1].ports[0]: duplicate port name "http" with spec.containers[0].ports[0], services and probes '
        "that select ports by name will use spec.containers[0].ports[0]",
        'spec.hostAliases[0].ip: IPv6 address "FE80::1" should be in RFC 5952 canonical format ("fe80::1")',
    ]
