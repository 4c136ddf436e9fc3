"""kubeloop as users install it: steps of the Dockerfile, a wheel in a clean environment, `kubectl kubeloop`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kubeloop import __version__
from support.development import release
from support.development.dockerfile import instructions

ROOT = Path(__file__).resolve().parents[2]
PRINT_UNCOMPILED = """
import os, sys
import kubeloop.cli.run, kubeloop.kube.yaml, kubeloop.process.control_plane.scheduler_plugins
specs = filter(None, (getattr(module, "__spec__", None) for module in sys.modules.values()))
print([spec.name for spec in specs if spec.cached is not None and not os.path.exists(spec.cached)])
"""
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]  # pip downloads


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A temporary folder that does not outlast a test: pytest would keep thousands of files for three runs."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def run(*arguments: str | Path, folder: Path, **environment: str) -> str:
    clean = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder)} | environment
    clean |= {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_")) or "_proxy" in name
    }
    result = subprocess.run(
        [*map(str, arguments)], cwd=folder, env=clean, capture_output=True, text=True, timeout=280, check=False
    )
    if "No matching distribution found" in result.stderr:
        pytest.skip("no package index: pip cannot install the dependencies")
    assert result.returncode == 0, f"{arguments}: {result.stderr}"
    return result.stdout


def copy_sources(folder: Path) -> Path:
    """Copy the files of the repository, with their symlinks, as the build context of an image has them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("git is not on the PATH")
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith(("tests/", "benchmarks/", "docs/")) and (ROOT / name).exists():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return folder


def test_steps_of_the_image_install_what_its_user_can_run(tmp_path):
    sources, prefix = copy_sources(tmp_path / "src"), tmp_path / "kubeloop"
    for name, arguments in instructions(ROOT / "Dockerfile"):
        if name == "RUN":
            command = arguments.replace("/opt/kubeloop", str(prefix)).replace(" --no-cache-dir", "")
            run("sh", "-ec", command.replace("python -m", f"{sys.executable} -m"), folder=sources)
    assert not (prefix / "bin" / "pip").exists()
    before = snapshot(prefix)
    environment = {
        "PATH": f"{prefix / 'bin'}:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPYCACHEPREFIX": str(prefix / "bytecode"),
        "HOME": "/nonexistent",
    }
    for command, expected in (("version", f"kubeloop {__version__}"), ("run --help", "--controllers")):
        assert expected in run("kubeloop", *command.split(), folder=Path("/"), **environment)
    assert run("python", "-c", PRINT_UNCOMPILED, folder=Path("/"), **environment) == "[]\n"
    assert snapshot(prefix) == before


def snapshot(folder: Path) -> dict[Path, int]:
    """Return the files of a folder and when each changed: none does in a read-only file system."""
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


def test_wheel_of_a_release_runs_in_a_clean_environment(tmp_path, needs_kubectl):
    sources = copy_sources(tmp_path / "src")
    artifacts = tmp_path / "dist"
    artifacts.mkdir()
    names = {path.name for path in release.build(sources, "https://example.org/kubeloop", artifacts)}
    wheel = f"kubeloop-{__version__}-py3-none-any.whl"
    assert names == {wheel, f"kubeloop-{__version__}.tar.gz", "kubectl-kubeloop.tar.gz", "kubeloop.yaml"}
    run("sha256sum", "--check", "SHA256SUMS", folder=artifacts)
    with (
        tarfile.open(artifacts / f"kubeloop-{__version__}.tar.gz") as sdist,
        zipfile.ZipFile(artifacts / wheel) as built,
    ):
        modules = {name.partition("/")[2] for name in sdist.getnames()}
        assert {name for name in built.namelist() if "dist-info" not in name} <= modules

    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, folder=tmp_path)
    pip = (sys.executable, "-m", "pip", "--python", venv)
    run(*pip, "install", "--quiet", "--no-compile", artifacts / wheel, folder=tmp_path)
    path = f"{venv / 'bin'}:{Path(shutil.which('kubectl') or '').parent}:/usr/bin:/bin"
    version = run(venv / "bin/kubeloop", "version", folder=tmp_path)
    assert version.startswith(f"kubeloop {__version__} (")
    assert run("kubectl", "kubeloop", "version", folder=tmp_path, PATH=path) == version
    run(venv / "bin/kubeloop", "up", "--once", "-f", ROOT / "deploy/examples/web.yaml", folder=tmp_path)

    (platform,) = yaml.safe_load((artifacts / "kubeloop.yaml").read_text())["spec"]["platforms"]
    with tarfile.open(artifacts / "kubectl-kubeloop.tar.gz") as archive:
        assert {entry["from"] for entry in platform["files"]} == set(archive.getnames())
        archive.extractall(tmp_path / "krew", filter="data")
    krew = f"{tmp_path / 'krew'}:{path}"
    assert run("kubectl", "kubeloop", "version", folder=tmp_path, PATH=krew) == version
