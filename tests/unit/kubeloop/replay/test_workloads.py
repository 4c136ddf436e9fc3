"""Topmost owners of pods."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.replay.workloads import Workloads, is_run_here


def obj(kind: str, name: str, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": name}
    if owner is not None:
        reference = {"kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    return {"kind": kind, "metadata": metadata}


def test_workload_is_the_topmost_owner_that_is_known():
    workloads = Workloads()
    cron_job = obj("CronJob", "nightly")
    job = obj("Job", "nightly-1", cron_job)
    assert workloads.name_of(obj("Pod", "a", job)) == "job shop/nightly-1"
    workloads.add(job)
    assert workloads.name_of(obj("Pod", "a", job)) == "cronjob shop/nightly"
    assert workloads.name_of(obj("Pod", "a")) == "pod shop/a"


@pytest.mark.parametrize(
    ("api_version", "kind", "here"),
    [
        ("apps/v1", "ReplicaSet", True),
        ("batch/v1", "Job", True),
        ("v1", "ReplicationController", True),
        ("v1", "Node", False),
        ("argoproj.io/v1alpha1", "Workflow", False),
    ],
)
def test_controllers_that_run_here(api_version: str, kind: str, here: bool):
    assert is_run_here({"apiVersion": api_version, "kind": kind}) is here
