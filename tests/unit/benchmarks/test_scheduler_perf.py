"""benchmarks/scheduler: parsing of scheduler_perf's files, and evaluation of measurements."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kubeloop.kube.user_error import UserError

_ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(_ROOT / "benchmarks"))

from scheduler_perf import config  # noqa: E402
from scheduler_perf.config import ConfigError, Workload, config_files, read_config  # noqa: E402
from scheduler_perf.figures import Distribution, Metrics, Throughput, below_threshold, summary  # noqa: E402
from scheduler_perf.processes import supported_gates  # noqa: E402
from scheduler_perf.templates import ObjectTemplate, object_template  # noqa: E402

_WORKLOADS = Path(os.environ.get("KUBELOOP_SCHEDULER_PERF", _ROOT.parent / "shared" / "scheduler_perf"))


def workloads() -> list[Workload]:
    if not _WORKLOADS.is_dir():
        pytest.skip("workload files are missing: ../shared/scheduler_perf")
    return [workload for file in config_files([_WORKLOADS]) for workload in read_config(file)]


POD = """
apiVersion: v1
kind: Pod
metadata:
  name: pod-{{ .Index }}
spec:
  containers:
  - image: pause
    name: pause
"""

CONFIG = """
- name: Case
  defaultPodTemplatePath: pod.yaml
  workloadTemplate:
  - opcode: createNodes
    countParam: $initNodes
  - opcode: createPodSets
    countParam: $sets
    namespacePrefix: set
    createPodsOp:
      opcode: createPods
      countParam: $perSet
  - opcode: createPods
    count: 3
    collectMetrics: true
  workloads:
  - name: small
    labels: [performance, short]
    params: {initNodes: 5, sets: 2, perSet: 4}
"""


def written(folder: Path, text: str = CONFIG) -> Path:
    (folder / "pod.yaml").write_text(POD)
    file = folder / "performance-config.yaml"
    file.write_text(text)
    return file


# --- the files of kube-scheduler -------------------------------------------------------------------------------------


def test_all_workloads_expand_and_all_templates_render():
    tags: set[str] = set()
    for workload in workloads():
        for operation in workload.operations():
            tags.add(str(operation.__struct_config__.tag))
            for name in operation.paths:
                value = getattr(operation, name)
                for path in [value] if isinstance(value, str) else value:
                    if path:
                        obj = object_template(Path(path)).create(index=11, count=100)
                        assert obj["kind"]
    # createPodSets is expanded, the others are in files of upstream only
    others = {"createPodSets", "sleep", "createResourceDriver", "allocResourceClaims"}
    assert tags == config.OPERATIONS.keys() - others


@pytest.mark.parametrize(
    "name",
    [
        "SchedulingBasic/500Nodes",
        "SchedulingPodAntiAffinity/5000Nodes",
        "SchedulingPreferredPodAffinity/5000Nodes",
        "TopologySpreading/5000Nodes",
        "PreemptionBasic/1000Nodes",
        "Unschedulable/5kNodes/100Init/10kPods",
    ],
)
def test_workloads_of_the_readme_exist(name):
    (workload,) = [workload for workload in workloads() if workload.full_name == name]
    assert any(getattr(operation, "collect_metrics", False) for operation in workload.operations())


# --- config ----------------------------------------------------------------------------------------------------------


def test_operations_substitute_parameters_and_expand_pod_sets(tmp_path):
    (workload,) = read_config(written(tmp_path))
    nodes, first, second, measured = workload.operations()
    assert isinstance(nodes, config.CreateNodes)
    assert nodes.count == 5
    assert [(operation.namespace, operation.count) for operation in (first, second, measured)] == [
        ("set-0", 4),
        ("set-1", 4),
        (None, 3),
    ]


def test_with_params_rejects_unknown_parameters(tmp_path):
    (workload,) = read_config(written(tmp_path))
    assert workload.with_params({"initNodes": 7}).operations()[0].count == 7
    with pytest.raises(ConfigError, match="has no parameter nodes; it has: initNodes, sets, perSet"):
        workload.with_params({"nodes": 7})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            ("opcode: createNodes", "opcode: growNodes"),
            r"performance-config.yaml: workload Case: operation 0 \(growNodes\): unknown opcode 'growNodes'",
            id="unknown opcode",
        ),
        pytest.param(
            ("count: 3", "cuont: 3"), r"operation 2 \(createPods\): .*unknown field `cuont`", id="unknown field"
        ),
        pytest.param(
            ("perSet: 4", "perset: 4"), r"workload Case/small: operation 1 .*perSet is undefined", id="no param"
        ),
        pytest.param(("perSet: 4", "perSet: 4, more: 1"), "parameters are not used: more", id="param too many"),
        pytest.param(("$perSet", "perSet"), r"'perSet' does not begin with \$", id="param without $"),
        pytest.param(("perSet: 4", "perSet: few"), "not a number", id="param that is no number"),
        pytest.param(("initNodes: 5", "initNodes: -5"), "count is negative", id="negative count"),
        pytest.param(("    collectMetrics: true\n", ""), "no operation collects metrics", id="no measurement"),
        pytest.param(("pod.yaml", "pods.yaml"), "there is no file pods.yaml", id="missing template"),
        pytest.param(("count: 3", "count: 3\n    count: 4"), "duplicate key 'count'", id="duplicate key"),
        pytest.param(
            ("collectMetrics: true", "collectMetrics: true\n    skipWaitToCompletion: true"),
            "are mutually exclusive",
            id="exclusive options",
        ),
    ],
)
def test_config_error_has_its_place(tmp_path, change, expected):
    file = written(tmp_path, CONFIG.replace(*change))
    with pytest.raises(ConfigError, match=expected):
        assert [workload.operations() for workload in read_config(file)]


def test_duplicate_workload_name_is_rejected(tmp_path):
    twice = CONFIG + "  - name: small\n    params: {initNodes: 1, sets: 1, perSet: 1}\n"
    with pytest.raises(ConfigError, match="two workloads are named Case/small"):
        read_config(written(tmp_path, twice))


@pytest.mark.parametrize(
    ("label_filter", "selected"),
    [("", True), ("performance", True), ("+performance,short", True), ("performance,-short", False), ("slow", False)],
)
def test_label_filter(tmp_path, label_filter, selected):
    (workload,) = read_config(written(tmp_path))
    assert workload.selected(label_filter) is selected


# --- templates -------------------------------------------------------------------------------------------------------


def object_named(folder: Path, text: str) -> dict[str, Any]:
    """Return the object of a template with `text` as its name."""
    (folder / "pod.yaml").write_text(f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {text}\n")
    return ObjectTemplate(folder / "pod.yaml").create(index=7, count=100, params={"name": "web"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pod-{{.Index}}", "pod-7"),
        ("{{ .name }}", "web"),
        ("a{{ Mod .Index 4 }}", "a3"),
        ("{{ Mod -7 4 }}", -3),
        ("{{ DivideInt 30000 .Count }}Mi", "300Mi"),
        ("{{ AddInt (MultiplyInt .Index 2) 1 }}", 15),
        ("{{ .Index | SubtractInt 10 }}", 3),
        ("{{ DivideFloat 1 4 }}", 0.25),
        ("{{ AddFloat .Index 0.5 }}", 7.5),
        ('{{ MultiplyFloat "0.5" 3 }}', 1.5),
        ("{{ SubtractFloat 1 0.5 }}", 0.5),
        ("a {{- .Index -}} b", "a7b"),
    ],
)
def test_templates_have_the_functions_of_scheduler_perf(tmp_path, text, expected):
    assert object_named(tmp_path, text)["metadata"]["name"] == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ .Name }}", "a parameter is not set"),
        ("{{ Power 2 3 }}", "line 4: function 'Power' is not defined"),
        ("{{ .Index", "line 4: unclosed action"),
        ("{{ Mod .Index 0 }}", "line 4: Mod: "),
        ('{{ AddInt .Index "x" }}', "line 4: AddInt: cannot cast x to float64"),
        ("{{ (1 }}", "line 4: ( that is not closed"),
    ],
)
def test_template_error_names_the_file(tmp_path, text, problem):
    with pytest.raises(UserError) as raised:
        object_named(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path / 'pod.yaml'}: {problem}")


def test_objects_equal_those_of_a_typed_client(tmp_path):
    (tmp_path / "pod.yaml").write_text(
        POD.replace("pod-{{ .Index }}", "pod\n  labels: {Team: A, cpu: '1'}")
        + "    resources: {requests: {cpu: 0.0001, memory: 9, Example.com/X: 1}}\n"
        + "  topologySpreadConstraints: [{NodeTaintsPolicy: Honor}]\n"
    )
    pod = ObjectTemplate(tmp_path / "pod.yaml").create()
    assert pod["metadata"]["labels"] == {"Team": "A", "cpu": "1"}
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "0.0001", "memory": "9", "Example.com/X": "1"}
    }
    assert pod["spec"]["topologySpreadConstraints"] == [{"nodeTaintsPolicy": "Honor"}]


def test_objects_of_a_template_are_independent(tmp_path):
    (tmp_path / "pod.yaml").write_text(POD.replace("-{{ .Index }}", ""))
    template = ObjectTemplate(tmp_path / "pod.yaml")
    template.create()["metadata"]["name"] = "changed"
    assert template.create()["metadata"]["name"] == "pod"


# --- figures ---------------------------------------------------------------------------------------------------------


def test_throughput_samples_exclude_the_first():
    throughput = Throughput(["a"], {})
    for now, bound in [(1.0, 0), (2.0, 10), (3.0, 30), (4.0, 0), (5.0, 60), (6.0, 5)]:
        for _ in range(bound):
            throughput.pod_bound(now)
        throughput.sample(now)
    assert throughput.samples == [30, 30, 30, 5]  # 60 pods after a second without any count as 30 per second


def test_summary_has_nearest_rank_percentiles():
    assert summary(range(1, 11)) == {"Average": 5.5, "Perc50": 5, "Perc90": 9, "Perc95": 10, "Perc99": 10}
    assert summary([]) == {}


def test_throughput_matches_namespaces_and_labels():
    throughput = Throughput(["a"], {"type": "unsched"})
    assert throughput.matches("a", {"type": "unsched", "color": "blue"})
    assert not throughput.matches("a", {"color": "blue"})
    assert not throughput.matches("b", {"type": "unsched"})


METRICS = """
# TYPE h histogram
h_bucket{le="1.0",result="scheduled",profile="a"} %d
h_bucket{le="2.0",result="scheduled",profile="a"} %d
h_bucket{le="+Inf",result="scheduled",profile="a"} %d
h_bucket{le="1.0",result="scheduled",profile="b"} 0
h_bucket{le="2.0",result="scheduled",profile="b"} 0
h_bucket{le="+Inf",result="scheduled",profile="b"} 0
h_count{result="scheduled",profile="a"} %d
h_sum{result="scheduled",profile="a"} %f
# TYPE g gauge
g{event="x"} 1
g{event="y"} 2
"""


def test_metrics_since_returns_histogram_differences():
    before, after = (Metrics.parse(METRICS % values) for values in ((4, 4, 4, 4, 2.0), (8, 12, 14, 14, 22.0)))
    ((key, grown),) = after.since(before).items()
    assert key == ("h", (("result", "scheduled"),))
    assert grown == Distribution(((1.0, 4.0), (2.0, 8.0), (float("inf"), 10.0)), 20.0)
    assert grown.quantile(0.5) == pytest.approx(1.25)
    assert grown.quantile(0.99) == 2.0  # beyond the last finite bound
    assert grown.milliseconds()["Average"] == 2000.0
    assert after.sums["g"] == 3.0
    assert after.since(after) == {}


def test_below_threshold_names_the_figure():
    items = [{"labels": {"Metric": "SchedulingThroughput"}, "data": {"Average": 99.0}}]
    least, most = config.ThresholdMetricSelector(), config.ThresholdMetricSelector(expect_lower=True)
    assert below_threshold(items, 0, least) is None
    assert below_threshold(items, 99, least) is None
    assert below_threshold(items, 100, least) == "SchedulingThroughput Average is 99.0, expected at least 100"
    assert below_threshold(items, 90, most) == "SchedulingThroughput Average is 99.0, expected at most 90"


def test_gates_that_kubeloop_can_set_are_passed_on():
    gates = {"SchedulerAsyncAPICalls": True, "SchedulerQueueingHints": False, "DynamicResourceAllocation": True}
    supported = supported_gates({**gates, "ClusterTrustBundle": True, "NoGateAnyMore": True})
    assert supported.text() == "DynamicResourceAllocation=true,SchedulerAsyncAPICalls=true"
