"""The control plane of `kubeloop up`, the application of manifests, and the output."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from kubeloop.cli.options.control_plane_settings import control_plane_settings
from kubeloop.cli.options.gate_warnings import log_gate_warnings
from kubeloop.cli.options.options import (
    ControllerOptions,
    DevClusterOptions,
    DisplayOptions,
    FeatureGateOptions,
    ProcessOptions,
)
from kubeloop.cli.options.scheduler_options import read_policy_file, read_scheduler_configuration
from kubeloop.devcluster.authentication.service_account_token_key import TokenKey
from kubeloop.kube.auth.credentials import connect_with_token
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import SystemClock
from kubeloop.kube.objects.api_types import Pod
from kubeloop.kube.objects.object_fields import is_ready
from kubeloop.kube.objects.resources import (
    DEPLOYMENTS,
    EVENTS,
    NODES,
    POD_GROUPS,
    PODS,
    REPLICATION_CONTROLLERS,
)
from kubeloop.process import workload_progress
from kubeloop.process.control_plane.control_plane import (
    ControlPlane,
    Settings,
    import_components,
    initial_components,
)
from kubeloop.process.control_plane.controller_selection import ControllerSelection
from kubeloop.process.control_plane.controller_table import CONTROLLERS
from kubeloop.process.control_plane.signing_authorities import authority_in_files, signing_authority
from kubeloop.process.development_cluster.apiserver_process import (
    ApiServerExited,
    ApiServerProcess,
    starting_api_server,
)
from kubeloop.process.endpoint.endpoint_listener import open_listener
from kubeloop.process.endpoint.paths import TRACES_PAGE_PATH
from kubeloop.process.endpoint.process_pages import add_process_pages
from kubeloop.process.endpoint.server import EndpointServer
from kubeloop.process.logs import configure_logging
from kubeloop.process.manifests import Manifest, applied_pods, apply, read_manifests
from kubeloop.process.metrics.client_metrics import MeasuredTransport
from kubeloop.process.metrics.process_metrics import new_registry
from kubeloop.process.process_files import ProcessRecord, process_file
from kubeloop.process.python_gc import importing
from kubeloop.process.signals import on_signal, run_until_interrupted
from kubeloop.process.workload_progress import WORKLOAD_PROGRESS, Progress
from kubeloop.tracing.views.printable import printable

_POLL_SECONDS = 0.05
_LINE_SECONDS = 1.0


def run(
    api_server: subprocess.Popen[bytes],
    token: str,
    files: Sequence[Path],
    cluster: DevClusterOptions,
    process: ProcessOptions,
    controllers: ControllerOptions,
    display: DisplayOptions,
    gate_options: FeatureGateOptions,
) -> int:
    """Run the session and return its exit code. api_server: an api_server_process(), token: that of the
    administrator. Raises UserError for invalid input."""
    configure_logging(process.verbosity, process.log_format)
    log_gate_warnings(gate_options.parsed())
    manifests = read_manifests(files)
    settings = _settings(cluster, process, controllers, gate_options)
    with importing():  # while the cluster starts
        import_components(initial_components(settings.controllers, development=True))
        if manifests and not display.as_json:
            import kubeloop.tracing.views.waterfall  # noqa: F401
    try:
        return run_until_interrupted(
            _run(manifests, api_server, token, process, display, settings, is_persistent=cluster.data_dir is not None),
            interrupted=130 if display.once else 0,
        )
    except ApiServerExited as exited:
        return exited.code  # the cluster's process has printed the reason


def _settings(
    cluster: DevClusterOptions,
    process: ProcessOptions,
    controllers: ControllerOptions,
    gate_options: FeatureGateOptions,
) -> Settings:
    gates = gate_options.parsed()
    scheduler = read_scheduler_configuration(
        process.config,
        algorithm_provider=process.algorithm_provider,
        policy=read_policy_file(process.policy_config_file) if process.policy_config_file is not None else None,
        tie_break=process.tie_break,
        gates=gates,
    )
    if not cluster.nodes:  # Nodes need no kubelet that reports
        controllers = controllers.replace(node_monitor_grace_period=math.inf, node_startup_grace_period=math.inf)
    return control_plane_settings(
        process,
        ControllerSelection(frozenset(CONTROLLERS)),
        scheduler,
        gates,
        controller_options=controllers,
        development=True,
    )


async def _run(
    manifests: Sequence[Manifest],
    api_server: subprocess.Popen[bytes],
    token: str,
    process: ProcessOptions,
    display: DisplayOptions,
    settings: Settings,
    *,
    is_persistent: bool,
) -> int:
    clock = SystemClock()
    rng = random.Random()
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(open_listener(process.bind_address, process.endpoint_port))
        starting = await stack.enter_async_context(starting_api_server(api_server))
        registry = new_registry()
        endpoint = EndpointServer(registry, clock=clock)
        cluster = await starting.ready()
        transport = MeasuredTransport(connect_with_token(cluster.ready.plain_server, token), registry, clock.time_ns)
        client = ApiClient(transport, clock=clock, rng=rng)
        stack.push_async_callback(client.close)
        settings = msgspec.structs.replace(
            settings,
            root_ca=cluster.ready.root_ca,
            sign_token=TokenKey(Path(cluster.ready.service_account_key)).sign,
            signing_authority=signing_authority(settings.controller_options)
            or authority_in_files(Path(cluster.ready.certificate_authority)),
        )
        plane = ControlPlane(client, settings, clock=clock, rng=rng, registry=registry)
        add_process_pages(endpoint, plane)
        stack.enter_context(on_signal(signal.SIGUSR2, plane.dump_requested.set))
        url = await stack.enter_async_context(endpoint.serving_on(listener))
        stack.enter_context(
            process_file(
                ProcessRecord(os.getpid(), url, cluster.ready.server, (cluster.ready.kubeconfig,), clock.time_ns())
            )
        )
        async with asyncio.TaskGroup() as group:
            control_plane_task = group.create_task(plane.run(), name="control-plane")
            cluster_task = group.create_task(cluster.ended(), name="development-cluster")
            session = UpSession(plane, manifests, cluster, url, display, is_persistent=is_persistent)
            try:
                code = await session.run()
            finally:
                control_plane_task.cancel()
                cluster_task.cancel()
        return code


class UpSession:
    """Output of one `kubeloop up`, and the decision when it ends."""

    def __init__(
        self,
        plane: ControlPlane,
        manifests: Sequence[Manifest],
        cluster: ApiServerProcess,
        url: str,
        display: DisplayOptions,
        *,
        is_persistent: bool,
    ) -> None:
        """is_persistent: the cluster has a data directory."""
        self._plane = plane
        self._is_persistent = is_persistent
        self._manifests = manifests
        self._cluster = cluster
        self._url = url
        self._display_options = display
        # Other kinds are listed only if a manifest has one.
        kinds = {(resource.api_version, resource.kind) for resource in (DEPLOYMENTS, REPLICATION_CONTROLLERS)}
        kinds |= {(manifest.api_version, manifest.kind) for manifest in manifests}
        if not plane.settings.feature_gates.enabled("GenericWorkload"):
            kinds.discard((POD_GROUPS.api_version, POD_GROUPS.kind))  # not served
        self._workloads = {
            resource: plane.informers.informer(resource).store
            for resource in WORKLOAD_PROGRESS
            if (resource.api_version, resource.kind) in kinds
        }
        self._pods = plane.informers.informer(PODS).store
        self._nodes = plane.informers.informer(NODES).store

    async def run(self) -> int:
        """Apply the manifests, show progress and a summary; with --once return the exit code, else show the present
        state until cancelled."""
        loop = asyncio.get_running_loop()
        await self._plane.synced.wait()
        self._print(
            f"development cluster with {len(self._nodes)} nodes at {self._cluster.ready.server}; endpoint {self._url}"
        )
        self._print(f"  export KUBECONFIG={self._cluster.ready.kubeconfig}")
        self._print(f"  in a browser: {self._url}{TRACES_PAGE_PATH}")
        started_at = loop.time()
        outcomes = await apply(
            self._plane.client,
            self._manifests,
            trace=self._plane.tracing.apply(),
            on_warning=lambda warning: print(printable(f"Warning: {warning}"), file=sys.stderr),
            remain=self._is_persistent,
        )
        for title, outcome in outcomes:
            self._print(f"{title} {outcome}")
        complete = True
        if self._manifests:
            pods = applied_pods(self._manifests, outcomes)
            complete = await self._watch(started_at, self._workload_count(), pods)
        seconds = loop.time() - started_at
        await self._finish(seconds, complete)
        if self._display_options.once:
            return 0 if complete else 1
        self._print("runs until Ctrl-C; kubeloop trace pod/NAME shows the trace of a pod, and")
        self._print("kubeloop explain pod/NAME shows why it is pending")
        await self._show_state(started_at)

    def _workload_count(self) -> int:
        """Return the number of workloads in the manifests. An object that several manifests describe counts once."""
        kinds = {(resource.api_version, resource.kind) for resource in WORKLOAD_PROGRESS}
        names = [
            (manifest.kind, manifest.body["metadata"].get("namespace", "default"), manifest.name or number)
            for number, manifest in enumerate(self._manifests)
            if (manifest.api_version, manifest.kind) in kinds
        ]
        return len(set(names))

    def _measure(self) -> Progress:
        workloads = (
            WORKLOAD_PROGRESS[resource](workload)
            for resource, store in self._workloads.items()
            for workload in store.values()
            if not workload_progress.is_run_of_cron_job(workload)
        )
        return workload_progress.measure(workloads, self._pods.list())

    async def _watch(self, started_at: float, workload_count: int, awaited_pods: set[str]) -> bool:
        """Show progress until every workload is complete or suspended; return False for a failure or a timeout.

        awaited_pods: "namespace/name" of the applied Pods, which the informer's store may not have yet.
        With --once, the first failure ends it; otherwise every workload is complete, suspended or failed at the end.
        """
        loop = asyncio.get_running_loop()
        deadline = started_at + self._display_options.timeout
        created: set[tuple[str, str]] = set()  # a Job may be deleted as soon as it is complete
        with self._progress_display() as show:
            while True:
                began = time.perf_counter()
                progress = self._measure()
                seconds = loop.time() - started_at
                if self._display_options.once:
                    # only --once waits for pods without a controller; otherwise the summary follows the workloads
                    ended = progress.everything_available or bool(progress.failures)
                else:
                    ended = progress.settled
                created.update((workload.namespace, workload.title) for workload in progress.workloads)
                awaited_pods.difference_update(self._pods.keys())
                finished = len(created) >= workload_count and not awaited_pods and ended
                show(progress, seconds, finished)
                if finished:
                    return progress.complete and not progress.failures
                if loop.time() >= deadline:
                    return False
                # 1 % of the time: a small cluster is measured often
                await asyncio.sleep(min(_POLL_SECONDS, 100 * (time.perf_counter() - began)))

    async def _show_state(self, started_at: float) -> NoReturn:
        """Show the present state of workloads and pods when it changes, and their failures, until cancelled.

        Also reports once that all workloads are complete or failed if they were not at the time-out.
        """
        loop = asyncio.get_running_loop()
        progress = self._measure()
        settled = progress.settled
        reported = set(progress.failures)
        last: Progress | None = None if self._shows_table else progress  # the summary has its line
        versions: list[int] = []
        with self._progress_display(after_completion=True) as show:
            while True:
                if versions != (versions := self._versions()):
                    progress = self._measure()
                seconds = loop.time() - started_at
                if not settled and progress.settled:
                    settled = True
                    outcome = "complete" if progress.complete else "failed"
                    self._print(f"{outcome} after {seconds:.1f} s: {progress.line()}")
                for failure in progress.failures:
                    if failure not in reported:
                        reported.add(failure)
                        print(f"error: {failure}", file=sys.stderr)
                if progress != last:
                    last = progress
                    show(progress, seconds, False)
                await asyncio.sleep(_LINE_SECONDS)

    def _versions(self) -> list[int]:
        """Return numbers that change with every change of a workload or pod."""
        return [store.version for store in (self._pods, *self._workloads.values())]

    @property
    def _shows_table(self) -> bool:
        return not self._display_options.as_json and sys.stdout.isatty()

    @contextlib.contextmanager
    def _progress_display(self, *, after_completion: bool = False) -> Any:
        if not self._shows_table:
            yield LogProgress(self._print)
            return
        from kubeloop.cli.progress_table import progress_table

        with progress_table(rates=not after_completion) as show:
            yield show

    async def _finish(self, seconds: float, complete: bool) -> None:
        pods = self._pods.list()
        await self._plane.tracing.flush()
        if self._display_options.as_json:
            sys.stdout.write(msgspec.json.encode(self._document(pods, seconds)).decode() + "\n")
            sys.stdout.flush()
        else:
            self._print_summary(pods, seconds)
        if not complete:
            progress = self._measure()
            for error in progress.failures or [f"not complete after {self._display_options.timeout:g} s"]:
                print(f"error: {error}", file=sys.stderr)
            for reason in workload_progress.unfinished_reasons(progress, pods, await self._start_failures()):
                print(f"  {reason}", file=sys.stderr)

    async def _start_failures(self) -> dict[str, str]:
        """Return the last event by the pod's uid about what its status does not contain: volumes, missing stages."""
        failures: dict[str, str] = {}
        for reason in ("FailedMount", "NoStage"):
            events = await self._plane.client.list_all(EVENTS, field_selector=f"reason={reason}")
            failures |= {event.involved_object.uid: f"{event.reason}: {event.message}" for event in events.items}
        return failures

    def _document(self, pods: Sequence[Pod], seconds: float) -> dict[str, Any]:
        per_node = Counter(pod.spec.node_name for pod in pods)
        progress = self._measure()
        document: dict[str, Any] = {
            "deployments": _rows(progress, "deployment.apps/"),
            "pods": [
                {
                    "namespace": pod.metadata.namespace,
                    "name": pod.metadata.name,
                    "node": pod.spec.node_name,
                    "phase": pod.status.phase,
                    "ready": is_ready(pod),
                    "traceId": self._plane.tracing.trace_id(pod),
                    "createdToBoundSeconds": self._plane.tracing.created_to_bound_seconds(pod),
                }
                for pod in sorted(pods, key=lambda pod: pod.key)
            ],
            "nodes": [{"name": name, "pods": per_node[name]} for name in sorted(self._nodes.keys())],
            "seconds": round(seconds, 3),
            "podsPerSecond": round(progress.ready / seconds, 1) if seconds else 0.0,
        }
        for key, prefix in (
            ("replicationControllers", "replicationcontroller/"),
            ("statefulSets", "statefulset.apps/"),
            ("daemonSets", "daemonset.apps/"),
            ("jobs", "job.batch/"),
            ("podGroups", "podgroup.scheduling.k8s.io/"),
        ):
            if rows := _rows(progress, prefix):
                document[key] = rows
        return document

    def _print_summary(self, pods: Sequence[Pod], seconds: float) -> None:
        progress = self._measure()
        if not self._manifests:
            return
        nodes = len({pod.spec.node_name for pod in pods if pod.spec.node_name})
        rate = f"{progress.ready / seconds:.1f} pods/s" if seconds else ""
        self._print(f"{progress.line()}; {nodes} nodes, {seconds:.2f} s, {rate}")
        for reason in workload_progress.unfinished_reasons(progress, pods):
            self._print(f"  {reason}")
        slowest = self._plane.tracing.recent.slowest()
        if slowest is not None:
            from kubeloop.cli.terminal import output_console
            from kubeloop.tracing.views.waterfall import waterfall

            self._print("slowest pod:")
            output_console().print(waterfall(slowest))

    def _print(self, text: str) -> None:
        """Print to stdout, or to stderr when stdout is reserved for the JSON document."""
        print(text, file=sys.stderr if self._display_options.as_json else sys.stdout, flush=True)


class LogProgress:
    """Progress as log lines: at most one per second, and only changes."""

    def __init__(self, print_line: Any) -> None:
        self._print = print_line
        self._last = ""
        self._next_at = 0.0

    def __call__(self, progress: Progress, seconds: float, finished: bool) -> None:
        if seconds < self._next_at and not finished:
            return
        self._next_at = seconds + _LINE_SECONDS
        line = progress.line()
        if line != self._last:
            self._last = line
            self._print(f"{seconds:6.1f} s  {line}")


def _rows(progress: Progress, prefix: str) -> list[dict[str, Any]]:
    return [
        {
            "namespace": workload.namespace,
            "name": workload.name,
            "replicas": workload.replicas,
            "available": workload.available,
            **({"suspended": True} if workload.suspended else {}),
            **({"failure": workload.failure} if workload.failure else {}),
            **({"reason": workload.reason} if workload.reason else {}),
        }
        for workload in progress.workloads
        if workload.title.startswith(prefix)
    ]
