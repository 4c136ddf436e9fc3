"""Configuration and fixtures of all tests: hypothesis profiles, skips, virtual time, kube-apiserver, kubectl."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import random
import shutil
import signal
from collections.abc import Callable, Generator, Iterator, Mapping

import hypothesis
import pytest

from kubeloop.kube.client.current_span import current_span
from kubeloop.process.python_gc import importing
from kubeloop.testing.virtual_time import VirtualClock, VirtualTimeLoop
from support.comparison.real_apiserver import RealApiServer, needs_binaries, real_apiserver
from support.development.skipped_tests import SkippedTests

# The same examples in each run, so that a failure is caused by a change and not by chance.
# `pytest --hypothesis-profile=exploring` generates others.
_WITHOUT_DEADLINE = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("reproducible", derandomize=True, database=None, **_WITHOUT_DEADLINE)
hypothesis.settings.register_profile("exploring", **_WITHOUT_DEADLINE)
hypothesis.settings.load_profile("reproducible")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("expected_skips", "regular expressions of reasons for which tests may be skipped", type="linelist")
    parser.addoption(
        "--fail-on-unexpected-skips", action="store_true", help="fail after a skip for a reason not in expected_skips"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers of pytest-xdist report to their controller
        config.pluginmanager.register(SkippedTests(config))
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # inherited from a shell that runs the tests in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "timeout(seconds): limit of pytest-timeout for a test with its fixtures")
    config.addinivalue_line("markers", "virtual_time: the test's event loop and `clock` run in virtual time")
    config.addinivalue_line(
        "markers", "long: takes a minute; runs first, so that other workers run the other tests meanwhile"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the modules and the 19,000 tests from garbage collections: each full one would traverse them."""
    with importing():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Import each module in one worker at a time: the first one stores the bytecode, which the others read."""
    if not isinstance(collector, pytest.Module):
        return (yield)
    with collector.path.open() as module:
        fcntl.flock(module, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualTimeLoop}
    return {"asyncio": asyncio.SelectorEventLoop}


@pytest.fixture(autouse=True)
def _without_span() -> None:
    """Forget the reconcile that an earlier test of this process has not ended: the client would send its trace."""
    current_span.set(None)


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """Restore the level that a command sets when a test runs it in this process."""
    logger = logging.getLogger("kubeloop")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture
def clock() -> VirtualClock:
    """Wall time that follows the running loop. It is virtual only with the `virtual_time` mark."""
    return VirtualClock()


@pytest.fixture
def rng() -> random.Random:
    return random.Random(20260101)


@pytest.fixture(scope="session")
def kube_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    """One kube-apiserver for all tests of a session. Tests use separate namespaces."""
    needs_binaries()
    with real_apiserver(tmp_path_factory.mktemp("kube-apiserver")) as server:
        yield server


@pytest.fixture
def needs_kubectl() -> None:
    """Skip the test if kubectl is not installed."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
