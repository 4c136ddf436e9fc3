"""Completion of command lines: scripts of shells, and what completes a line."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from click.testing import CliRunner

from kubeloop.cli.completion.shells import SCRIPTS, candidates
from kubeloop.cli.main import commands


@pytest.fixture(autouse=True)
def no_process(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    (tmp_path / "config").write_text("contexts: [{name: 'arn:aws:eks', context: {}}, {name: prod, context: {}}]")


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("kubeloop obs", ["observe\tTrace the pods of an existing cluster,..."]),
        ("kubeloop nodes unc", ["uncordon\tMark nodes as schedulable."]),
        ("kubeloop up --gang", ["--gang-scheduling\tEnable gang scheduling: the kinds Workload and PodGroup, and all"]),
        ("kubeloop up --verbosity=deb", ["--verbosity=debug"]),
        ("kubeloop up -v ", ["error", "warning", "info", "debug"]),
        ("kubeloop trace po", ["pod/", "podgroup/"]),
        ("kubeloop observe --context pr", ["prod"]),
        ("kubeloop observe --context=", ["--context=arn:aws:eks", "--context=prod"]),
        ("kubeloop run --config ", [":file"]),
        ("kubeloop up --data-dir ", [":dir"]),
        ("kubeloop trace pod/x 'unclosed", []),
    ],
)
def test_line_is_completed_with_descriptions(line: str, completed: list[str]):
    output = candidates(commands, "zsh", line)
    assert [text[: len(expected)] for text, expected in zip(output, completed, strict=True)] == completed


@pytest.mark.parametrize(
    ("line", "breaks", "completed"),
    [
        ("kubeloop observe --context arn:a", ":=", ["aws:eks"]),
        ("kubeloop observe --context=arn:a", ":=", ["aws:eks"]),
        ("kubeloop observe --context=pr", ":=", ["prod"]),
        ("kubeloop observe --context=pr", ":", ["--context=prod"]),
        ("kubeloop observe --context arn:a", "=", ["arn:aws:eks"]),
        ("kubeloop obs", ":=", ["observe"]),
    ],
)
def test_candidates_for_bash_start_at_its_word_break(line: str, breaks: str, completed: list[str], monkeypatch):
    monkeypatch.setenv("COMP_WORDBREAKS", f" \t\n{breaks}")
    assert candidates(commands, "bash", line) == completed


@pytest.mark.parametrize(
    "line",
    [
        "kubeloop explain --kubeconfig /nope pod/",
        "kubeloop explain --context nope pod/",
        "kubeloop observe --kubeconfig {folder}/text --context ",
        "kubeloop trace --endpoint http://127.0.0.1:9 pod/",
        "kubeloop nodes cordon ",
        "kubeloop trace /x/",
    ],
)
def test_failure_completes_nothing_and_prints_nothing(line: str, tmp_path):
    (tmp_path / "text").write_text("no kubeconfig")
    result = CliRunner().invoke(commands, ["completion", "bash", "--line", line.format(folder=tmp_path)])
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize("shell", SCRIPTS)
def test_script_is_accepted_by_its_shell(shell: str):
    script = CliRunner().invoke(commands, ["completion", shell]).output
    assert script == SCRIPTS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    result = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
