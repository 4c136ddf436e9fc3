"""Validation of Events of events.k8s.io."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.devcluster.kinds.events.event import validate_events_v1_event, validate_events_v1_event_update
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import validator_causes


def event_v1(**fields: Any) -> JSON:
    names = ("reportingController", "reportingInstance", "action", "reason")
    return {
        "metadata": {"name": "e", "namespace": "ns"},
        "regarding": {"namespace": "ns"},
        "eventTime": "2026-01-01T00:00:00Z",
        "type": "Normal",
        **dict.fromkeys(names, "r"),
        **fields,
    }


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        pytest.param({}, [], id="valid"),
        pytest.param({"type": "Error"}, ['type: Invalid value: "": has invalid value: Error'], id="unknown type"),
        pytest.param({"eventTime": None}, ["eventTime: Required value"], id="no eventTime"),
        pytest.param({"action": ""}, ["action: Required value"], id="no action"),
        pytest.param(
            {"note": "é" * 513, "reason": "é" * 65},
            [
                'reason: Invalid value: "": can have at most 128 characters',
                'message: Invalid value: "": can have at most 1024 characters',
            ],
            id="limits in bytes",
        ),
        pytest.param(
            {"reason": "r" * 129}, ['reason: Invalid value: "": can have at most 128 characters'], id="long reason"
        ),
        pytest.param(
            {"note": "n" * 1025}, ['message: Invalid value: "": can have at most 1024 characters'], id="long note"
        ),
        pytest.param(
            {"series": {"count": 1}},
            [
                'series.count: Invalid value: "": should be at least 2',
                "series.lastObservedTime: Required value",
            ],
            id="series of one event",
        ),
        pytest.param({"deprecatedCount": 1}, ['count: Invalid value: "": needs to be unset'], id="deprecated field"),
    ],
)
def test_events_v1_event_causes(fields: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_events_v1_event, event_v1(**fields)) == causes


def test_most_fields_of_an_events_v1_event_are_immutable() -> None:
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:00Z"}
    assert validator_causes(validate_events_v1_event_update, event_v1(series=series), event_v1()) == []
    assert validator_causes(validate_events_v1_event_update, event_v1(note="n"), event_v1()) == [
        'message: Invalid value: "n": field is immutable'
    ]
    assert (
        validator_causes(validate_events_v1_event_update, event_v1(reason="x"), event_v1())
        == ['reason: Invalid value: "x": field is immutable'] * 2
    )
