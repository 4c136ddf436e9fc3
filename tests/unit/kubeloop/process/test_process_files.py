import os
import subprocess
import sys

import pytest

from kubeloop.kube.errors import UserError
from kubeloop.process.process_files import (
    ProcessRecord,
    default_process,
    list_processes,
    process_file,
    runtime_directory,
)


@pytest.fixture(autouse=True)
def _own_runtime_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)


def process(pid=None, started_ns=1, kubeconfig=""):
    return ProcessRecord(pid or os.getpid(), "http://127.0.0.1:1", "https://127.0.0.1:2", kubeconfig, started_ns)


def test_a_process_is_found_while_it_announces_itself():
    with process_file(process()):
        assert list_processes() == [process()]
    assert list_processes() == []


def test_a_process_that_is_gone_counts_for_nothing_and_its_file_is_removed():
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    gone = process(pid=int(child.stdout))
    with process_file(gone):
        assert list_processes() == []
        assert list(runtime_directory().iterdir()) == []


def test_the_process_that_serves_the_kubeconfig_in_use_is_asked_first(monkeypatch):
    mine, newer = process(started_ns=1, kubeconfig="/mine"), process(pid=os.getppid(), started_ns=2)
    with process_file(mine), process_file(newer):
        assert default_process() == newer
        monkeypatch.setenv("KUBECONFIG", "/mine")
        assert default_process() == mine


def test_with_no_process_the_user_learns_how_to_start_one():
    with pytest.raises(UserError, match="no kubeloop process runs") as raised:
        default_process()
    assert "kubeloop up" in raised.value.hint


def test_a_runtime_directory_that_others_can_read_is_refused(tmp_path):
    (tmp_path / f"kubeloop-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(UserError, match="not private"):
        runtime_directory()


def test_a_runtime_directory_that_cannot_be_made_is_told(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.devnull)
    with pytest.raises(UserError, match="cannot use the folder") as told:
        runtime_directory()
    assert "XDG_RUNTIME_DIR" in told.value.hint


def test_a_process_that_cannot_be_found_works_all_the_same(monkeypatch, caplog):
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.devnull)
    with process_file(process()):
        assert "use their option --endpoint" in caplog.text


def test_a_kubeconfig_that_a_killed_cluster_left_is_removed():
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = runtime_directory() / f"kubeconfig-{int(child.stdout)}.yaml"
    own = runtime_directory() / f"kubeconfig-{os.getpid()}.yaml"
    for path in (left, own):
        path.write_text("")
    assert list_processes() == []
    assert (left.exists(), own.exists()) == (False, True)
