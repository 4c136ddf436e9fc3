"""README.md and docs/: commands run, links resolve, options exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.processes.cli_processes import ROOT, TIMEOUT_SECONDS, WEB, Kubeloop, running_cluster

README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "README.md"]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
FOREIGN_FLAGS = {"--controllers=*,-deployment-controller,-replicaset-controller"}  # kube-controller-manager's


def command_lines(page: Path) -> list[str]:
    """Return the indented lines that start with kubeloop, make, kind or kubectl, without comments."""
    lines = re.findall(r"^ {4}((?:kubeloop|make|kind|kubectl) .*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"\s+#.*", "", line).rstrip() for line in lines]


def kubeloop_lines(page: Path) -> list[str]:
    return [line for line in command_lines(page) if line.startswith("kubeloop ")]


@pytest.fixture(scope="module")
def help_of() -> dict[str, str]:
    def help_text(*command: str) -> str:
        arguments = [sys.executable, "-m", "kubeloop", *command, "--help-all"]
        text = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
        if command and "COMMAND [ARGS]" in text:
            text += "".join(help_text(*command, name) for name in commands_in(text))
        return text

    return {command: help_text(command) for command in commands_in(help_text())}


def commands_in(help_text: str) -> list[str]:
    return re.findall(r"^  ([a-z][a-z-]*)  ", help_text, re.MULTILINE)


def test_readme_starts_with_up_and_test():
    assert [line.split()[1] for line in command_lines(README)[:2]] == ["up", "test"]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_mentioned_make_targets_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    mentioned = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    assert set(mentioned) <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_and_files_exist(page):
    text = page.read_text()
    missing = [
        target
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert missing == []
    files = re.findall(r"\b(?:deploy|docs|benchmarks)/[\w./-]+\.(?:yaml|md|py)\b", text)
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_options_of_command_lines_exist(page, help_of):
    for line in kubeloop_lines(page):
        command = shlex.split(line)[1]
        for flag in re.findall(r"(?<=\s)--?[a-z][\w-]*", line):
            assert re.search(rf"(?<![\w-]){flag}(?![\w-])", help_of[command]), f"{line}: {flag}"


def test_options_mentioned_in_the_readme_exist(help_of):
    text = README.read_text()
    for flag in FOREIGN_FLAGS:
        text = text.replace(flag, "")
    text = re.sub(r"^ {4}(?:kind|kubectl|make) .*$", "", text, flags=re.MULTILINE)
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", text)) - {"--help"}
    all_help = "\n".join(help_of.values())
    assert {flag for flag in mentioned if flag not in all_help} == set()


def test_table_lists_all_commands(help_of):
    assert set(re.findall(r"^\| `kubeloop ([\w-]+)", README.read_text(), re.MULTILINE)) == set(help_of)


def test_up_commands_succeed(kubeloop: Kubeloop):
    lines = [shlex.split(line) for line in kubeloop_lines(README) if line.split()[1] == "up"]
    assert lines
    for _, *arguments in lines:
        assert "--once" in arguments
        result = kubeloop.run(*(ROOT / word if word.startswith("deploy/") else word for word in arguments))
        assert result.returncode == 0, result.stderr


def test_trace_commands_succeed_with_a_running_cluster(kubeloop: Kubeloop, tmp_path):
    lines = [shlex.split(line) for line in kubeloop_lines(README) if line.split()[1] == "trace"]
    assert lines
    with running_cluster(kubeloop, tmp_path, "-f", WEB):
        name = kubeloop.json("trace", "deploy/web", "--json")["slowest"][0]
        for _, *arguments in lines:
            result = kubeloop.run(*(word.replace("NAME", name) for word in arguments))
            assert result.returncode == 0, result.stderr
            assert name in result.stdout


def test_run_commands_start_with_a_cluster(kubeloop: Kubeloop, tmp_path):
    lines = [shlex.split(line) for line in kubeloop_lines(README) if line.split()[1] == "run"]
    assert lines
    kubeconfig = tmp_path / "kubeconfig"
    with kubeloop.running("apiserver", "--nodes", "1", "--kubeconfig", kubeconfig) as server:
        server.wait_for("export KUBECONFIG")
        for _, *arguments in lines:
            with kubeloop.running(*arguments, KUBECONFIG=str(kubeconfig)) as run:
                run.wait_for("endpoint|running|http://127")


def test_example_test_passes(tmp_path):
    (example,) = re.findall(r"^    def test_web.*\n(?:^     .*\n)+", README.read_text(), re.MULTILINE)
    file = tmp_path / "test_web.py"
    file.write_text(textwrap.dedent(example))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-pno:cacheprovider", "-pno:schemathesis", "--rootdir", tmp_path, file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert "1 passed" in result.stdout, result.stdout + result.stderr
