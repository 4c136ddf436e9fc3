"""Fields of volumes, services, claims, quotas, limit ranges and security contexts, in Kubernetes' words."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import LIMIT_RANGES
from kubeloop.devcluster.registry.strategies import prepare_for_pod_subresource_update
from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.devcluster.validation.common.ip_addresses import validate_cidr
from kubeloop.devcluster.validation.validate import validate_update
from kubeloop.devcluster.validation.warnings.object_warnings import write_warnings
from kubeloop.kube.objects.resources import (
    DEPLOYMENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
)
from support.api_requests import InProcessApi
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
ONE_TYPE = "Forbidden: may not specify more than 1 volume type"


def volume(**source: Any) -> JSON:
    return pod(volumes=[{"name": "v", **source}])


V = "spec.volumes[0]"


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        pytest.param(
            volume(nfs={}),
            [
                f"{V}.nfs.server: Required value",
                f"{V}.nfs.path: Required value",
                f'{V}.nfs.path: Invalid value: "": must be an absolute path',
            ],
            id="nfs",
        ),
        pytest.param(volume(hostPath={"type": "X"}), [f"{V}.hostPath.path: Required value"], id="hostPath"),
        pytest.param(
            volume(iscsi={"targetPortal": "p", "iqn": "iqn.x", "lun": 256}),
            [
                f'{V}.iscsi.iqn: Invalid value: "iqn.x": must be valid format',
                f"{V}.iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
            ],
            id="iscsi",
        ),
        pytest.param(
            volume(gcePersistentDisk={"partition": 300}),
            [
                f"{V}.persistentDisk.pdName: Required value",
                f"{V}.persistentDisk.partition: Invalid value: 300: "
                "must be between 1 and 255, inclusive",
            ],
            id="a disk, with Kubernetes' path",
        ),
        pytest.param(
            volume(secret={"secretName": "s", "items": [{"key": "k", "path": ".."}]}, configMap={"name": "c"}),
            [
                f"{V}.secret.items[0].path: Invalid value: \"..\": must not contain '..'",
                f"{V}.secret.items[0].path: Invalid value: \"..\": must not start with '..'",
                f"{V}.configMap: {ONE_TYPE}",
            ],
            id="the first of two is looked at, the second told off",
        ),
        pytest.param(
            volume(csi={"driver": ""}),
            [
                f"{V}.csi.driver: Required value",
            ],
            id="csi",
        ),
        pytest.param(
            volume(projected={"sources": [{"serviceAccountToken": {"path": "/x"}, "configMap": {"name": "c"}}]}),
            [
                f'{V}.projected.path: Invalid value: "/x": must be a relative path',
                f"{V}.projected.sources[0]: {ONE_TYPE} per source",
                f"{V}.projected.sources[0].serviceAccountToken: "
                "Forbidden: must not be specified when serviceAccountName is not set",
            ],
            id="projected",
        ),
        pytest.param(
            volume(ephemeral={"volumeClaimTemplate": {"metadata": {"name": "x"}, "spec": {"accessModes": ["Any"]}}}),
            [
                f"{V}.ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
                f'{V}.ephemeral.volumeClaimTemplate.spec.accessModes: Unsupported value: "Any": supported values: '
                '"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"',
                f"{V}.ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
            ],
            id="ephemeral",
        ),
        pytest.param(
            pod_with_container(lifecycle={"preStop": {"exec": {}, "httpGet": {"port": 1}}}),
            [
                "spec.containers[0].lifecycle.preStop.exec.command: Required value",
                "spec.containers[0].lifecycle.preStop.httpGet: Forbidden: may not specify more than 1 handler type",
            ],
            id="two handlers",
        ),
        pytest.param(
            pod_with_container(resizePolicy=[{"resourceName": "disk", "restartPolicy": "NotRequired"}]),
            ['spec.containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"'],
            id="resizePolicy",
        ),
        pytest.param(
            pod_with_container(restartPolicyRules=[{"action": "Restart"}]),
            [
                "spec.containers[0].restartPolicy: Required value: "
                "must specify restartPolicy when restart rules are used",
                "spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified",
            ],
            id="restart rules",
        ),
        pytest.param(
            pod_with_container(resources={"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
            [
                f"spec.containers[0].resources.{part}[hugepages-2Mi]: Invalid value: "
                '"3Mi": 3Mi is not positive integer multiple of hugepages-2Mi'
                for part in ("limits", "requests")
            ],
            id="half a huge page",
        ),
        pytest.param(
            pod_with_container(resources={"claims": [{"name": "gpu"}]}),
            [
                'spec.containers[0].resources.claims[0]: Not found: "gpu": '
                "must be one of the names in pod.spec.resourceClaims which is empty"
            ],
            id="a claim that the pod has not",
        ),
        pytest.param(
            pod(os={"name": "plan9"}),
            ['spec.os: Unsupported value: "plan9": supported values: "linux", "windows"'],
            id="os",
        ),
        pytest.param(
            pod(os={"name": "windows"}, hostPID=True, securityContext={"runAsUser": 1}),
            [
                f"spec.{each}: Forbidden: cannot be set for a windows pod"
                for each in ("hostPID", "securityContext.runAsUser")
            ],
            id="windows",
        ),
        pytest.param(
            pod(hostUsers=False, hostNetwork=True),
            ["spec.hostNetwork: Forbidden: when `hostUsers` is false"],
            id="hostUsers",
        ),
        pytest.param(
            pod_with_container(securityContext={"appArmorProfile": {"type": "Localhost"}, "procMount": "Unmasked"}),
            [
                "spec.containers[0].securityContext.procMount: Invalid value: "
                '"Unmasked": `hostUsers` must be false to use `Unmasked`',
                "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value: "
                "must be set when AppArmor type is Localhost",
            ],
            id="a container's security context",
        ),
    ],
)  # fmt: skip
def test_a_pod(body: JSON, causes: list[str]):
    assert create_causes(PODS, body) == causes


def claim(size: str = "1Gi", phase: str = "Pending", **spec: Any) -> JSON:
    resources = {"requests": {"storage": size}}
    return {"spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}, "status": {"phase": phase}}


def test_a_claim_may_grow_when_it_is_bound():
    assert update_causes(PERSISTENT_VOLUME_CLAIMS, claim(phase="Bound"), claim("2Gi", "Bound")) == []
    [cause] = update_causes(PERSISTENT_VOLUME_CLAIMS, claim(), claim("2Gi"))
    assert cause.startswith("spec: Forbidden: spec is immutable after creation except resources.requests and")
    assert update_causes(PERSISTENT_VOLUME_CLAIMS, claim(phase="Bound"), claim("0.5Gi", "Bound")) == []
    have = {**claim(phase="Bound"), "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    assert update_causes(PERSISTENT_VOLUME_CLAIMS, have, claim("512Mi", "Bound")) == [
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    ]


def test_a_local_volume_needs_a_node():
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/a"}}
    assert create_causes(PERSISTENT_VOLUMES, {"spec": spec}) == [
        "spec.nodeAffinity: Required value: Local volume requires node affinity"
    ]


def test_a_quota_names_what_there_is_and_scopes_that_apply():
    body = {"spec": {"hard": {"bogus": "1", "secrets": "1.5"}, "scopes": ["BestEffort", "NotBestEffort"]}}
    scopes = '["BestEffort","NotBestEffort"]'
    assert create_causes(RESOURCE_QUOTAS, body) == [
        'spec.hard[bogus]: Invalid value: "bogus": must be a standard resource type or fully qualified',
        'spec.hard[bogus]: Invalid value: "bogus": must be a standard resource for quota',
        'spec.hard[secrets]: Invalid value: "1500m": must be an integer',
        f"spec.scopes: Invalid value: {scopes}: unsupported scope applied to resource",
        f"spec.scopes: Invalid value: {scopes}: unsupported scope applied to resource",
        f"spec.scopes: Invalid value: {scopes}: conflicting scopes",
    ]
    other = {"spec": {"hard": {"pods": "1"}, "scopes": ["Terminating"]}}
    assert update_causes(RESOURCE_QUOTAS, {"spec": {"hard": {"pods": "1"}}}, other) == [
        'spec.scopes: Invalid value: ["Terminating"]: field is immutable'
    ]


def test_amounts_of_a_limit_range_do_not_contradict_each_other():
    body = {
        "spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "3"}}]}
    }
    where = "spec.limits[0]"
    assert create_causes(LIMIT_RANGES, body) == [
        f'{where}.min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
        f'{where}.defaultRequest[cpu]: Invalid value: "3": default request value 3 is greater than max value 1',
        f'{where}.default[cpu]: Invalid value: "1": default value 3 is greater than max value 1',
    ]
    assert create_causes(LIMIT_RANGES, {"spec": {"limits": [{"type": "PersistentVolumeClaim"}]}}) == [
        "spec.limits[0].limits: Required value: "
        "either minimum or maximum storage value is required, but neither was provided"
    ]


def test_ephemeral_containers_are_added_and_nothing_else_changes():
    old = defaulted(PODS, pod(nodeName="n"))
    debug = {"name": "debug", "image": "busybox", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}
    new = defaulted(PODS, pod(nodeName="m", ephemeralContainers=[debug]))
    kept = prepare_for_pod_subresource_update(new, old, "ephemeralcontainers")
    assert kept["spec"]["nodeName"] == "n"
    assert kept["metadata"]["generation"] == 1
    assert validate_update(PODS, kept, old, subresource="ephemeralcontainers") == []
    without = prepare_for_pod_subresource_update(defaulted(PODS, pod()), kept, "ephemeralcontainers")
    gone = cause_texts(validate_update(PODS, without, kept, subresource="ephemeralcontainers"))
    assert gone == ['spec.ephemeralContainers: Forbidden: existing ephemeral containers "debug" may not be removed\n']


def test_a_resize_changes_amounts_and_keeps_the_class():
    def sized(**resources: Any) -> JSON:
        return defaulted(PODS, pod_with_container(resources=resources))

    old = sized(requests={"cpu": "1"})
    more = prepare_for_pod_subresource_update(sized(requests={"cpu": "2"}), old, "resize")
    assert validate_update(PODS, more, old, subresource="resize") == []
    none = prepare_for_pod_subresource_update(sized(), old, "resize")
    assert cause_texts(validate_update(PODS, none, old, subresource="resize")) == [
        'spec: Invalid value: "": Pod QOS Class may not change as a result of resizing',
        "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
    ]


def test_warnings_of_pods_templates_and_services():
    assert write_warnings(DEPLOYMENTS, {**workload(), "metadata": {"name": "a.b"}})[0].startswith(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
        "a DNS label is recommended: [must not contain dots]"
    )
    two_ports = [{"containerPort": 80, "protocol": "TCP"}]
    body = pod(
        containers=[{"name": "a", "ports": two_ports}, {"name": "b", "ports": two_ports}],
        topologySpreadConstraints=[{"topologyKey": "failure-domain.beta.kubernetes.io/zone"}],
        volumes=[{"name": "v", "gitRepo": {}}],
    )
    body["metadata"] = {"name": "p"}
    assert write_warnings(PODS, body) == [
        "spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since "
        'v1.17; use "topology.kubernetes.io/zone" instead',
        "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
        "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
        "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]",
    ]
    assert write_warnings(PODS, body, pod()) == []
    assert write_warnings(SERVICES, {"spec": {"type": "ClusterIP", "externalName": "x"}}) == [
        'spec.externalName is ignored when spec.type is not "ExternalName"'
    ]


async def test_a_claim_grows_only_where_its_class_lets_it():
    api = InProcessApi()
    api("POST", "/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "fixed"}, "provisioner": "x/y"})
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    body = {"metadata": {"name": "c"}, **claim(storageClassName="fixed")}
    api("POST", claims, body)
    api("PATCH", f"{claims}/c/status", {"status": {"phase": "Bound"}})
    wanted = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    status, answer = api("PATCH", f"{claims}/c", wanted)
    assert (status, answer["message"].partition(": ")[2]) == (
        403,
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support "
        "resize",
    )


async def test_a_load_balancer_with_local_traffic_has_a_port_for_health_checks():
    api = InProcessApi()
    body = {
        "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 1}], "type": "LoadBalancer", "externalTrafficPolicy": "Local"},
    }
    status, made = api("POST", "/api/v1/namespaces/default/services", body)
    assert (status, 30000 <= made["spec"]["healthCheckNodePort"] < 32768) == (201, True)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
        ("010.0.0.0/8", "must not have leading 0s in IP or prefix length"),
        ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
        ("::ffff:10.0.0.0/104", "must not have an IPv4-mapped IPv6 address"),
        ("10.0.0.0/255.0.0.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        ("10.0.0.0", "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        ("FE80::/64", ""),
    ],
)
def test_ranges_are_read_strictly_unless_they_were_there_before(text: str, wrong: str):
    errors = ErrorList()
    validate_cidr(errors, "spec.cidr", text)
    assert [each["message"] for each in errors] == ([f'Invalid value: "{text}": {wrong}'] if wrong else [])
    validate_cidr(errors := ErrorList(), "spec.cidr", text, {text})
    assert not errors
