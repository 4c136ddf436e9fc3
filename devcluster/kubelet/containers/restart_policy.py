"""Decision of the kubelet to restart an exited container. Pure function on plain JSON.

Source: v1.36 pkg/api/v1/pod/util.go (ContainerShouldRestart), kuberuntime for init containers.
"""

from __future__ import annotations

from kubeloop.kube.json_object import JSON


def restarts_after(container: JSON, exit_code: int, pod_restart_policy: str, *, is_init: bool = False) -> bool:
    """Return True if the container is restarted: by its restart rules, else its own policy, else the pod's.

    is_init: an init container that is not a sidecar; it is not restarted after it has succeeded.
    """
    if is_init and exit_code == 0:
        return False
    policy = container.get("restartPolicy")
    if policy and _matches_a_rule(container, exit_code):
        return True
    policy = policy or pod_restart_policy
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _matches_a_rule(container: JSON, exit_code: int) -> bool:
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        if rule.get("action") == "Restart" and codes:
            is_listed = exit_code in (codes.get("values") or ())
            if is_listed == (codes.get("operator") == "In"):
                return True
    return False
