"""Scenarios: what exists before the operator starts, and steps of users."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeloop.kube.errors import ApiError, ApiStatus
from kubeloop.kube.user_error import UserError
from kubeloop.testing.in_memory import memory_cluster
from kubeloop.testing.operations import WaitTimeout
from kubeloop.testing.operator_faults.scenario import read_scenario, read_steps

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.example.com}
"""
SITE = """
apiVersion: example.com/v1
kind: Site
metadata: {name: blog, namespace: web}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: operator}
"""


def written(folder: Path, name: str, *documents: str) -> Path:
    path = folder / name
    path.write_text("---".join(documents))
    return path


def test_custom_resources_are_applied_and_deleted_without_steps(tmp_path: Path):
    scenario = read_scenario([written(tmp_path, "all.yaml", SITE, CRD, DEPLOYMENT)], None)
    assert [manifest.kind for manifest in scenario.setup] == ["CustomResourceDefinition", "Deployment"]
    assert [step.title for step in scenario.steps] == ["apply Site blog", "delete Site blog"]


def test_workloads_are_tested_without_custom_resources(tmp_path: Path):
    scenario = read_scenario([written(tmp_path, "all.yaml", DEPLOYMENT)], None)
    assert [step.title for step in scenario.steps] == ["apply Deployment operator", "delete Deployment operator"]
    with pytest.raises(UserError, match="no custom resource and no workload"):
        read_scenario([written(tmp_path, "crd.yaml", CRD)], None)


def test_manifests_precede_the_operator_with_steps(tmp_path: Path):
    written(tmp_path, "site.yaml", SITE)
    steps = written(
        tmp_path, "steps.yaml", "- apply: site.yaml\n- wait: site/blog\n  for: Ready\n- delete: site/blog\n"
    )
    scenario = read_scenario([written(tmp_path, "all.yaml", CRD, DEPLOYMENT)], steps)
    assert len(scenario.setup) == 2
    assert [(step.verb, step.title) for step in scenario.steps] == [
        ("apply", "apply Site blog, wait for site/blog to be Ready"),
        ("delete", "delete site/blog"),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("apply: x", "not a list of steps"),
        ("[]", "not a list of steps"),
        ("- run: x", "step 1: not one of apply, delete, patch, wait"),
        ("- {delete: a/b, patch: a/b}", "step 1: not one of"),
        ("- {delete: blog}", "delete needs a target such as site/blog"),
        ("- {delete: a/b, merge: {}}", "delete has no field merge"),
        ("- {patch: a/b}", "patch needs merge"),
        ("- {wait: a/b, timeout: soon}", "timeout is not a number of seconds"),
        ("- {wait: a/b, for: '='}", "cannot wait for"),
        ("- {apply: none.yaml}", "cannot read"),
        ("- {apply: {kind: Site}}", "step 1: apiVersion not set"),
        ("- {apply: 'a", "steps.yaml"),
    ],
)
def test_invalid_step_is_rejected(tmp_path: Path, text: str, problem: str):
    with pytest.raises(UserError, match=problem):
        read_steps(written(tmp_path, "steps.yaml", text))


async def test_steps_apply_patch_wait_and_delete(tmp_path: Path):
    text = """
- apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: "1"}}
- patch: configmap/a
  merge: {data: {x: "2"}}
- wait: configmap/a
  for: "{.data.x}=2"
- delete: configmap/a
"""
    apply, patch, delete = read_steps(written(tmp_path, "steps.yaml", text))
    async with memory_cluster(nodes=0) as cluster:
        await apply.act(cluster, 10)
        await patch.act(cluster, 10)
        assert (await cluster.get("configmap/a"))["data"] == {"x": "2"}
        await delete.act(cluster, 10)
        assert await cluster.wait_for("configmap/a", "delete") == {}


@pytest.mark.parametrize(("timeout", "seconds"), [("", 0.01), ("  timeout: 0.02\n", 0.02)])
async def test_deletion_and_wait_take_the_timeout_of_the_run(tmp_path: Path, timeout: str, seconds: float):
    text = f"- wait: configmap/a\n  for: '{{.data.x}}=1'\n{timeout}- delete: configmap/a\n"
    wait, delete = read_steps(written(tmp_path, "steps.yaml", text))
    metadata = {"name": "a", "finalizers": ["example.com/a"]}
    async with memory_cluster(nodes=0) as cluster:
        await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        with pytest.raises(WaitTimeout, match=f"{seconds:g} s"):
            await wait.act(cluster, 0.01)
        with pytest.raises(WaitTimeout, match=r"not gone after 0.01 s"):
            await delete.act(cluster, 0.01)


async def test_apply_that_does_not_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def apply_slowly(*arguments: object, **options: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr("kubeloop.testing.operator_faults.scenario.apply", apply_slowly)
    text = "- apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
    (apply,) = read_steps(written(tmp_path, "steps.yaml", text))
    async with memory_cluster(nodes=0) as cluster:
        with pytest.raises(UserError, match=r"not done within 0.01 s"):
            await apply.act(cluster, 0.01)


@pytest.mark.parametrize("step", ["patch: configmap/a\n  merge: {data: {x: '2'}}", "delete: configmap/a"])
async def test_write_is_repeated_until_its_webhook_responds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str):
    monkeypatch.setattr("kubeloop.testing.operator_faults.scenario._RETRY_SECONDS", 0.001)
    (write,) = read_steps(written(tmp_path, "steps.yaml", f"- {step}\n"))
    async with memory_cluster(nodes=0) as cluster:
        await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}})
        requests = 0
        verb = step.partition(":")[0]
        written_by = getattr(cluster.client, verb)

        async def write_once(*arguments: Any, **options: Any) -> Any:
            nonlocal requests
            requests += 1
            if requests == 1:
                raise ApiError(ApiStatus(message='failed calling webhook "a.example.com": EOF'))
            return await written_by(*arguments, **options)

        monkeypatch.setattr(cluster.client, verb, write_once)
        await write.act(cluster, 10)
    assert requests == 2
