"""Stages of simulated pods and nodes in virtual time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeloop.controllers.nodelifecycle.node_lifecycle_controller import NodeLifecycleController
from kubeloop.devcluster.kubelet.stages.pod_stages import PodStages
from kubeloop.devcluster.simulation.node_objects import ANNOTATION_FAIL, NodeSettings
from kubeloop.devcluster.simulation.simulation import Simulation
from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.kube.objects.resources import LEASES, NODES, PODS
from support.objects.stages import DELETE, SELECT_ALL, stage_text
from support.simulation.simulated_cluster import SimulatedCluster

POD_STARTS = stage_text(
    "pod-starts",
    spec="""
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.podIP, operator: DoesNotExist}
  delay: {durationMilliseconds: 3000}
  next:
    event: {type: Normal, reason: Starting, message: pod is starting}
    finalizers: {add: [{value: example.com/hold}]}
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
      {{ $meta := .metadata }}
      podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) $meta.uid $meta.name $meta.namespace | Quote }}
      startTime: {{ $now | Quote }}
      conditions:
      - {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        ready: true
        restartCount: 0
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
""",
)
POD_ENDS = stage_text(
    "pod-ends",
    spec="""
  selector: {matchExpressions: [{key: .metadata.deletionTimestamp, operator: Exists}]}
  delay: {durationMilliseconds: 1000, jitterDurationFrom: {expressionFrom: .metadata.deletionTimestamp}}
  next: {finalizers: {remove: [{value: example.com/hold}]}, delete: true}
""",
)
NODE_STARTS = stage_text(
    "node-starts",
    kind="Node",
    spec="""
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ['True']}
  delay: {durationMilliseconds: 2000}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      {{ range NodeConditions }}
      - {type: {{ .type }}, status: {{ .status | Quote }}, reason: {{ .reason }}, message: {{ .message | Quote }},
         lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}}
      {{ end }}
      phase: Running
""",
)


@pytest.mark.virtual_time
async def test_stages_start_and_delete_pod(read_stage_texts):
    async with SimulatedCluster(stages=read_stage_texts(POD_STARTS, POD_ENDS)).running() as cluster:
        cluster.bind()
        await asyncio.sleep(2.9)
        assert cluster.phase() == "Pending"
        await asyncio.sleep(0.2)
        pod = cluster.pod()
        assert pod is not None
        assert pod["status"]["phase"] == "Running"
        assert pod["status"]["podIP"].startswith("10.128.0.")
        assert pod["status"]["podIPs"] == [{"ip": pod["status"]["podIP"]}]  # kubectl shows podIPs
        assert pod["status"]["hostIP"] == "172.16.0.2"
        assert {condition["type"]: condition["status"] for condition in pod["status"]["conditions"]} == {
            "PodScheduled": "True",  # strategic merge by type
            "Ready": "True",
        }
        assert pod["status"]["containerStatuses"][0]["state"]["running"]
        assert pod["metadata"]["finalizers"] == ["example.com/hold"]
        assert ("Starting", "pod is starting") in cluster.events()
        cluster.change_metadata(
            PODS, "web", deletionTimestamp=pod["status"]["startTime"], deletionGracePeriodSeconds=30
        )
        await asyncio.sleep(1.1)
        assert cluster.pod() is None


@pytest.mark.virtual_time
async def test_change_of_pod_restarts_delay(read_stage_texts):
    async with SimulatedCluster(stages=read_stage_texts(POD_STARTS)).running() as cluster:
        cluster.bind()
        await asyncio.sleep(2)
        cluster.change_metadata(PODS, "web", annotations={"some": "thing"})
        await asyncio.sleep(2)
        assert cluster.phase() == "Pending"
        await asyncio.sleep(1.1)
        assert cluster.phase() == "Running"


@pytest.mark.virtual_time
async def test_opted_out_pods_have_built_in_behaviour(read_stage_texts):
    async with SimulatedCluster(stages=read_stage_texts(POD_ENDS)).running() as cluster:
        cluster.bind("staged")
        cluster.bind("built-in", annotations={"stages": "false"})
        cluster.bind("labelled", labels={"kubeloop.dev/stages": "false"})
        await asyncio.sleep(5)
        assert [cluster.phase(name) for name in ("staged", "built-in", "labelled")] == ["Pending", "Running", "Running"]


@pytest.mark.virtual_time
async def test_add_to_annotation_keeps_built_in_behaviour(read_stage_texts):
    pod_breaks = stage_text(
        "pod-breaks",
        metadata="  annotations: {kubeloop.dev/add-to: built-in}",
        spec="""
  selector:
    matchLabels: {breaks: 'true'}
    matchExpressions: [{key: .status.phase, operator: In, values: [Running]}]
  delay: {durationMilliseconds: 10000}
  next: {statusTemplate: "{phase: Failed, reason: Broken, message: it broke}"}
""",
    )
    async with SimulatedCluster(stages=read_stage_texts(pod_breaks)).running() as cluster:
        cluster.bind("steady")
        cluster.bind("brittle", labels={"breaks": "true"})
        await asyncio.sleep(5)
        assert [cluster.phase("steady"), cluster.phase("brittle")] == ["Running", "Running"]
        await asyncio.sleep(100)
        assert [cluster.phase("steady"), cluster.phase("brittle")] == ["Running", "Failed"]
        brittle = cluster.pod("brittle")
        assert brittle is not None
        assert brittle["status"]["reason"] == "Broken"


@pytest.mark.virtual_time
async def test_node_stage_sets_ready_at_start_and_after_recovery(read_stage_texts):
    stages = read_stage_texts(NODE_STARTS)
    async with SimulatedCluster(stages=stages, controllers=[NodeLifecycleController]).running() as cluster:

        def ready_status() -> str:
            node = cluster.store.get(NODES, "", "node-0")
            assert node is not None
            conditions = {
                condition["type"]: condition["status"] for condition in node["status"].get("conditions") or ()
            }
            return conditions.get("Ready", "none")

        await asyncio.sleep(1)
        assert ready_status() == "none"
        await asyncio.sleep(1.5)
        assert ready_status() == "True"
        assert cluster.store.get(LEASES, "kube-node-lease", "node-0") is not None
        cluster.change_metadata(NODES, "node-0", annotations={ANNOTATION_FAIL: "unreachable"})
        await asyncio.sleep(70)
        assert ready_status() == "Unknown"
        cluster.change_metadata(NODES, "node-0", annotations={})
        await asyncio.sleep(2.5)
        assert ready_status() == "True"


@pytest.mark.virtual_time
async def test_pod_stages_wait_while_node_is_unreachable(read_stage_texts):
    async with SimulatedCluster(stages=read_stage_texts(POD_STARTS)).running() as cluster:
        cluster.bind()
        cluster.change_metadata(NODES, "node-0", annotations={ANNOTATION_FAIL: "unreachable"})
        await asyncio.sleep(60)
        assert cluster.phase() == "Pending"
        cluster.change_metadata(NODES, "node-0", annotations={})
        await asyncio.sleep(3.1)
        assert cluster.phase() == "Running"


@pytest.mark.virtual_time
async def test_stage_that_matches_its_own_result_is_rate_limited(read_stage_texts):
    ticks = stage_text(
        "ticks",
        metadata="  annotations: {kubeloop.dev/add-to: built-in}",
        spec=SELECT_ALL + "  immediateNextStage: true\n  next: {statusTemplate: '{message: {{ Now | Quote }}}'}\n",
    )
    async with SimulatedCluster(stages=read_stage_texts(ticks)).running() as cluster:
        cluster.bind()
        await asyncio.sleep(1)
        before = cluster.store.revision
        await asyncio.sleep(10)
        assert 5 <= cluster.store.revision - before <= 30


@pytest.mark.parametrize(
    ("next_fields", "problem"),
    [
        ("{statusTemplate: 'phase: [{{ .spec.nodeName }}'}", "the template does not render to YAML"),
        ("{statusTemplate: 'Running'}", "renders a str, not a map"),
        ("{statusTemplate: 'phase: {a: 1}'}", "not a valid Pod"),
        ("{statusTemplate: '{{ index .spec.volumes 0 }}'}", "index of untyped nil"),
        ("{patches: [{type: json, template: '[{op: remove, path: /spec/x}]'}]}", "does not apply"),
    ],
)
@pytest.mark.virtual_time
async def test_failing_stage_is_reported_in_event(read_stage_texts, next_fields, problem):
    async with SimulatedCluster(
        stages=read_stage_texts(stage_text(spec=f"{SELECT_ALL}  next: {next_fields}\n"))
    ).running() as cluster:
        cluster.bind()
        await asyncio.sleep(1)
        (text,) = [message for reason, message in cluster.events() if reason == "StageFailed"]
        assert problem in text
        assert cluster.phase() == "Pending"


@pytest.mark.virtual_time
async def test_steps_apply_patches_of_all_types_in_order(read_stage_texts):
    spec = """
  selector: {matchExpressions: [{key: .metadata.labels.done, operator: DoesNotExist}]}
  steps:
  - event: {type: Warning, reason: First}
  - patch: {type: merge, root: metadata, template: "labels: {merged: {{ .metadata.name | Quote }}}"}
  - patch: {type: json, root: metadata, template: "[{op: add, path: /labels/json, value: 'yes'}]"}
  - patch: {type: strategic, root: status, subresource: status, template: "{phase: Running, unknown: 1}"}
  - patch: {template: "metadata: {labels: {done: 'true'}, uid: other, name: other}"}
"""
    async with SimulatedCluster(stages=read_stage_texts(stage_text(spec=spec))).running() as cluster:
        cluster.bind()
        await asyncio.sleep(1)
        pod = cluster.pod()
        assert pod is not None
        assert pod["metadata"]["labels"] == {"merged": "web", "json": "yes", "done": "true"}
        assert pod["metadata"]["uid"] == "uid-web"
        assert pod["status"]["phase"] == "Running"
        assert "unknown" not in pod["status"]
        assert [reason for reason, _ in cluster.events()] == ["First"]


HEALTH = "[{name: gpu, resources: [{resourceID: a, health: Healthy}]}]"
STATUS_WITH_HEALTH = f"""
  selector: {{matchExpressions: [{{key: .status.phase, operator: In, values: [Pending]}}]}}
  next:
    statusTemplate: |
      phase: Running
      containerStatuses: [{{name: c, allocatedResourcesStatus: {HEALTH}}}]
"""


@pytest.mark.virtual_time
@pytest.mark.parametrize("enabled", [True, False])
async def test_stage_sets_no_field_of_a_disabled_gate(read_stage_texts, enabled):
    gates = FeatureGates({"ResourceHealthStatus": enabled, "ResourceHealthStatusMessage": enabled})
    stages = read_stage_texts(stage_text("health", spec=STATUS_WITH_HEALTH))
    async with SimulatedCluster(stages=stages, gates=gates).running() as cluster:
        cluster.bind("a")
        await asyncio.sleep(2)
        (container,) = cluster.pod("a")["status"]["containerStatuses"]
        assert ("allocatedResourcesStatus" in container) is enabled


@pytest.mark.virtual_time
async def test_node_stage_deletes_node(read_stage_texts):
    deletes = stage_text(
        "deletes",
        kind="Node",
        metadata="  annotations: {kubeloop.dev/add-to: built-in}",
        spec="  selector: {matchLabels: {spot: 'true'}}\n  delay: {durationMilliseconds: 5000}\n" + DELETE,
    )
    async with SimulatedCluster(stages=read_stage_texts(deletes)).running() as cluster:
        cluster.change_metadata(NODES, "node-1", labels={"spot": "true"})
        await asyncio.sleep(4)
        assert cluster.store.get(NODES, "", "node-1") is not None
        await asyncio.sleep(1.5)
        assert cluster.store.get(NODES, "", "node-1") is None
        assert cluster.store.get(NODES, "", "node-0") is not None


@pytest.mark.virtual_time
async def test_same_seed_gives_same_results(read_stage_texts):
    delay = "delay: {durationMilliseconds: 3000"
    stages = read_stage_texts(POD_STARTS.replace(delay, f"{delay}, jitterDurationMilliseconds: 60000"), POD_ENDS)

    async def addresses_of_run(seed: int) -> list[tuple[str, Any]]:
        async with SimulatedCluster(stages=stages, seed=seed).running() as cluster:
            for number in range(20):
                cluster.bind(f"web-{number}")
            await asyncio.sleep(30)  # about half of the pods have started
            return [(pod["metadata"]["name"], pod["status"].get("podIP")) for pod in cluster.store.list(PODS)]

    assert await addresses_of_run(1) == await addresses_of_run(1) != await addresses_of_run(2)


@pytest.mark.parametrize(
    ("add_to", "kind", "replaces"),
    [
        pytest.param("", "Pod", True, id="stage of pods"),
        pytest.param("  annotations: {kubeloop.dev/add-to: built-in}", "Pod", False, id="stage added to the built-in"),
        pytest.param("", "Node", False, id="stage of nodes only"),
    ],
)
@pytest.mark.virtual_time
async def test_replaces_built_in_behaviour_of_pods(read_stage_texts, add_to, kind, replaces):
    stages = read_stage_texts(stage_text(kind=kind, metadata=add_to, spec=SELECT_ALL + DELETE))
    cluster = SimulatedCluster()
    simulation = Simulation(cluster.store, NodeSettings(), clock=cluster.clock, rng=random.Random(1))
    assert PodStages(simulation, stages, lambda: None).replaces("Pod") is replaces


async def test_stage_with_expression_evaluated_in_the_background_starts_pod(read_stage_texts):
    text = POD_STARTS.replace("3000", "0").replace(
        "{key: .metadata.deletionTimestamp, operator: DoesNotExist}",
        "{key: '.metadata.name | test(\"^web\")', operator: In, values: ['true']}",
    )
    async with SimulatedCluster(stages=read_stage_texts(text)).running() as cluster, asyncio.timeout(60):
        cluster.bind()
        cluster.bind("other")
        while cluster.phase() == "Pending":
            await asyncio.sleep(0.01)
        assert cluster.phase("other") == "Pending"


async def test_new_pod_that_no_stage_selects_has_a_warning(read_stage_texts, caplog):
    spec = "  selector: {matchLabels: {a: b}}\n  next: {event: {type: Normal, reason: R, message: m}}\n"
    stages = read_stage_texts(stage_text("labelled", spec=spec))
    async with SimulatedCluster(stages=stages).running() as cluster:
        cluster.bind()
        cluster.bind("other")
        await asyncio.sleep(5)
        messages = [message for reason, message in cluster.events() if reason == "NoStage"]
        assert len(messages) == 2
        assert "give each the annotation kubeloop.dev/add-to: built-in" in messages[0]
        assert caplog.text.count("stays Pending") == 1


async def test_pod_of_a_selecting_stage_has_no_warning(read_stage_texts):
    async with SimulatedCluster(stages=read_stage_texts(POD_STARTS)).running() as cluster:
        cluster.bind()
        await asyncio.sleep(5)
        cluster.change(metadata={**(cluster.pod() or {})["metadata"], "labels": {"a": "b"}})
        await asyncio.sleep(5)
        assert not [reason for reason, _ in cluster.events() if reason == "NoStage"]
