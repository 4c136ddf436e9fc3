"""`kubeloop run` next to the real kube-scheduler and kube-controller-manager, which hold their Leases."""

from __future__ import annotations

import time

import pytest

from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.processes.cli_processes import Kubeloop

_TIMEOUT_SECONDS = 60.0


def holder(server: RealApiServer, name: str) -> str:
    """Return the holder of a Lease in kube-system; "" if there is none."""
    leases = server.request("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")["items"]
    holders = [lease["spec"].get("holderIdentity") or "" for lease in leases if lease["metadata"]["name"] == name]
    return holders[0] if holders else ""


def wait_for_holder(server: RealApiServer, name: str, *, other_than: str = "") -> str:
    end = time.monotonic() + _TIMEOUT_SECONDS
    while (current := holder(server, name)) in ("", other_than):
        assert time.monotonic() < end, f"no new holder of {name}"
        time.sleep(0.2)
    return current


@pytest.mark.parametrize(
    ("component", "controllers", "work"),
    [
        ("kube-scheduler", "scheduler", "schedules the pods of default-scheduler"),
        ("kube-controller-manager", "deployment", "runs deployment"),
    ],
)
def test_run_refuses_or_takes_over_the_work_of_a_live_component(tmp_path, component, controllers, work):
    needs_binaries(component)
    with real_apiserver(tmp_path) as server:
        process = server.start_component(component)
        first = wait_for_holder(server, component)
        kubeloop = Kubeloop(tmp_path)
        run = ("run", f"--kubeconfig={server.kubeconfig}", f"--controllers={controllers}", "--trace-journal=")
        refused = kubeloop.run(*run)
        assert refused.returncode == 2
        assert f"{component} ({first}) {work}" in refused.stderr
        assert "--force" in refused.stderr
        with kubeloop.running(*run, "--force") as forced:
            forced.wait_for("kubeloop runs")
        election = ("--leader-elect", f"--leader-elect-resource-name={component}")
        with kubeloop.running(*run, *election) as candidate:
            candidate.wait_for("kubeloop runs")
            time.sleep(3.0)
            assert holder(server, component) == first
            server.stop_component(process)
            assert wait_for_holder(server, component, other_than=first) != first
