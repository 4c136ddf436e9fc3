"""Decode the extenders of a KubeSchedulerConfiguration or Policy document."""

from __future__ import annotations

import base64
from typing import Any

from kubeloop.kube.durations import parse_duration_seconds
from kubeloop.kube.errors import UserError
from kubeloop.scheduler.config.defaults import DEFAULT_EXTENDER_TIMEOUT_SECONDS
from kubeloop.scheduler.config.types import ExtenderConfiguration, ExtenderTLS, ManagedResource


def extender_configuration(given: Any) -> ExtenderConfiguration:
    """An extender as it was given: one of ours, or one of a Policy document, which has the same fields."""
    tls = given.tls_config
    return ExtenderConfiguration(
        url_prefix=given.url_prefix,
        filter_verb=given.filter_verb,
        preempt_verb=given.preempt_verb,
        prioritize_verb=given.prioritize_verb,
        weight=given.weight,
        bind_verb=given.bind_verb,
        enable_https=given.enable_https,
        tls=None
        if tls is None
        else ExtenderTLS(
            insecure=tls.insecure,
            server_name=tls.server_name,
            cert_file=tls.cert_file,
            key_file=tls.key_file,
            ca_file=tls.ca_file,
            cert_data=_base64(tls.cert_data, "certData"),
            key_data=_base64(tls.key_data, "keyData"),
            ca_data=_base64(tls.ca_data, "caData"),
        ),
        http_timeout_seconds=http_timeout_seconds(given.http_timeout),
        node_cache_capable=given.node_cache_capable,
        managed_resources=tuple(
            ManagedResource(each.name, each.ignored_by_scheduler) for each in given.managed_resources
        ),
        ignorable=given.ignorable,
    )


def _base64(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise UserError(
            f"tlsConfig.{field} of an extender is not base64: {error}",
            hint=f"base64 -w0 < FILE, or use {field[:-4]}File",
        ) from None


def http_timeout_seconds(given: str | int) -> float:
    """A duration ("5s"), or an integer of nanoseconds as Policy documents have it; 0 means 5 s."""
    seconds = given / 1e9 if isinstance(given, int) else parse_duration_seconds(given)
    return seconds or DEFAULT_EXTENDER_TIMEOUT_SECONDS
