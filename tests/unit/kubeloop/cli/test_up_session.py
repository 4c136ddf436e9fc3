"""Progress output of `kubeloop up`, and its settings."""

import math

import pytest
from msgspec.structs import replace

from kubeloop.cli import up_session
from kubeloop.cli.options.options import ControllerOptions, DevClusterOptions, FeatureGateOptions, ProcessOptions
from kubeloop.cli.progress_table import progress_table
from kubeloop.cli.up_session import LogProgress
from kubeloop.process.workload_progress import Progress, WorkloadProgress


def progress(bound: int, workloads: int = 0) -> Progress:
    entries = tuple(
        WorkloadProgress(
            namespace="shop",
            name=f"web-{number}",
            title=f"deployment/web-{number}",
            replicas=2,
            available=number % 3,
            complete=number % 3 == 2,
        )
        for number in range(workloads)
    )
    return Progress(
        workloads=entries,
        unready_standalone_pods=(),
        failed_standalone_pods=(),
        refused_pods=(),
        phases=(),
        pods=4,
        bound=bound,
        ready=0,
    )


def test_log_prints_one_line_per_second_and_only_changes():
    lines: list[str] = []
    log = LogProgress(lines.append)
    log(progress(0), 0.0, False)
    log(progress(1), 0.5, False)  # within the same second
    log(progress(1), 1.1, False)
    log(progress(1), 2.2, False)  # no change
    log(progress(4), 2.3, True)  # the last one is always printed
    assert lines == [
        "   0.0 s  0/0 workloads complete; 4 pods: 0 bound, 0 ready",
        "   1.1 s  0/0 workloads complete; 4 pods: 1 bound, 0 ready",
        "   2.3 s  0/0 workloads complete; 4 pods: 4 bound, 0 ready",
    ]


def test_table_shows_failed_and_suspended_jobs(capsys):
    fields = {"namespace": "shop", "replicas": 1, "available": 0, "complete": False}
    failed = WorkloadProgress("job.batch/bad", name="bad", failure="Because: it did", **fields)
    suspended = WorkloadProgress("job.batch/later", name="later", suspended=True, **fields)
    with progress_table() as show:
        show(replace(progress(0), workloads=(failed, suspended)), 1.0, True)
    bad, later = (line.split() for line in capsys.readouterr().out.splitlines() if "job.batch" in line)
    assert (bad[0], " ".join(bad[-4:])) == ("✗", "failed: Because: it did")
    assert (later[0], later[-1]) == ("…", "suspended")


def test_table_shows_incomplete_workloads_first(capsys):
    with progress_table() as show:
        show(progress(2, workloads=30), 2.0, True)
    output = capsys.readouterr().out
    assert "shop/deployment/web-0" in output
    assert "0 of 2 available" in output
    assert "1 of 2 available" in output
    assert "and 10 more" in output
    assert "1 bound/s" in output


@pytest.mark.parametrize(("columns", "has_bar"), [("", True), ("80", True), ("48", False), ("30", False)])
def test_narrow_table_drops_the_bar_and_cuts_no_number(monkeypatch, capsys, columns: str, has_bar: bool):
    monkeypatch.setenv("COLUMNS", columns)
    many = WorkloadProgress("deployment.apps/web", "shop", "web", replicas=30000, available=12345, complete=False)
    with progress_table() as show:
        show(replace(progress(0), workloads=(many,)), 1.0, True)
    output = capsys.readouterr().out
    assert {"12345", "of", "30000", "available"} <= set(output.split())
    assert ("━" in output) == has_bar


def test_table_after_completion_has_no_rate(capsys):
    with progress_table(rates=False) as show:
        show(progress(2, workloads=1), 100.0, False)
    assert capsys.readouterr().out.splitlines()[-1] == "0/1 workloads complete; 4 pods: 2 bound, 0 ready"


@pytest.mark.parametrize(
    ("nodes", "seconds"), [(0, math.inf), (3, 50.0)], ids=["no simulated nodes", "simulated nodes"]
)
def test_heartbeats_are_checked_in_clusters_with_simulated_nodes(nodes: int, seconds: float):
    settings = up_session._settings(
        DevClusterOptions(nodes=nodes), ProcessOptions(), ControllerOptions(), FeatureGateOptions()
    )
    assert settings.controller_options["node_monitor_grace_period"] == seconds
