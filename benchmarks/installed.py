"""kubeloop as pip installs it: a copy in an environment of its own, modules compiled, no editable finder in the way."""

from __future__ import annotations

import compileall
import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import kubeloop


@contextlib.contextmanager
def installed() -> Iterator[Path]:
    """The Python of that environment; its dependencies are those of the Python that runs this."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": folder, "platbase": folder}))
        # .pth files in a folder that a .pth file names are not read: that of an editable installation among them
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        copied = packages / "kubeloop"
        shutil.copytree(Path(kubeloop.__path__[0]), copied, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(copied, quiet=1)
        yield Path(folder) / "bin" / "python"


def environment() -> dict[str, str]:
    """Ours, but dependencies that are not compiled yet are compiled and kept."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
