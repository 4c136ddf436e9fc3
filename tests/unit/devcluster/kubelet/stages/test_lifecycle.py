"""Selection of a stage for an object, and its delay."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime

import pytest

from kubeloop.devcluster.kubelet.stages.files import Stage
from kubeloop.devcluster.kubelet.stages.lifecycle import delay_seconds, matches, select_stage
from kubeloop.devcluster.languages.jq import Program, Results
from support.objects.stages import DELETE, SELECT_ALL, stage_text

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
POD = {
    "metadata": {
        "name": "web",
        "labels": {"app": "web"},
        "annotations": {"wait": "2s", "until": "2026-01-01T12:00:30Z", "heavy": "3", "no": ""},
    },
    "spec": {"replicas": 2},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}


def jq_results(stages: list[Stage]) -> Results:
    return Program(query for stage in stages for query in stage.queries).results(POD, NOW)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("{}", True),
        ("{matchLabels: {app: web}}", True),
        ("{matchLabels: {app: db}}", False),
        ("{matchAnnotations: {wait: 2s}}", True),
        ("{matchAnnotations: {wait: 3s}}", False),
        ("{matchExpressions: [{key: .status.phase, operator: In, values: [Pending, Running]}]}", True),
        ("{matchExpressions: [{key: .status.phase, operator: NotIn, values: [Running]}]}", False),
        ("{matchExpressions: [{key: .status.missing, operator: NotIn, values: [Running]}]}", True),
        ("{matchExpressions: [{key: .status.missing, operator: In, values: [Running]}]}", False),
        ("{matchExpressions: [{key: .spec.replicas, operator: In, values: ['2']}]}", True),
        ("{matchExpressions: [{key: .metadata.deletionTimestamp, operator: DoesNotExist}]}", True),
        ("{matchExpressions: [{key: .status.phase, operator: Exists}]}", True),
        ("{matchExpressions: [{key: '.status.missing[]', operator: Exists}]}", False),
        ("{matchExpressions: [{jq: {key: .status.phase, operator: In, values: [Running]}}]}", True),
        ("{matchLabels: {app: web}, matchExpressions: [{key: .status.podIP, operator: Exists}]}", False),
    ],
)
def test_selector_matches_object(read_stage_texts, selector, expected):
    (stage,) = read_stage_texts(stage_text(spec=f"  selector: {selector}\n" + DELETE))
    assert matches(stage, POD, jq_results([stage]), NOW, random.Random(1)) is expected


@pytest.mark.parametrize(
    ("delay", "least", "most"),
    [
        ("{durationMilliseconds: 1500}", 1.5, 1.5),
        ("{durationMilliseconds: 1000, jitterDurationMilliseconds: 5000}", 1.0, 5.0),
        ("{durationMilliseconds: 5000, jitterDurationMilliseconds: 1000}", 1.0, 1.0),
        ("{durationMilliseconds: 1, durationFrom: {expressionFrom: .metadata.annotations.wait}}", 2.0, 2.0),
        ("{durationMilliseconds: 1000, durationFrom: {expressionFrom: .metadata.missing}}", 1.0, 1.0),
        ("{durationFrom: {jq: {expression: .metadata.annotations.until}}}", 30.0, 30.0),
        ("{durationMilliseconds: 1000, jitterDurationFrom: {expressionFrom: .metadata.annotations.until}}", 1.0, 30.0),
        ("{durationMilliseconds: 1000, durationFrom: {expressionFrom: .metadata.annotations.no}}", 0.0, 0.0),
        ("{durationMilliseconds: 1000, jitterDurationFrom: {expressionFrom: .metadata.missing}}", 1.0, 1.0),
    ],
)
def test_delay_is_between_delay_and_jitter(read_stage_texts, delay, least, most):
    (stage,) = read_stage_texts(stage_text(spec=f"  selector: {{}}\n  delay: {delay}\n" + DELETE))
    results = jq_results([stage])
    delays = [delay_seconds(stage, POD, results, NOW, random.Random(seed)) for seed in range(200)]
    assert min(delays) >= least
    assert max(delays) <= most
    assert max(delays) - min(delays) >= (most - least) * 0.9
    assert delays == [delay_seconds(stage, POD, results, NOW, random.Random(seed)) for seed in range(200)]


def test_stage_is_selected_by_weight(read_stage_texts):
    candidates = read_stage_texts(
        stage_text("light", spec=SELECT_ALL + DELETE + "  weight: 1\n"),
        stage_text("heavy", spec=SELECT_ALL + DELETE + "  weightFrom: {expressionFrom: .metadata.annotations.heavy}\n"),
        stage_text("never", spec=SELECT_ALL + DELETE + "  weight: 0\n"),
    )
    rng, results = random.Random(1), jq_results(candidates)
    selected = Counter(stage.name for _ in range(1000) if (stage := select_stage(candidates, POD, results, NOW, rng)))
    assert set(selected) == {"light", "heavy"}
    assert 650 < selected["heavy"] < 850


def test_stages_without_weights_are_equally_likely(read_stage_texts):
    candidates = read_stage_texts(stage_text("a", spec=SELECT_ALL + DELETE), stage_text("b", spec=SELECT_ALL + DELETE))
    rng, results = random.Random(1), jq_results(candidates)
    selected = Counter(stage.name for _ in range(1000) if (stage := select_stage(candidates, POD, results, NOW, rng)))
    assert 400 < selected["a"] < 600
