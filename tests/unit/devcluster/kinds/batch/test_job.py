"""Validation of Jobs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeloop.devcluster.api.served_resources import JOBS
from kubeloop.devcluster.kinds.batch.job import index_count, validate_job_spec
from kubeloop.devcluster.kinds.batch.job_status import index_interval
from kubeloop.kube.json_object import JSON
from support.objects.validation_causes import create_causes, defaulted, update_causes, validator_causes


def test_stored_job_may_lack_newer_labels():
    selector = {"matchLabels": {"controller-uid": "u"}}
    old, new = ({"spec": {"template": {"metadata": {"labels": {"controller-uid": "u", "job-name": "x"}}, "spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}, "selector": selector, **fields}}
        for fields in ({"completions": 3}, {"completions": 3, "parallelism": 2}))  # fmt: skip
    assert update_causes(JOBS, old, new) == []
    assert len(create_causes(JOBS, new)) == 2


def job_spec(**fields: Any) -> JSON:
    pod_spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    spec: JSON = defaulted(JOBS, {"spec": {"template": {"spec": pod_spec}, **fields}})["spec"]
    return spec


def failure_rule(**rule: Any) -> JSON:
    return job_spec(podFailurePolicy={"rules": [rule]})


RULE = "spec.podFailurePolicy.rules[0]"
INDEXED = {"completionMode": "Indexed", "completions": 3}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param(job_spec(**INDEXED, backoffLimitPerIndex=1, maxFailedIndexes=3), [], id="valid indexed job"),
        pytest.param(
            job_spec(maxFailedIndexes=1),
            [
                "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
                "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
            ],
            id="failed indexes of a job without indexes",
        ),
        pytest.param(
            job_spec(completionMode="Indexed", parallelism=1),
            ["spec.completions: Required value: when completion mode is Indexed"],
            id="indexed job without completions",
        ),
        pytest.param(
            job_spec(managedBy="me"),
            ['spec.managedBy: Invalid value: "me": must be a domain-prefixed path (such as "acme.io/foo")'],
            id="manager without domain",
        ),
        pytest.param(
            failure_rule(action="Retry", onExitCodes={"operator": "In", "values": [2, 0, 2]}),
            [
                f'{RULE}.action: Unsupported value: "Retry": '
                'supported values: "Count", "FailIndex", "FailJob", "Ignore"',
                f"{RULE}.onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
                f"{RULE}.onExitCodes.values[2]: Duplicate value: 2",
                f"{RULE}.onExitCodes.values: Invalid value: [2,0,2]: must be ordered",
            ],
            id="exit codes",
        ),
        pytest.param(
            failure_rule(action="FailIndex"),
            [
                f'{RULE}.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
                f"{RULE}: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
            ],
            id="empty failure rule",
        ),
        pytest.param(
            job_spec(**INDEXED, successPolicy={"rules": [{"succeededIndexes": "0-1", "succeededCount": 4}]}),
            [
                "spec.successPolicy.rules[0].succeededCount: Invalid value: 4: "
                f"must be less than or equal to {limit} (the number of {counted})"
                for limit, counted in (
                    (3, "specified completions"),
                    (2, "indexes in the specified succeededIndexes field"),
                )
            ],
            id="success count above the indexes",
        ),
        pytest.param(
            job_spec(podReplacementPolicy="Never"),
            [
                'spec.podReplacementPolicy: Unsupported value: "Never": '
                'supported values: "Failed", "TerminatingOrFailed"'
            ],
            id="unknown replacement policy",
        ),
    ],
)
def test_job_spec_causes(spec: JSON, causes: list[str]) -> None:
    assert validator_causes(validate_job_spec, "spec", spec) == causes


@pytest.mark.parametrize(("text", "count"), [("", 0), ("0", 1), ("0,2-4,9", 5)])
def test_index_count(text: str, count: int) -> None:
    assert index_count(text, 10) == count


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a", 'cannot convert string to integer for index: "a"'),
        ("3-2", "non-increasing order, previous: 3, current: 2"),
        ("10", 'too large index: "10"'),
        (
            "1-2-3",
            'the fragment "1-2-3" violates the requirement that an index interval can have at most two parts '
            "separated by '-'",
        ),
    ],
)
def test_invalid_index_interval_error(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(error)}$"):
        index_interval(text, 10)
