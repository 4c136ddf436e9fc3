"""The folder of `kubeloop envtest`."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubeloop.cli.envtest import create_assets, print_folder
from kubeloop.kube.user_error import UserError


def test_folder_has_executables_that_run(tmp_path):
    folder = create_assets(tmp_path / "with space")
    assert sorted(path.name for path in folder.iterdir()) == ["etcd", "kube-apiserver", "kubectl"]
    run = subprocess.run([folder / "kube-apiserver", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("Kubernetes v1.36.")


def test_folder_is_created_once_by_several_processes(tmp_path):
    with ThreadPoolExecutor(8) as threads:
        folders = set(threads.map(lambda _: create_assets(tmp_path), range(8)))
    (folder,) = folders
    assert len([*folder.iterdir()]) == 3


def test_missing_executable_is_restored_and_others_remain(tmp_path):
    folder = create_assets(tmp_path)
    written = (folder / "etcd").stat().st_mtime_ns
    (folder / "kubectl").unlink()
    assert create_assets(tmp_path) == folder
    assert ((folder / "kubectl").stat().st_mode & 0o777, (folder / "etcd").stat().st_mtime_ns) == (0o755, written)


def test_cache_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write"):
        create_assets(tmp_path / "file")


def test_path_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert print_folder() == 0
    path = Path(capsys.readouterr().out.rstrip("\n"))
    assert path.parent == tmp_path / "kubeloop"
    assert (path / "etcd").exists()
