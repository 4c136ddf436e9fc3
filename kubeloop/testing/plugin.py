"""The pytest plugin: fixtures with a cluster. It is loaded into every pytest run where kubeloop is installed; so it
imports only pytest until a test uses a fixture, which `session` implements.

    kubeloop_cluster         a cluster for the session (per xdist worker, or for all: --kubeloop-shared)
    kubeloop_namespace       a new namespace of it per test, deleted afterwards with its content
    kubeloop_fresh_cluster   a cluster for a single test; @pytest.mark.kubeloop(nodes=1) sets its options
    kubeloop_check_operator  a function that runs an operator of any language under faults
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.testing.host.launch import launch

if TYPE_CHECKING:
    from kubeloop.testing.cluster import Cluster, ClusterNamespace
    from kubeloop.testing.operator_faults.suite import OperatorReport
    from kubeloop.testing.session import Session

_FIXTURES = frozenset({"kubeloop_cluster", "kubeloop_namespace", "kubeloop_fresh_cluster"})
OPTIONS = {
    "nodes": "Number of simulated nodes (3).",
    "node_cpu": "CPU capacity per node (8).",
    "node_memory": "Memory capacity per node (32Gi).",
    "node_pods": "Maximum number of pods per node (110).",
    "zones": "Number of zones of the nodes (3).",
    "start_delay": "Mean seconds from the binding of a pod to its running containers (0).",
    "start_spread": "Maximum deviation from the start delay, in seconds (0).",
    "job_duration": "Seconds after which the containers of a Job's pod exit with 0 (1).",
    "complete_bare_pods": "Complete pods without a controller that may complete: true or false (false).",
    "command_exits": "End containers as their command says, such as 'exit 1' or 'sleep 5': true or false (true).",
    "missing_images": "Comma-separated patterns of images that cannot be pulled, such as 'registry.example.com/*'.",
    "devices": "File of the devices of the nodes, as for kubeloop up --devices.",
    "service_cluster_ip_range": "Address range of Services (10.0.0.0/24).",
    "stages": "Comma-separated files of KWOK stages, as for kubeloop apiserver --stages.",
    "scheduler_config": "KubeSchedulerConfiguration file; its plugins are imported with the tests' import path.",
    "controllers": "Comma-separated list of controllers to run; '*' for all, '-name' to exclude one (*).",
    "faults": "Faults to inject: error=0.02,throttle=0.02,conflict=0.02,drop-watch=0.05,latency=0.1.",
    "gang_scheduling": "Enable gang scheduling, as kubeloop up --gang-scheduling does: true or false (false).",
    "feature_gates": "Feature gates to set: NAME=true,NAME=false.",
    "enable_admission_plugins": "Comma-separated list of further admission plugins that run.",
    "disable_admission_plugins": "Comma-separated list of admission plugins that do not run.",
    "authorization_mode": "Comma-separated list of authorizers, such as AlwaysAllow (Node,RBAC).",
    "resolve": "Comma-separated local addresses of Services: NAME.NAMESPACE.svc=HOST:PORT.",
    "seed": "Seed of all random decisions in the cluster.",
}
"""The options of a cluster: --kubeloop-node-cpu and kubeloop_node_cpu in the ini file."""

_SESSION: pytest.StashKey[Session] = pytest.StashKey()
_MESSAGES: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kubeloop", "kubeloop: a cluster in tests")
    for name, text in OPTIONS.items():
        group.addoption(f"--kubeloop-{name.replace('_', '-')}", dest=f"kubeloop_{name}", metavar="X", help=text)
        parser.addini(f"kubeloop_{name}", text, default="")
    keep = "Keep the cluster up when a test fails, and print its kubeconfig."
    group.addoption("--kubeloop-keep", action="store_true", default=None, dest="kubeloop_keep", help=keep)
    parser.addini("kubeloop_keep", keep, type="bool", default=False)
    shared = "One cluster for all workers of pytest-xdist, instead of one per worker."
    group.addoption("--kubeloop-shared", action="store_true", default=None, dest="kubeloop_shared", help=shared)
    parser.addini("kubeloop_shared", shared, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "kubeloop(**options): options of this test's kubeloop_fresh_cluster, as of kubeloop.testing.Cluster"
    )
    config.stash[_MESSAGES] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the host process while pytest is still busy."""
    if session.config.option.collectonly:
        return
    config = session.config
    if _SESSION in config.stash or _shared_cluster_address(config) is not None:
        return
    if any(not _FIXTURES.isdisjoint(getattr(item, "fixturenames", ())) for item in session.items):
        launched = launch()
        try:
            plugin_session = _session(config)  # imports for a tenth of a second, while the process starts
            if not hasattr(config, "workerinput"):  # in a worker of pytest-xdist, the tests report invalid options
                with _user_errors():
                    plugin_session.check()
        except BaseException:
            launched.close()
            raise
        plugin_session.use(launched)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the controller of pytest-xdist: pass the address of the shared cluster to each worker."""
    if _flag(node.config, "shared"):
        with _user_errors():
            node.workerinput["kubeloop_address"] = _session(node.config).shared_address()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """Collect the messages of a worker, whose own terminal output is not shown."""
    del error
    output = getattr(node, "workeroutput", {})
    node.config.stash[_MESSAGES].extend(output.get("kubeloop_messages", ()))
    if output.get("kubeloop_failed") and _flag(node.config, "shared"):
        _session(node.config).keep_shared()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the state of the cluster to the report of a failed test, before the teardown."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    session = item.config.stash.get(_SESSION, None)
    if session is not None and report.failed and call.when != "teardown":
        session.record_failure(item, report)
    return report  # type: ignore[return-value]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the process after the teardown of all fixtures, whatever the outcome of the tests."""
    config = session.config
    plugin_session = config.stash.get(_SESSION, None)
    output = getattr(config, "workeroutput", None)
    if plugin_session is not None:
        if output is not None:
            output["kubeloop_failed"] = plugin_session.has_failures
        config.stash[_MESSAGES].extend(plugin_session.close())
        del config.stash[_SESSION]
    if output is not None:
        output["kubeloop_messages"] = config.stash[_MESSAGES]


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process if the session did not finish in order."""
    plugin_session = config.stash.get(_SESSION, None)
    if plugin_session is not None:
        plugin_session.close()
        del config.stash[_SESSION]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    messages = terminalreporter.config.stash.get(_MESSAGES, [])
    if messages:
        terminalreporter.section("kubeloop")
        for message in messages:
            terminalreporter.line(message)


@pytest.fixture(scope="session")
def kubeloop_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A Kubernetes cluster (API server, nodes, controllers, scheduler) for the session, in a separate process.

    `apply`, `wait_for`, `events`, `trace`, `kubeconfig`, `url`, `token`, clients; `aio` has the same for coroutines.
    """
    with _session(request.config).cluster() as cluster:
        yield cluster


@pytest.fixture
def kubeloop_namespace(request: pytest.FixtureRequest, kubeloop_cluster: Cluster) -> Iterator[ClusterNamespace]:
    """A new namespace of kubeloop_cluster, deleted afterwards with its content."""
    with _session(request.config).namespace(kubeloop_cluster, request.node) as namespace:
        yield namespace


@pytest.fixture
def kubeloop_fresh_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A whole cluster for this test alone; @pytest.mark.kubeloop(nodes=1, faults="error=0.1") sets its options."""
    marks = list(request.node.iter_markers("kubeloop"))
    if any(mark.args for mark in marks):
        pytest.fail("kubeloop: mark options need names\n  hint: @pytest.mark.kubeloop(nodes=1)", pytrace=False)
    option_values = {name: value for mark in reversed(marks) for name, value in mark.kwargs.items()}
    with _session(request.config).fresh_cluster(option_values) as cluster:
        yield cluster


@pytest.fixture
def kubeloop_check_operator() -> Callable[..., OperatorReport]:
    """Return the function that runs an operator of any language under faults: `kubeloop test-operator` in a test.

    kubeloop_check_operator("bin/operator --kubeconfig {kubeconfig}", "crds/", "site.yaml", steps="steps.yaml")
    """
    from kubeloop.testing.operator_faults.fixture import check

    return check


def _session(config: pytest.Config) -> Session:
    if _SESSION not in config.stash:
        from kubeloop.testing.session import Session

        option_values = {name: value for name in OPTIONS if (value := _option_value(config, name))}
        config.stash[_SESSION] = Session(
            option_values,
            root=config.inipath.parent if config.inipath is not None else config.rootpath,
            keep=_flag(config, "keep"),
            shared_address=_shared_cluster_address(config),
        )
    return config.stash[_SESSION]


@contextlib.contextmanager
def _user_errors() -> Iterator[None]:
    """Turn a UserError into a usage error of pytest, which ends the session."""
    try:
        yield
    except UserError as error:
        raise pytest.UsageError(f"kubeloop: {error}\n  hint: {error.hint}") from None


def _shared_cluster_address(config: pytest.Config) -> str | None:
    """Return the address of the cluster that the workers of pytest-xdist share."""
    address: str | None = getattr(config, "workerinput", {}).get("kubeloop_address")
    return address


def _option_value(config: pytest.Config, name: str) -> str:
    """Return the option of the command line, else of the ini file; "" if neither sets it."""
    cli_value = config.getoption(f"kubeloop_{name}")
    return str(cli_value if cli_value is not None else config.getini(f"kubeloop_{name}"))


def _flag(config: pytest.Config, name: str) -> bool:
    cli_value = config.getoption(f"kubeloop_{name}")
    return bool(config.getini(f"kubeloop_{name}") if cli_value is None else cli_value)
