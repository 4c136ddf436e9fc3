"""Node and label selectors evaluated over the snapshot's label columns, for all nodes at once.

Axis: N nodes. A requirement is evaluated once per distinct label value; the result is expanded to nodes by value code.
The per-node counterparts are in kube.selectors and kube.node_selectors.
"""

from __future__ import annotations

import numpy as np

from kubeloop.kube.selectors.node_selectors import NodeSelectorMatcher, NodeSelectorTermMatcher, RequiredNodeAffinity
from kubeloop.kube.selectors.selectors import Requirement, Selector
from kubeloop.scheduler.cache.arrays import Mask, Rows
from kubeloop.scheduler.cache.snapshot import Snapshot

FEW_ROWS = 16  # at most this many nodes are evaluated one by one, which is faster than building masks


def requirement_mask(snapshot: Snapshot, requirement: Requirement) -> Mask:
    """Return the nodes whose labels meet `requirement`: bool [N]."""
    column = snapshot.columns.labels(requirement.key)
    operator = requirement.operator
    # One entry per value, and a last one for nodes without the label: their code -1 indexes it.
    matches_by_code = np.zeros(len(column.values) + 1, np.bool_)
    if operator in ("=", "==", "in"):
        matches_by_code[[column.code_of[value] for value in requirement.values if value in column.code_of]] = True
    elif operator in ("!=", "notin"):
        matches_by_code[:] = True
        matches_by_code[[column.code_of[value] for value in requirement.values if value in column.code_of]] = False
    elif operator == "exists":
        matches_by_code[:-1] = True
    elif operator == "!":
        matches_by_code[-1] = True
    else:
        matches = requirement.compiled()
        matches_by_code[:-1] = [matches({requirement.key: value}) for value in column.values]
    return matches_by_code[column.codes]


def selector_mask(snapshot: Snapshot, selector: Selector) -> Mask:
    """Return the nodes whose labels `selector` matches: bool [N]."""
    mask = np.full(len(snapshot), not selector.nothing)
    for requirement in selector.requirements:
        mask &= requirement_mask(snapshot, requirement)
    return mask


def term_mask(snapshot: Snapshot, term: NodeSelectorTermMatcher) -> Mask:
    """Return the nodes that one term matches: bool [N]."""
    if term.errors:
        return np.zeros(len(snapshot), np.bool_)
    mask = np.ones(len(snapshot), np.bool_)
    if term.labels is not None:
        mask &= selector_mask(snapshot, term.labels)
    if term.fields is not None:
        matches = term.fields.matches
        mask &= np.fromiter((matches({"metadata.name": name}) for name in snapshot.row_of), np.bool_, len(snapshot))
    return mask


def node_selector_mask(snapshot: Snapshot, selector: NodeSelectorMatcher) -> Mask:
    """Return the nodes that at least one term matches: bool [N]."""
    mask = np.zeros(len(snapshot), np.bool_)
    for term in selector.terms:
        mask |= term_mask(snapshot, term)
    return mask


def required_affinity_rows(snapshot: Snapshot, required: RequiredNodeAffinity, rows: Rows) -> Mask:
    """Return which of `rows` [K] satisfy the pod's nodeSelector and required node affinity: bool [K]."""
    if len(rows) <= FEW_ROWS:
        infos = snapshot.node_infos
        return np.fromiter(
            (required.matches(infos[row].name, labels_of(snapshot, row)) for row in rows.tolist()), np.bool_, len(rows)
        )
    mask = selector_mask(snapshot, required.node_selector)
    if required.affinity is not None:
        mask &= node_selector_mask(snapshot, required.affinity)
    return mask if rows is snapshot.all_rows else mask[rows]


def labels_of(snapshot: Snapshot, row: int) -> dict[str, str]:
    node = snapshot.node_infos[row].node
    return {} if node is None else node.metadata.labels
