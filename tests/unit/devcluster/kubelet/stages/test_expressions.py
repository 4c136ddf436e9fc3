"""CEL expressions of stages: conditions, weights, delays, and KWOK's functions."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from kubeloop.devcluster.kubelet.stages.expressions import InvalidExpression, Moment, StageExpression

OBJECT = {
    "metadata": {"name": "web", "creationTimestamp": "2026-01-01T11:59:50Z"},
    "spec": {"replicas": 2, "memory": "1Gi", "startup": "3s"},
}


@pytest.fixture
def moment() -> Moment:
    return Moment(datetime(2026, 1, 1, 12, tzinfo=UTC), random.Random(1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("self.spec.replicas == 2", True, id="true"),
        pytest.param("self.spec.replicas == 3", False, id="false"),
        pytest.param("self.spec.replicas", False, id="not a boolean"),
        pytest.param("self.spec.missing == 1", False, id="failing expression"),
        pytest.param("SinceSecond(self) == 10.0", True, id="function"),
        pytest.param("self.SinceSecond() == 10.0", True, id="method"),
        pytest.param("Now() == timestamp('2026-01-01T12:00:00Z')", True, id="Now"),
        pytest.param("UnixSecond(Now()) == 1767268800.0", True, id="UnixSecond"),
        pytest.param("Rand() >= 0.0 && Rand() < 1.0", True, id="Rand"),
        pytest.param("Quantity(self.spec.memory) == Quantity('1024Mi')", True, id="equal quantities"),
        pytest.param("Quantity('1') + Quantity('500m') == Quantity('1500m')", True, id="sum of quantities"),
        pytest.param("Quantity('1') - Quantity('500m') < Quantity('501m')", True, id="difference of quantities"),
        pytest.param("Quantity('1Gi') * 2 > Quantity('1500Mi')", True, id="multiple of a quantity"),
        pytest.param("Quantity('3') / 2 == Quantity('1500m')", True, id="quotient of a quantity"),
        pytest.param("Quantity('3') / 0 == Quantity('1')", False, id="division by zero"),
    ],
)
def test_condition_holds(moment, text, expected):
    assert StageExpression(text).holds(OBJECT, moment) is expected


@pytest.mark.parametrize(
    ("text", "weight"),
    [
        pytest.param("self.spec.replicas", 2, id="integer"),
        pytest.param("2.9", 2, id="float is truncated"),
        pytest.param("-1", 0, id="negative number"),
        pytest.param("true", 1, id="boolean"),
        pytest.param("'2'", None, id="string"),
        pytest.param("self.spec.missing", None, id="failing expression"),
    ],
)
def test_weight(moment, text, weight):
    assert StageExpression(text).whole(OBJECT, moment) == weight


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("duration('1500ms')", 1.5, id="duration"),
        pytest.param("duration(self.spec.startup) + duration('1s')", 4.0, id="sum of durations"),
        pytest.param("2000000000", 2.0, id="nanoseconds"),
        pytest.param("self.spec.startup", "3s", id="string is returned unparsed"),
        pytest.param("true", None, id="another type"),
        pytest.param("self.spec.missing", None, id="failing expression"),
    ],
)
def test_delay_seconds(moment, text, seconds):
    assert StageExpression(text).seconds(OBJECT, moment) == seconds


@pytest.mark.parametrize("text", ["self.a ==", "unknown(self)", "other.a"])
def test_invalid_expression_raises_error(text):
    with pytest.raises(InvalidExpression):
        StageExpression(text)
