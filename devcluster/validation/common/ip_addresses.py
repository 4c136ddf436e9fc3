"""Validation and warnings of IP addresses and CIDR ranges. Source: apimachinery pkg/util/validation/ip.go."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.validation.field_errors import quoted
from kubeloop.kube.values.integers import parse_integer
from kubeloop.kube.values.ip_addresses import sloppy_ip

_STRICT = "StrictIPCIDRValidation"


def _is_strict_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def validate_ip(errors: ErrorList, path: str, text: str, known: Collection[str] = ()) -> None:
    """Validate an address in a field that accepts several notations; values in `known` were stored before."""
    if text not in known:
        _validate_notation(errors, path, text, strict=errors.gates.enabled(_STRICT))


def _validate_notation(errors: ErrorList, path: str, text: str, *, strict: bool) -> None:
    """strict: reject leading zeros and IPv4-mapped addresses."""
    address = sloppy_ip(text)
    if address is None:
        errors.invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
    elif not strict:
        return
    elif not _is_strict_ip(text):
        errors.invalid(path, text, "must not have leading 0s")
    elif isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        errors.invalid(path, text, "must not be an IPv4-mapped IPv6 address")


def ip_warning(path: str, text: str) -> str:
    """Return a warning about a valid address in a non-standard notation; "" for the canonical one."""
    address = sloppy_ip(text)
    if address is None:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if mapped is not None or not _is_strict_ip(text):
        return f"{path}: non-standard IP address {quoted(text)} is invalid: use {quoted(str(mapped or address))}"
    if isinstance(address, IPv6Address) and str(address) != text:
        detail = f"should be in RFC 5952 canonical format ({quoted(str(address))})"
        return f"{path}: IPv6 address {quoted(text)} {detail}"
    return ""


def sloppy_network(text: str) -> IPv4Network | IPv6Network | None:
    """Parse a CIDR as older versions of Kubernetes do, with host bits set; None if it is not a CIDR."""
    address, slash, length = text.partition("/")
    plain = sloppy_ip(address)
    if plain is None or not slash or not length.isascii() or not length.isdigit():
        return None
    try:
        return ip_network(f"{plain}/{parse_integer(length)}", strict=False)
    except ValueError:
        return None


def cidr_warning(path: str, text: str) -> str:
    """Return a warning about a valid CIDR in a non-standard notation; "" for the canonical one."""
    network = sloppy_network(text)
    if network is None:
        return ""
    address, _, length = text.partition("/")
    plain = sloppy_ip(address)
    mapped = plain.ipv4_mapped if isinstance(plain, IPv6Address) else None
    if mapped is not None or not _is_strict_ip(address) or str(parse_integer(length)) != length:
        return f"{path}: non-standard CIDR value {quoted(text)} is invalid: use {quoted(str(network))}"
    if network.network_address != plain:
        detail = f"CIDR value {quoted(text)} is ambiguous in this context (should be {quoted(str(network))}"
        return f"{path}: {detail} or {quoted(f'{plain}/{network.max_prefixlen}')}?)"
    if isinstance(plain, IPv6Address) and str(network) != text:
        return f"{path}: IPv6 CIDR value {quoted(text)} should be in RFC 5952 canonical format ({quoted(str(network))})"
    return ""


def validate_cidr(
    errors: ErrorList, path: str, text: str, known: Collection[str] = ()
) -> IPv4Network | IPv6Network | None:
    """Validate a CIDR in a field that accepts several notations; return it, or None if it is invalid.

    Values in `known` were stored before and are not validated: None.
    """
    return None if text in known else _validated_network(errors, path, text, strict=errors.gates.enabled(_STRICT))


def _validated_network(errors: ErrorList, path: str, text: str, *, strict: bool) -> IPv4Network | IPv6Network | None:
    """strict: reject leading zeros, IPv4-mapped addresses, and bits beyond the prefix."""
    network = sloppy_network(text)
    if network is None:
        errors.invalid(path, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
        return None
    if not strict:
        return network
    address, _, length = text.partition("/")
    plain = sloppy_ip(address)
    if not _is_strict_ip(address) or str(parse_integer(length)) != length:
        errors.invalid(path, text, "must not have leading 0s in IP or prefix length")
    elif isinstance(plain, IPv6Address) and plain.ipv4_mapped is not None:
        errors.invalid(path, text, "must not have an IPv4-mapped IPv6 address")
    elif network.network_address != plain:
        errors.invalid(path, text, "must not have bits set beyond the prefix length")
    else:
        return network
    return None


def validate_strict_ip(errors: ErrorList, path: str, text: str) -> None:
    """Validate an address in a field that accepts the canonical notation only."""
    _validate_notation(errors, path, text, strict=True)
    address = sloppy_ip(text)
    plain = address is not None and not isinstance(address, IPv4Address) and address.ipv4_mapped is None
    if plain and str(address) != text:
        errors.invalid(path, text, f'must be in canonical form ("{address}")')


def validate_strict_cidr(errors: ErrorList, path: str, text: str) -> None:
    """Validate a CIDR in a field that accepts the canonical notation only."""
    network = _validated_network(errors, path, text, strict=True)
    if network is not None and str(network) != text:
        errors.invalid(path, text, f'must be in canonical form ("{network}")')
