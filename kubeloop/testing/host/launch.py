"""Start of the `host` process, without importing modules that pytest has not already imported.

The process imports for some tenths of a second, while the test process imports its client.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_PROGRAM = """
import gc, sys
gc.disable()  # while importing
sys.path.append(sys.argv.pop())
from kubeloop.testing.host.host import main
main()
"""


@dataclass(frozen=True, slots=True)
class LaunchedHost:
    """The process and the file of its stderr. The owner closes both."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def close(self) -> None:
        """End a process that has received no request."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.kill()
        self.process.wait()
        self.log.close()


def launch() -> LaunchedHost:
    """Start the process. It ends when its stdin ends or this process exits."""
    log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process; has no name
    package_root = str(Path(__file__).resolve().parents[3])
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, str(os.getpid()), package_root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,  # Ctrl-C in the terminal stops the tests only
    )
    return LaunchedHost(process, log)
