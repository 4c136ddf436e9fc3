"""Errors of options with bad values: each names its option, in the message or the hint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from kubeloop.cli.main import commands
from kubeloop.kube.user_error import UserError

BAD_VALUES = {
    "apiserver": (
        "--node-cpu=x",
        "--node-memory=x",
        "--zones=0",
        "--start-delay=x",
        "--stages=/none",
        "--stages={file}",
        "--devices=/none",
        "--devices={file}",
        "--service-cluster-ip-range=x",
        "--service-cluster-ip-range=10.0.0.0/32",
        "--disable-admission-plugins=Foo",
        "--disable-admission-plugins=NamespaceLifecycle",
        "--authorization-mode=Foo",
        "--authorization-mode=Webhook",
        "--authorization-mode=RBAC,RBAC",
        "--audit-policy-file={file} --audit-log-path=-",
        "--audit-policy-file=/none --audit-log-path=-",
        "--audit-log-path=-",
        "--resolve=x",
        "--token-auth-file=/none",
        "--token-auth-file={file}",
        "--requestheader-client-ca-file=/none",
        "--requestheader-client-ca-file={file}",
        "--client-ca-file=/none",
        "--client-ca-file={file}",
        "--compaction-interval=x",
        "--faults=eror=1",
        "--faults=error=x",
        "--faults=error=2",
        "--faults=latency=-1",
        "--feature-gates=Foo=true",
        "--feature-gates=AllAlpha",
        "--port=99999",
        "--log-format=x",
        "--data-dir={file}",
    ),
    "run": (
        "--controllers=deploymint",
        "--controllers=-*",
        "--controllers=-deployment",
        "--config=/none",
        "--config={file}",
        "--algorithm-provider=Foo",
        "--policy-config-file=/none",
        "--policy-config-file={file}",
        "--tie-break=x",
        "--trace-tail-sampling=foo",
        "--trace-tail-sampling=slower-than=x",
        "--scheduler-name=",
        "--write-config-to=/none/file",
        "--concurrent-deployment-syncs=0",
        "--node-monitor-period=x",
        "--unhealthy-zone-threshold=x",
        "--kubeconfig=/none",
    ),
    "observe": ("--trace-until=x", "--trace-tail-sampling=foo"),
    "nodes add": ("--labels=x", "--taint=x", "--cpu=x", "--memory=x", "--count=-1"),
    "kubeconfig": ("--duration=x",),
    "trace": ("--from=/none", "--from={file}"),
}


@pytest.mark.parametrize(
    ("command", "options"), [(command, options) for command, values in BAD_VALUES.items() for options in values]
)
def test_error_names_the_option(command: str, options: str, tmp_path: Path, monkeypatch: Any):
    file = tmp_path / "file"
    file.write_text("x: [")
    monkeypatch.setenv("KUBECONFIG", "/none")
    arguments = [*command.split(), *options.format(file=file).split()]
    with pytest.raises((UserError, click.ClickException)) as failure:
        commands.main(arguments, standalone_mode=False)
    error = failure.value
    text = f"{error} {error.hint}" if isinstance(error, UserError) else error.format_message()
    assert options.partition("=")[0] in text
