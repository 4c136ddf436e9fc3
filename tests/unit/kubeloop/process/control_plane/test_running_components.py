"""`kubeloop run` next to a live kube-scheduler or kube-controller-manager."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubeloop.devcluster.api import errors
from kubeloop.kube.clock import rfc3339_micro
from kubeloop.kube.objects.resources import LEASES, NAMESPACES, PODS
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.control_plane import Settings
from kubeloop.process.control_plane.running_components import check_running_components
from kubeloop.scheduler.config.types import Profile, SchedulerConfiguration
from support.apiserver.fake_apiserver import FakeApiServer

pytestmark = pytest.mark.virtual_time

ALL = frozenset({"scheduler", "deployment", "replicaset"})


def hold(api: Any, name: str, *, age: float = 1.0, holder: str = "host_1") -> None:
    renewed = rfc3339_micro(api.clock.now() - timedelta(seconds=age))
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    namespace = "kube-system"
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
    api.api.create(LEASES.path(namespace), body)


def run_static_pod(api: Any, *options: str) -> None:
    command = ["kube-controller-manager", "--leader-elect=true", *options]
    metadata = {"name": "kube-controller-manager-node", "labels": {"component": "kube-controller-manager"}}
    spec = {"containers": [{"name": "main", "image": "image", "command": command}]}
    api.api.create(PODS.path("kube-system"), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


async def check(
    api: Any,
    controllers: frozenset[str] = ALL,
    scheduler_name: str = "default-scheduler",
    own_lease: tuple[str, str] | None = None,
) -> str:
    """Return the error; "" if kubeloop may run."""
    scheduler = SchedulerConfiguration(profiles=(Profile(scheduler_name=scheduler_name),))
    settings = Settings(controllers=controllers, scheduler=scheduler)
    try:
        await check_running_components(api.client, settings, api.clock.now(), own_lease=own_lease)
    except UserError as error:
        return str(error)
    return ""


@pytest.fixture
async def api() -> FakeApiServer:
    fake_apiserver = FakeApiServer()
    if fake_apiserver.store.get(NAMESPACES, "", "kube-system") is None:
        fake_apiserver.api.create("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
    return fake_apiserver


async def test_free_and_expired_leases_are_no_obstacle(api):
    assert await check(api) == ""
    hold(api, "kube-scheduler", age=15.0)
    hold(api, "kube-controller-manager", holder="")
    assert await check(api) == ""


async def test_live_components_are_named_with_their_holder(api):
    hold(api, "kube-scheduler")
    hold(api, "kube-controller-manager", holder="host_2")
    problem = await check(api)
    assert "kube-scheduler (host_1) schedules the pods of default-scheduler" in problem
    assert "kube-controller-manager (host_2) runs deployment, replicaset" in problem


async def test_other_work_is_no_obstacle(api):
    hold(api, "kube-scheduler")
    hold(api, "kube-controller-manager")
    assert await check(api, frozenset({"scheduler"}), scheduler_name="kubeloop") == ""
    assert "kube-scheduler" not in await check(api, frozenset({"deployment"}))


async def test_controllers_that_its_static_pod_does_not_run_are_no_obstacle(api):
    hold(api, "kube-controller-manager")
    run_static_pod(api, "--controllers=*,-deployment-controller,-replicaset")
    assert await check(api) == ""
    assert "runs daemonset" in await check(api, ALL | {"daemonset"})


async def test_own_lease_excludes_the_other_holder(api):
    hold(api, "kube-scheduler")
    own_lease = ("kube-system", "kube-scheduler")
    assert await check(api, frozenset({"scheduler"}), own_lease=own_lease) == ""
    assert await check(api, frozenset({"scheduler"}), own_lease=("kube-system", "kubeloop")) != ""


async def test_unreadable_leases_are_taken_as_free(api):
    hold(api, "kube-scheduler")
    api.transport.reject = lambda method, path: errors.forbidden(LEASES, "kube-scheduler", "no")
    assert await check(api) == ""
