"""One process on a faulty network: crashes, restarts, clocks and titles of writes."""

from __future__ import annotations

import asyncio
import random

import pytest

from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.kube.client.transport import HttpRequest
from kubeloop.kube.objects.resources import CONFIG_MAPS, LEASES
from kubeloop.process.control_plane.control_plane import Settings
from kubeloop.testing.faults.cluster import RecordedCluster, first_error
from kubeloop.testing.faults.control_process import ProcessClock
from kubeloop.testing.faults.fault_plan import FaultPlan, PlannedFault, RunProfile, crash_plans, draw_plan
from kubeloop.testing.faults.network import resource_in
from kubeloop.testing.faults.requests import RequestTarget, SentRequest, title_of
from kubeloop.testing.faults.run import FaultRun
from support.apiserver.api_requests import InProcessApi
from support.controllers.sites import CRD, SITES, Sites, site

pytestmark = pytest.mark.virtual_time


def new_run(*faults: PlannedFault) -> FaultRun:
    cluster = RecordedCluster(random.Random(1), ServingSettings())
    cluster.record_revisions(CONFIG_MAPS, SITES)
    settings = Settings(controllers=frozenset(), custom_controllers=(Sites,))
    return FaultRun(cluster, FaultPlan(faults, journal=False), settings, random.Random(2))


async def run_with_site(run: FaultRun) -> None:
    api = InProcessApi(run.cluster.server)
    async with run.running_processes():
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
        api.create(SITES.path("default"), site())
        await asyncio.sleep(120)
        await run.heal()


async def test_process_that_crashes_at_a_write_is_replaced():
    run = new_run(PlannedFault("crash-after", write=2))
    await run_with_site(run)
    assert [process.identity for process in run.processes] == ["process-1", "process-2"]
    assert run.network.titles[:3] == ["patch of sites blog", "apply of ConfigMap blog", "apply of ConfigMap blog"]
    assert run.cluster.violations == []
    assert run.cluster.revision_at(0.0) < run.cluster.revision_at(200.0)


async def test_two_leaders_take_turns_and_none_writes_without_the_lease():
    run = new_run(PlannedFault("freeze-leader", at=40.0, seconds=30.0))
    await run_with_site(run)
    assert len(run.processes) >= 2
    assert run.cluster.store.get(LEASES, "kube-system", "kubeloop")
    assert run.cluster.violations == []


async def test_clock_of_a_process_jumps():
    run = new_run(PlannedFault("clock", at=5.0, share=60.0))
    clock = ProcessClock(run.cluster.clock)
    async with run.running_processes():
        await asyncio.sleep(10)
        assert run.clock.offset_seconds == 60.0
        assert (run.clock.now() - clock.now()).total_seconds() == 60.0
        await run.heal()
    assert run.clock.offset_seconds == 0.0


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/namespaces/ns/pods/web/status", ("pods", "web", "status")),
        ("/api/v1/namespaces/ns", ("namespaces", "ns", "")),
        ("/api/v1/namespaces/ns/finalize", ("namespaces", "ns", "finalize")),
        ("/apis/apps/v1/deployments", ("deployments", "", "")),
        ("/apis/apps/v1/namespaces/ns/deployments/web", ("deployments", "web", "")),
        ("/version", ("", "", "")),
    ],
)
def test_target_of_a_path(path: str, target: tuple[str, str, str]):
    assert RequestTarget.of(path) == target
    assert resource_in(path) == "/".join(part for part in (target[0], target[2]) if part)


def test_write_in_words():
    def title(method: str, path: str, body: bytes = b"", content_type: str = "") -> str:
        request = HttpRequest(method, path, {"content-type": content_type}, body)
        return title_of(SentRequest.of(request), {"secrets": "Secret"})

    secrets = "/api/v1/namespaces/ns/secrets"
    assert title("POST", secrets, b'{"metadata": {"generateName": "a-"}}') == "create of Secret a-"
    assert title("PATCH", f"{secrets}/a", b"[]", "application/json-patch+json") == "patch of Secret a"
    assert title("PATCH", f"{secrets}/a", b"{}", "application/apply-patch+yaml") == "apply of Secret a"
    assert title("DELETE", f"{secrets}/a") == "delete of Secret a"


def test_same_seed_draws_the_same_plan():
    profile = RunProfile(("POST secrets", "PATCH sites"), 10.0, ("sites",), {})
    assert draw_plan("stale", "1", profile) == draw_plan("stale", "1", profile)
    assert len(crash_plans(profile)) == 8


def test_first_error_of_nested_groups():
    error = ValueError("x")
    assert first_error(ExceptionGroup("a", [ExceptionGroup("b", [error])])) is error
