"""The pytest plugin in a separate pytest process: fixtures, options, failures, and cleanup."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.cli_processes import ROOT, TIMEOUT_SECONDS

# kr8s warns about newer servers
INI = """
[pytest]
asyncio_default_fixture_loop_scope = function
filterwarnings =
    error
    ignore:Kubernetes version .* is not supported:UserWarning
"""
DEPLOYMENT = """
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "app:1"}]},
        },
    },
}
"""


# without plugins that these tests do not need, whose import takes longer than most runs
PYTEST = [sys.executable, "-m", "pytest"]
PYTEST += [f"-pno:{name}" for name in ("cacheprovider", "schemathesis", "hypothesispytest", "anyio")]


class PytestFolder:
    """A folder with tests and pytest processes for it. TMPDIR is inside, so that leftovers can be detected."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path / "tmp"
        self.temporary.mkdir()
        self.write("pytest.ini", INI)

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.Popen(
            [*PYTEST, *arguments],
            cwd=self.path,
            env={**environment, "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run pytest and return exit code and output."""
        with self.start(*arguments) as process:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        return process.returncode, output

    def processes(self) -> list[int]:
        """Return the processes of tests in this folder: pytest, its workers, and the hosts of their clusters."""
        variable = f"TMPDIR={self.temporary}".encode()
        return [pid for pid in _all_processes() if variable in _read(pid, "environ").split(b"\0")]

    def leftovers(self) -> list[str]:
        """Return remaining processes and files. The empty folder that lists running processes is ignored."""
        remaining = [str(pid) for pid in self.processes()]
        for folder, folders, files in os.walk(self.temporary):  # skips a folder that is removed meanwhile
            names = [*files, *(name for name in folders if name.startswith("kubeloop-t"))]
            remaining += [os.path.join(folder, name) for name in names]
        return remaining

    def assert_no_leftovers(self) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self.leftovers() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.leftovers() == []


def _all_processes() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


@pytest.fixture
def folder(tmp_path: Path) -> PytestFolder:
    if not Path("/proc/self/environ").exists():
        pytest.skip("needs /proc")
    return PytestFolder(tmp_path)


def examples(page: Path) -> dict[str, str]:
    """Return the Python files of a page: blocks that start with a file name."""
    blocks = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return dict(blocks)


def test_documented_examples_pass(folder: PytestFolder):
    for library in ("kr8s", "kubernetes_asyncio"):
        pytest.importorskip(library, reason=f"the examples need {library}")
    for name, text in examples(ROOT / "docs" / "testing.md").items():
        folder.write(name, text)
    code, output = folder.run("-q")
    assert code == 0, output
    assert "10 passed" in output
    subprocess.run([sys.executable, "without_pytest.py"], cwd=folder.path, check=True, timeout=TIMEOUT_SECONDS)
    folder.assert_no_leftovers()


def test_failing_test_reports_its_namespace_and_keeps_its_cluster(folder: PytestFolder):
    folder.write(
        "test_it.py",
        DEPLOYMENT
        + """
def test_unschedulable(kubeloop_namespace):
    DEPLOYMENT["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    kubeloop_namespace.apply(DEPLOYMENT)
    pods = set()
    while len(pods) < 2:
        pods = {event.involved_object.name for event in kubeloop_namespace.events() if event.type == "Warning"}
    for pod in pods:
        kubeloop_namespace.wait_for(f"pod/{pod}", "PodScheduled=False")
    kubeloop_namespace.wait_for("deployment/web", lambda web: web["status"].get("unavailableReplicas") == 2)
    kubeloop_namespace.wait_for("deployment/web", "Available", timeout=0.3)
""",
    )
    code, output = folder.run("--kubeloop-keep", "--kubeloop-nodes=2")
    try:
        assert code == 1
        assert "not Available after 0.3 s" in output
        assert re.search(r"pod .* \(and 1 more\): Unschedulable: 0/2 nodes are available", output)
        assert "deployment/web: desired 2: replicas 2" in output
        assert "event Warning FailedScheduling" in output
        assert "slowest trace:" in output
        exported = re.search(r"export KUBECONFIG=(\S+)", output)
        assert exported is not None
        assert Path(exported[1]).exists()
        assert len(folder.processes()) == 1
    finally:
        for pid in folder.processes():
            os.kill(pid, signal.SIGTERM)
    folder.assert_no_leftovers()


def test_workers_have_separate_or_shared_clusters(folder: PytestFolder):
    folder.write(
        "test_it.py",
        DEPLOYMENT
        + """
import os
import pytest

@pytest.mark.parametrize("number", range(4))
def test_available(kubeloop_namespace, number):
    kubeloop_namespace.apply(DEPLOYMENT)
    kubeloop_namespace.wait_for("deployment/web", "complete")
    with open(os.environ["TMPDIR"] + "/urls", "a") as urls:
        urls.write(kubeloop_namespace.url + chr(10))
""",
    )
    for shared, clusters in (((), 2), (("--kubeloop-shared",), 1)):
        code, output = folder.run("-q", "-n", "2", *shared)
        assert code == 0, output
        urls = folder.temporary / "urls"
        assert len(set(urls.read_text().split())) == clusters
        urls.unlink()
        folder.assert_no_leftovers()


SLEEPING_TEST = """
import os, pathlib, time

def test_waits(kubeloop_namespace, kubeloop_fresh_cluster):
    kubeloop_namespace.kubeconfig
    pathlib.Path("begun").touch()
    {end}
"""


@pytest.mark.parametrize(
    ("end", "number", "to_group"),
    [
        pytest.param("time.sleep(60)", signal.SIGINT, True, id="Ctrl-C in the terminal"),
        pytest.param("time.sleep(60)", signal.SIGINT, False, id="SIGINT to pytest only"),
        pytest.param("kubeloop_namespace.wait_for('pod/none', 'create', 60)", signal.SIGINT, False, id="while waiting"),
        pytest.param("time.sleep(60)", signal.SIGKILL, False, id="SIGKILL"),
        pytest.param("os._exit(3)", None, False, id="test exits the process"),
        pytest.param("os.fork() or time.sleep(4) or os._exit(0); os._exit(3)", None, False, id="surviving fork"),
    ],
)
def test_no_leftovers_after_any_exit(folder: PytestFolder, end: str, number: signal.Signals | None, to_group: bool):
    folder.write("test_it.py", SLEEPING_TEST.format(end=end))
    process = folder.start("-q")
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (folder.path / "begun").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if number is not None:
            assert len(folder.processes()) == 2, "pytest and the host of its clusters"
            (os.killpg if to_group else os.kill)(process.pid, number)
        process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode in (2, 3, -signal.SIGKILL)
    folder.assert_no_leftovers()


FIRST_CLUSTER_TESTS = """
import pytest

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one"},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
}

def test_closed_immediately(kubeloop_fresh_cluster):
    kubeloop_fresh_cluster.get("node/node-0")

def test_used_immediately(kubeloop_fresh_cluster):
    kubeloop_fresh_cluster.apply(POD)
    assert kubeloop_fresh_cluster.explain("one")["scheduling"]
    kubeloop_fresh_cluster.wait_for("pod/one", "Ready")
    assert kubeloop_fresh_cluster.trace("one")["spans"]

@pytest.mark.kubeloop(scheduler_config={"kind": "KubeSchedulerConfiguration"})
def test_refused(kubeloop_fresh_cluster):
    pass
"""


@pytest.mark.parametrize("name", ["closed_immediately", "used_immediately"])
def test_first_cluster_is_usable_during_imports(folder: PytestFolder, name: str):
    folder.write("test_it.py", FIRST_CLUSTER_TESTS)
    code, output = folder.run("-q", "-k", name)
    assert code == 0, output
    folder.assert_no_leftovers()


def test_first_cluster_reports_invalid_scheduler_config(folder: PytestFolder):
    folder.write("test_it.py", FIRST_CLUSTER_TESTS)
    code, output = folder.run("-q", "-k", "refused")
    assert code != 0
    assert "apiVersion" in output, output
    assert "Traceback" not in output, output
    folder.assert_no_leftovers()


def test_killed_host_fails_its_tests_and_is_replaced(folder: PytestFolder):
    folder.write(
        "test_it.py",
        """
import os, signal, pytest
from kubeloop.testing import ClusterEnded
from kubeloop.kube.errors import ServerUnreachable

def test_killed(kubeloop_fresh_cluster):
    os.kill(kubeloop_fresh_cluster.address.pid, signal.SIGKILL)
    with pytest.raises((ClusterEnded, ServerUnreachable)):
        kubeloop_fresh_cluster.wait_for("pod/none", "create", timeout=20)

def test_another(kubeloop_fresh_cluster):
    assert kubeloop_fresh_cluster.get("node/node-0")
""",
    )
    code, output = folder.run("-q")
    assert code == 0, output
    folder.assert_no_leftovers()


INVALID_MARKS = """
import pytest

def test_it(kubeloop_namespace):
    pass

@pytest.mark.kubeloop(nods=1)
def test_misspelt(kubeloop_fresh_cluster):
    pass

@pytest.mark.kubeloop(1)
def test_positional(kubeloop_fresh_cluster):
    pass

@pytest.mark.kubeloop(nodes="one")
def test_wrong_type(kubeloop_fresh_cluster):
    pass
"""


def test_invalid_options_are_reported_in_one_line(folder: PytestFolder):
    folder.write("test_it.py", INVALID_MARKS)
    for arguments, message in (
        (["--kubeloop-nodes=many"], "ERROR: kubeloop: kubeloop_nodes = many: not a number\n  hint: for example"),
        (["--kubeloop-gang-scheduling=on"], "ERROR: kubeloop: kubeloop_gang_scheduling = on: not a boolean"),
        (["--kubeloop-scheduler-config=none.yaml"], "ERROR: kubeloop: cannot read"),
        (["-k", "test_it", "--kubeloop-faults=eror=1"], "--faults: no fault named 'eror'"),
        (["-k", "test_it", "--kubeloop-controllers=deploymnt"], "no controller named 'deploymnt'"),
        (
            ["-n", "1", "--kubeloop-shared", "--kubeloop-faults=eror=1"],
            "ERROR: kubeloop: --faults: no fault named 'eror'",
        ),
        (
            ["-k", "misspelt or positional or wrong_type"],
            "kubeloop: a cluster has no option 'nods'\n  hint: did you mean nodes?",
        ),
        (["-k", "positional"], "kubeloop: mark options need names"),
        (["-k", "wrong_type"], "kubeloop: cluster option nodes: expected int, got str"),
    ):
        code, output = folder.run("-q", *arguments)
        assert code != 0
        assert message in output, output
        assert "session.py" not in output, "no traceback of the plugin"
    folder.assert_no_leftovers()


def test_plugin_imports_nothing_before_a_fixture_is_used(folder: PytestFolder):
    folder.write(
        "test_it.py",
        "import sys\n"
        "def test_it():\n"
        "    assert not {'numpy', 'msgspec', 'opentelemetry', 'aiohttp', 'yaml'} & set(sys.modules)\n",
    )
    code, output = folder.run("-q")
    assert code == 0, output


def test_disabled_plugin_has_no_fixtures(folder: PytestFolder):
    folder.write("test_it.py", "def test_it(kubeloop_namespace): pass\n")
    _, output = folder.run("-q", "-p", "no:kubeloop")
    assert "fixture 'kubeloop_namespace' not found" in output
