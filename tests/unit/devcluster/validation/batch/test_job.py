"""Validation of Jobs."""

from __future__ import annotations

from kubeloop.devcluster.api.served_resources import JOBS
from support.validation_causes import create_causes, update_causes


def test_stored_job_may_lack_newer_labels():
    selector = {"matchLabels": {"controller-uid": "u"}}
    old, new = ({"spec": {"template": {"metadata": {"labels": {"controller-uid": "u", "job-name": "x"}}, "spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}, "selector": selector, **fields}}
        for fields in ({"completions": 3}, {"completions": 3, "parallelism": 2}))  # fmt: skip
    assert update_causes(JOBS, old, new) == []
    assert len(create_causes(JOBS, new)) == 2
