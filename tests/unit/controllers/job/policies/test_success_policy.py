"""Rules of a success policy."""

from __future__ import annotations

import pytest

from kubeloop.controllers.job.indexes import index_set
from kubeloop.controllers.job.policies.success_policy import met_rule
from kubeloop.kube.objects.api_types import SuccessPolicy, convert


@pytest.mark.parametrize(
    ("rules", "met"),
    [
        pytest.param([{"succeededIndexes": "2-4"}], 0, id="all indexes succeeded"),
        pytest.param([{"succeededIndexes": "2-5"}], None, id="an index is missing"),
        pytest.param([{"succeededIndexes": "2-9", "succeededCount": 3}], 0, id="enough of the indexes"),
        pytest.param([{"succeededIndexes": "4-9", "succeededCount": 2}], None, id="too few of the indexes"),
        pytest.param([{"succeededCount": 4}], 0, id="enough indexes"),
        pytest.param([{"succeededCount": 5}, {"succeededIndexes": "0"}], 1, id="second rule"),
        pytest.param([{"succeededIndexes": "50"}], None, id="no index below completions"),
    ],
)
def test_met_rule(rules, met):
    policy = convert(SuccessPolicy, {"rules": rules})
    assert met_rule(policy, 10, index_set({0, 2, 3, 4})) == met


def test_no_policy_and_no_success_meet_nothing():
    policy = convert(SuccessPolicy, {"rules": [{"succeededCount": 0}]})
    assert met_rule(None, 10, index_set({0})) is None
    assert met_rule(policy, 10, index_set(())) is None
