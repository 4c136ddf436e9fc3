"""Targets of `kubeloop trace` and `kubeloop explain`: KIND/NAME or KIND NAME, with kubectl's names of kinds."""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.kube.user_error import UserError

_KINDS = {
    name: (kind, group)
    for group, kinds in {
        "": {"pod": "po", "replicationcontroller": "rc"},
        "apps": {"deployment": "deploy", "statefulset": "sts", "daemonset": "ds", "replicaset": "rs"},
        "batch": {"job": "", "cronjob": "cj"},
        "scheduling.k8s.io": {"podgroup": ""},
    }.items()
    for kind, short_name in kinds.items()
    for name in (kind, f"{kind}s", short_name)
    if name
}
"""Kind and API group by kubectl's names."""

_HINT = "pod/NAME or the kind and name of an owner, such as deploy/NAME, sts/NAME, job/NAME"


def join_target(words: Sequence[str], *, verb: str) -> str | None:
    """Return the arguments of a command as one target: "pod/web-1" for "pod web-1", as in kubectl; None without any.

    Raises UserError for more than one target.
    """
    if len(words) == 2 and not any("/" in word for word in words):
        return "/".join(words)
    if len(words) > 1:
        raise UserError(f"cannot {verb} '{' '.join(words)}'", hint=f"kubeloop {verb} takes one target: {_HINT}")
    return words[0] if words else None


def parse_target(target: str, *, verb: str) -> tuple[str, str]:
    """Return kind and name of a target: ("statefulset", "db") for "sts/db", "rollout" for "rollouts.argoproj.io/web".

    Accepts kubectl's names of a kind, and for other owners of pods KIND/NAME and KIND.GROUP/NAME; the group of an owner
    is not recorded, so it selects nothing. Raises UserError; verb: of the command, for its text.
    """
    prefix, slash, name = target.partition("/")
    resource, _, group = prefix.lower().partition(".")
    if not slash or not name or not resource.isidentifier():
        raise UserError(
            f"cannot {verb} '{target}'",
            hint=f"use {_HINT}",
        )
    kind, own_group = _KINDS.get(resource, ("", ""))
    is_known = kind and group.removeprefix("v1").removeprefix(".") in ("", own_group)
    return (kind if is_known else resource), name
