"""Targets of `kubeloop trace` and `kubeloop explain`: KIND/NAME with kubectl's names of kinds."""

from __future__ import annotations

from kubeloop.kube.errors import UserError

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
            hint="use pod/NAME or the kind and name of an owner, such as deploy/NAME, sts/NAME, job/NAME",
        )
    kind, own_group = _KINDS.get(resource, ("", ""))
    is_known = kind and group.removeprefix("v1").removeprefix(".") in ("", own_group)
    return (kind if is_known else resource), name
