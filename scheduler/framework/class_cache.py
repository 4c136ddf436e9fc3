"""Class cache: results of filters and scores per class of pods, kept between scheduling cycles.

Covers plugins that declare `row_local = True`: their result and raw score for a node depend only on the spec class of
the pod and on that node's row, and equal raw scores are normalized to equal scores. For the next pod of a class they
run for changed rows only. All other plugins run in every cycle. Axes: N nodes, K rows.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from kubeloop.scheduler.cache.arrays import Rows, Scores
from kubeloop.scheduler.cache.node_info import PodInfo
from kubeloop.scheduler.cache.snapshot import Snapshot
from kubeloop.scheduler.framework.nominated_fit_cache import NominatedFitCache
from kubeloop.scheduler.framework.status_codes import StatusCodes

PASSED = np.iinfo(np.int16).max
"""Value in `first_rejecting`: no row-local filter rejects the node."""

FEW_ROWS = 4
"""Up to this many rows, the per-node form is faster than the array form. The class cache mostly refreshes that few."""

MAX_CACHED_BYTES, MAX_CLASSES = 64 << 20, 2048
"""Limits of the cached results, the least recently used first removed; about 800 classes at 5,000 nodes."""

_BYTES_PER_NODE = 16  # per class: first_rejecting, base, codes of statuses, and raw scores that differ between nodes


class ClassResults:
    """Results of one class, valid for the snapshot's `layout`, and for its rows as of a generation; -1: of none.

    first_rejecting: int16 [N], number of the first row-local filter that rejects the node. base: int64 [N], sum of
    the weighted scores without normalization. raw: plugin -> raw scores int64 [N], for scores with normalization;
    weighted: plugin -> the same, normalized and weighted over all rows, until a raw score of the plugin changes.
    Scores in raw and weighted that are equal on all nodes, the usual case, take no memory and are read only.
    nominated_fits: by priority, for pods whose filters only read sums of requests.
    statuses: of the rejections by the row-local filters, as far as computed since the row changed.
    """

    __slots__ = (
        "base",
        "filter_generation",
        "first_rejecting",
        "layout",
        "nominated_fits",
        "raw",
        "score_generation",
        "scored_by",
        "statuses",
        "weighted",
    )

    def __init__(self, snapshot: Snapshot) -> None:
        self.layout = snapshot.layout
        self.filter_generation = -1
        self.score_generation = -1
        self.first_rejecting: npt.NDArray[np.int16] = np.full(len(snapshot), PASSED, np.int16)
        self.base: Scores = np.zeros(len(snapshot), np.int64)
        self.raw: dict[str, Scores] = {}
        self.scored_by: tuple[str, ...] = ()
        self.nominated_fits: dict[int, NominatedFitCache] = {}
        self.statuses: StatusCodes | None = None
        self.weighted: dict[str, Scores] = {}

    def write_raw(self, plugin: str, rows: Rows | int, scores: Scores | int) -> None:
        """Replace raw scores of `plugin`, whose weighted scores must then be computed again."""
        raw = self.raw[plugin]
        if not raw.flags.writeable:
            raw = self.raw[plugin] = raw.copy()
        raw[rows] = scores
        self.weighted.pop(plugin, None)


def compact(scores: Scores) -> Scores:
    """Return `scores` [N]; if all are equal, as a read-only array that stores one element."""
    if len(scores) and bool((scores == scores[0]).all()):
        return np.broadcast_to(scores[0], scores.shape)
    return scores if scores.flags.writeable else scores.copy()


class ClassCache:
    """The results of the most recently used classes of one profile."""

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._results: OrderedDict[int, ClassResults] = OrderedDict()

    def results(self, pod: PodInfo, snapshot: Snapshot) -> ClassResults:
        """Return the results of the pod's class; they may be stale."""
        number = snapshot.classes.number(pod.pod)
        results = self._results.get(number)
        if results is None or results.layout != snapshot.layout:
            results = self._results[number] = ClassResults(snapshot)
            max_classes = min(MAX_CLASSES, max(16, self._max_bytes // (_BYTES_PER_NODE * len(snapshot) + 1)))
            while len(self._results) > max_classes:
                self._results.popitem(last=False)
        self._results.move_to_end(number)
        return results
