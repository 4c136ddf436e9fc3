"""The fewest nodes like one with which a plan, or a replay, ends with nothing pending."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kubeloop.kube.json_object import JSON
from kubeloop.planning.node_pools import nodes_for_requests
from kubeloop.planning.result import FitResult, FitRun

T = TypeVar("T")

MOST_RUNS: Final = 12


def fewest_nodes(like: JSON, run: Callable[[int], tuple[T, Sequence[JSON]]]) -> tuple[FitResult, T]:
    """Return how many nodes like this one are enough, and the result with them; else the result without more nodes.

    run: returns the result with so many more nodes, and the pods that are pending at its end. Nodes are enough if there
    are none; they are the fewest if one node less is not enough. The first number is what the requests need at least,
    the next ones follow from the pods that each node took. The search ends after MOST_RUNS runs, if further nodes place
    no further pod, and at one node per pending pod.
    """
    without, pending = run(0)
    most = left = len(pending)
    fit = FitResult(like["metadata"]["name"], None, [FitRun(0, left)])
    if not pending:
        fit.nodes = 0
        return fit, without
    count = max(1, nodes_for_requests(pending, like))
    result, too_few, step = without, 0, 1
    while len(fit.runs) < MOST_RUNS and count <= most:
        count = int(count)
        attempt, pending = run(count)
        fit.runs.append(FitRun(count, len(pending)))
        if not pending:
            fit.nodes, result = count, attempt
        elif fit.nodes is None:
            placed = left - len(pending)
            if placed <= 0 or count == most:
                break
            needed = math.ceil(len(pending) * (count - too_few) / placed)
            too_few, left, count = count, len(pending), min(count + needed, most)
            continue
        else:
            too_few = count
        if fit.nodes - too_few == 1:
            break
        count, step = max((too_few + fit.nodes) // 2, fit.nodes - step), 2 * step
    return fit, result
