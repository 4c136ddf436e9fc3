"""Phases of a pod, by span name."""

from __future__ import annotations

from kubeloop.tracing.views.phases import OTHER, phase_index


def test_every_child_span_name_has_phase():
    for name in ("create", "watch delivery", "queue active", "queue backoff", "queue gated", "scheduling attempt 12",
                 "reserve", "permit", "pre-bind", "bind", "confirmation"):  # fmt: skip
        assert phase_index(name) != OTHER, name
    assert phase_index("anything") == OTHER
