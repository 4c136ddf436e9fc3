"""Starting the process of a test's clusters (`host`), with nothing imported that pytest has not imported already.

It imports for some tenths of a second, which pass while we import what speaks with it.
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
from kubeloop.testing.host import main
main()
"""


@dataclass(frozen=True, slots=True)
class LaunchedHost:
    """The process, and the file that its stderr goes to. Both are to be closed by whoever takes them."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def close(self) -> None:
        """End a process that nobody has asked for anything."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.kill()
        self.process.wait()
        self.log.close()


def launch() -> LaunchedHost:
    """Start the process. It ends when its stdin does, or when we are gone."""
    log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process; it has no name
    here = str(Path(__file__).resolve().parents[2])
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, str(os.getpid()), here],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,  # Ctrl-C in the terminal is for the tests
    )
    return LaunchedHost(process, log)
