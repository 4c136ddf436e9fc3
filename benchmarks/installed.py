"""Installation of kubeloop as by pip: a copy in a separate environment, with compiled modules."""

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
    """Yield the Python of that environment; it uses the dependencies of the current Python."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": folder, "platbase": folder}))
        # a folder added by a .pth file has its own .pth files ignored, including that of an editable installation
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        copied = packages / "kubeloop"
        shutil.copytree(Path(kubeloop.__path__[0]), copied, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(copied, quiet=1)
        yield Path(folder) / "bin" / "python"


def environment() -> dict[str, str]:
    """Return the environment without PYTHONDONTWRITEBYTECODE: dependencies are compiled once."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
