"""Phases of a pod, by span name."""

from __future__ import annotations

import re

import pytest

from kubeloop.tracing.views.phases import KEYS, OTHER, phase_index
from support.processes.cli_processes import ROOT

PHASE_OF_SPAN = {
    "create": "create",
    "watch delivery": "delivery",
    "queue active": "queue",
    "queue backoff": "waiting",
    "queue gated": "waiting",
    "unschedulable": "waiting",
    "gated": "waiting",
    "scheduling attempt 12": "scheduling",
    "schedule": "scheduling",
    "filter": "scheduling",
    "preemption wait": "preemption",
    "reserve": "permit",
    "permit": "permit",
    "pre-bind": "permit",
    "bind": "bind",
    "confirmation": "confirmation",
    "start sandbox": "sandbox",
    "start init": "init",
    "init container": "init",
    "image pull": "pull",
    "start containers": "start",
    "container start": "start",
    "startup probe": "probes",
    "readiness probe": "probes",
    "start readiness": "probes",
    "crash back-off": "crash",
    "container run": "crash",
    "container restart": "crash",
    "image pull back-off": "pull",
    "start volumes": "sandbox",
    "quorum wait": "waiting",
    "group wait": "waiting",
    "group attempt": "scheduling",
    "placement": "scheduling",
    "group binding": "bind",
    "event loop": "loop",
    "not observed": "unobserved",
    "not followed": "other",
    "terminating": "other",
    "anything": "other",
}


@pytest.mark.parametrize(("name", "phase"), PHASE_OF_SPAN.items())
def test_span_name_has_a_phase(name, phase):
    assert KEYS[phase_index(name)] == phase
    assert KEYS[OTHER] == "other"


def test_page_derives_the_same_phases():
    script = (ROOT / "tracing" / "views" / "assets" / "waterfall.js").read_text()
    function = script[script.index("Kubeloop.phaseOf") : script.index("inAttempt")]
    prefixes = re.findall(r'\["([^"]+)", "(\w+)"\]', function)
    for name, phase in PHASE_OF_SPAN.items():
        if name != "filter":  # steps of an attempt are listed apart
            assert next((key for prefix, key in prefixes if name.startswith(prefix)), "other") == phase, name
