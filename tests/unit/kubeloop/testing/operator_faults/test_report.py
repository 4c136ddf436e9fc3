"""Reports of checks: text, JSON, JUnit XML."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import msgspec
import pytest

from kubeloop.testing.cluster_options import ClusterOptions
from kubeloop.testing.operator_faults.report import repeat_arguments, report_json, report_junit, report_text
from kubeloop.testing.operator_faults.suite import FaultFinding, OperatorOptions, OperatorReport

OPTIONS = OperatorOptions(command="bin/operator --kubeconfig {kubeconfig}", files=(Path("crds"),), timeout=20)


@pytest.fixture
def report() -> OperatorReport:
    finding = FaultFinding(
        "crash-after",
        1,
        "after a crash between the create of Secret a-* and the status write of Site blog, a second Secret a-* exists",
        ["a second Secret a-* exists", "another problem"],
        ["create of Secret a-*", "create of Secret a-*", "status write of Site blog: 409"],
        ["panic"],
    )
    return OperatorReport(
        OPTIONS.command,
        ["create of Secret a-*", "status write of Site blog"],
        {"crash-after:1": "failed", "crash-after:2": "passed", "conflict:2": "not reached"},
        [finding],
        ["it talks to 10.0.0.1:443"],
        ["Secret.data.key"],
        omitted=4,
        seconds=75.0,
    )


def test_text_has_table_sentences_writes_and_command(report: OperatorReport):
    assert report_text(report, OPTIONS).splitlines() == [
        "     write                      crash-after  conflict",
        "  1  create of Secret a-*       FAIL",
        "  2  status write of Site blog  ok           -",
        "",
        "note: it talks to 10.0.0.1:443",
        "not compared, because it differs between runs without faults: Secret.data.key",
        "4 runs were omitted: there was no time for them",
        "2 writes, 2 fault classes, 3 runs, 1 min 15 s: 1 failure",
        f"1. {report.findings[0].sentence}",
        "   another problem",
        "     writes without faults       writes of this run",
        "   > create of Secret a-*        create of Secret a-*",
        "     status write of Site blog   create of Secret a-*",
        "                                 status write of Site blog: 409",
        "   last output of the operator:",
        "     panic",
        "   repeat: kubeloop test-operator --run 'bin/operator --kubeconfig {kubeconfig}' -f crds --timeout=20"
        " --only crash-after:1",
    ]


def test_json_and_junit_have_all_runs(report: OperatorReport):
    document = json.loads(report_json(report))
    assert document["outcomes"]["crash-after:1"] == "failed"
    assert document["findings"][0]["problems"] == report.findings[0].problems
    junit = report_junit(report)
    assert '<testsuite name="kubeloop test-operator" tests="3" failures="1">' in junit
    assert 'name="crash-after:2"/>' in junit


def test_repeated_command_has_all_options_of_the_scenario():
    options = OperatorOptions(
        command="op",
        steps=Path("s.yaml"),
        user="jane",
        quiet=9,
        only=("crash-after",),
        jobs=2,
        resolve=("a.b.svc=127.0.0.1:{port:a}", "c.d.svc=127.0.0.1:2"),
        cluster=ClusterOptions(controllers="*,-job", nodes=1),
    )
    assert shlex.join(repeat_arguments(options)) == (
        "kubeloop test-operator --run op --steps=s.yaml --user=jane --quiet=9 '--controllers=*,-job' --nodes=1 "
        "'--resolve=a.b.svc=127.0.0.1:{port:a}' --resolve=c.d.svc=127.0.0.1:2"
    )


def test_operator_that_ignores_sigterm_does_not_pass(report: OperatorReport):
    passed = msgspec.structs.replace(report, findings=[])
    assert passed.passed
    assert not msgspec.structs.replace(passed, notes=["it ignores SIGTERM: it had to be killed after 30 s"]).passed
