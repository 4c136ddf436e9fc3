"""Tolerations of taints."""

from __future__ import annotations

from kubeloop.kube.objects.api_types import (
    Taint,
    Toleration,
)
from kubeloop.kube.objects.taints_and_tolerations import find_untolerated_taint


def test_untolerated_taint_is_found_by_effect():
    soft = Taint(key="a", effect="PreferNoSchedule")
    hard = Taint(key="b", value="x", effect="NoExecute")
    assert find_untolerated_taint((soft, hard), ()) is hard
    assert find_untolerated_taint((soft, hard), (Toleration(key="b", value="x"),)) is None
