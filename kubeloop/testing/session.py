"""Implementation of the `plugin` fixtures for one pytest process: host process, namespaces, failure reports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from kubeloop.kube.errors import ApiError, ServerUnreachable
from kubeloop.kube.user_error import UserError
from kubeloop.testing.cluster import Cluster, ClusterNamespace
from kubeloop.testing.cluster_options import ClusterOptions, cluster_options
from kubeloop.testing.host.host_process import ClusterEnded, HostProcess
from kubeloop.testing.host.launch import LaunchedHost
from kubeloop.testing.host.messages import ClusterAddress
from kubeloop.testing.portal import Portal
from kubeloop.testing.report import report_lines

_REMOVED_SECONDS = 10.0
_FIXTURES = ("kubeloop_namespace", "kubeloop_fresh_cluster", "kubeloop_cluster")


class Session:
    """Clusters of one pytest process.

    option_values: options of the command line and the ini file, as text; files are relative to `root`. keep: leave the
    cluster of a failed test running. shared_address: of a cluster that all workers of pytest-xdist share.
    """

    def __init__(self, option_values: Mapping[str, str], *, root: Path, keep: bool, shared_address: str | None) -> None:
        self._option_texts = dict(option_values)
        self._root = root
        self._keep = keep
        self._shared_address = (
            None if shared_address is None else msgspec.json.decode(shared_address, type=ClusterAddress)
        )
        self._host: HostProcess | None = None
        self._portal = Portal()
        self._shared: Cluster | None = None
        self._failed: set[str] = set()
        self._kept_clusters: dict[int, ClusterAddress] = {}
        self._messages: list[str] = []
        self._log_sizes: dict[int, int] = {}

    def check(self) -> None:
        """Raise UserError for invalid options of the command line and the ini file."""
        self._defaults()

    def use(self, launched: LaunchedHost) -> None:
        """Run clusters in this process, which has just been started."""
        self._host = HostProcess(launched)

    def shared_address(self) -> str:
        """Start the cluster that all workers share, and return its address. Raises UserError."""
        if self._shared is None:
            self._shared = Cluster.on_host(self._running_host(), self._defaults()).__enter__()
        return msgspec.json.encode(self._shared.address).decode()

    @contextlib.contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Run the session's cluster. Afterwards, report its namespaces that could not be deleted."""
        if self._shared_address is not None:
            cluster = Cluster.at_address(self._shared_address, self._portal)
        else:
            cluster = Cluster.on_host(self._running_host(), self._options({}))
        with self._entered(cluster):
            yield cluster
            with contextlib.suppress(ClusterEnded, ServerUnreachable):  # its tests have reported that
                for name, reason in cluster.removed_namespaces(_REMOVED_SECONDS).items():
                    self._messages.append(f"namespace {name} was not removed within {_REMOVED_SECONDS:g} s: {reason}")

    @contextlib.contextmanager
    def namespace(self, cluster: Cluster, item: pytest.Item) -> Iterator[ClusterNamespace]:
        """Create a namespace for one test; it is preserved if the test fails and clusters are kept."""
        with contextlib.ExitStack() as stack:
            namespace = stack.enter_context(cluster.namespace(item.name))
            self._mark_log_position(namespace)
            yield namespace
            if self._keep and item.nodeid in self._failed:
                stack.pop_all()

    @contextlib.contextmanager
    def fresh_cluster(self, option_values: Mapping[str, Any]) -> Iterator[Cluster]:
        cluster = Cluster.on_host(self._running_host(), self._options(option_values))
        with self._entered(cluster):
            yield cluster

    def keep_shared(self) -> None:
        """In the controller of pytest-xdist: keep the shared cluster after a failure in a worker."""
        if self._keep and self._shared is not None:
            self._keep_cluster(self._shared)

    @property
    def has_failures(self) -> bool:
        return bool(self._failed)

    def record_failure(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """Add the state of the clusters of a failed test to its report, and keep them if configured."""
        self._failed.add(item.nodeid)
        funcargs = getattr(item, "funcargs", {})
        namespaces: list[ClusterNamespace] = [funcargs[name] for name in _FIXTURES if name in funcargs]
        if len(namespaces) > 1:
            namespaces = [namespace for namespace in namespaces if namespace is not funcargs.get("kubeloop_cluster")]
        for namespace in namespaces:
            report.sections.append((f"kubeloop: {namespace.name}", "\n".join(self._describe(namespace))))
            if self._keep:
                self._keep_cluster(namespace)

    def close(self) -> list[str]:
        """End everything except kept clusters. Returns messages for the user."""
        if self._shared is not None and self._shared.address.cluster not in self._kept_clusters:
            with contextlib.suppress(ClusterEnded):
                self._shared.__exit__(None, None, None)
        self._shared = None
        if self._host is not None:
            self._host.close(keep=bool(self._kept_clusters))
            self._host = None
        self._portal.close()
        for address in self._kept_clusters.values():
            self._messages += [
                f"the cluster of a failed test is still running: export KUBECONFIG={address.kubeconfig}",
                f"  traces: kubeloop trace --endpoint {address.endpoint}; to end it: kill {address.pid}",
            ]
        messages, self._messages = self._messages, []
        return messages

    def _running_host(self) -> HostProcess:
        if self._host is None or not self._host.is_running:
            if self._host is not None:
                self._host.close()
            self._host = HostProcess()
        return self._host

    def _options(self, option_values: Mapping[str, Any]) -> ClusterOptions:
        """Return the options of a cluster; fail the test if they are invalid."""
        try:
            return cluster_options(dict(option_values), defaults=self._defaults())  # type: ignore[arg-type]
        except UserError as error:
            _fail(error)

    def _defaults(self) -> ClusterOptions:
        """Return the options of the command line and the ini file. Raises UserError."""
        texts = {name: _value(name, text) for name, text in self._option_texts.items()}
        if "scheduler_config" in texts:
            texts["scheduler_config"] = self._root / texts["scheduler_config"]
        if "stages" in texts:
            texts["stages"] = [self._root / path.strip() for path in texts["stages"].split(",")]
        return cluster_options(texts)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def _entered(self, cluster: Cluster) -> Iterator[None]:
        try:
            cluster.__enter__()
        except UserError as error:
            _fail(error)
        address = cluster.address
        self._mark_log_position(cluster)
        try:
            yield
        finally:
            if address.cluster not in self._kept_clusters:
                with contextlib.suppress(ClusterEnded):  # its tests have reported that
                    cluster.__exit__(None, None, None)

    def _mark_log_position(self, namespace: ClusterNamespace) -> None:
        """Store the size of the process' log at the start of a test."""
        if self._host is not None and self._host.is_running:
            self._log_sizes[namespace.address.cluster] = self._host.log_size()

    def _describe(self, namespace: ClusterNamespace) -> list[str]:
        lines = [f"kubeconfig {namespace.kubeconfig}, server {namespace.url}"]
        if (ended := namespace.why_ended()) is not None:
            return [*lines, ended]
        try:
            lines += namespace.describe(report_lines)
        except (ApiError, ServerUnreachable, ClusterEnded, TimeoutError) as error:
            lines.append(f"the cluster does not respond: {error}")
        if self._host is not None and self._host.is_running:
            output = self._host.log_tail(self._log_sizes.get(namespace.address.cluster, 0))
            if output:
                lines += ["output of the cluster's process:", output]
        return lines

    def _keep_cluster(self, namespace: ClusterNamespace) -> None:
        address = namespace.address
        if self._host is None or address.cluster in self._kept_clusters or self._shared_address is not None:
            return
        try:
            self._host.portal.wait(self._host.keep(address.cluster))
            self._kept_clusters[address.cluster] = address
        except (ClusterEnded, UserError) as error:
            self._messages.append(f"the cluster could not be kept: {error}")


def _fail(error: UserError) -> NoReturn:
    """Fail the test with the problem and the hint, without a traceback."""
    raise pytest.fail.Exception(f"kubeloop: {error}\n  hint: {error.hint}", pytrace=False) from None


def _value(name: str, text: str) -> Any:
    """Convert the text of a command line or ini file to the option's type. Raises UserError."""
    type_ = ClusterOptions.__annotations__[name]
    try:
        if type_ in ("int", "int | None"):
            return int(text)
        if type_ == "float":
            return float(text)
    except ValueError:
        option = f"kubeloop_{name}"
        raise UserError(f"{option} = {text}: not a number", hint=f"for example {option} = 3") from None
    if type_ == "bool":
        if text not in ("true", "false"):
            raise UserError(f"kubeloop_{name} = {text}: not a boolean", hint="use true or false")
        return text == "true"
    return text
