"""Faults in words."""

from __future__ import annotations

import random

import pytest

from kubeloop.testing.faults.fault_plan import FAULT_CLASSES, PlannedFault, RunProfile
from kubeloop.testing.faults.sentences import describe_fault

TITLES = ["create of Secret a", "status write of Site b"]


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (
            PlannedFault("crash-after", write=1),
            "after a crash between the create of Secret a and the status write of Site b",
        ),
        (PlannedFault("crash-before", write=1), "after a crash before the create of Secret a"),
        (
            PlannedFault("crash-before", write=2),
            "after a crash between the create of Secret a and the status write of Site b",
        ),
        (PlannedFault("crash-after", write=2), "after a crash between the status write of Site b and the next write"),
        (
            PlannedFault("crash-late", write=1, seconds=3.5),
            "after a crash during the create of Secret a, which reached the API server 3.5 s later",
        ),
        (PlannedFault("blind", seconds=2, resource="sites"), "after watches of sites had missed the events of 2 s"),
        (
            PlannedFault("disconnect", seconds=5, cluster="west"),
            "after 5 s without a connection (cluster west)",
        ),
        (
            PlannedFault("late-events", seconds=2, resource="sites", cluster=""),
            "while watch events of sites were up to 2 s late (cluster of the controllers)",
        ),
        (PlannedFault("conflict", share=0.3), "while 30% of the updates were refused with 409"),
        (PlannedFault("clock", share=-61.0), "after the clock had jumped by -61 s"),
    ],
)
def test_fault_is_described(fault: PlannedFault, text: str):
    assert describe_fault(fault, TITLES) == text


@pytest.mark.parametrize("name", [name for name in FAULT_CLASSES if name not in ("tracing", "combined")])
def test_each_fault_that_is_drawn_has_a_description(name: str):
    profile = RunProfile(("POST secrets",), 10.0, ("sites",), {})
    for seed in range(20):
        for fault in FAULT_CLASSES[name](random.Random(seed), profile):
            assert describe_fault(fault, TITLES)
