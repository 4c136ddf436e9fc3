"""Six policies for pods that share GPUs, as scheduler plugins: the experiment of "Beware of Fragmentation" (ATC '23).

A pod requests the resource `alibabacloud.com/gpu-milli`: less than 1000 for a share of one GPU, a multiple of 1000 for
whole GPUs. Nodes have it as allocatable, 1000 per GPU, 8 GPUs at most. Each policy filters nodes on which no GPU has
enough left, scores the others, and allocates GPUs in Reserve. The allocation is written to the pod's annotation
`alibabacloud.com/gpu-index` before it is bound, so that it is known after a restart of the scheduler.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023. Axes: N nodes, K of them, G GPUs of a node, M typical pods.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kubeloop.kube.client.api_client import PatchType
from kubeloop.kube.objects.api_types import Struct
from kubeloop.kube.objects.resources import PODS
from kubeloop.scheduler.api import (
    NODE,
    POD,
    ActionType,
    ClusterEventWithHint,
    CycleState,
    Handle,
    NodeInfo,
    PodInfo,
    RowFilterResult,
    Rows,
    Scores,
    Snapshot,
    Status,
    explain_as,
    on_event,
    unschedulable,
)

GPU_MILLI = "alibabacloud.com/gpu-milli"
GPU_INDEX = "alibabacloud.com/gpu-index"
GPU_MODEL = "alibabacloud.com/gpu-card-model"

GPUS = 8
WHOLE = 1000
NO_GPU = -1
LARGEST_CPU, LARGEST_GPUS = 128_000, GPUS * WHOLE  # of the nodes of the recorded cluster; they scale scores

Milli = npt.NDArray[np.int64]


def gpu_request(pod: PodInfo) -> tuple[int, int]:
    """Return (number of GPUs, thousandths of each) that the pod requests; (0, 0) if it requests none."""
    milli = pod.requests.get(GPU_MILLI, 0)
    return (1, milli) if 0 < milli < WHOLE else (milli // WHOLE, WHOLE if milli else 0)


class GpuSharing:
    """Base class of the policies: the free thousandths of each GPU, the filter, and the allocation.

    A policy implements `score_rows`, and `choose` if it does not take the shared GPU with the least left.
    """

    name = "GpuSharing"
    row_local = True

    def __init__(self, args: object, handle: Handle) -> None:
        self._handle = handle
        self._allocated: dict[str, tuple[int, ...]] = {}  # UID -> GPUs, from Reserve until the informer shows them
        self._free: Milli = np.zeros((0, GPUS), np.int64)  # [N, G] NO_GPU: the node has fewer GPUs
        self._layout = self._generation = -1
        self._rejection = unschedulable(self.name, "node(s) had no GPU with enough left")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if self._fits(pod, self._free_gpus(node)[None])[0] else self._rejection

    def filter_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> RowFilterResult:
        return RowFilterResult(self._fits(pod, self.free(snapshot)[rows]), explain_as(self._rejection))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        count, milli = gpu_request(pod)
        if count:
            snapshot = self._handle.snapshot
            free = self.free(snapshot)[snapshot.row_of[node_name]]
            gpus = self.choose(pod, snapshot, node_name) if milli < WHOLE else np.flatnonzero(free == WHOLE)[:count]
            self._allocated[pod.uid] = tuple(int(gpu) for gpu in gpus)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._allocated.pop(pod.uid, None)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if gpus := self._allocated.get(pod.uid):
            annotation = {GPU_INDEX: "-".join(map(str, gpus))}
            name, namespace = pod.pod.metadata.name, pod.pod.metadata.namespace
            body = {"metadata": {"annotations": annotation}}
            await self._handle.client.patch(PODS, name, body, PatchType.MERGE, namespace)
        return None

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return on_event(NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE), on_event(POD, ActionType.DELETE)

    def choose(self, pod: PodInfo, snapshot: Snapshot, node_name: str) -> Sequence[int]:
        """Return the GPU of the node for a pod that requests a share of one: that with the least left."""
        free = self.free(snapshot)[snapshot.row_of[node_name]]
        _, milli = gpu_request(pod)
        return [int(np.where(free >= milli, free, WHOLE + 1).argmin())]

    def free(self, snapshot: Snapshot) -> Milli:
        """Return the free thousandths of each GPU, int64 [N, G]. Computed again for rows that have changed."""
        if snapshot.layout != self._layout:
            self._layout, self._generation = snapshot.layout, -1
            self._free = np.full((len(snapshot), GPUS), NO_GPU, np.int64)
        if snapshot.generation != self._generation:
            for row in np.flatnonzero(snapshot.row_generation > self._generation).tolist():
                self._free[row] = self._free_gpus(snapshot.node_infos[row])
            self._generation = snapshot.generation
        return self._free

    def _free_gpus(self, node: NodeInfo) -> Milli:
        free = np.full(GPUS, NO_GPU, np.int64)
        free[: node.allocatable.get(GPU_MILLI, 0) // WHOLE] = WHOLE
        for pod in node.pods.values():
            _, milli = gpu_request(pod)
            if milli:
                free[list(self._gpus_of(pod))] -= milli
        return free

    def _gpus_of(self, pod: PodInfo) -> tuple[int, ...]:
        annotation = pod.pod.metadata.annotations.get(GPU_INDEX)
        if annotation is None:
            return self._allocated.get(pod.uid, ())
        self._allocated.pop(pod.uid, None)
        return tuple(map(int, annotation.split("-")))

    def _fits(self, pod: PodInfo, free: Milli) -> npt.NDArray[np.bool_]:
        count, milli = gpu_request(pod)
        enough: npt.NDArray[np.bool_] = (free >= milli).sum(axis=1) >= count
        return enough


class Random(GpuSharing):
    """Any feasible node, and any of its GPUs that has enough left."""

    name = "Random"
    row_local = False

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        scores = np.zeros(len(rows), np.int64)
        scores[self._handle.rng.randrange(len(rows))] = 100
        return scores

    def choose(self, pod: PodInfo, snapshot: Snapshot, node_name: str) -> Sequence[int]:
        _, milli = gpu_request(pod)
        free = self.free(snapshot)[snapshot.row_of[node_name]]
        return [self._handle.rng.choice(np.flatnonzero(free >= milli).tolist())]


class DotProd(GpuSharing):
    """Nodes whose free resources, times the requested ones, are least. Source: Tetris (SIGCOMM '14)."""

    name = "DotProd"

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        cpu, gpu = free_cpu(snapshot, rows) / LARGEST_CPU, total(self.free(snapshot)[rows]) / LARGEST_GPUS
        product = cpu * (pod.non_zero_milli_cpu / LARGEST_CPU) + gpu * (pod.requests.get(GPU_MILLI, 0) / LARGEST_GPUS)
        return (100 * (1 - product / 2)).astype(np.int64)


class GpuClustering(GpuSharing):
    """Nodes whose pods request as many GPUs as this one, the fullest first. Source: Gandiva (OSDI '18)."""

    name = "GpuClustering"

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        if not pod.requests.get(GPU_MILLI, 0):
            return np.zeros(len(rows), np.int64)
        request = gpu_request(pod)
        infos = snapshot.node_infos
        return self._tiers(request, [infos[row] for row in rows.tolist()]) + (
            25 * (LARGEST_GPUS - total(self.free(snapshot)[rows])) // LARGEST_GPUS
        )

    def _tiers(self, request: tuple[int, int], nodes: Sequence[NodeInfo]) -> Scores:
        """Return 75 for only equal requests on the node, 50 for equal among others, 25 for none, 0 for only others."""
        tiers = []
        wanted = kind_of_request(request)
        for node in nodes:
            kinds = {kind_of_request(gpu_request(pod)) for pod in node.pods.values() if GPU_MILLI in pod.requests}
            tiers.append((75 if len(kinds) == 1 else 50) if wanted in kinds else 0 if kinds else 25)
        return np.array(tiers, np.int64)


class GpuPacking(GpuSharing):
    """GPUs that are shared already, then free GPUs of used nodes, then free nodes. Source: MLaaS (NSDI '22)."""

    name = "GpuPacking"

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        count, milli = gpu_request(pod)
        if not count:
            return np.zeros(len(rows), np.int64)
        free = np.sort(self.free(snapshot)[rows], axis=1)
        usable = free >= milli
        chosen = usable & (usable.cumsum(axis=1) <= count)  # the GPUs with the least left
        idle = (free == WHOLE).sum(axis=1)
        whole = (chosen & (free == WHOLE)).sum(axis=1)
        shared = 100 - (np.where(chosen, free, 0) * 100 // WHOLE).sum(axis=1) // 10
        scores = np.where(whole > 0, np.maximum(50 - whole, 33), np.maximum(shared, 50))
        unused = idle == (free != NO_GPU).sum(axis=1)
        return np.asarray(np.where(unused, np.maximum(33 - idle, idle), scores))


class BestFit(GpuSharing):
    """Nodes with the least left after the pod, CPU and GPU weighted equally."""

    name = "BestFit"

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        cpu = (free_cpu(snapshot, rows) - pod.non_zero_milli_cpu) / LARGEST_CPU
        gpu = (total(self.free(snapshot)[rows]) - pod.requests.get(GPU_MILLI, 0)) / LARGEST_GPUS
        return ((1 - (cpu / 2 + gpu / 2)) * 100).astype(np.int64)

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows, scores: Scores
    ) -> Scores:
        lowest, span = int(scores.min()), int(np.ptp(scores))
        return np.asarray((scores - lowest) * 100 // max(span, 1))


class TypicalPod(Struct, frozen=True):
    """cpuMilli, gpuMilli: requests. models: the GPU models it can use, [] for any. share: of all pods, 0 to 1."""

    cpu_milli: int
    gpu_milli: int
    models: tuple[str, ...] = ()
    share: float = 1.0


class FragmentationArgs(Struct):
    typical_pods: tuple[TypicalPod, ...] = ()


class Fragmentation(GpuSharing):
    """Fragmentation Gradient Descent: the node and the GPU on which the pod adds the least fragmentation.

    The fragmentation of a node is the expected GPU capacity on it that a pod drawn from the typical ones cannot use.
    """

    name = "FGD"
    args_type = FragmentationArgs

    def __init__(self, args: FragmentationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        pods = args.typical_pods
        with_gpu = [pod for pod in pods if pod.gpu_milli]
        self._cpu_only_share = sum(pod.share for pod in pods if not pod.gpu_milli)
        self._cpu = np.array([pod.cpu_milli for pod in with_gpu], np.int64)  # [M]
        self._count = np.array([max(pod.gpu_milli // WHOLE, 1) for pod in with_gpu], np.int64)  # [M]
        self._share = np.array([pod.share for pod in with_gpu])  # [M]
        milli = [min(pod.gpu_milli, WHOLE) for pod in with_gpu]
        self._levels, self._level = np.unique(np.array(milli, np.int64), return_inverse=True)  # [L], [M]
        self._models = [frozenset(pod.models) for pod in with_gpu]
        self._runs_on: dict[str, npt.NDArray[np.bool_]] = {}  # model -> [M]

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        return np.asarray(self._scores_of_gpus(pod, snapshot, rows).max(axis=1))

    def choose(self, pod: PodInfo, snapshot: Snapshot, node_name: str) -> Sequence[int]:
        rows = np.array([snapshot.row_of[node_name]])
        return [int(self._scores_of_gpus(pod, snapshot, rows)[0].argmax())]

    def _scores_of_gpus(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """Return the score of each node if the pod is placed on GPU g, [K, G]; -1 if it does not fit there.

        Pods without a share of a GPU have their score in column 0.
        """
        count, milli = gpu_request(pod)
        free, cpu = self.free(snapshot)[rows], free_cpu(snapshot, rows)
        models = snapshot.columns.labels(GPU_MODEL)
        runs_on = self._typical_pods_of_models(models.values)[models.codes[rows]]  # [K, M]
        before = self._fragmentation(cpu, free, runs_on)
        scores = np.full(free.shape, -1, np.int64)
        cpu_after = cpu - pod.non_zero_milli_cpu
        if milli in (0, WHOLE):
            whole = (free == WHOLE) & ((free == WHOLE).cumsum(axis=1) <= count)
            after = self._fragmentation(cpu_after, np.where(whole, 0, free), runs_on)
            scores[:, 0] = score_of_decrease(before - after)
            return scores
        nodes, gpus = np.nonzero(free >= milli)
        placed = free[nodes]
        placed[np.arange(len(nodes)), gpus] -= milli
        after = self._fragmentation(cpu_after[nodes], placed, runs_on[nodes])
        scores[nodes, gpus] = score_of_decrease(before[nodes] - after)
        return scores

    def _typical_pods_of_models(self, models: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which typical pods can use each model, [number of models + 1, M]; the last row is for no model."""
        for model in models:
            if model not in self._runs_on:
                self._runs_on[model] = np.array([not allowed or model in allowed for allowed in self._models], np.bool_)
        anywhere = np.array([not allowed for allowed in self._models], np.bool_)
        return np.stack([*(self._runs_on[model] for model in models), anywhere])

    def _fragmentation(self, cpu: Milli, free: Milli, runs_on: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Return the fragmentation, in thousandths of a GPU, of nodes with cpu [K] and free [K, G] left."""
        left = np.maximum(free, 0)
        whole = left.sum(axis=1)
        usable = free[:, :, None] >= self._levels  # [K, G, L]
        fitting = usable.sum(axis=1)[:, self._level]  # [K, M]
        too_small = np.where(usable, 0, left[:, :, None]).sum(axis=1)[:, self._level]  # [K, M]
        placeable = runs_on & (fitting >= self._count) & (cpu[:, None] >= self._cpu)
        unusable = np.where(placeable, too_small, whole[:, None])
        return np.asarray(unusable @ self._share + whole * self._cpu_only_share)


class FirstByName:
    """Nodes of equal score in the order of their names, in steps of 101 nodes. Weight: 101."""

    name = "FirstByName"
    row_local = True

    def __init__(self, args: object, handle: Handle) -> None:
        self._layout = -1
        self._rank: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # [N]

    def score_rows(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        if snapshot.layout != self._layout:
            self._layout = snapshot.layout
            self._rank = np.argsort(np.argsort(snapshot.names.astype(np.str_)))
        return 100 - self._step(self._rank[rows])

    def _step(self, rank: Scores) -> Scores:
        return np.minimum(rank // 101, 100)


class FirstByNameWithinStep(FirstByName):
    """The order of names within one step of FirstByName. Weight: 1."""

    name = "FirstByNameWithinStep"

    def _step(self, rank: Scores) -> Scores:
        return rank % 101


def free_cpu(snapshot: Snapshot, rows: Rows) -> Milli:
    """Return the CPU that is left on each row, in millicores."""
    columns = snapshot.columns
    cpu = columns.resource("cpu")
    return np.asarray(columns.allocatable[cpu, rows] - columns.requested[cpu, rows])


def total(free: Milli) -> Milli:
    """Return what is left on all GPUs of each node, [K]."""
    return np.asarray(np.maximum(free, 0).sum(axis=1))


def kind_of_request(request: tuple[int, int]) -> int:
    """Return 0 for a share of a GPU, otherwise the number of GPUs."""
    count, milli = request
    return count if milli == WHOLE else 0


def score_of_decrease(decrease: npt.NDArray[np.float64]) -> Scores:
    """Return 0 to 100 for a decrease of the fragmentation by thousandths of a GPU; 50 for no change."""
    rounded = decrease.round(6)  # no change must be exactly 50, whatever the order of the sums
    return np.asarray(100 / (1 + np.exp(-rounded / WHOLE))).astype(np.int64)


POLICIES = (Random, DotProd, GpuClustering, GpuPacking, BestFit, Fragmentation)
