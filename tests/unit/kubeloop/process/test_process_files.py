import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.process.process_files import (
    ProcessRecord,
    current_kubeconfig,
    default_process,
    describe_choice,
    development_kubeconfig,
    list_processes,
    process_file,
    runtime_directory,
)


@pytest.fixture(autouse=True)
def _own_runtime_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)


def process(pid=None, started_ns=1, kubeconfig=()):
    return ProcessRecord(pid or os.getpid(), "http://127.0.0.1:1", "https://127.0.0.1:2", kubeconfig, started_ns)


def test_process_is_listed_while_its_file_exists():
    with process_file(process()):
        assert list_processes() == [process()]
    assert list_processes() == []


def test_file_of_an_ended_process_is_removed():
    process_ = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    gone = process(pid=int(process_.stdout))
    with process_file(gone):
        assert list_processes() == []
        assert list(runtime_directory().iterdir()) == []


def test_default_process_serves_the_current_kubeconfig(monkeypatch):
    mine, newer = process(started_ns=1, kubeconfig=("/mine",)), process(pid=os.getppid(), started_ns=2)
    with process_file(mine), process_file(newer):
        assert default_process() == newer
        monkeypatch.setenv("KUBECONFIG", "/mine")
        assert default_process() == mine


def test_scheduling_process_is_preferred_to_an_observing_one_of_its_server(monkeypatch):
    scheduling = process(started_ns=1, kubeconfig=("/mine",))
    observing = ProcessRecord(os.getppid(), "http://127.0.0.1:3", scheduling.server, ("/other",), 2, schedules=False)
    elsewhere = ProcessRecord(1, "http://127.0.0.1:4", "https://elsewhere", ("/else",), 0)
    with process_file(scheduling), process_file(observing), process_file(elsewhere):
        assert default_process() == scheduling
        monkeypatch.setenv("KUBECONFIG", "/other")
        assert default_process() == scheduling
        monkeypatch.setenv("KUBECONFIG", "/else")
        assert default_process() == elsewhere


def test_choice_among_processes_is_described():
    assert describe_choice() == ""
    first, newest = process(), process(pid=os.getppid(), started_ns=2)
    with process_file(first):
        assert describe_choice() == ""
        with process_file(newest):
            text = describe_choice()
    assert text.startswith(
        f"source: http://127.0.0.1:1 (pid {newest.pid}), which schedules pods of https://127.0.0.1:2"
    )
    assert text.endswith(f"--endpoint selects another one: http://127.0.0.1:1 (pid {first.pid})")


def test_kubeconfig_is_the_option_or_the_environment_as_absolute_paths(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert current_kubeconfig() == ()
    assert current_kubeconfig(Path("kind.yaml")) == (str(tmp_path / "kind.yaml"),)
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(["a", "~/b", "/c"]))
    assert current_kubeconfig() == (str(tmp_path / "a"), "/home/me/b", "/c")


def test_default_process_error_suggests_commands():
    with pytest.raises(UserError, match="no kubeloop process runs") as raised:
        default_process()
    assert "kubeloop up" in raised.value.hint


def test_runtime_directory_must_be_private(tmp_path):
    (tmp_path / f"kubeloop-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(UserError, match="not private"):
        runtime_directory()


def test_runtime_directory_error_suggests_xdg_runtime_dir(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.devnull)
    with pytest.raises(UserError, match="cannot use the folder") as raised:
        runtime_directory()
    assert "XDG_RUNTIME_DIR" in raised.value.hint


def test_failure_to_write_the_process_file_is_logged(monkeypatch, caplog):
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.devnull)
    with process_file(process()):
        assert "use their option --endpoint" in caplog.text


def test_kubeconfig_of_a_killed_cluster_is_removed():
    process_ = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    stale = runtime_directory() / f"kubeconfig-{int(process_.stdout)}.yaml"
    own = runtime_directory() / f"kubeconfig-{os.getpid()}.yaml"
    for path in (stale, own):
        path.write_text("")
    assert list_processes() == []
    assert (stale.exists(), own.exists()) == (False, True)


def test_option_kubeconfig_is_one_path_and_the_variable_a_list(monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/a::/b")
    assert current_kubeconfig() == ("/a", "/b")
    assert current_kubeconfig(Path("/a:/b")) == ("/a:/b",)


def test_development_kubeconfig_is_never_the_users_own(tmp_path, monkeypatch):
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("of a real cluster")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match="no kubeloop up runs"):
        development_kubeconfig(None)
    monkeypatch.setenv("KUBECONFIG", "named")
    assert development_kubeconfig(None) == (os.path.abspath("named"),)
    assert development_kubeconfig(tmp_path / "given:2") == (str(tmp_path / "given:2"),)
