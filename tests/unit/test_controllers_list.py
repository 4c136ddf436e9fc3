"""docs/controllers-list.md names each controller of kube-controller-manager, as the table of controllers does."""

from __future__ import annotations

import re
from pathlib import Path

from kubeloop.process.control_plane.controller_table import CONTROLLER_TABLE
from support.comparison.kubernetes_controllers import KUBERNETES_CONTROLLERS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "controllers-list.md"


def rows() -> dict[str, tuple[str, str]]:
    """Return kubeloop's name and the remark, by the name of kube-controller-manager."""
    cells = re.findall(r"^\| ([a-z-]+) \| ([a-z-]*) ?\| (.*?) ?\|$", DOCUMENT.read_text(), re.MULTILINE)
    return {name: (own_name, remark) for name, own_name, remark in cells}


def test_document_lists_the_controllers_of_kubernetes_in_order():
    assert [*rows()] == [*KUBERNETES_CONTROLLERS]


def test_document_names_the_controllers_that_kubeloop_runs():
    running = {row.kubernetes_name: row.name for row in CONTROLLER_TABLE}
    assert {name: own_name for name, (own_name, _) in rows().items() if own_name} == running


def test_document_says_why_the_others_are_not_missed():
    assert [name for name, (own_name, remark) in rows().items() if not own_name and len(remark) < 30] == []
