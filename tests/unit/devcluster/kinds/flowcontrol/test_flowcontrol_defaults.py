"""Default values of FlowSchemas and PriorityLevelConfigurations."""

from __future__ import annotations

from kubeloop.devcluster.api.served_resources import FLOW_SCHEMAS, PRIORITY_LEVEL_CONFIGURATIONS
from kubeloop.devcluster.api.strategy import strategy_of
from kubeloop.devcluster.kinds.flowcontrol import flow_schema, priority_level_configuration


def test_flow_schema_has_a_default_precedence():
    strategy = strategy_of(FLOW_SCHEMAS)
    assert strategy is flow_schema.STRATEGY
    for precedence, expected in ((0, 1000), (7, 7)):
        obj = {"spec": {"matchingPrecedence": precedence}}
        assert strategy.default is not None
        strategy.default(obj)
        assert obj == {"spec": {"matchingPrecedence": expected}}


def test_priority_level_has_default_queues():
    strategy = strategy_of(PRIORITY_LEVEL_CONFIGURATIONS)
    assert strategy is priority_level_configuration.STRATEGY
    obj = {"spec": {"limited": {"limitResponse": {"queuing": {"queues": 0, "handSize": 4}}}}}
    assert strategy.default is not None
    strategy.default(obj)
    assert obj["spec"]["limited"] == {
        "limitResponse": {"queuing": {"queues": 64, "handSize": 4, "queueLengthLimit": 50}},
        "nominalConcurrencyShares": 30,
        "lendablePercent": 0,
    }
