"""Context that every controller is created with. Source: ControllerContext of kube-controller-manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kubeloop.controllers.runtime.other_clusters import OtherClusters
from kubeloop.controllers.runtime.queue.rate_limiter import RateLimiter
from kubeloop.controllers.runtime.queue.reconcile_pace import ReconcilePace
from kubeloop.controllers.runtime.queue.work_queue import WorkQueue
from kubeloop.informers.factory import InformerFactory
from kubeloop.kube.auth.token_signer import SignToken
from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.clock import Clock
from kubeloop.kube.events.event_recorder import EventSink
from kubeloop.kube.feature_gates import DEFAULT_FEATURE_GATES, FeatureGates
from kubeloop.kube.metric_families import NO_FAMILIES, MetricFamilies
from kubeloop.tracing.recording.pod_recorder import PodRecorder
from kubeloop.tracing.recording.reconcile_recorder import ReconcileRecorder

if TYPE_CHECKING:
    from kubeloop.kube.auth.certificate_authority import SigningAuthority


class ControllerContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a controller is created with; see "How to add a controller" in docs/architecture.md.

    client, informers, clock, traces, pod_traces, metrics and feature_gates are those of the process. `traces` records
    reconciles, `pod_traces` the pods that the controller creates. The other fields are those of this controller:

    events: the event recorder, with the controller's event component.
    workers: number of concurrent reconciles (--concurrent-*-syncs).
    options: values of the options of all controllers by key ("terminated_pod_gc_threshold"), durations in seconds.
    single_api_server: True in a development cluster. No other API server can then serve an older state.
    status_delay_seconds: limit of the delay of obsolete status writes (see StatusDelay); 0 for none.
    pace: begins the reconciles of all controllers of this process.
    drain_seconds: maximum time for the reconciles in progress of an author's controller to end when it stops.
    clusters: other clusters; None if the process connects to none.
    root_ca: certificates that verify the API server, in PEM (--root-ca-file, or those of the kubeconfig).
    sign_token: signs tokens of ServiceAccounts; None without a key (--service-account-private-key-file).
    signing_authority: returns the authority of a signer of CertificateSigningRequests, None without one; None without
    any (--cluster-signing-cert-file and its like).
    """

    client: ApiClient
    informers: InformerFactory
    clock: Clock
    traces: ReconcileRecorder
    pod_traces: PodRecorder
    events: EventSink
    metrics: MetricFamilies = NO_FAMILIES
    feature_gates: FeatureGates = DEFAULT_FEATURE_GATES
    workers: int = 5
    options: Mapping[str, Any] = {}
    single_api_server: bool = False
    status_delay_seconds: float = 0.0
    pace: ReconcilePace = msgspec.field(default_factory=ReconcilePace)
    drain_seconds: float = 30.0
    clusters: OtherClusters | None = None
    root_ca: str = ""
    sign_token: SignToken | None = None
    signing_authority: SigningAuthority | None = None

    def new_queue(self, name: str, limiter: RateLimiter | None = None) -> WorkQueue:
        """Return a work queue with metrics; without a limiter it has the default one."""
        return WorkQueue(name, limiter=limiter, families=self.metrics, seconds=self.seconds)

    def seconds(self) -> float:
        """Return the clock's time in seconds, for durations in metrics.

        The event loop's own clock may advance in whole milliseconds only.
        """
        return self.clock.time_ns() / 1e9
