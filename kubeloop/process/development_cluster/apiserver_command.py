"""The process of `kubeloop apiserver`, for the length of a context. Imports the standard library only."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

STOP_SECONDS = 5.0


@contextlib.contextmanager
def api_server_process(arguments: Sequence[str], *, token: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start `kubeloop apiserver` with these arguments; stop it at the end of the context if it still runs.

    It also ends when this process ends in any way: it reads a pipe that this process holds open.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "kubeloop", "apiserver", "--supervised", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "KUBELOOP_TOKEN": token},  # arguments are visible to all users of the machine
        start_new_session=True,  # Ctrl-C in the terminal stops this process, which then stops the cluster in order
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
