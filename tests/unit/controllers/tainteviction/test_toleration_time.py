"""Time that a Pod may stay on a node with NoExecute taints."""

from __future__ import annotations

import pytest

from kubeloop.controllers.tainteviction.toleration_time import no_execute_taints, stay_seconds
from kubeloop.kube.objects.api_types import Node, Taint, Toleration, convert

TAINT = Taint(key="maintenance", value="soon", effect="NoExecute")


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        pytest.param([], 0.0, id="no toleration"),
        pytest.param([{"key": "maintenance", "operator": "Equal", "value": "other"}], 0.0, id="another value"),
        pytest.param([{"key": "maintenance", "value": "soon"}], None, id="Equal is the default operator"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": -5}], 0.0, id="negative seconds count as 0"),
        pytest.param([{"operator": "Exists", "effect": "NoSchedule"}], 0.0, id="another effect"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": 7}], 7.0, id="tolerationSeconds"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": 2**63 - 1}], None, id="largest int64: no limit"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": 10**12}], 3875820019.684212736, id="wraps around"),
        pytest.param([{"operator": "Exists", "tolerationSeconds": 10**10}], 0.0, id="wraps around to negative"),
        pytest.param(
            [{"operator": "Exists", "tolerationSeconds": 7}, {"operator": "Exists"}], 7.0, id="the first match counts"
        ),
    ],
)
def test_stay_seconds(tolerations, seconds):
    assert stay_seconds([TAINT], [convert(Toleration, toleration) for toleration in tolerations]) == seconds


def test_stay_seconds_is_the_shortest_of_all_taints():
    tolerations = [
        Toleration(key="a", operator="Exists", toleration_seconds=9),
        Toleration(key="b", operator="Exists", toleration_seconds=3),
    ]
    taints = [Taint(key=key, effect="NoExecute") for key in ("a", "b")]
    assert stay_seconds(taints, tolerations) == 3.0
    assert stay_seconds([*taints, TAINT], tolerations) == 0.0


def test_no_execute_taints_leave_out_other_effects():
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]
    assert [taint.key for taint in no_execute_taints(convert(Node, {"spec": {"taints": taints}}))] == ["b"]
