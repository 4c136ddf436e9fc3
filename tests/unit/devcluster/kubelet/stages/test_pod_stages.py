"""Stage files: what they may say, which stage an object is in for, and what becomes of pods and nodes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubeloop.devcluster.kubelet.stages.files import Stage, read_stages
from kubeloop.devcluster.kubelet.stages.lifecycle import delay_seconds, matches, select_stage
from kubeloop.devcluster.simulation.node_objects import ANNOTATION_FAIL
from kubeloop.kube.errors import UserError
from kubeloop.kube.objects.resources import LEASES, NODES, PODS
from support.simulated_cluster import SimulatedCluster

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def stage_text(name: str = "one", *, kind: str = "Pod", spec: str = "", meta: str = "") -> str:
    return f"""
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: {name}
{meta}
spec:
  resourceRef: {{apiGroup: v1, kind: {kind}}}
{spec}
"""


@pytest.fixture
def stages(tmp_path):
    """Texts of stage files, read."""

    def read(*texts: str) -> list[Stage]:
        path = tmp_path / "stages.yaml"
        path.write_text("---".join(texts))
        return read_stages([path])

    return read


# --- files

ANY = "  selector: {}\n"
DELETE = "  next: {delete: true}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("a: [", "stages.yaml", id="no YAML"),
        pytest.param("", "the file contains no stages", id="an empty file"),
        pytest.param("kind: Pod\napiVersion: v1\n", "stages.yaml:1: v1 Pod is not supported", id="another kind"),
        pytest.param("- 1", ":1: a map is required", id="a list"),
        pytest.param(stage_text(spec=ANY), "spec.next is missing", id="no next"),
        pytest.param(stage_text(spec=DELETE), "spec.selector is missing", id="no selector"),
        pytest.param(stage_text(kind="''", spec=ANY + DELETE), ":8: spec.resourceRef: kind is missing", id="no kind"),
        pytest.param(
            stage_text(spec=ANY + DELETE).replace("apiGroup: v1", "apiGroup: apps"),
            ":8: spec.resourceRef.apiGroup: 'apps' is not an apiVersion",
            id="a group without a version",
        ),
        pytest.param(stage_text(spec=ANY + DELETE + "  wait: 1\n"), ":11: spec: field 'wait'", id="unknown field"),
        pytest.param(
            stage_text(spec=ANY + "  next: {delete: maybe}\n"), ":10: spec.next.delete: 'maybe' is not", id="boolean"
        ),
        pytest.param(
            stage_text(spec=ANY + DELETE + "  delay: {durationMilliseconds: 1s}\n"),
            ":11: spec.delay.durationMilliseconds: '1s' is not a non-negative integer",
            id="number",
        ),
        pytest.param(
            stage_text(spec="  selector:\n    matchExpressions:\n    - {key: '.a |', operator: Exists}\n" + DELETE),
            ":11: spec.selector.matchExpressions[0].key: jq expression '.a |': the expression ends too soon",
            id="jq",
        ),
        pytest.param(
            stage_text(spec="  selector:\n    matchExpressions:\n    - {key: .a, operator: In}\n" + DELETE),
            ":11: spec.selector.matchExpressions[0]: In needs values",
            id="In without values",
        ),
        pytest.param(
            stage_text(spec="  selector:\n    matchExpressions:\n    - cel: {expression: 'self.a =='}\n" + DELETE),
            ":11: spec.selector.matchExpressions[0].cel.expression: CEL expression 'self.a ==': ERROR: <input>:1:10:",
            id="CEL",
        ),
        pytest.param(
            stage_text(spec=ANY + "  next:\n    statusTemplate: |\n\n      phase: {{ .x }}\n      a: {{ date }}\n"),
            ":14: spec.next.statusTemplate: template: function 'date' is not supported",
            id="a function that is not supported, at its line",
        ),
        pytest.param(
            stage_text(spec=ANY + "  next: {statusTemplate: '{{ if }}'}\n"), ":10: ", id="a template in one line"
        ),
        pytest.param(
            stage_text(spec=ANY + "  steps:\n  - apply: {template: x, type: json}\n"),
            ":11: spec.steps[0].apply.type: 'json' is not one of apply, merge, strategic",
            id="apply",
        ),
        pytest.param(
            stage_text(spec=ANY + DELETE) + "---" + stage_text(spec=ANY + DELETE),
            "'one' is defined more than once",
            id="twice",
        ),
        pytest.param(
            stage_text(spec=ANY + DELETE, meta="  annotations: {kubeloop.dev/add-to: x}"), "is not one of", id="add-to"
        ),
    ],
)
def test_what_is_no_stage_is_refused_with_file_and_line(stages, text, problem):
    with pytest.raises(UserError) as refused:
        stages(text)
    assert problem in str(refused.value)
    assert refused.value.hint


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(UserError, match="No such file"):
        read_stages([Path("/nowhere/stages.yaml")])


def test_empty_documents_and_null_fields_do_not_count(stages):
    text = stage_text(spec=ANY + DELETE + "  weight: null\n  delay:\n")
    assert len(stages(text, "\n# a note\n", "\n")) == 1


# --- selection

POD = {
    "metadata": {
        "name": "web",
        "labels": {"app": "web"},
        "annotations": {"wait": "2s", "until": "2026-01-01T12:00:30Z", "heavy": "3", "no": ""},
    },
    "spec": {"replicas": 2},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("{}", True),
        ("{matchLabels: {app: web}}", True),
        ("{matchLabels: {app: db}}", False),
        ("{matchAnnotations: {wait: 2s}}", True),
        ("{matchAnnotations: {wait: 3s}}", False),
        ("{matchExpressions: [{key: .status.phase, operator: In, values: [Pending, Running]}]}", True),
        ("{matchExpressions: [{key: .status.phase, operator: NotIn, values: [Running]}]}", False),
        ("{matchExpressions: [{key: .status.missing, operator: NotIn, values: [Running]}]}", True),
        ("{matchExpressions: [{key: .status.missing, operator: In, values: [Running]}]}", False),
        ("{matchExpressions: [{key: .spec.replicas, operator: In, values: ['2']}]}", True),
        ("{matchExpressions: [{key: .metadata.deletionTimestamp, operator: DoesNotExist}]}", True),
        ("{matchExpressions: [{key: .status.phase, operator: Exists}]}", True),
        ("{matchExpressions: [{key: '.status.missing[]', operator: Exists}]}", False),
        ("{matchExpressions: [{jq: {key: .status.phase, operator: In, values: [Running]}}]}", True),
        ("{matchLabels: {app: web}, matchExpressions: [{key: .status.podIP, operator: Exists}]}", False),
    ],
)
def test_selectors(stages, selector, expected):
    (stage,) = stages(stage_text(spec=f"  selector: {selector}\n" + DELETE))
    assert matches(stage, POD, NOW, random.Random(1)) is expected


@pytest.mark.parametrize(
    ("delay", "least", "most"),
    [
        ("{durationMilliseconds: 1500}", 1.5, 1.5),
        ("{durationMilliseconds: 1000, jitterDurationMilliseconds: 5000}", 1.0, 5.0),
        ("{durationMilliseconds: 5000, jitterDurationMilliseconds: 1000}", 1.0, 1.0),
        ("{durationMilliseconds: 1, durationFrom: {expressionFrom: .metadata.annotations.wait}}", 2.0, 2.0),
        ("{durationMilliseconds: 1000, durationFrom: {expressionFrom: .metadata.missing}}", 1.0, 1.0),
        ("{durationFrom: {jq: {expression: .metadata.annotations.until}}}", 30.0, 30.0),
        ("{durationMilliseconds: 1000, jitterDurationFrom: {expressionFrom: .metadata.annotations.until}}", 1.0, 30.0),
        ("{durationMilliseconds: 1000, durationFrom: {expressionFrom: .metadata.annotations.no}}", 0.0, 0.0),
        ("{durationMilliseconds: 1000, jitterDurationFrom: {expressionFrom: .metadata.missing}}", 1.0, 1.0),
    ],
)
def test_delays(stages, delay, least, most):
    (stage,) = stages(stage_text(spec=f"  selector: {{}}\n  delay: {delay}\n" + DELETE))
    drawn = [delay_seconds(stage, POD, NOW, random.Random(seed)) for seed in range(200)]
    assert min(drawn) >= least
    assert max(drawn) <= most
    assert max(drawn) - min(drawn) >= (most - least) * 0.9
    assert drawn == [delay_seconds(stage, POD, NOW, random.Random(seed)) for seed in range(200)]


def test_of_several_stages_one_is_taken_by_weight(stages):
    three = stages(
        stage_text("light", spec=ANY + DELETE + "  weight: 1\n"),
        stage_text("heavy", spec=ANY + DELETE + "  weightFrom: {expressionFrom: .metadata.annotations.heavy}\n"),
        stage_text("never", spec=ANY + DELETE + "  weight: 0\n"),
    )
    rng = random.Random(1)
    drawn = Counter(stage.name for _ in range(1000) if (stage := select_stage(three, POD, NOW, rng)))
    assert set(drawn) == {"light", "heavy"}
    assert 650 < drawn["heavy"] < 850


def test_stages_without_weights_are_taken_alike(stages):
    two = stages(stage_text("a", spec=ANY + DELETE), stage_text("b", spec=ANY + DELETE))
    rng = random.Random(1)
    drawn = Counter(stage.name for _ in range(1000) if (stage := select_stage(two, POD, NOW, rng)))
    assert 400 < drawn["a"] < 600


# --- playing

STARTS = stage_text(
    "pod-starts",
    spec="""
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.podIP, operator: DoesNotExist}
  delay: {durationMilliseconds: 3000}
  next:
    event: {type: Normal, reason: Starting, message: here it goes}
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
GOES = stage_text(
    "pod-goes",
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
async def test_stages_take_a_pod_from_binding_to_its_end(stages):
    async with SimulatedCluster(stages=stages(STARTS, GOES)).running() as cluster:
        cluster.bind()
        await asyncio.sleep(2.9)
        assert cluster.phase() == "Pending"
        await asyncio.sleep(0.2)
        pod = cluster.pod()
        assert pod is not None
        assert pod["status"]["phase"] == "Running"
        assert pod["status"]["podIP"].startswith("10.128.0.")
        assert pod["status"]["podIPs"] == [{"ip": pod["status"]["podIP"]}]  # which kubectl shows
        assert pod["status"]["hostIP"] == "172.16.0.2"
        assert {each["type"]: each["status"] for each in pod["status"]["conditions"]} == {
            "PodScheduled": "True",  # merged by type, as the API server does
            "Ready": "True",
        }
        assert pod["status"]["containerStatuses"][0]["state"]["running"]
        assert pod["metadata"]["finalizers"] == ["example.com/hold"]
        assert ("Starting", "here it goes") in cluster.events()
        cluster.change_metadata(
            PODS, "web", deletionTimestamp=pod["status"]["startTime"], deletionGracePeriodSeconds=30
        )
        await asyncio.sleep(1.1)
        assert cluster.pod() is None


@pytest.mark.virtual_time
async def test_a_change_while_a_stage_waits_begins_anew(stages):
    async with SimulatedCluster(stages=stages(STARTS)).running() as cluster:
        cluster.bind()
        await asyncio.sleep(2)
        cluster.change_metadata(PODS, "web", annotations={"some": "thing"})
        await asyncio.sleep(2)
        assert cluster.phase() == "Pending"
        await asyncio.sleep(1.1)
        assert cluster.phase() == "Running"


@pytest.mark.virtual_time
async def test_pods_that_opt_out_have_the_built_in_behaviour(stages):
    async with SimulatedCluster(stages=stages(GOES)).running() as cluster:
        cluster.bind("staged")
        cluster.bind("built-in", annotations={"stages": "false"})
        cluster.bind("labelled", labels={"kubeloop.dev/stages": "false"})
        await asyncio.sleep(5)
        assert [cluster.phase(name) for name in ("staged", "built-in", "labelled")] == ["Pending", "Running", "Running"]


@pytest.mark.virtual_time
async def test_stages_that_add_to_the_built_in_behaviour_do_not_replace_it(stages):
    breaks = stage_text(
        "pod-breaks",
        meta="  annotations: {kubeloop.dev/add-to: built-in}",
        spec="""
  selector:
    matchLabels: {breaks: 'true'}
    matchExpressions: [{key: .status.phase, operator: In, values: [Running]}]
  delay: {durationMilliseconds: 10000}
  next: {statusTemplate: "{phase: Failed, reason: Broken, message: it broke}"}
""",
    )
    async with SimulatedCluster(stages=stages(breaks)).running() as cluster:
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
async def test_node_stages_make_nodes_ready_and_again_after_they_were_lost(stages):
    async with SimulatedCluster(stages=stages(NODE_STARTS)).running() as cluster:

        def ready() -> str:
            node = cluster.store.get(NODES, "", "node-0")
            assert node is not None
            conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
            return conditions.get("Ready", "none")

        await asyncio.sleep(1)
        assert ready() == "none"
        await asyncio.sleep(1.5)
        assert ready() == "True"
        assert cluster.store.get(LEASES, "kube-node-lease", "node-0") is not None
        cluster.change_metadata(NODES, "node-0", annotations={ANNOTATION_FAIL: "unreachable"})
        await asyncio.sleep(70)
        assert ready() == "Unknown"
        cluster.change_metadata(NODES, "node-0", annotations={})
        await asyncio.sleep(2.5)
        assert ready() == "True"


@pytest.mark.virtual_time
async def test_stages_wait_for_a_node_that_is_unreachable(stages):
    async with SimulatedCluster(stages=stages(STARTS)).running() as cluster:
        cluster.bind()
        cluster.change_metadata(NODES, "node-0", annotations={ANNOTATION_FAIL: "unreachable"})
        await asyncio.sleep(60)
        assert cluster.phase() == "Pending"
        cluster.change_metadata(NODES, "node-0", annotations={})
        await asyncio.sleep(3.1)
        assert cluster.phase() == "Running"


@pytest.mark.virtual_time
async def test_a_stage_whose_outcome_matches_again_does_not_spin(stages):
    ticks = stage_text(
        "ticks",
        meta="  annotations: {kubeloop.dev/add-to: built-in}",
        spec=ANY + "  immediateNextStage: true\n  next: {statusTemplate: '{message: {{ Now | Quote }}}'}\n",
    )
    async with SimulatedCluster(stages=stages(ticks)).running() as cluster:
        cluster.bind()
        await asyncio.sleep(1)
        before = cluster.store.revision
        await asyncio.sleep(10)
        assert 5 <= cluster.store.revision - before <= 30


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("{statusTemplate: 'phase: [{{ .spec.nodeName }}'}", "the template does not render to YAML"),
        ("{statusTemplate: 'Running'}", "renders a str, not a map"),
        ("{statusTemplate: 'phase: {a: 1}'}", "not a valid Pod"),
        ("{statusTemplate: '{{ index .spec.volumes 0 }}'}", "index of untyped nil"),
        ("{patches: [{type: json, template: '[{op: remove, path: /spec/x}]'}]}", "does not apply"),
    ],
)
@pytest.mark.virtual_time
async def test_a_stage_that_cannot_be_played_says_so_in_an_event(stages, step, problem):
    async with SimulatedCluster(stages=stages(stage_text(spec=f"{ANY}  next: {step}\n"))).running() as cluster:
        cluster.bind()
        await asyncio.sleep(1)
        (told,) = [message for reason, message in cluster.events() if reason == "StageFailed"]
        assert problem in told
        assert cluster.phase() == "Pending"


@pytest.mark.virtual_time
async def test_patches_of_all_types_and_steps_in_order(stages):
    spec = """
  selector: {matchExpressions: [{key: .metadata.labels.done, operator: DoesNotExist}]}
  steps:
  - event: {type: Warning, reason: First}
  - patch: {type: merge, root: metadata, template: "labels: {merged: {{ .metadata.name | Quote }}}"}
  - patch: {type: json, root: metadata, template: "[{op: add, path: /labels/json, value: 'yes'}]"}
  - patch: {type: strategic, root: status, subresource: status, template: "{phase: Running, unknown: 1}"}
  - patch: {template: "metadata: {labels: {done: 'true'}, uid: other, name: other}"}
"""
    async with SimulatedCluster(stages=stages(stage_text(spec=spec))).running() as cluster:
        cluster.bind()
        await asyncio.sleep(1)
        pod = cluster.pod()
        assert pod is not None
        assert pod["metadata"]["labels"] == {"merged": "web", "json": "yes", "done": "true"}
        assert pod["metadata"]["uid"] == "uid-web"
        assert pod["status"]["phase"] == "Running"
        assert "unknown" not in pod["status"]
        assert [reason for reason, _ in cluster.events()] == ["First"]


@pytest.mark.virtual_time
async def test_node_stages_may_delete_a_node(stages):
    gone = stage_text(
        "gone",
        kind="Node",
        meta="  annotations: {kubeloop.dev/add-to: built-in}",
        spec="  selector: {matchLabels: {spot: 'true'}}\n  delay: {durationMilliseconds: 5000}\n" + DELETE,
    )
    async with SimulatedCluster(stages=stages(gone)).running() as cluster:
        cluster.change_metadata(NODES, "node-1", labels={"spot": "true"})
        await asyncio.sleep(4)
        assert cluster.store.get(NODES, "", "node-1") is not None
        await asyncio.sleep(1.5)
        assert cluster.store.get(NODES, "", "node-1") is None
        assert cluster.store.get(NODES, "", "node-0") is not None


@pytest.mark.virtual_time
async def test_a_template_cannot_change_what_is_stored(stages):
    spec = ANY + "  next: {statusTemplate: '{{ $x := set .metadata `name` `other` }}phase: Running'}\n"
    async with SimulatedCluster(stages=stages(stage_text(spec=spec))).running() as cluster:
        cluster.bind()
        await asyncio.sleep(1)
        assert cluster.phase() == "Running"
        cluster.store.table(PODS).check()


@pytest.mark.virtual_time
async def test_the_same_seed_plays_the_same(stages):
    two = stages(STARTS, GOES.replace("durationMilliseconds: 1000", "durationMilliseconds: 1000"))

    async def story() -> list[tuple[str, Any]]:
        async with SimulatedCluster(stages=two).running() as cluster:
            for number in range(20):
                cluster.bind(f"web-{number}")
            await asyncio.sleep(5)
            return [(each["metadata"]["name"], each["status"].get("podIP")) for each in cluster.store.list(PODS)]

    assert await story() == await story()
