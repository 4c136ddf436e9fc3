"""Decode the extenders of a KubeSchedulerConfiguration or Policy document."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.durations import parse_duration_seconds
from kubeloop.scheduler.config.defaults import DEFAULT_EXTENDER_TIMEOUT_SECONDS
from kubeloop.scheduler.config.plugin_args import NodeResourcesFitArgs
from kubeloop.scheduler.config.types import ExtenderConfiguration, ExtenderTLS, ManagedResource, Profile


def extender_configuration(extender: Any) -> ExtenderConfiguration:
    """Return the configuration of an extender of either kind of document; both have the same fields."""
    tls = extender.tls_config
    return ExtenderConfiguration(
        url_prefix=extender.url_prefix,
        filter_verb=extender.filter_verb,
        preempt_verb=extender.preempt_verb,
        prioritize_verb=extender.prioritize_verb,
        weight=extender.weight,
        bind_verb=extender.bind_verb,
        enable_https=extender.enable_https,
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
        http_timeout_seconds=http_timeout_seconds(extender.http_timeout),
        node_cache_capable=extender.node_cache_capable,
        managed_resources=tuple(
            ManagedResource(resource.name, resource.ignored_by_scheduler) for resource in extender.managed_resources
        ),
        ignorable=extender.ignorable,
    )


def _base64(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise UserError(
            f"tlsConfig.{field} of an extender is not base64: {error}",
            hint=f"base64 -w0 < FILE, or use {field[:-4]}File",
        ) from None


def http_timeout_seconds(extender: str | int) -> float:
    """Return the seconds of a duration ("5s"), or of nanoseconds as in Policy documents; 0 stands for 5 s."""
    seconds = extender / 1e9 if isinstance(extender, int) else parse_duration_seconds(extender)
    return seconds or DEFAULT_EXTENDER_TIMEOUT_SECONDS


def with_ignored_resources(profile: Profile, extenders: Iterable[ExtenderConfiguration]) -> Profile:
    """Return the profile with NodeResourcesFit ignoring the resources that extenders manage with ignoredByScheduler.

    They replace the ignoredResources of the profile. Source: buildExtenders of pkg/scheduler/scheduler.go.
    """
    ignored = tuple(
        resource.name
        for extender in extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )
    if not ignored:
        return profile
    fit = replace(profile.args.get("NodeResourcesFit", NodeResourcesFitArgs()), ignored_resources=ignored)
    return replace(profile, args={**profile.args, "NodeResourcesFit": fit})
