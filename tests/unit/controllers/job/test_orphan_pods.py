"""Pods that no unfinished Job tracks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeloop.controllers.job.orphan_pods import is_orphan
from kubeloop.kube.objects.api_types import OwnerReference
from support.objects.job_objects import new_job, new_pod

FINISHED = {"conditions": [{"type": "Complete", "status": "True"}]}


def owned(api_version: str = "batch/v1", kind: str = "Job", **options: Any):
    pod = new_pod("p", **options)
    reference = OwnerReference(api_version=api_version, kind=kind, name="j", uid="uid-j", controller=True)
    return replace(pod, metadata=replace(pod.metadata, owner_references=(reference,)))


@pytest.mark.parametrize(
    ("pod", "job", "orphan"),
    [
        pytest.param(new_pod("p"), None, True, id="without a controller"),
        pytest.param(new_pod("p", tracked=False), None, False, id="without the finalizer"),
        pytest.param(owned(), None, True, id="deleted job"),
        pytest.param(owned(), new_job(), False, id="running job"),
        pytest.param(owned(), new_job(status=FINISHED), True, id="finished job"),
        pytest.param(owned(), new_job(status=FINISHED, managedBy="a.io/b"), False, id="job of another controller"),
        pytest.param(owned(kind="Other"), None, False, id="another kind"),
        pytest.param(owned(api_version="a.io/v1"), None, False, id="another group"),
    ],
)
def test_is_orphan(pod, job, orphan):
    assert is_orphan(pod, job) == orphan
