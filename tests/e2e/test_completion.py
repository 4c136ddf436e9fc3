"""`kubeloop completion` in real shells: what a line is after the tab key."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import sys
import time
from collections.abc import Iterator

import pytest

from support.processes.cli_processes import TIMEOUT_SECONDS, WEB, Kubeloop

_SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(kubeloop completion bash)"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -D; bindkey -e; source <(kubeloop completion zsh)"),
    "fish": (["fish", "--no-config", "-i"], "kubeloop completion fish | source"),
}
_BACK_TO_START = "\x01"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubeloop]:
    """Yield the command with a running cluster, and a folder with the executable on the path."""
    folder = tmp_path_factory.mktemp("completion")
    command = folder / "kubeloop"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kubeloop "$@"\n')
    command.chmod(0o755)
    (folder / "config.yaml").write_text("contexts: [{name: 'kind:a-1', context: {cluster: x}}]")
    kubeloop = Kubeloop(folder)
    kubeloop.environment |= {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "xterm"}
    with kubeloop.running("up", "-f", WEB, "--nodes", "2") as process:
        process.wait_for("kubeloop explain pod/NAME")
        yield kubeloop


def completed(shell: str, typed: str, kubeloop: Kubeloop) -> tuple[str, str]:
    """Return the line after `typed` and a tab in an interactive shell, and all output of the shell."""
    arguments, setup = _SHELLS[shell]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(kubeloop.environment["HOME"])
        os.execvpe(arguments[0], arguments, kubeloop.environment)
    output = ""
    try:
        for text, awaited in (
            (f"{setup}; echo REA''DY\n", "READY"),
            (f"{typed}\t{_BACK_TO_START}echo 'LI''NE:' \n", r"LINE: (.*?)\r*\n"),
        ):
            os.write(terminal, text.encode())
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while not (match := re.search(awaited, output)):
                assert time.monotonic() < deadline, output
                if select.select([terminal], [], [], 0.1)[0]:
                    output += os.read(terminal, 65_536).decode(errors="replace")
        return match[1].strip(), output
    finally:
        os.close(terminal)  # the shell gets SIGHUP
        os.waitpid(pid, 0)


@pytest.mark.parametrize("shell", _SHELLS)
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("kubeloop kubec", "kubeloop kubeconfig"),
        ("kubeloop trace deploy/w", "kubeloop trace deploy/web"),
        ("kubeloop trace deployment w", "kubeloop trace deployment web"),
        ("kubeloop trace pod/we", r"kubeloop trace pod/web-[a-z0-9-]+"),
        ("kubeloop explain -n def", "kubeloop explain -n default"),
        ("kubeloop trace --namespace=def", "kubeloop trace --namespace=default"),
        ("kubeloop nodes cordon node-0 no", r"kubeloop nodes cordon node-0 node-"),
        ("kubeloop run --kubeconfig conf", "kubeloop run --kubeconfig config.yaml"),
        (
            "kubeloop run --kubeconfig config.yaml --context kind:a",
            "kubeloop run --kubeconfig config.yaml --context kind:a-1",
        ),
        ("kubeloop trace deploy/nope", "kubeloop trace deploy/nope"),
    ],
)
def test_tab_completes_the_line(shell: str, typed: str, line: str, cluster: Kubeloop):
    if shutil.which(_SHELLS[shell][0][0]) is None:
        pytest.skip(f"no {shell} on this machine")
    result, output = completed(shell, typed, cluster)
    assert re.fullmatch(line, result), output
    assert "error" not in output
    assert "Traceback" not in output
