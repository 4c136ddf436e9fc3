"""Names of authorizers in `--authorization-mode`. Imports `kube.user_error` and the standard library only.

Source: pkg/kubeapiserver/options/authorization.go of v1.36.
"""

from __future__ import annotations

from kubeloop.kube.user_error import UserError

ALWAYS_ALLOW = "AlwaysAllow"
DEFAULT_MODES = ("Node", "RBAC")
_MODES = (*DEFAULT_MODES, ALWAYS_ALLOW, "AlwaysDeny")
_NOT_SUPPORTED = ("ABAC", "Webhook")


def parse_authorization_modes(text: str) -> tuple[str, ...]:
    """Return the modes of a comma-separated list. Raises UserError."""
    modes = tuple(mode.strip() for mode in text.split(","))
    hint = f"a comma-separated list of {', '.join(_MODES)}"
    for mode in modes:
        if mode in _NOT_SUPPORTED:
            raise UserError(f"--authorization-mode: the mode {mode} is not supported", hint=hint)
        if mode not in _MODES:
            raise UserError(f'--authorization-mode: "{mode}" is not a valid mode', hint=hint)
        if modes.count(mode) > 1:
            raise UserError(f"--authorization-mode: {mode} is specified more than once", hint=hint)
    return modes
