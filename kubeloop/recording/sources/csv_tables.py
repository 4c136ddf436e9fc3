"""CSV tables of nodes and pods, as of the production traces of GPU clusters (openb): one row per node, or per pod.

    nodes    sn or name, cpu_milli, memory_mib, gpu, model
    pods     name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos, creation_time, deletion_time

Other columns are findings. Times are seconds from the start. A GPU is the resource nvidia.com/gpu; the model of
a node is the label nvidia.com/gpu.product, of which a pod needs one of gpu_spec.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kubeloop.kube.json_object import JSON
from kubeloop.kube.user_error import UserError
from kubeloop.recording.sources.collected import CollectedRecording

GPU: Final = "nvidia.com/gpu"
MODEL_LABEL: Final = "nvidia.com/gpu.product"
GPU_MILLI: Final = "gpu-milli"
"""Annotation of a pod that requests a share of one GPU, which Kubernetes counts as a whole one."""
_MAX_PODS: Final = "1000"
_NODE_COLUMNS: Final = frozenset({"sn", "name", "cpu_milli", "memory_mib", "gpu", "model"})
_POD_COLUMNS: Final = frozenset(
    {
        "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time",
        "deletion_time", "scheduled_time",
    }
)  # fmt: skip


def read_csv_table(recording: CollectedRecording, path: Path) -> None:
    """Add the nodes or pods of a table. Raises UserError with file and line."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            columns = {*(rows.fieldnames or ())}
            if not {"cpu_milli", "memory_mib"} <= columns:
                raise UserError(
                    f"{path}, line 1: a table of nodes or pods has the columns cpu_milli and memory_mib",
                    hint="docs/recording.md lists the columns",
                )
            is_pods = bool({"num_gpu", "creation_time", "pod_phase"} & columns)
            for unknown in sorted(columns - (_POD_COLUMNS if is_pods else _NODE_COLUMNS)):
                recording.find(f"{path}, line 1", "unknown column", "it is left out", unknown)
            for number, row in enumerate(rows, start=2):
                place = f"{path}, line {number}"
                try:
                    if is_pods:
                        _add_pod(recording, row, place)
                    else:
                        recording.put(_node(row), place)
                except (KeyError, ValueError, TypeError) as error:
                    raise UserError(f"{place}: {error}", hint="correct the row, or remove it") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint="check the path") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: not a CSV table: {error}", hint="it is read as UTF-8") from None


def _node(row: Mapping[str, str]) -> JSON:
    name = row.get("sn") or row["name"]
    amounts = {"cpu": f"{int(row['cpu_milli'])}m", "memory": f"{int(row['memory_mib'])}Mi", "pods": _MAX_PODS}
    labels = {"kubernetes.io/hostname": name}
    if gpus := int(row.get("gpu") or 0):
        amounts[GPU] = str(gpus)
    if row.get("model"):
        labels[MODEL_LABEL] = row["model"]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _add_pod(recording: CollectedRecording, row: Mapping[str, str], place: str) -> None:
    created, deleted = float(row.get("creation_time") or 0), row.get("deletion_time") or ""
    pod = _pod(row)
    recording.put(pod, place, seconds=created)
    if deleted:
        if float(deleted) < created:
            raise ValueError(f"deletion_time {deleted} is before creation_time {created:g}")
        recording.delete(pod, place, seconds=float(deleted))


def _pod(row: Mapping[str, str]) -> JSON:
    requests = {"cpu": f"{int(row['cpu_milli'])}m", "memory": f"{int(row['memory_mib'])}Mi"}
    resources: JSON = {"requests": requests}
    metadata: JSON = {"name": row["name"], "namespace": "default"}
    if gpus := int(row.get("num_gpu") or 0):
        requests[GPU] = str(gpus)
        resources["limits"] = {GPU: str(gpus)}
        if gpus == 1 and 0 < int(row.get("gpu_milli") or 0) < 1000:
            metadata["annotations"] = {GPU_MILLI: row["gpu_milli"]}
    if row.get("qos"):
        metadata["labels"] = {"qos": row["qos"]}
    spec: JSON = {"containers": [{"name": "main", "image": "none", "resources": resources}], "restartPolicy": "Never"}
    if models := [*_models(row)]:
        expression = {"key": MODEL_LABEL, "operator": "In", "values": models}
        required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _models(row: Mapping[str, str]) -> Iterator[str]:
    yield from filter(None, (row.get("gpu_spec") or "").split("|"))
