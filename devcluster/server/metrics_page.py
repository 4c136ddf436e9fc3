"""/metrics and /metrics/slis: the families that kube-apiserver's dashboards and alerts use, and process metrics.

prometheus_client writes the text and reads the process metrics; it takes 25 ms to import, so this module is imported
when metrics are read. Families are those of v1.36 (apiserver pkg/endpoints/metrics, pkg/storage/etcd3/metrics); help
texts are ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeloop.devcluster.admission.webhooks.webhook_metrics import WebhookMetrics
from kubeloop.devcluster.api.request import ApiRequest, Response, text_response
from kubeloop.devcluster.api.request_info import RequestInfo
from kubeloop.devcluster.api.served_resources import BY_PATH
from kubeloop.devcluster.authorization.access_metrics import AccessMetrics, Durations
from kubeloop.devcluster.server.health_paths import HEALTH
from kubeloop.devcluster.server.metrics import BYTES, SECONDS, Labels, RequestMetrics, Series
from kubeloop.devcluster.storage.store import ObjectStore
from kubeloop.kube.feature_gates import FeatureGates

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
_WITHOUT_DRY_RUN = tuple(name for name in Labels._fields if name != "dry_run")


def metrics_response(
    request: ApiRequest,
    metrics: RequestMetrics,
    store: ObjectStore,
    webhooks: WebhookMetrics,
    access: AccessMetrics,
    watched: Iterable[RequestInfo],
    gates: FeatureGates,
    began: float,
    seats: dict[str, int],
) -> Response:
    """Return /metrics or /metrics/slis; DELETE resets them.

    watched: targets of open watches. began: start of the server in seconds since the epoch.
    webhooks: calls of admission webhooks. access: decisions of authorizers.
    seats: nominal seats of the priority levels.
    """
    slis = request.path.rstrip("/").endswith("slis")
    if request.method == "DELETE":
        if not slis:
            metrics.reset()
            webhooks.reset()
            access.reset()
        return text_response(200, "metrics reset\n")
    families = (_health(),) if slis else _families(metrics, store, webhooks, access, watched, gates, seats)
    return Response(200, _text(families), _CONTENT_TYPE, [("Process-Start-Time-Unix", str(int(began)))])


class _Families(Collector):
    """Metric families as prometheus_client's encoder reads them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _text(families: Iterable[Metric]) -> bytes:
    text = generate_latest(_Families(families))
    for name in ("authentication_attempts", _REJECTIONS, _FAIL_OPEN):
        # prometheus_client appends _total to the name of every counter; kube-apiserver has some without
        text = text.replace(b"# TYPE %b untyped" % name.encode(), b"# TYPE %b counter" % name.encode())
    return text


def _families(
    metrics: RequestMetrics,
    store: ObjectStore,
    webhooks: WebhookMetrics,
    access: AccessMetrics,
    watched: Iterable[RequestInfo],
    gates: FeatureGates,
    seats: dict[str, int],
) -> Iterator[Metric]:
    series = metrics.series()
    yield _requests(series)
    yield from _durations(series)
    yield _sizes(series)
    in_flight = {"mutating": 0, "readOnly": 1}
    yield _gauge("apiserver_current_inflight_requests", "Requests in flight.", "request_kind", in_flight)
    name = "apiserver_flowcontrol_nominal_limit_seats"
    yield _gauge(name, "Share of a priority level in the requests at one time.", "priority_level", seats)
    yield _open_watches(watched)
    yield from _webhook_calls(webhooks)
    yield from _objects(store, gates)
    yield _deprecated_apis(series)
    attempts = Metric("authentication_attempts", "Authentication attempts by result.", "unknown")
    attempts.add_sample(attempts.name, {"result": "failure"}, metrics.unauthenticated)
    attempts.add_sample(attempts.name, {"result": "success"}, metrics.answered - metrics.unauthenticated)
    yield attempts
    yield from _access(metrics, access)
    yield _health()
    yield _features(gates)
    yield from ProcessCollector(registry=None).collect()


def _requests(series: list[Series]) -> Metric:
    family = CounterMetricFamily(
        "apiserver_request_total",
        "Requests by verb, resource, scope and response code.",
        labels=("code", *Labels._fields, "system_client"),
    )
    for entry in series:
        for code, count in sorted(entry.codes.items()):
            family.add_metric((str(code), *entry.labels, ""), count)
    return family


def _durations(series: list[Series]) -> tuple[Metric, Metric]:
    all_requests = HistogramMetricFamily(
        "apiserver_request_duration_seconds", "Seconds until the response, without watches.", labels=Labels._fields
    )
    without_webhooks = HistogramMetricFamily(
        "apiserver_request_sli_duration_seconds", "Seconds until the response, without webhooks.",
        labels=_WITHOUT_DRY_RUN,
    )  # fmt: skip
    for entry in series:
        counts = [entry.quick, *entry.slow]
        if any(counts):
            buckets = _buckets(SECONDS, counts)
            all_requests.add_metric(entry.labels, buckets, entry.seconds)
            if not entry.labels.dry_run:
                without_webhooks.add_metric(_without_dry_run(entry.labels), buckets, entry.seconds)
    return all_requests, without_webhooks


def _sizes(series: list[Series]) -> Metric:
    family = HistogramMetricFamily("apiserver_response_sizes", "Bytes of responses to reads.", labels=_WITHOUT_DRY_RUN)
    for entry in series:
        if any(entry.sizes):
            family.add_metric(_without_dry_run(entry.labels), _buckets(BYTES, entry.sizes), entry.size)
    return family


def _without_dry_run(labels: Labels) -> list[str]:
    return [value for name, value in zip(Labels._fields, labels, strict=True) if name != "dry_run"]


def _buckets(bounds: tuple[float, ...], counts: list[int]) -> list[tuple[str, float]]:
    """Return upper bounds as Go writes them, with cumulative counts."""
    return list(zip([*(f"{bound:g}" for bound in bounds), "+Inf"], accumulate(counts), strict=True))


def _gauge(name: str, help_text: str, label: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=(label,))
    for value, count in values.items():
        family.add_metric((value,), count)
    return family


_CALL_LABELS = ("name", "type", "operation")
_CONDITION_LABELS = ("name", "kind", "type", "operation")
_REQUESTS = "apiserver_admission_webhook_request_total"
_REJECTIONS, _FAIL_OPEN = "apiserver_admission_webhook_rejection_count", "apiserver_admission_webhook_fail_open_count"


def _webhook_calls(webhooks: WebhookMetrics) -> Iterator[Metric]:
    prefix, rejection_labels = "apiserver_admission_match_condition_", (*_CALL_LABELS, "error_type", "rejection_code")
    yield from _counter(_REQUESTS, (*_CALL_LABELS, "code", "rejected"), webhooks.requests)
    yield from _counter(_REJECTIONS, rejection_labels, webhooks.rejections)
    yield from _counter(_FAIL_OPEN, ("name", "type"), webhooks.fail_open)
    yield from _counter(f"{prefix}evaluation_errors_total", _CONDITION_LABELS, webhooks.condition_errors)
    yield from _counter(f"{prefix}exclusions_total", _CONDITION_LABELS, webhooks.condition_exclusions)
    for name, labels, durations in (
        ("webhook_admission_duration_seconds", (*_CALL_LABELS, "rejected"), webhooks.durations),
        ("match_condition_evaluation_seconds", _CONDITION_LABELS, webhooks.condition_durations),
    ):
        yield from _histogram(f"apiserver_admission_{name}", labels, durations, "Seconds of admission webhooks.")


def _access(metrics: RequestMetrics, access: AccessMetrics) -> Iterator[Metric]:
    """Yield the families of authorization and impersonation."""
    requests, denied = access.requests, access.impersonations.count(("", "denied"))
    refused, observed = (requests.count((result,)) for result in ("no-opinion", "allowed"))
    allowed = max(observed, metrics.answered - metrics.unauthenticated - denied - refused)
    attempts: Counter[tuple[str, ...]] = Counter({("allowed",): allowed, ("no-opinion",): refused})
    yield from _counter("authorization_attempts_total", ("result",), +attempts, "Authorization of requests by result.")
    buckets = {labels: [*counts] for labels, counts in requests.buckets.items()}
    if allowed:  # members of system:masters are not observed
        buckets.setdefault(("allowed",), [0] * (len(requests.limits) + 1))[0] += allowed - observed
    durations = Durations(requests.limits, buckets, requests.seconds)
    yield from _histogram("authorization_duration_seconds", ("result",), durations, "Seconds of authorization.")
    decisions: Counter[tuple[str, ...]] = Counter(
        {(*labels, "allowed"): count for labels, count in access.decisions.items()}
    )
    help_text = "Decisions by authorizer."
    yield from _counter("apiserver_authorization_decisions_total", ("type", "name", "decision"), decisions, help_text)
    for name, observations in (
        ("attempts", access.impersonations),
        ("authorization_attempts", access.impersonation_checks),
    ):
        counts = Counter({labels: sum(buckets) for labels, buckets in observations.buckets.items()})
        prefix, labels, help_text = f"apiserver_impersonation_{name}", ("mode", "decision"), "Impersonation by mode."
        yield from _counter(f"{prefix}_total", labels, counts, help_text)
        yield from _histogram(f"{prefix}_duration_seconds", labels, observations, help_text)


def _histogram(name: str, labels: tuple[str, ...], durations: Durations, help_text: str) -> Iterator[Metric]:
    """Yield a histogram, unless nothing was observed."""
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for values, buckets in durations.buckets.items():
        family.add_metric(values, _buckets(durations.limits, buckets), durations.seconds[values])
    if durations.buckets:
        yield family


def _counter(
    name: str,
    labels: tuple[str, ...],
    counts: Counter[tuple[str, ...]],
    help_text: str = "Calls of admission webhooks by their results.",
) -> Iterator[Metric]:
    """Yield a counter, unless nothing was counted."""
    is_total = name.endswith("_total")
    family = Metric(name.removesuffix("_total"), help_text, "counter" if is_total else "unknown")
    for values, count in counts.items():
        family.add_sample(name, dict(zip(labels, values, strict=True)), count)
    if counts:
        yield family


def _open_watches(watched: Iterable[RequestInfo]) -> Metric:
    family = GaugeMetricFamily("apiserver_longrunning_requests", "Open watches.", labels=_WITHOUT_DRY_RUN)
    counts = Counter((info.served.resource, bool(info.name), bool(info.namespace)) for info in watched)
    for (resource, named, namespaced), count in counts.items():
        labels = Labels(
            component="apiserver", group=resource.group, resource=resource.plural,
            scope="resource" if named else "namespace" if namespaced else "cluster",
            verb="WATCH", version=resource.version,
        )  # fmt: skip
        family.add_metric(_without_dry_run(labels), count)
    return family


def _deprecated_apis(series: list[Series]) -> Metric:
    names = ("group", "removed_release", "resource", "subresource", "version")
    family = GaugeMetricFamily("apiserver_requested_deprecated_apis", "1: a requested deprecated API.", labels=names)
    requested = [entry.labels for entry in series if entry.deprecated]
    for values in sorted({(label.group, "", label.resource, label.subresource, label.version) for label in requested}):
        family.add_metric(values, 1)
    return family


def _objects(store: ObjectStore, gates: FeatureGates) -> Iterator[Metric]:
    served = {
        info.resource.group_resource: 0
        for info in BY_PATH.values()
        if info.is_stored and info.storage_resource is None and (not info.gate or gates.enabled(info.gate))
    }
    counts = dict(sorted((served | {name: len(table) for name, table in store.tables()}).items()))
    yield _gauge("apiserver_storage_objects", "Stored objects.", "resource", counts)
    family = GaugeMetricFamily("apiserver_resource_objects", "Stored objects.", labels=("group", "resource"))
    for name, count in counts.items():
        resource, _, group = name.partition(".")
        family.add_metric((group, resource), count)
    yield family


def _features(gates: FeatureGates) -> Metric:
    family = GaugeMetricFamily("kubernetes_feature_enabled", "1 for an enabled feature gate.", labels=("name", "stage"))
    for name, stage, enabled in gates.all():
        family.add_metric((name, stage), float(enabled))
    return family


def _health() -> Metric:
    family = GaugeMetricFamily("kubernetes_healthcheck", "1 for a check that passes.", labels=("name", "type"))
    for path in HEALTH:
        family.add_metric(("ping", path[1:]), 1)
    return family
