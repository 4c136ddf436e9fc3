"""The scheduler's internal configuration: all defaults filled in, all plugins named.

`config.load` creates it from a KubeSchedulerConfiguration (`config.v1`) or a Policy document (`legacy_policy`).
Durations are seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from kubeloop.kube.feature_gates import FeatureGates
from kubeloop.scheduler.config.defaults import (
    DEFAULT_EXTENDER_TIMEOUT_SECONDS,
    DEFAULT_MAX_BINDINGS_IN_FLIGHT,
    DEFAULT_PARALLELISM,
    DEFAULT_PLUGINS,
    DEFAULT_POD_INITIAL_BACKOFF_SECONDS,
    DEFAULT_POD_MAX_BACKOFF_SECONDS,
    DEFAULT_SCHEDULER_NAME,
    default_args,
    default_plugins,
)
from kubeloop.scheduler.config.plugin_sets import PluginRef, PluginSet
from kubeloop.scheduler.config.strict_decoding import StrictStruct

EXTENSION_POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    "placementGenerate",
    "placementScore",
)
"""placementGenerate and placementScore run with the feature gate TopologyAwareWorkloadScheduling only."""

TieBreak = Literal["random", "roundRobin"]


class Profile(msgspec.Struct, frozen=True):
    """One profile: it schedules the pods whose spec.schedulerName is its name.

    multi_point: plugins enabled at every extension point that they implement. points: enabled and disabled plugins of
    single extension points, in addition. args: by plugin name, typed; plugins without an entry use their defaults.
    percentage_of_nodes_to_score: None: that of the whole configuration. check_all_filters: every filter runs on every
    node, so that all reasons are reported (alwaysCheckAllPredicates of Policy documents).
    """

    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    multi_point: PluginSet = msgspec.field(default_factory=lambda: PluginSet(enabled=DEFAULT_PLUGINS))
    points: Mapping[str, PluginSet] = msgspec.field(default_factory=dict)
    args: Mapping[str, Any] = msgspec.field(default_factory=dict)
    percentage_of_nodes_to_score: int | None = None
    check_all_filters: bool = False

    def enabled(self) -> Iterator[PluginRef]:
        """Yield every plugin that is enabled at some extension point; some more than once."""
        yield from self.multi_point.enabled
        for plugin_set in self.points.values():
            yield from plugin_set.enabled


class ExtenderTLS(StrictStruct, frozen=True):
    """TLS settings for an extender: files, or PEM data in the *_data fields, base64 in documents."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


class ManagedResource(StrictStruct, frozen=True):
    """An extended resource that an extender manages. ignored_by_scheduler: NodeResourcesFit ignores it."""

    name: str = ""
    ignored_by_scheduler: bool = False


class ExtenderFields(StrictStruct, frozen=True):
    """An HTTP extender as in all kinds of documents. An empty verb: it does not take part there."""

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    tls_config: ExtenderTLS | None = None
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


class ExtenderConfiguration(ExtenderFields, frozen=True):
    """An HTTP extender."""

    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    http_timeout_seconds: float = DEFAULT_EXTENDER_TIMEOUT_SECONDS


class LeaderElectionConfiguration(msgspec.Struct, frozen=True):
    """Leader election between replicas. Defaults as in kube-scheduler."""

    leader_elect: bool = True
    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class ClientConnectionConfiguration(msgspec.Struct, frozen=True):
    """Connection to the API server. kubeconfig: a path, or "" for the default; qps, burst: request rate limits."""

    kubeconfig: str = ""
    qps: float = 50.0
    burst: int = 100


class SchedulerConfiguration(msgspec.Struct, frozen=True):
    """KubeSchedulerConfiguration with defaults.

    percentage_of_nodes_to_score: None: filter all nodes; 0: kube-scheduler's adaptive percentage. parallelism is only
    shown by /configz: masks need no goroutines. kubeloop's own settings: tie_break, how one of the nodes with the
    highest score is chosen; assumed_pod_ttl_seconds, None: never; class_cache: cache results per class of pods;
    max_bindings_in_flight; attempt_seconds: from one attempt to the next, in virtual time. client_connection,
    leader_election: for the process that connects and elects; None: not set.
    """

    profiles: tuple[Profile, ...] = (Profile(),)
    extenders: tuple[ExtenderConfiguration, ...] = ()
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: float = DEFAULT_POD_INITIAL_BACKOFF_SECONDS
    pod_max_backoff_seconds: float = DEFAULT_POD_MAX_BACKOFF_SECONDS
    pod_max_in_unschedulable_seconds: float = 300.0
    parallelism: int = DEFAULT_PARALLELISM
    tie_break: TieBreak = "random"
    assumed_pod_ttl_seconds: float | None = None
    class_cache: bool = True
    max_bindings_in_flight: int = DEFAULT_MAX_BINDINGS_IN_FLIGHT
    drain_seconds: float = 10.0
    attempt_seconds: float = 0.0
    client_connection: ClientConnectionConfiguration | None = None
    leader_election: LeaderElectionConfiguration | None = None


def default_configuration(gates: FeatureGates) -> SchedulerConfiguration:
    """Return kube-scheduler's configuration without a file."""
    profile = Profile(multi_point=PluginSet(enabled=default_plugins(gates)), args=default_args(gates))
    return SchedulerConfiguration(profiles=(profile,))
