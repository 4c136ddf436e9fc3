"""Warnings about deprecated node labels and fractional quantities of bytes."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.validation.warnings.pod_warnings import fractional_bytes_warnings, node_term_warnings


def test_node_term_warns_about_deprecated_labels():
    keys = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
    term = {"matchExpressions": [{"key": key, "operator": "Exists"} for key in keys]}
    assert list(node_term_warnings(term, "term")) == [
        "term.matchExpressions[0].key: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; "
        'use "topology.kubernetes.io/zone" instead'
    ]


def test_node_term_checks_label_values_only_on_request():
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["ok", "-"]}]}
    assert list(node_term_warnings(term, "term")) == []
    [warning] = node_term_warnings(term, "term", check_values=True)
    assert warning.startswith("term.matchExpressions[0].values[1]: - is invalid, a valid label must be")


@pytest.mark.parametrize(("quantity", "fractional"), [("1m", True), ("1.5", True), ("1500m", True), ("1.5k", False)])
def test_fractional_bytes_warn(quantity: str, fractional: bool):
    warning = f'limits[memory]: fractional byte value "{quantity}" is invalid, must be an integer'
    amounts = {"memory": quantity, "cpu": "1m"}
    assert list(fractional_bytes_warnings(amounts, "limits", ("memory",))) == ([warning] if fractional else [])
