"""Both settings of the feature gates that the controllers and the development API server obey."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.api.request import ApiRequest
from kubeloop.devcluster.api.served_resources import BY_KIND
from kubeloop.devcluster.handlers.reading.list_options import parse_list_options
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.testing.in_memory import memory_cluster
from support.apiserver.api_requests import InProcessApi
from support.objects.manifests import deployment
from support.objects.validation_causes import pod, pod_with_container

JSON = dict[str, Any]
JOBS = BY_KIND[("batch/v1", "Job")].resource
PODS = "/api/v1/namespaces/default/pods"
BOTH = pytest.mark.parametrize("enabled", [True, False], ids=["on", "off"])


def api_with(**gates: bool) -> InProcessApi:
    return InProcessApi(settings=ServingSettings(feature_gates=FeatureGates(gates)))


def created(api: InProcessApi, path: str, body: JSON, name: str = "x") -> JSON:
    status, response = api("POST", path, {**body, "metadata": {"name": name, **body.get("metadata", {})}})
    assert status == 201, response
    return response


def messages(api: InProcessApi, path: str, body: JSON) -> list[str]:
    """Return "field: message" of each cause against creating the object."""
    status, response = api("POST", path, {**body, "metadata": {"name": "refused", **body.get("metadata", {})}})
    assert status == 422, response
    return [f"{cause['field']}: {cause['message']}" for cause in response["details"]["causes"]]


# --- controllers ------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.virtual_time
async def test_pod_deletion_cost_decides_which_pod_is_deleted(clock, enabled):
    async with memory_cluster(clock=clock, nodes=2, feature_gates={"PodDeletionCost": enabled}) as cluster:
        api = InProcessApi(cluster.api)
        path = "/apis/apps/v1/namespaces/default/deployments"
        assert api("POST", path, deployment("web", replicas=3))[0] == 201
        await cluster.until(lambda: sum(p.status.phase == "Running" for p in cluster.seen_pods()) == 3)
        nodes = [seen.spec.node_name for seen in cluster.seen_pods()]
        (alone,) = (seen for seen in cluster.seen_pods() if nodes.count(seen.spec.node_name) == 1)
        cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}}
        assert api("PATCH", f"{PODS}/{alone.metadata.name}", cost)[0] == 200
        assert api("PATCH", f"{path}/web", {"spec": {"replicas": 2}})[0] == 200
        await cluster.until(lambda: len(cluster.seen_pods()) == 2)
        assert (alone.key not in {seen.key for seen in cluster.seen_pods()}) == enabled


@BOTH
@pytest.mark.virtual_time
async def test_terminating_replicas_are_counted(clock, enabled):
    gates = {"DeploymentReplicaSetTerminatingReplicas": enabled}
    async with memory_cluster(clock=clock, nodes=1, feature_gates=gates) as cluster:
        api = InProcessApi(cluster.api)
        path = "/apis/apps/v1/namespaces/default"
        assert api("POST", f"{path}/deployments", deployment("web", replicas=1))[0] == 201
        await cluster.until(
            lambda: api("GET", f"{path}/deployments/web")[1].get("status", {}).get("availableReplicas") == 1
        )
        (replica_set,) = api("GET", f"{path}/replicasets")[1]["items"]
        status = api("GET", f"{path}/deployments/web")[1]["status"]
        assert status.get("terminatingReplicas") == (0 if enabled else None)
        assert replica_set["status"].get("terminatingReplicas") == (0 if enabled else None)


# --- status fields ----------------------------------------------------------------------------------------------------


@BOTH
async def test_terminating_replicas_of_a_client_are_stored(enabled):
    api = api_with(DeploymentReplicaSetTerminatingReplicas=enabled)
    path = "/apis/apps/v1/namespaces/default/deployments"
    body = deployment("web", replicas=1)
    assert api("POST", path, body)[0] == 201
    status = api("PATCH", f"{path}/web/status", {"status": {"terminatingReplicas": 2}})[1]["status"]
    assert status.get("terminatingReplicas") == (2 if enabled else None)


@BOTH
async def test_volume_status_of_a_container_is_stored(enabled):
    api = api_with(ImageVolumeWithDigest=enabled)
    created(api, PODS, pod())
    mount = {"name": "v", "mountPath": "/v"}
    container = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": {}}
    statuses = [{**container, "volumeMounts": [{**mount, "volumeStatus": {"image": {"imageRef": "r"}}}]}]
    status, response = api("PATCH", f"{PODS}/x/status", {"status": {"containerStatuses": statuses}})
    assert status == 200, response
    (stored,) = response["status"]["containerStatuses"][0]["volumeMounts"]
    assert ("volumeStatus" in stored) == enabled


@BOTH
async def test_status_of_a_service_range_is_not_set_with_its_creation(enabled):
    api = api_with(ServiceCIDRStatusFieldWiping=enabled)
    time = "2026-01-01T00:00:00Z"
    condition = {"type": "Other", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": time}
    body = {"spec": {"cidrs": ["10.9.0.0/24"]}, "status": {"conditions": [condition]}}
    response = created(api, "/apis/networking.k8s.io/v1/servicecidrs", body)
    assert (condition in (response["status"].get("conditions") or ())) != enabled


@BOTH
async def test_responses_are_compressed(enabled):
    assert api_with(APIResponseCompression=enabled).server.compresses_responses == enabled


@BOTH
async def test_declared_features_of_a_node_are_stored(enabled):
    api = api_with(NodeDeclaredFeatures=enabled)
    created(api, "/api/v1/nodes", {})
    node = api("PATCH", "/api/v1/nodes/x/status", {"status": {"declaredFeatures": ["A"]}})[1]
    assert node["status"].get("declaredFeatures") == (["A"] if enabled else None)


# --- fields of pods ---------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("gate", "body", "path"),
    [
        (
            "ContainerStopSignals",
            pod_with_container(lifecycle={"stopSignal": "SIGTERM"}),
            ("containers", 0, "lifecycle"),
        ),
        (
            "HostnameOverride",
            pod(hostnameOverride="host"),
            ("hostnameOverride",),
        ),
        (
            "EnvFiles",
            pod(
                containers=[
                    {
                        "name": "c",
                        "image": "i",
                        "env": [
                            {
                                "name": "A",
                                "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}},
                            }
                        ],
                    }
                ],
                volumes=[{"name": "v", "emptyDir": {}}],
            ),
            ("containers", 0, "env", 0, "valueFrom", "fileKeyRef"),
        ),
    ],
    ids=["stop signal", "hostname override", "file key"],
)
async def test_field_of_a_pod_is_stored_if_its_gate_is_on(gate, body, path, enabled):
    if gate == "ContainerStopSignals":
        body = {"spec": {**body["spec"], "os": {"name": "linux"}}}
    api = api_with(**{gate: enabled})
    status, value = api("POST", PODS, {**body, "metadata": {"name": "x"}})
    if gate == "EnvFiles" and not enabled:
        assert status == 422  # an entry of valueFrom without a source is left
        return
    assert status == 201, value
    value = value["spec"]
    for name in path[:-1]:
        value = value[name]
    assert (path[-1] in value) == enabled


@BOTH
async def test_restart_rules_are_stored(enabled):
    api = api_with(ContainerRestartRules=enabled)
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    body = pod_with_container(restartPolicy="Never", restartPolicyRules=rules)
    (container,) = created(api, PODS, body)["spec"]["containers"]
    assert container.get("restartPolicyRules") == (rules if enabled else None)
    assert container.get("restartPolicy") == ("Never" if enabled else None)


@BOTH
async def test_restart_of_all_containers_is_allowed(enabled):
    api = api_with(RestartAllContainersOnContainerExits=enabled)
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]
    body = pod_with_container(restartPolicy="Never", restartPolicyRules=rules)
    if enabled:
        created(api, PODS, body)
    else:
        where = "spec.containers[0].restartPolicyRules[0].action"
        text = f'{where}: Unsupported value: "RestartAllContainers": supported values: "Restart"'
        assert messages(api, PODS, body) == [text]


@BOTH
async def test_keys_of_spread_constraints_are_merged_into_selectors(enabled):
    api = api_with(MatchLabelKeysInPodTopologySpreadSelectorMerge=enabled)
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["version"],
    }
    body = {**pod(topologySpreadConstraints=[spread]), "metadata": {"labels": {"version": "1"}}}
    (constraint,) = created(api, PODS, body)["spec"]["topologySpreadConstraints"]
    merged = [{"key": "version", "operator": "In", "values": ["1"]}]
    assert constraint["matchLabelKeys"] == ["version"]
    assert constraint["labelSelector"].get("matchExpressions") == (merged if enabled else None)


async def test_keys_in_the_selector_are_refused_without_the_merge():
    api = api_with(MatchLabelKeysInPodTopologySpreadSelectorMerge=False)
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["app"],
    }
    where = "spec.topologySpreadConstraints[0].matchLabelKeys[0]"
    text = f'{where}: Invalid value: "app": exists in both matchLabelKeys and labelSelector'
    assert messages(api, PODS, pod(topologySpreadConstraints=[spread])) == [text]


@BOTH
async def test_keys_of_spread_constraints_are_stored(enabled):
    gates = {"MatchLabelKeysInPodTopologySpread": enabled, "MatchLabelKeysInPodTopologySpreadSelectorMerge": False}
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["version"],
    }
    (constraint,) = created(api_with(**gates), PODS, pod(topologySpreadConstraints=[spread]))["spec"][
        "topologySpreadConstraints"
    ]
    assert constraint.get("matchLabelKeys") == (["version"] if enabled else None)


@BOTH
async def test_pod_level_resources_are_stored(enabled):
    api = api_with(
        PodLevelResources=enabled, InPlacePodLevelResourcesVerticalScaling=False, PodLevelResourceManagers=False
    )
    created_pod = created(api, PODS, pod(resources={"limits": {"cpu": "1"}}))
    resources = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert created_pod["spec"].get("resources") == (resources if enabled else None)
    assert created_pod["status"]["qosClass"] == ("Burstable" if enabled else "BestEffort")


# --- validation -------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("operator", ["Lt", "Gt"])
async def test_tolerations_compare_integers(operator, enabled):
    api = api_with(TaintTolerationComparisonOperators=enabled)
    body = pod(tolerations=[{"key": "a", "operator": operator, "value": "5"}])
    if enabled:
        assert created(api, PODS, body)["spec"]["tolerations"][0]["operator"] == operator
    else:
        supported = '"Equal", "Exists", "Lt", "Gt"'
        text = f'Unsupported value: "{operator}": supported values: {supported}'
        assert messages(api, PODS, body) == [f"spec.tolerations[0].operator: {text}"]


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ("01", ["must be a valid decimal integer in canonical form"]),
        ("-0", ["must be a valid decimal integer in canonical form"]),
        ("", ["must be non-empty", 'strconv.ParseInt: parsing "": invalid syntax']),
        (
            "a",
            [
                "must be a valid decimal integer in canonical form",
                'strconv.ParseInt: parsing "a": invalid syntax',
            ],
        ),
        ("9223372036854775808", ['strconv.ParseInt: parsing "9223372036854775808": value out of range']),
        ("-9223372036854775808", []),
    ],
)
async def test_value_of_a_comparing_toleration_is_an_integer(value, problems):
    api = api_with(TaintTolerationComparisonOperators=True)
    body = pod(tolerations=[{"key": "a", "operator": "Gt", "value": value}])
    if not problems:
        created(api, PODS, body)
        return
    where = "spec.tolerations[0].value"
    assert messages(api, PODS, body) == [f'{where}: Invalid value: "{value}": {problem}' for problem in problems]


@BOTH
async def test_user_namespace_with_host_network_is_allowed(enabled):
    api = api_with(UserNamespacesHostNetworkSupport=enabled)
    body = pod(hostUsers=False, hostNetwork=True)
    if enabled:
        created(api, PODS, body)
    else:
        assert messages(api, PODS, body) == ["spec.hostNetwork: Forbidden: when `hostUsers` is false"]


@BOTH
async def test_invalid_deletion_cost_is_refused(enabled):
    api = api_with(PodDeletionCost=enabled)
    name = "controller.kubernetes.io/pod-deletion-cost"
    body = {**pod(), "metadata": {"annotations": {name: "much"}}}
    if enabled:
        text = f'metadata.annotations[{name}]: Invalid value: "much": must be a 32bit integer'
        assert messages(api, PODS, body) == [text]
    else:
        created(api, PODS, body)


@BOTH
async def test_nominated_node_of_a_bound_pod_cannot_be_set(enabled):
    api = api_with(ClearingNominatedNodeNameAfterBinding=enabled)
    created(api, PODS, pod(nodeName="n"))
    status, response = api("PATCH", f"{PODS}/x/status", {"status": {"nominatedNodeName": "m"}})
    assert status == (422 if enabled else 200), response


@BOTH
async def test_autoscaler_may_scale_to_zero(enabled):
    api = api_with(HPAScaleToZero=enabled)
    metric = {"external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "1"}}, "type": "External"}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"minReplicas": 0, "maxReplicas": 2, "scaleTargetRef": reference, "metrics": [metric]}
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    if enabled:
        created(api, path, {"spec": spec})
        assert messages(api, path, {"spec": {**spec, "minReplicas": -1}}) == [
            "spec.minReplicas: Invalid value: -1: must be greater than or equal to 0"
        ]
    else:
        assert messages(api, path, {"spec": spec}) == [
            "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"
        ]


# --- other kinds ------------------------------------------------------------------------------------------------------


@BOTH
async def test_tolerance_of_an_autoscaler_is_stored(enabled):
    api = api_with(HPAConfigurableTolerance=enabled)
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"maxReplicas": 2, "scaleTargetRef": reference, "behavior": {"scaleUp": {"tolerance": "0.1"}}}
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    behavior = created(api, path, {"spec": spec})["spec"]["behavior"]
    assert behavior["scaleUp"].get("tolerance") == ("100m" if enabled else None)


@BOTH
async def test_max_unavailable_of_a_stateful_set_is_stored_and_defaulted(enabled):
    api = api_with(MaxUnavailableStatefulSet=enabled)
    template = {**pod(), "metadata": {"labels": {"a": "b"}}}
    spec: JSON = {"selector": {"matchLabels": {"a": "b"}}, "serviceName": "s", "template": template}
    path = "/apis/apps/v1/namespaces/default/statefulsets"
    strategy = created(api, path, {"spec": spec}, "default")["spec"]["updateStrategy"]
    assert strategy["rollingUpdate"].get("maxUnavailable") == (1 if enabled else None)
    spec["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}
    strategy = created(api, path, {"spec": spec}, "three")["spec"]["updateStrategy"]
    assert strategy["rollingUpdate"].get("maxUnavailable") == (3 if enabled else None)


@BOTH
async def test_csi_driver_prevents_scheduling_if_missing(enabled):
    api = api_with(VolumeLimitScaling=enabled)
    path = "/apis/storage.k8s.io/v1/csidrivers"
    assert created(api, path, {"spec": {}}, "default")["spec"].get("preventPodSchedulingIfMissing") == (
        False if enabled else None
    )
    spec = {"preventPodSchedulingIfMissing": True}
    assert created(api, path, {"spec": spec}, "true")["spec"].get("preventPodSchedulingIfMissing") == (
        True if enabled else None
    )


@BOTH
async def test_node_affinity_of_a_volume_can_change(enabled):
    api = api_with(MutablePVNodeAffinity=enabled)

    def affinity(zone: str) -> JSON:
        expression = {"key": "zone", "operator": "In", "values": [zone]}
        return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}

    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"},
        "nodeAffinity": affinity("a"),
    }
    created(api, "/api/v1/persistentvolumes", {"spec": spec})
    changed = {"spec": {"nodeAffinity": affinity("b")}}
    status, response = api("PATCH", "/api/v1/persistentvolumes/x", changed)
    assert status == (200 if enabled else 422), response


# --- resize -----------------------------------------------------------------------------------------------------------


@BOTH
async def test_init_containers_can_be_resized(enabled):
    api = api_with(InPlacePodVerticalScalingInitContainers=enabled)
    requests = {"requests": {"cpu": "1"}}
    created(api, PODS, pod(initContainers=[{"name": "i", "image": "i", "resources": requests}]))
    body = {"spec": {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}]}}
    patch_type = "application/strategic-merge-patch+json"
    status, response = api("PATCH", f"{PODS}/x/resize", body, patch_type)
    if enabled:
        assert status == 200, response
        assert response["spec"]["initContainers"][0]["resources"]["requests"] == {"cpu": "2"}
    else:
        assert status == 422
        assert response["details"]["causes"] == [
            {
                "reason": "FieldValueForbidden",
                "message": "Forbidden: resources for non-sidecar init containers are immutable",
                "field": "spec",
            }
        ]


@BOTH
async def test_pods_with_pod_level_resources_can_be_resized(enabled):
    api = api_with(InPlacePodLevelResourcesVerticalScaling=enabled)
    created(api, PODS, pod(resources={"requests": {"cpu": "1"}}))
    body = {"spec": {"resources": {"requests": {"cpu": "2"}}}}
    status, response = api("PATCH", f"{PODS}/x/resize", body)
    if enabled:
        assert status == 200, response
        assert response["spec"]["resources"]["requests"] == {"cpu": "2"}
    else:
        assert status == 422
        assert "InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled" in response["message"]


# --- other parts of the API server ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "signal", "problem"),
    [
        ("linux", "SIGRTMIN+15", None),
        ("windows", "SIGKILL", None),
        ("windows", "SIGHUP", 'Unsupported value: "SIGHUP": supported values: "SIGKILL", "SIGTERM"'),
        (None, "SIGTERM", "Forbidden: may not be set for containers with empty `spec.os.name`"),
    ],
)
async def test_stop_signal_belongs_to_the_operating_system(system, signal, problem):
    api = api_with(ContainerStopSignals=True)
    body = pod_with_container(lifecycle={"stopSignal": signal})
    if system is not None:
        body["spec"]["os"] = {"name": system}
    if problem is None:
        created(api, PODS, body)
    else:
        assert messages(api, PODS, body) == [f"spec.containers[0].lifecycle.stopSignal: {problem}"]


@BOTH
async def test_mount_option_is_an_selinux_change_policy(enabled):
    api = api_with(SELinuxMount=enabled)
    body = pod(securityContext={"seLinuxChangePolicy": "MountOption"})
    if enabled:
        created(api, PODS, body)
    else:
        assert messages(api, PODS, body)[0].startswith("spec.securityContext.seLinuxChangePolicy: ")


@BOTH
async def test_data_source_of_another_namespace_is_stored(enabled):
    api = api_with(CrossNamespaceVolumeDataSource=enabled)
    reference = {"apiGroup": "g.io", "kind": "K", "name": "n", "namespace": "other"}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "dataSourceRef": reference,
    }
    claim = created(api, "/api/v1/namespaces/default/persistentvolumeclaims", {"spec": spec})
    assert claim["spec"].get("dataSourceRef") == (reference if enabled else None)
    assert "dataSource" not in claim["spec"]


async def suspended_job(api: InProcessApi, *, started: bool) -> None:
    """Create the suspended Job x; `started`: it has run before."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    created(api, "/apis/batch/v1/namespaces/default/jobs", {"spec": {"suspend": True, "template": template}})
    if started:
        now = "2026-01-01T00:00:00Z"
        condition = {"type": "Suspended", "status": "True", "lastTransitionTime": now}
        store = api.server.store
        (job,) = store.list(JOBS)
        before = store.table(JOBS).get("default/x")
        assert before is not None
        store.table(JOBS).update(before, {**job, "status": {"startTime": now, "conditions": [condition]}})


@BOTH
async def test_resources_of_a_suspended_job_can_change(enabled):
    api = api_with(MutablePodResourcesForSuspendedJobs=enabled)
    await suspended_job(api, started=False)
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    body = {"spec": {"template": {"spec": {"containers": [container]}}}}
    status, response = api("PATCH", "/apis/batch/v1/namespaces/default/jobs/x", body)
    assert status == (200 if enabled else 422), response


@BOTH
@pytest.mark.parametrize("started", [False, True])
async def test_node_selector_of_a_suspended_job_can_change(enabled, started):
    api = api_with(MutableSchedulingDirectivesForSuspendedJobs=enabled)
    await suspended_job(api, started=started)
    body = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    status, response = api("PATCH", "/apis/batch/v1/namespaces/default/jobs/x", body)
    assert status == (200 if enabled or not started else 422), response


@BOTH
async def test_mutating_admission_policies_change_objects(enabled):
    api = api_with(MutatingAdmissionPolicy=enabled)
    group = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    expression = 'Object{metadata: Object.metadata{labels: {"a": "b"}}}'
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
    }
    created(api, f"{group}/mutatingadmissionpolicies", {"spec": spec})
    created(api, f"{group}/mutatingadmissionpolicybindings", {"spec": {"policyName": "x"}})
    body = {"metadata": {"name": "c"}}
    status, config_map = await api.handle("POST", "/api/v1/namespaces/default/configmaps", body)
    assert status == 201, config_map
    assert config_map["metadata"].get("labels") == ({"a": "b"} if enabled else None)


@BOTH
@pytest.mark.parametrize(("path", "gate"), [("/flagz", "ComponentFlagz"), ("/statusz", "ComponentStatusz")])
async def test_zpage_is_served(path, gate, enabled):
    api = api_with(**{gate: enabled})
    assert api("GET", path, accept="text/plain")[0] == (200 if enabled else 404)
    assert (path in api("GET", "/")[1]["paths"]) == enabled


@BOTH
async def test_watch_may_send_initial_events(enabled):
    api = api_with(WatchList=enabled)
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    if enabled:
        response = api.respond("GET", f"{PODS}?{query}")
        assert response.status == 200
    else:
        status, response = api("GET", f"{PODS}?{query}")
        assert status == 422
        text = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        assert [cause["message"] for cause in response["details"]["causes"]] == [f"Forbidden: {text}"]


@pytest.mark.parametrize("watch_list", [True, False])
async def test_watch_without_a_version_starts_with_the_present_objects(watch_list):
    request = ApiRequest.of("GET", "/x?watch=1")
    options = parse_list_options(request, BY_KIND[("v1", "Pod")], "default", watch_list=watch_list)
    assert options.send_initial_events
    assert options.marks_initial_events_end == watch_list


@BOTH
async def test_service_name_may_start_with_a_digit(enabled):
    api = api_with(RelaxedServiceNameValidation=enabled)
    services = "/api/v1/namespaces/default/services"
    ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
    backend = {"service": {"name": "1a", "port": {"number": 80}}}
    status, response = api("POST", services, {"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 80}]}})
    assert status == (201 if enabled else 422), response
    status, response = api("POST", ingresses, {"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}})
    assert status == (201 if enabled else 422), response
    if not enabled:
        (cause,) = response["details"]["causes"]
        assert cause["field"] == "spec.defaultBackend.service.name"
        assert "a DNS-1035 label must consist of" in cause["message"]


@BOTH
async def test_resize_needs_a_node_that_declares_its_features(enabled):
    api = api_with(NodeDeclaredFeatures=enabled)
    created(api, "/api/v1/nodes", {})
    allocatable = {"allocatable": {"cpu": "8", "memory": "1Gi"}}
    assert api("PATCH", "/api/v1/nodes/x/status", {"status": allocatable})[0] == 200
    created(api, PODS, pod(nodeName="x", resources={"requests": {"cpu": "1"}}))
    body = {"spec": {"resources": {"requests": {"cpu": "2"}}}}
    status, response = api("PATCH", f"{PODS}/x/resize", body)
    if not enabled:
        assert status == 200, response
        return
    feature = "InPlacePodLevelResourcesVerticalScaling"
    text = f'pod update requires features {feature} which are not available on node "x"'
    assert (status, response["message"]) == (403, f'pods "x" is forbidden: {text}')
    assert api("PATCH", "/api/v1/nodes/x/status", {"status": {"declaredFeatures": [feature]}})[0] == 200
    assert api("PATCH", f"{PODS}/x/resize", body)[0] == 200


@BOTH
@pytest.mark.virtual_time
async def test_simulated_nodes_declare_the_features_of_their_kubelet(clock, enabled):
    gates = {"RestartAllContainersOnContainerExits": enabled}
    async with memory_cluster(clock=clock, nodes=1, feature_gates=gates) as cluster:
        (node,) = InProcessApi(cluster.api)("GET", "/api/v1/nodes")[1]["items"]
    assert node["status"]["declaredFeatures"] == [
        "ExtendWebSocketsToKubelet",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        *(["RestartAllContainersOnContainerExits"] if enabled else []),
    ]
