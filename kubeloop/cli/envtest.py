"""`kubeloop envtest`: print a folder with executables that controller-runtime's envtest starts.

The folder is in the cache of the user; its name has a hash of its content, so that environments do not share one.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path
from tempfile import NamedTemporaryFile

from kubeloop import __version__
from kubeloop.kube.user_error import UserError

_MODULES = {"etcd": "etcd", "kube-apiserver": "kube_apiserver", "kubectl": "kubectl"}


def print_folder() -> int:
    """Run the command and return its exit code. Raises UserError if the folder cannot be written."""
    print(create_assets(_cache_folder()))
    return 0


def create_assets(cache: Path) -> Path:
    """Return the folder with the executables, which is created if it is missing. Several processes may do so at once.

    Raises UserError if it cannot be written.
    """
    scripts = {name: _script(module) for name, module in _MODULES.items()}
    digest = hashlib.sha256("".join(scripts.values()).encode()).hexdigest()[:12]
    folder = cache / f"envtest-{__version__}-{digest}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, script in scripts.items():
            path = folder / name
            if not path.exists():
                with NamedTemporaryFile("w", dir=folder, prefix=f".{name}-", delete=False) as partial:
                    partial.write(script)
                os.chmod(partial.name, 0o755)
                os.replace(partial.name, path)
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {error.strerror}", hint="set XDG_CACHE_HOME to a folder that can be written"
        ) from None
    return folder


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "kubeloop"


def _script(module: str) -> str:
    """Return a shell script: a line #!... may contain neither spaces nor more than 127 characters."""
    python = shlex.quote(sys.executable)
    folder = '"${0%/*}" ' if module == "kubectl" else ""  # so that it does not run itself
    return f'#!/bin/sh\nexec {python} -P -m kubeloop.testing.envtest.{module} {folder}"$@"\n'
