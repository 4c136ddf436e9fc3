"""Build and test the clients of tests/clients against kubeloop, each with the toolchain of its language.

    python tests/clients/run.py            all languages; one whose toolchain is missing is skipped with the reason
    python tests/clients/run.py go         these languages only

`make clients` runs it. Clients that start their API server with envtest get it from `kubeloop envtest`, unless
KUBEBUILDER_ASSETS names the folder of another one, such as the real kube-apiserver.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent


class Language(NamedTuple):
    """tool: executable that must be on the PATH. command: builds and tests the client in the folder `name`."""

    name: str
    tool: str
    command: tuple[str, ...]


LANGUAGES = (Language("go", "go", ("go", "test", "-count=1", "-timeout=5m", "./...")),)


def main(names: Sequence[str]) -> int:
    """Return 1 if a client has failed, 2 for an unknown language."""
    if unknown := set(names) - {language.name for language in LANGUAGES}:
        print(f"no client in {', '.join(sorted(unknown))}; there are {', '.join(row.name for row in LANGUAGES)}")
        return 2
    failed = False
    for language in LANGUAGES:
        if names and language.name not in names:
            continue
        if shutil.which(language.tool) is None:
            print(f"clients/{language.name}: skipped: {language.tool} is not on the PATH", flush=True)
            continue
        began = time.monotonic()
        code = subprocess.run(language.command, cwd=FOLDER / language.name, env=environment(), check=False).returncode
        result = "passed" if code == 0 else f"failed with exit code {code}"
        print(f"clients/{language.name}: {result} in {time.monotonic() - began:.0f} s", flush=True)
        failed |= code != 0
    return int(failed)


def environment() -> dict[str, str]:
    """Return the environment of the clients, with the folder of envtest."""
    if "KUBEBUILDER_ASSETS" in os.environ:
        return dict(os.environ)
    command = [sys.executable, "-m", "kubeloop", "envtest"]
    folder = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return {**os.environ, "KUBEBUILDER_ASSETS": folder}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
