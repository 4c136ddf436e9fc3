"""The address range of Services, --service-cluster-ip-range."""

from __future__ import annotations

from ipaddress import IPv4Network

from kubeloop.kube.user_error import UserError

_MIN_PREFIX, _MAX_PREFIX = 8, 29


def parse_service_range(text: str, option: str) -> IPv4Network:
    """Return the range of a text such as 10.0.0.0/16. Raises UserError, which names the option."""
    hint = f"a range of IPv4 addresses with a prefix length of {_MIN_PREFIX} to {_MAX_PREFIX}, such as 10.0.0.0/16"
    try:
        network = IPv4Network(text)
    except ValueError as error:
        raise UserError(f"{option}: {error}", hint=hint) from None
    if not _MIN_PREFIX <= network.prefixlen <= _MAX_PREFIX:
        raise UserError(f"{option}: {network} has the prefix length {network.prefixlen}", hint=hint)
    return network
