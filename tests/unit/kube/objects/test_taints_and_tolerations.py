"""Tolerations of taints."""

from __future__ import annotations

import pytest

from kubeloop.kube.objects.api_types import (
    Taint,
    Toleration,
)
from kubeloop.kube.objects.taints_and_tolerations import find_untolerated_taint, tolerates


def test_untolerated_taint_is_found_by_effect():
    soft = Taint(key="a", effect="PreferNoSchedule")
    hard = Taint(key="b", value="x", effect="NoExecute")
    assert find_untolerated_taint((soft, hard), ()) is hard
    assert find_untolerated_taint((soft, hard), (Toleration(key="b", value="x"),)) is None


@pytest.mark.parametrize(
    ("operator", "limit", "value", "expected"),
    [
        ("Lt", "10", "9", True),
        ("Lt", "10", "10", False),
        ("Gt", "-5", "-4", True),
        ("Gt", "10", "10", False),
        ("Gt", "0", "007", False),
        ("Gt", "+1", "5", False),
        ("Lt", "9223372036854775807", "9223372036854775806", True),
        ("Lt", "9223372036854775808", "1", False),
        ("Gt", "0", "", False),
    ],
    ids=["less", "not less", "greater", "not greater", "leading zero", "sign", "int64", "above int64", "no value"],
)
def test_lt_and_gt_compare_integers_if_the_gate_is_on(operator: str, limit: str, value: str, expected: bool):
    toleration, taint = Toleration(key="sla", operator=operator, value=limit), Taint(key="sla", value=value)
    assert tolerates(toleration, taint, comparison_operators=True) is expected
    assert not tolerates(toleration, taint)
