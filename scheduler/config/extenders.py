"""Decode the extenders of a KubeSchedulerConfiguration or Policy document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from kubeloop.kube.values.durations import parse_duration_seconds
from kubeloop.scheduler.config.defaults import DEFAULT_EXTENDER_TIMEOUT_SECONDS
from kubeloop.scheduler.config.plugin_args import NodeResourcesFitArgs
from kubeloop.scheduler.config.types import ExtenderConfiguration, ExtenderFields, Profile


def extender_configuration(extender: Any) -> ExtenderConfiguration:
    """Return the configuration of an extender of either kind of document; they add enable_https and http_timeout."""
    fields = {name: getattr(extender, name) for name in (*ExtenderFields.__struct_fields__, "enable_https")}
    return ExtenderConfiguration(**fields, http_timeout_seconds=http_timeout_seconds(extender.http_timeout))


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
