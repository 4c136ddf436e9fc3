"""IP addresses in the notations that Kubernetes accepts. Source: k8s.io/utils/net/parse.go (ParseIPSloppy)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address


def sloppy_ip(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address as older versions of Kubernetes do, with leading zeros; None if it is not an address."""
    if "%" in text or not text.isascii():  # Go's parser accepts no IPv6 zone
        return None
    head, colon, tail = text.rpartition(":")
    numbers = ".".join(number.lstrip("0") or number[-1:] for number in tail.split(".")) if "." in tail else tail
    try:
        return ip_address(f"{head}{colon}{numbers}")
    except ValueError:
        return None


def allocated_ip(text: str) -> IPv4Address | IPv6Address:
    """Return a valid address; an IPv4-mapped one is the IPv4 address, as for Go's net.IP."""
    address = sloppy_ip(text)
    assert address is not None, text
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address
