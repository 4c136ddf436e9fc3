"""kube-scheduler and kube-controller-manager in the cluster that do the work of `kubeloop run` already.

Two schedulers bind the same pods, and two sets of controllers create them twice. A live component holds its Lease; the
options of kube-controller-manager are those of its static pods, as kubeadm creates them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

import msgspec

from kubeloop.kube.client.api_client import ApiClient
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.json_object import JSON
from kubeloop.kube.objects.resources import LEASES
from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.control_plane import Settings
from kubeloop.process.control_plane.controller_table import CONTROLLERS_BY_NAME, SCHEDULER

log = logging.getLogger(__name__)

NAMESPACE = "kube-system"
KUBE_SCHEDULER = "kube-scheduler"
KUBE_CONTROLLER_MANAGER = "kube-controller-manager"
_STATIC_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=component%3D{KUBE_CONTROLLER_MANAGER}"
_DEFAULT_SCHEDULER_NAME = "default-scheduler"


async def check_running_components(
    client: ApiClient, settings: Settings, now: datetime, *, own_lease: tuple[str, str] | None
) -> None:
    """Raise UserError if a live component does what these settings would do.

    own_lease: namespace and name of the Lease of this process; its other holder and this process exclude each other.
    Leases that cannot be read are taken as free.
    """
    problems = []
    if SCHEDULER in settings.controllers and _schedules_default_pods(settings):
        holder = await _holder(client, KUBE_SCHEDULER, now, own_lease)
        if holder:
            problems.append(f"{KUBE_SCHEDULER} ({holder}) schedules the pods of {_DEFAULT_SCHEDULER_NAME}")
    names = sorted(settings.controllers - {SCHEDULER})
    if names:
        holder = await _holder(client, KUBE_CONTROLLER_MANAGER, now, own_lease)
        if holder:
            same = await _controllers_in_both(client, names)
            if same:
                problems.append(f"{KUBE_CONTROLLER_MANAGER} ({holder}) runs {', '.join(same)}")
    if problems:
        raise UserError(
            f"the cluster has a control plane of its own: {'; '.join(problems)}",
            hint="stop it, or select other work with --controllers or --scheduler-name; --leader-elect with "
            "--leader-elect-resource-name of its Lease waits until it ends; --force runs both",
        )


def _schedules_default_pods(settings: Settings) -> bool:
    return any(profile.scheduler_name == _DEFAULT_SCHEDULER_NAME for profile in settings.scheduler.profiles)


async def _holder(client: ApiClient, name: str, now: datetime, own_lease: tuple[str, str] | None) -> str:
    """Return the holder of a component's Lease; "" if it is free, has expired, cannot be read, or is our own."""
    if own_lease == (NAMESPACE, name):
        return ""
    try:
        lease = await client.get(LEASES, name, NAMESPACE)
    except NotFound:
        return ""
    except (ApiError, ServerUnreachable, msgspec.DecodeError) as error:
        log.info("cannot tell whether %s is running: %s", name, error)
        return ""
    spec = lease.spec
    if not spec.holder_identity or spec.renew_time is None:
        return ""
    age_seconds = (now - spec.renew_time).total_seconds()
    return spec.holder_identity if age_seconds < (spec.lease_duration_seconds or 0) else ""


async def _controllers_in_both(client: ApiClient, names: Iterable[str]) -> list[str]:
    """Return those controllers, by their names here, that kube-controller-manager runs as well.

    All, if it has no static pod that can be read.
    """
    try:
        response = await client.raw("GET", _STATIC_PODS)
        pods = msgspec.json.decode(response.body).get("items") or []
    except (ApiError, ServerUnreachable, msgspec.DecodeError) as error:
        log.info("cannot read the options of %s: %s", KUBE_CONTROLLER_MANAGER, error)
        pods = []
    selections = [_selection(pod) for pod in pods] or [["*"]]
    return [name for name in names if any(_is_enabled(name, selection) for selection in selections)]


def _selection(pod: JSON) -> list[str]:
    """Return the values of --controllers of a static pod."""
    words = [
        word
        for container in pod["spec"].get("containers") or ()
        for word in (*(container.get("command") or ()), *(container.get("args") or ()))
    ]
    selected = [word.removeprefix("--controllers=") for word in words if word.startswith("--controllers=")]
    return [name.strip() for text in selected for name in text.split(",")] or ["*"]


def _is_enabled(name: str, selection: Iterable[str]) -> bool:
    """Return True if kube-controller-manager runs the controller `name`. Source: IsControllerEnabled, v1.36."""
    names = {name, CONTROLLERS_BY_NAME[name].kubernetes_name}
    for item in selection:
        if item in names:
            return True
        if item.removeprefix("-") in names:
            return False
    return "*" in selection
