"""The pytest plugin, as those use it who install kubeloop: pytest in a process of its own, and what is left of it."""

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

from support.cli_processes import ROOT, TIMEOUT_SECONDS

# kr8s warns of a server newer than itself
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


# without the plugins of our own tests: their import takes longer than most runs here
PYTEST = [sys.executable, "-m", "pytest"]
PYTEST += [f"-pno:{name}" for name in ("cacheprovider", "schemathesis", "hypothesispytest", "anyio")]


class Folder:
    """A folder with tests, and pytest run on it. TMPDIR is in it, so that what is left behind can be seen."""

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
        """Exit code and output."""
        with self.start(*arguments) as running:
            output, _ = running.communicate(timeout=TIMEOUT_SECONDS)
        return running.returncode, output

    def hosts(self) -> list[int]:
        """The processes that run for tests in this folder: pytest, its workers, and those of their clusters."""
        ours = f"TMPDIR={self.temporary}".encode()
        return [pid for pid in _processes() if ours in _read(pid, "environ").split(b"\0")]

    def left(self) -> list[str]:
        """Processes and files. The empty folder where running processes are announced is all commands' own."""
        files = [
            str(path) for path in self.temporary.rglob("*") if path.is_file() or path.name.startswith("kubeloop-t")
        ]
        return [*map(str, self.hosts()), *files]

    def assert_nothing_is_left(self) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.left() == []


def _processes() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal())


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    if not Path("/proc/self/environ").exists():
        pytest.skip("looks for processes in /proc")
    return Folder(tmp_path)


def examples(page: Path) -> dict[str, str]:
    """The Python files of a page: blocks that begin with their name."""
    blocks = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return dict(blocks)


def test_the_examples_of_the_documentation_pass_as_they_stand(folder: Folder):
    for library in ("kr8s", "kubernetes_asyncio"):
        pytest.importorskip(library, reason=f"the examples need {library}")
    for name, text in examples(ROOT / "docs" / "testing.md").items():
        folder.write(name, text)
    code, output = folder.run("-q")
    assert code == 0, output
    assert "8 passed" in output
    subprocess.run([sys.executable, "without_pytest.py"], cwd=folder.path, check=True, timeout=TIMEOUT_SECONDS)
    folder.assert_nothing_is_left()


def test_a_failing_test_tells_of_its_namespace_and_keeps_its_cluster_if_that_is_wished(folder: Folder):
    folder.write(
        "test_it.py",
        DEPLOYMENT
        + """
def test_fits_nowhere(kubeloop_namespace):
    DEPLOYMENT["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "ssd"}
    kubeloop_namespace.apply(DEPLOYMENT)
    refused = set()
    while len(refused) < 2:
        refused = {event.involved_object.name for event in kubeloop_namespace.events() if event.type == "Warning"}
    for pod in refused:
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
        kept = re.search(r"export KUBECONFIG=(\S+)", output)
        assert kept is not None
        assert Path(kept[1]).exists()
        assert len(folder.hosts()) == 1
    finally:
        for pid in folder.hosts():
            os.kill(pid, signal.SIGTERM)
    folder.assert_nothing_is_left()


def test_two_workers_have_a_cluster_each_or_share_one(folder: Folder):
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
        folder.assert_nothing_is_left()


WAITS = """
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
        pytest.param("time.sleep(60)", signal.SIGINT, False, id="SIGINT to pytest alone"),
        pytest.param("kubeloop_namespace.wait_for('pod/none', 'create', 60)", signal.SIGINT, False, id="while waiting"),
        pytest.param("time.sleep(60)", signal.SIGKILL, False, id="SIGKILL, as of a time-out"),
        pytest.param("os._exit(3)", None, False, id="a test that ends the process"),
        pytest.param("os.fork() or time.sleep(4) or os._exit(0); os._exit(3)", None, False, id="a fork outlives it"),
    ],
)
def test_however_it_ends_nothing_is_left(folder: Folder, end: str, number: signal.Signals | None, to_group: bool):
    folder.write("test_it.py", WAITS.format(end=end))
    running = folder.start("-q")
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (folder.path / "begun").exists() and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if number is not None:
            assert len(folder.hosts()) == 2, "pytest and the process of its clusters"
            (os.killpg if to_group else os.kill)(running.pid, number)
        running.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        running.kill()
        running.wait()
    assert running.returncode in (2, 3, -signal.SIGKILL)
    folder.assert_nothing_is_left()


FIRST = """
import pytest

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one"},
    "spec": {"containers": [{"name": "main", "image": "app:1"}]},
}

def test_left_at_once(kubeloop_fresh_cluster):
    kubeloop_fresh_cluster.get("node/node-0")

def test_asked_at_once(kubeloop_fresh_cluster):
    kubeloop_fresh_cluster.apply(POD)
    assert kubeloop_fresh_cluster.explain("one")["scheduling"]
    kubeloop_fresh_cluster.wait_for("pod/one", "Ready")
    assert kubeloop_fresh_cluster.trace("one")["spans"]

@pytest.mark.kubeloop(scheduler_config={"kind": "KubeSchedulerConfiguration"})
def test_refused(kubeloop_fresh_cluster):
    pass
"""


@pytest.mark.parametrize("name", ["left_at_once", "asked_at_once"])
def test_the_first_cluster_may_be_used_and_left_while_controllers_and_scheduler_are_imported(folder: Folder, name: str):
    folder.write("test_it.py", FIRST)
    code, output = folder.run("-q", "-k", name)
    assert code == 0, output
    folder.assert_nothing_is_left()


def test_what_the_scheduler_refuses_is_said_for_the_first_cluster_too(folder: Folder):
    folder.write("test_it.py", FIRST)
    code, output = folder.run("-q", "-k", "refused")
    assert code != 0
    assert "apiVersion" in output, output
    assert "Traceback" not in output, output
    folder.assert_nothing_is_left()


def test_a_host_that_is_killed_fails_its_tests_with_the_reason_and_the_next_cluster_has_another(folder: Folder):
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
    folder.assert_nothing_is_left()


WRONG = """
import pytest

def test_it(kubeloop_namespace):
    pass

@pytest.mark.kubeloop(nods=1)
def test_misspelt(kubeloop_fresh_cluster):
    pass

@pytest.mark.kubeloop(1)
def test_nameless(kubeloop_fresh_cluster):
    pass

@pytest.mark.kubeloop(nodes="one")
def test_no_number(kubeloop_fresh_cluster):
    pass
"""


def test_wrong_options_are_said_in_one_line(folder: Folder):
    folder.write("test_it.py", WRONG)
    for arguments, said in (
        (["--kubeloop-nodes=many"], "ERROR: kubeloop: kubeloop_nodes = many: not a number\n  hint: for example"),
        (["--kubeloop-scheduler-config=none.yaml"], "ERROR: kubeloop: cannot read"),
        (["-k", "test_it", "--kubeloop-faults=eror=1"], "no fault named 'eror'"),
        (["-k", "test_it", "--kubeloop-controllers=deploymnt"], "no controller named 'deploymnt'"),
        (["-n", "1", "--kubeloop-shared", "--kubeloop-faults=eror=1"], "ERROR: kubeloop: no fault named 'eror'"),
        (
            ["-k", "misspelt or nameless or number"],
            "kubeloop: a cluster has no option 'nods'\n  hint: did you mean nodes?",
        ),
        (["-k", "nameless"], "kubeloop: mark options need names"),
        (["-k", "no_number"], "kubeloop: cluster option nodes: expected int, got str"),
    ):
        code, output = folder.run("-q", *arguments)
        assert code != 0
        assert said in output, output
        assert "session.py" not in output, "the way to the mistake is no help with it"
    folder.assert_nothing_is_left()


def test_the_plugin_imports_nothing_until_a_fixture_is_asked_for(folder: Folder):
    folder.write(
        "test_it.py",
        "import sys\n"
        "def test_it():\n"
        "    assert not {'numpy', 'msgspec', 'opentelemetry', 'aiohttp', 'yaml'} & set(sys.modules)\n",
    )
    code, output = folder.run("-q")
    assert code == 0, output


def test_without_the_plugin_there_are_no_fixtures(folder: Folder):
    folder.write("test_it.py", "def test_it(kubeloop_namespace): pass\n")
    _, output = folder.run("-q", "-p", "no:kubeloop")
    assert "fixture 'kubeloop_namespace' not found" in output
