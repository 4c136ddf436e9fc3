"""performance-config.yaml: test cases, their workloads and operations.

A test case is a list of operations with parameters, a workload the values of those parameters. `Workload.operations()`
returns the operations with all values substituted, createPodSets expanded and template paths resolved. An invalid file
raises a ConfigError that names file, test case or workload, and operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
import yaml

from kubeloop.kube.values.durations import duration_seconds
from scheduler_perf.templates import load_yaml


class ConfigError(Exception):
    """An invalid config file; the text has the place and the problem."""


class _Problem(Exception):
    """A problem of one operation, without its place in the file."""


class _Params:
    """The parameters of a workload, and which of them were used."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.used: set[str] = set()

    def get(self, reference: str) -> Any:
        name = reference.removeprefix("$")
        if name == reference:
            raise _Problem(f"{reference!r} does not begin with $")
        if name not in self.values:
            raise _Problem(f"parameter {name} is undefined")
        self.used.add(name)
        return self.values[name]

    def number(self, reference: str) -> int:
        value = self.get(reference)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Problem(f"parameter {reference} is {value!r}, not a number")
        return int(value)


class Operation(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, tag_field="opcode", frozen=True, kw_only=True
):
    """One step of a workload. Fields ending in _param name a parameter ("$name") that replaces the plain field."""

    paths: ClassVar[tuple[str, ...]] = ()  # fields that hold template paths

    def with_values(self, params: _Params) -> Operation:
        """Return the operation with parameters substituted. Raises _Problem."""
        changes: dict[str, Any] = {}
        count_param = getattr(self, "count_param", "")
        if count_param:
            changes["count"] = params.number(count_param)
        template_params = getattr(self, "template_params", None)
        if template_params:
            changes["template_params"] = {
                name: params.get(value) if isinstance(value, str) and value.startswith("$") else value
                for name, value in template_params.items()
            }
        return msgspec.structs.replace(self, **changes)

    def with_folder(self, folder: Path) -> Operation:
        """Return the operation with template paths relative to the config's folder. Raises _Problem for a missing
        file."""
        changes: dict[str, Any] = {}
        for name in self.paths:
            value = getattr(self, name)
            if not value:
                continue
            result = [_existing(folder, path) for path in ([value] if isinstance(value, str) else value)]
            changes[name] = result[0] if isinstance(value, str) else tuple(result)
        return msgspec.structs.replace(self, **changes)

    def check(self) -> None:
        """Raise _Problem if invalid. Called before and after the substitution of parameters."""
        if getattr(self, "count", 0) is not None and getattr(self, "count", 0) < 0:
            raise _Problem("count is negative")


def _existing(folder: Path, relative: str) -> str:
    path = (folder / relative).resolve()
    if not path.is_file():
        raise _Problem(f"there is no file {relative}")
    return str(path)


class LabelNodePrepareStrategy(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Set the label `label_key` of nodes to `label_values` in turn."""

    label_key: str
    label_values: list[str]


class CSINodeAllocatable(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    count: int | None = None


class NodeAllocatableStrategy(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Add to status.allocatable, and create a CSINode with limits per driver."""

    node_allocatable: dict[str, str] = {}
    csi_node_allocatable: dict[str, CSINodeAllocatable] = {}
    migrated_plugins: list[str] = []


class UniqueNodeLabelStrategy(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Set the label `label_key` of each node to a unique value."""

    label_key: str


class CreateNodes(Operation, tag="createNodes", frozen=True):
    """Create nodes with the label kubernetes.io/hostname. Without a template: 4 CPU, 32Gi, 110 pods."""

    paths = ("node_template_path",)
    count: int = 0
    count_param: str = ""
    node_template_path: str = ""
    node_allocatable_strategy: NodeAllocatableStrategy | None = None
    label_node_prepare_strategy: LabelNodePrepareStrategy | None = None
    unique_node_label_strategy: UniqueNodeLabelStrategy | None = None
    template_params: dict[str, Any] = {}


class CreateNamespaces(Operation, tag="createNamespaces", frozen=True):
    """Create `prefix`-0 to `prefix`-(count-1)."""

    paths = ("namespace_template_path",)
    prefix: str
    count: int = 0
    count_param: str = ""
    namespace_template_path: str = ""


class CreatePods(Operation, tag="createPods", frozen=True):
    """Create pods, by default in "namespace-<index of the operation>", and wait until all are bound.

    `steady_state`: keep `count` pods pending for `duration`; each is deleted when bound, and replaced by another.
    """

    paths = ("pod_template_path", "persistent_volume_template_path", "persistent_volume_claim_template_path")
    count: int = 0
    count_param: str = ""
    count_multiplier_param: str = ""
    steady_state: bool = False
    steady_state_param: str = ""
    duration: str = ""
    duration_param: str = ""
    collect_metrics: bool = False
    namespace: str | None = None
    pod_template_path: str = ""
    skip_wait_to_completion: bool = False
    persistent_volume_template_path: str = ""
    persistent_volume_claim_template_path: str = ""
    template_params: dict[str, Any] = {}

    def with_values(self, params: _Params) -> Operation:
        operation = Operation.with_values(self, params)
        assert isinstance(operation, CreatePods)
        changes: dict[str, Any] = {}
        if self.count_multiplier_param:
            changes["count"] = operation.count * params.number(self.count_multiplier_param)
        if self.duration_param:
            changes["duration"] = str(params.get(self.duration_param))
        if self.steady_state_param:
            changes["steady_state"] = bool(params.get(self.steady_state_param))
        return msgspec.structs.replace(operation, **changes)

    def check(self) -> None:
        Operation.check(self)
        if self.collect_metrics and self.skip_wait_to_completion:
            raise _Problem("collectMetrics and skipWaitToCompletion are mutually exclusive")
        if self.steady_state and self.skip_wait_to_completion:
            raise _Problem("steadyState and skipWaitToCompletion are mutually exclusive")
        if bool(self.persistent_volume_template_path) != bool(self.persistent_volume_claim_template_path):
            raise _Problem("persistentVolumeTemplatePath and persistentVolumeClaimTemplatePath require each other")
        _check_duration(self.duration)


class CreatePodSets(Operation, tag="createPodSets", frozen=True):
    """Run createPods in each of the namespaces `namespace_prefix`-0 to `namespace_prefix`-(count-1)."""

    namespace_prefix: str
    create_pods_op: CreatePods
    count: int = 0
    count_param: str = ""

    def check(self) -> None:
        Operation.check(self)
        self.create_pods_op.check()


class DeletePods(Operation, tag="deletePods", frozen=True):
    """Delete the pods of a namespace, at once or at a rate per second."""

    namespace: str
    label_selector: dict[str, str] = {}
    skip_wait_to_completion: bool = False
    delete_pods_per_second: int = 0

    def check(self) -> None:
        if self.delete_pods_per_second < 0:
            raise _Problem("deletePodsPerSecond is negative")


class Churn(Operation, tag="churn", frozen=True):
    """In each interval until the end of the workload: create the objects of all templates ("create", at most `number`
    times), or alternately create and delete `number` of each ("recreate")."""

    paths = ("template_paths",)
    mode: Literal["create", "recreate"]
    template_paths: tuple[str, ...]
    number: int = 0
    interval_milliseconds: int = 500
    namespace: str | None = None

    def check(self) -> None:
        if self.number < 0 or (self.mode == "recreate" and self.number == 0):
            raise _Problem(f"number {self.number} does not fit mode {self.mode}")
        if not self.template_paths:
            raise _Problem("templatePaths is empty")


class Barrier(Operation, tag="barrier", frozen=True):
    """Wait for the pods of createPods operations that did not wait, in these namespaces or in all."""

    namespaces: list[str] = []
    label_selector: dict[str, str] = {}
    stage_requirement: Literal["", "Scheduled", "Attempted"] = "Scheduled"


class Sleep(Operation, tag="sleep", frozen=True):
    duration: str = ""
    duration_param: str = ""

    def with_values(self, params: _Params) -> Operation:
        return msgspec.structs.replace(self, duration=params.get(self.duration_param)) if self.duration_param else self

    def check(self) -> None:
        _check_duration(self.duration)


class CreateAny(Operation, tag="createAny", frozen=True):
    """Create `count` objects of any kind."""

    paths = ("template_path",)
    template_path: str
    namespace: str = ""
    count: int | None = None
    count_param: str = ""
    template_params: dict[str, Any] = {}


class UpdateAny(Operation, tag="updateAny", frozen=True):
    """Replace `count` objects and their status, at once or at a rate per second."""

    paths = ("template_path",)
    template_path: str
    namespace: str = ""
    count: int | None = None
    count_param: str = ""
    update_per_second: int = 0
    subresources: list[str] = []
    template_params: dict[str, Any] = {}

    def check(self) -> None:
        Operation.check(self)
        if self.update_per_second < 0:
            raise _Problem("updatePerSecond is negative")


class CreateResourceDriver(Operation, tag="createResourceDriver", frozen=True):
    """Publish a ResourceSlice with `max_claims_per_node` devices for each node that matches the pattern `nodes`."""

    driver_name: str
    nodes: str
    max_claims_per_node: int = 0
    max_claims_per_node_param: str = ""

    def with_values(self, params: _Params) -> Operation:
        if not self.max_claims_per_node_param:
            return self
        return msgspec.structs.replace(self, max_claims_per_node=params.number(self.max_claims_per_node_param))


class AllocResourceClaims(Operation, tag="allocResourceClaims", frozen=True):
    """Allocate a random free device to each ResourceClaim of the namespace, without a pod."""

    namespace: str = ""


class StartCollectingMetrics(Operation, tag="startCollectingMetrics", frozen=True):
    """Start the measurement of pods in these namespaces with these labels, until stopCollectingMetrics."""

    namespaces: list[str]
    name: str = ""
    label_selector: dict[str, str] = {}

    def check(self) -> None:
        if not self.namespaces:
            raise _Problem("namespaces is empty")


class StopCollectingMetrics(Operation, tag="stopCollectingMetrics", frozen=True):
    pass


OPERATIONS: dict[str, type[Operation]] = {
    operation.__struct_config__.tag: operation  # type: ignore[misc]
    for operation in (
        CreateNodes,
        CreateNamespaces,
        CreatePods,
        CreatePodSets,
        DeletePods,
        Churn,
        Barrier,
        Sleep,
        CreateAny,
        UpdateAny,
        CreateResourceDriver,
        AllocResourceClaims,
        StartCollectingMetrics,
        StopCollectingMetrics,
    )
}


def _check_duration(text: str) -> None:
    if text and duration_seconds(text) is None:
        raise _Problem(f"{text!r} is not a duration")


class ThresholdMetricSelector(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Metric of a threshold; `expect_lower`: the threshold is a maximum."""

    name: str = "SchedulingThroughput"
    labels: dict[str, str] = {}
    data_bucket: str = "Average"
    expect_lower: bool = False


class _WorkloadFile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    name: str
    params: dict[str, Any] = {}
    labels: list[str] = []
    threshold: float | dict[str, float] = 0.0
    threshold_metric_selector: ThresholdMetricSelector | None = None
    feature_gates: dict[str, bool] = {}


class _TestCaseFile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    name: str
    workload_template: list[dict[str, Any]]
    workloads: list[_WorkloadFile]
    feature_gates: dict[str, bool] = {}
    metrics_collector_config: dict[str, Any] | None = None
    scheduler_config_path: str = ""
    default_pod_template_path: str = ""
    labels: list[str] = []
    default_threshold_metric_selector: ThresholdMetricSelector | None = None


@dataclass(frozen=True)
class Workload:
    """One workload of one test case."""

    file: Path
    test_case: str
    name: str
    template: tuple[Operation, ...]
    params: dict[str, Any]
    labels: frozenset[str]
    feature_gates: dict[str, bool]
    thresholds: float | dict[str, float]
    threshold_metric: ThresholdMetricSelector
    scheduler_config: Path | None
    default_pod_template: str
    overridden: frozenset[str] = field(default=frozenset())

    @property
    def full_name(self) -> str:
        return f"{self.test_case}/{self.name}"

    def threshold(self, topic: str) -> float:
        """Return the threshold of the topic, or the general one; 0 for none."""
        if isinstance(self.thresholds, dict):
            return self.thresholds.get(topic, 0.0)
        return self.thresholds

    def selected(self, label_filter: str) -> bool:
        """Return True if the labels match "a,+b,-c": with a and b, without c. "" matches all."""
        for word in filter(None, label_filter.split(",")):
            required = not word.startswith("-")
            if (word.lstrip("+-") in self.labels) is not required:
                return False
        return True

    def with_params(self, values: dict[str, Any]) -> Workload:
        """Return the workload with other parameter values. Raises ConfigError for a parameter that it does not have."""
        unknown = [name for name in values if name not in self.params]
        if unknown:
            raise ConfigError(
                f"{self.full_name} has no parameter {', '.join(unknown)}; it has: {', '.join(self.params)}"
            )
        return replace(self, params={**self.params, **values}, overridden=self.overridden | values.keys())

    def operations(self) -> list[Operation]:
        """Return the operations with all values substituted. Raises ConfigError."""
        params = _Params(self.params)
        result: list[Operation] = []
        for index, operation in enumerate(self.template):
            try:
                for expanded in _expand(operation, params):
                    complete = expanded.with_values(params)
                    complete.check()
                    result.append(complete)
            except _Problem as problem:
                raise ConfigError(
                    f"{_place(self.file, self.full_name, index, _opcode(operation))}: {problem}"
                ) from None
        unused = sorted(self.params.keys() - params.used)
        if unused:
            raise ConfigError(f"{self.file}: workload {self.full_name}: parameters are not used: {', '.join(unused)}")
        return result


def _opcode(operation: Operation) -> str:
    return str(operation.__struct_config__.tag)


def _place(file: Path, workload: str, index: int, opcode: str) -> str:
    return f"{file}: workload {workload}: operation {index} ({opcode})"


def _expand(operation: Operation, params: _Params) -> Iterator[Operation]:
    if not isinstance(operation, CreatePodSets):
        yield operation
        return
    complete = operation.with_values(params)
    assert isinstance(complete, CreatePodSets)
    for number in range(complete.count):
        namespace = f"{complete.namespace_prefix}-{number}"
        yield msgspec.structs.replace(complete.create_pods_op, namespace=namespace)
    if complete.count == 0:
        complete.create_pods_op.with_values(params)  # marks its parameters as used


def read_operation(raw: dict[str, Any], folder: Path) -> Operation:
    """Parse an operation. Raises _Problem."""
    opcode = raw.get("opcode", "")
    kind = OPERATIONS.get(opcode)
    if kind is None:
        raise _Problem(f"unknown opcode {opcode!r}; supported are {', '.join(OPERATIONS)}")
    try:
        operation = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _Problem(str(error)) from None
    operation.check()
    operation = operation.with_folder(folder)
    if isinstance(operation, CreatePodSets):
        pods = operation.create_pods_op.with_folder(folder)
        operation = msgspec.structs.replace(operation, create_pods_op=pods)
    return operation


def read_config(file: Path) -> list[Workload]:
    """Return all workloads of a config file. Raises ConfigError."""
    try:
        cases = msgspec.convert(load_yaml(file.read_text()), list[_TestCaseFile])
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigError(f"{file}: {error}") from None
    if not cases:
        raise ConfigError(f"{file}: no test cases")
    _check_unique(file, "test case", [case.name for case in cases])
    return [workload for case in cases for workload in _workloads(file, case)]


def _check_unique(file: Path, kind: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{file}: two {kind}s are named {name}")


def _workloads(file: Path, case: _TestCaseFile) -> list[Workload]:
    folder = file.parent
    template: list[Operation] = []
    for index, raw in enumerate(case.workload_template):
        try:
            template.append(read_operation(raw, folder))
        except _Problem as problem:
            opcode = str(raw.get("opcode", "none"))
            raise ConfigError(f"{_place(file, case.name, index, opcode)}: {problem}") from None
    if not any(_collects(operation) for operation in template):
        raise ConfigError(f"{file}: test case {case.name}: no operation collects metrics")
    if not case.workloads:
        raise ConfigError(f"{file}: test case {case.name}: no workloads")
    _check_unique(file, "workload", [f"{case.name}/{workload.name}" for workload in case.workloads])
    try:
        pod_template = _existing(folder, case.default_pod_template_path) if case.default_pod_template_path else ""
        scheduler = Path(_existing(folder, case.scheduler_config_path)) if case.scheduler_config_path else None
    except _Problem as problem:
        raise ConfigError(f"{file}: test case {case.name}: {problem}") from None
    return [
        Workload(
            file=file,
            test_case=case.name,
            name=workload.name,
            template=tuple(template),
            params=workload.params,
            labels=frozenset(case.labels) | frozenset(workload.labels),
            feature_gates={**case.feature_gates, **workload.feature_gates},
            thresholds=workload.threshold,
            threshold_metric=workload.threshold_metric_selector
            or case.default_threshold_metric_selector
            or ThresholdMetricSelector(),
            scheduler_config=scheduler,
            default_pod_template=pod_template,
        )
        for workload in case.workloads
    ]


def _collects(operation: Operation) -> bool:
    if isinstance(operation, CreatePodSets):
        return operation.create_pods_op.collect_metrics
    return isinstance(operation, StopCollectingMetrics) or getattr(operation, "collect_metrics", False)


def config_files(paths: Sequence[Path]) -> list[Path]:
    """Return the given config files, and those below the given folders. Raises ConfigError."""
    result: list[Path] = []
    for path in paths:
        if path.is_dir():
            below = sorted(path.rglob("performance-config.yaml"))
            if not below:
                raise ConfigError(f"{path}: no performance-config.yaml below")
            result += below
        elif path.exists():
            result.append(path)
        else:
            raise ConfigError(f"{path}: no such file or folder")
    return result
