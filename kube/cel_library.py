"""CEL functions that Kubernetes adds: URLs, IP addresses, CIDRs, quantities, semantic versions, named formats.

Source: k8s.io/apiserver pkg/cel/library/{urls,ip,cidr,quantity,semverlib,format}.go and pkg/cel.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_interface
from operator import attrgetter
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from kubeloop.cel.declarations import parse_overloads
from kubeloop.cel.go_text import parse_integer, quoted
from kubeloop.cel.program import Library
from kubeloop.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NONE,
    CelError,
    Opaque,
    Optional,
    no_overload,
)
from kubeloop.kube.validation import name_checks
from kubeloop.kube.validation.string_formats import has_format
from kubeloop.kube.values.quantities import Format, Quantity, QuantityError, parse_quantity


def require_string(value: Any) -> str:
    """Return a string argument; other values have no such overload."""
    if type(value) is not str:
        raise no_overload()
    return value


def _require_type(kind: type, value: Any) -> None:
    if type(value) is not kind:
        raise no_overload()


def _method(kind: type, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of values of type `kind`; other values have no such overload."""

    def call(value: Any) -> Any:
        _require_type(kind, value)
        return read(value)

    return call


class _Value(Opaque):
    """A value that equals those of its type with the same `identity`."""

    __slots__ = ()
    identity: Callable[[Any], Any]

    def equals(self, other: Any) -> bool:
        _require_type(type(self), other)
        return bool(type(self).identity(self) == type(self).identity(other))


# --- URLs -------------------------------------------------------------------------------------------------------------


class Url(_Value):
    __slots__ = ("parts", "text")
    type_name = "kubernetes.URL"
    identity = attrgetter("text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts = urlsplit(text)


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def url_problem(text: str) -> str:
    """Return Go's error for a string that is not an absolute URL or path, or ""."""
    prefix = f"parse {quoted(text)}: "
    if re.search(r"[\x00-\x1f\x7f]", text):
        return f"{prefix}net/url: invalid control character in URL"
    if not text:
        return f"{prefix}empty url"
    if text == "*":
        return ""
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    if text.startswith(":"):
        return f"{prefix}missing protocol scheme"
    if scheme is None and not text.startswith("/"):
        first = text.partition("/")[0]
        if ":" in first:
            return f"{prefix}first path segment in URL cannot contain colon"
        return f"{prefix}invalid URI for request"
    escape = re.search(r"%(?![0-9A-Fa-f]{2}).{0,2}", text)
    if escape:
        return f"{prefix}invalid URL escape {quoted(escape[0])}"
    if rest.startswith("//"):
        host = re.split(r"[/?]", rest[2:], maxsplit=1)[0].rpartition("@")[2]
        return prefix + problem if (problem := _host_problem(host)) else ""
    return ""


def _host_problem(host: str) -> str:
    if host.startswith("["):
        if "]" not in host:
            return "missing ']' in host"
        port = host.rpartition("]")[2]
    else:
        port = host[host.index(":") :] if ":" in host else ""
    if port and not re.fullmatch(r":\d*", port, re.ASCII):
        return f"invalid port {quoted(port)} after host"
    invalid = re.search(r'[ "<>\\^`{|}]', host)
    return f"invalid character {quoted(invalid[0])} in host name" if invalid else ""


def url(text: Any) -> Url:
    problem = url_problem(require_string(text))
    if problem:
        raise CelError(f"URL parse error during conversion from string: {problem}")
    try:
        return Url(text)
    except ValueError as error:
        raise CelError(f"URL parse error during conversion from string: {error}") from None


def _host(value: Url) -> str:
    return value.parts.netloc.rpartition("@")[2]


def _host_name(value: Url) -> str:
    host = _host(value)
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _port(value: Url) -> str:
    host = _host(value).rpartition("]")[2]
    return host.partition(":")[2]


def _path(value: Url) -> str:
    return value.parts.path if "%" in value.parts.path else quote(unquote(value.parts.path), safe="/$&+,:;=@!'()*~[]")


# --- addresses --------------------------------------------------------------------------------------------------------


class AddressValue(_Value):
    __slots__ = ("address",)
    type_name = "net.IP"
    identity = attrgetter("address")
    has_text = True

    def __init__(self, address: IPv4Address | IPv6Address) -> None:
        self.address = address

    @property
    def size(self) -> int:  # type: ignore[override] # depends on the value
        return 4 if self.address.version == 4 else 16

    def __str__(self) -> str:
        return str(self.address)


def _parse_ip(text: str) -> IPv4Address | IPv6Address:
    try:
        address = ip_address(text)
    except ValueError:
        problem = f"ParseAddr({quoted(text)}): {_address_problem(text)}"
        raise CelError(f"IP Address {quoted(text)} parse error during conversion from string: {problem}") from None
    if "%" in text:
        raise CelError(f"IP address {quoted(text)} with zone value is not allowed")
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return address


def ip(value: Any) -> AddressValue:
    """Return the address of a string, or of a CIDR."""
    if isinstance(value, Network):
        return AddressValue(value.address)
    return AddressValue(_parse_ip(require_string(value)))


def _address_problem(text: str) -> str:
    """Return Go's error for an invalid address; IPv6 errors have an own text."""
    if ":" in text:
        return "it is no IPv6 address"
    if "." not in text:
        return "unable to parse IP"
    fields = text.split(".")
    for octet in fields:
        if not octet:
            return "IPv4 field must have at least one digit"
        if invalid := re.search(r"[^0-9]", octet):
            return f"unexpected character (at {quoted(text[text.index(invalid[0]) :])})"
        if len(octet) > 1 and octet[0] == "0":
            return "IPv4 field has octet with leading zero"
        if int(octet) > 255:
            return "IPv4 field has value >255"
    return "IPv4 address too short" if len(fields) < 4 else "IPv4 address too long"


def _parses(parse: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def check(value: Any, *options: Any) -> bool:
        require_string(value)
        try:
            parse(value, *options)
        except CelError:
            return False
        return True

    return check


def _address_part(read: Callable[[IPv4Address | IPv6Address], Any]) -> Callable[[Any], Any]:
    return _method(AddressValue, lambda value: read(value.address))


def _is_canonical(text: Any) -> bool:
    return str(_parse_ip(require_string(text))) == str(text)


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    if address == IPv4Address("255.255.255.255"):
        return False
    return not (address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)


def _is_link_local_multicast(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return str(address).startswith("224.0.0.")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


class Network(_Value):
    """A CIDR; host bits stay as written."""

    __slots__ = ("address", "bits")
    type_name = "net.CIDR"
    identity = attrgetter("address", "bits")
    has_text = True

    def __init__(self, address: IPv4Address | IPv6Address, bits: int) -> None:
        self.address, self.bits = address, bits

    @property
    def size(self) -> int:  # type: ignore[override] # depends on the value
        return math.ceil(self.bits / 8)

    def covers(self, address: IPv4Address | IPv6Address) -> bool:
        return address in ip_interface(f"{self.address}/{self.bits}").network

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


def cidr(text: Any) -> Network:
    address, slash, bits = require_string(text).partition("/")
    prefix = "network address parse error during conversion from string"
    prefix_error = f"{prefix}: {prefix}: netip.ParsePrefix({quoted(text)})"
    if not slash:
        raise CelError(f"{prefix_error}: no '/'")
    try:
        parsed = ip_address(address)
    except ValueError:
        raise CelError(f"{prefix_error}: ParseAddr({quoted(address)}): unable to parse IP") from None
    if "%" in address:
        raise CelError(f"{prefix_error}: IPv6 zones cannot be present in a prefix")
    if not re.fullmatch(r"0|[1-9]\d{0,2}", bits, re.ASCII):
        raise CelError(f"{prefix_error}: bad bits after slash: {quoted(bits)}")
    if int(bits) > (32 if parsed.version == 4 else 128):
        raise CelError(f"{prefix_error}: prefix length out of range")
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        raise CelError(f"{prefix}: IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return Network(parsed, int(bits))


def _parse_or_no_overload(parse: Callable[[Any], Any], value: Any) -> Any:
    """Parse a string argument; an invalid string gives the error of a value of the wrong type."""
    if type(value) is not str:
        return value
    try:
        return parse(value)
    except CelError:
        raise CelError(str(no_overload())) from None


def _contains_ip(network: Any, other: Any) -> bool:
    _require_type(Network, network)
    parsed = _parse_or_no_overload(ip, other)
    _require_type(AddressValue, parsed)
    return bool(network.covers(parsed.address))


def _contains_cidr(network: Any, other: Any) -> bool:
    _require_type(Network, network)
    parsed = _parse_or_no_overload(cidr, other)
    _require_type(Network, parsed)
    return bool(network.covers(parsed.address) and network.bits <= parsed.bits)


def _masked(network: Network) -> Network:
    masked = ip_interface(f"{network.address}/{network.bits}").network
    assert not isinstance(masked, IPv6Network) or masked.prefixlen == network.bits
    return Network(masked.network_address, network.bits)


# --- quantities -------------------------------------------------------------------------------------------------------


class QuantityValue(_Value):
    __slots__ = ("quantity",)
    type_name = "kubernetes.Quantity"
    identity = attrgetter("quantity")

    def __init__(self, quantity: Quantity) -> None:
        self.quantity = quantity

    def integer(self) -> int | None:
        """Return the value as int64, or None if it is fractional or too large."""
        _, unscaled, exponent, _ = self.quantity.parts
        if exponent < 0:
            unscaled, rest = divmod(unscaled, 10**-exponent)
            if rest:
                return None
        else:
            unscaled *= 10 ** min(exponent, 40)
        return unscaled if MIN_INT <= unscaled <= MAX_INT else None

    def __str__(self) -> str:
        return str(self.quantity)


def quantity(text: Any) -> QuantityValue:
    try:
        return QuantityValue(parse_quantity(require_string(text)))
    except QuantityError as error:
        raise CelError(str(error)) from None


def _as_integer(value: QuantityValue) -> int:
    integer = value.integer()
    if integer is None:
        raise CelError("cannot convert value to integer")
    return integer


def _as_float(value: QuantityValue) -> float:
    _, unscaled, exponent, _ = value.quantity.parts
    try:
        return float(unscaled) * math.pow(10, exponent)
    except OverflowError:
        return math.copysign(math.inf, unscaled)


def _other_quantity(one: Any, other: Any) -> Quantity:
    _require_type(QuantityValue, one)
    if type(other) is int:
        return Quantity(other, 0, Format.DECIMAL_EXPONENT)
    _require_type(QuantityValue, other)
    quantity_: Quantity = other.quantity
    return quantity_


def _arithmetic(operation: Callable[[Quantity, Quantity], Quantity]) -> Callable[[Any, Any], QuantityValue]:
    def calculate(one: Any, other: Any) -> QuantityValue:
        operand = _other_quantity(one, other)
        try:
            return QuantityValue(operation(one.quantity, operand))
        except QuantityError as error:  # the exponents are too far apart
            raise CelError(str(error)) from None

    return calculate


# --- versions ---------------------------------------------------------------------------------------------------------


class Semver(_Value):
    """A semantic version major.minor.patch-prerelease; numeric identifiers sort before alphanumeric ones."""

    __slots__ = ("numbers", "prerelease", "text")
    type_name = "kubernetes.Semver"
    identity = attrgetter("rank")

    def __init__(self, numbers: tuple[int, int, int], prerelease: tuple[str, ...], text: str) -> None:
        self.numbers, self.prerelease, self.text = numbers, prerelease, text

    @property
    def rank(self) -> tuple[Any, ...]:
        parts = tuple(
            (0, int(identifier), "") if identifier.isdigit() else (1, 0, identifier) for identifier in self.prerelease
        )
        return self.numbers, not self.prerelease, parts

    def __str__(self) -> str:
        return self.text


_PARTS = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]*))?(?:\+([0-9A-Za-z.-]*))?", re.ASCII)


def semver(text: Any, normalize: Any = False) -> Semver:  # as it is called in expressions
    text = _normalized(require_string(text)) if normalize else require_string(text)
    if not text:
        raise CelError("Version string empty")
    match = _PARTS.fullmatch(text)
    if match is None:
        if text.count(".") < 2:
            raise CelError("No Major.Minor.Patch elements found")
        for name, part in zip(("major", "minor"), text.split(".")[:2], strict=False):
            if not part.isdigit():
                raise CelError(f"Invalid character(s) found in {name} number {quoted(part)}")
        rest = re.split(r"[-+]", text.split(".", 2)[2], maxsplit=1)[0]
        raise CelError(f"Invalid character(s) found in patch number {quoted(rest)}")
    for name, part in zip(("Major", "Minor", "Patch"), match.group(1, 2, 3), strict=True):
        if len(part) > 1 and part[0] == "0":
            raise CelError(f"{name} number must not contain leading zeroes {quoted(part)}")
    prerelease = tuple(match[4].split(".")) if match[4] is not None else ()
    for identifier in prerelease:
        if not identifier:
            raise CelError("Prerelease is empty")
        if identifier.isdigit() and len(identifier) > 1 and identifier[0] == "0":
            raise CelError(f"Numeric PreRelease version must not contain leading zeroes {quoted(identifier)}")
    if match[5] is not None and "" in match[5].split("."):
        raise CelError("Build meta data is empty")
    for identifier in (*match.group(1, 2, 3), *prerelease):
        if identifier.isdigit() and parse_integer(identifier) > MAX_UINT:
            raise CelError(f"strconv.ParseUint: parsing {quoted(identifier)}: value out of range")
    return Semver((int(match[1]), int(match[2]), int(match[3])), prerelease, text)


def _normalized(text: str) -> str:
    """Return the version without a leading v and leading zeros, and with minor and patch."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped and stripped[0].isdigit() else f"0{stripped}"
    if len(parts) < 3 and re.search(r"[+-]", parts[-1]):
        raise CelError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _compared(one: Any, other: Any) -> int:
    """Compare two quantities or two versions: -1, 0 or 1."""
    if type(one) is QuantityValue and type(other) is QuantityValue:
        return one.quantity.compare(other.quantity)
    if type(one) is Semver and type(other) is Semver:
        rank, other_rank = one.rank, other.rank
        return (rank > other_rank) - (rank < other_rank)
    raise no_overload()


# --- formats ----------------------------------------------------------------------------------------------------------


class NamedFormat(_Value):
    """A named format of strings. `regex_size`: length of its pattern in costs."""

    __slots__ = ("check", "name", "regex_size")
    type_name = "kubernetes.NamedFormat"
    identity = attrgetter("name")

    def __init__(self, name: str, check: Callable[[str], tuple[str, ...]], regex_size: int) -> None:
        self.name, self.check, self.regex_size = name, check, regex_size


def _prefix(check: Callable[[str], tuple[str, ...]]) -> Callable[[str], tuple[str, ...]]:
    return lambda text: tuple(name_checks.prefix_of(check, text))


def _format_check(name: str, message: str) -> Callable[[str], tuple[str, ...]]:
    return lambda text: () if has_format(name, text) else (message,)


def _uri(text: str) -> tuple[str, ...]:
    problem = url_problem(text)
    return (problem,) if problem else ()


_FORMATS = {
    "dns1123Label": NamedFormat("DNS1123Label", name_checks.dns_label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", name_checks.dns_subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", name_checks.dns_1035_label, 30),
    "qualifiedName": NamedFormat("QualifiedName", name_checks.qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix(name_checks.dns_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _prefix(name_checks.dns_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix(name_checks.dns_1035_label), 30),
    "labelValue": NamedFormat("LabelValue", name_checks.label_value, 40),
    "uri": NamedFormat("URI", _uri, 1103),
    "uuid": NamedFormat("uuid", _format_check("uuid", "does not match the UUID format"), 83),
    "byte": NamedFormat("byte", _format_check("byte", "invalid base64"), 84),
    "date": NamedFormat("date", _format_check("date", "invalid date"), 140),
    "datetime": NamedFormat("datetime", _format_check("datetime", "invalid datetime"), 140),
}


def _find_format(name: Any) -> Optional:
    form = _FORMATS.get(require_string(name))
    return Optional(form) if form is not None else NONE


def _validate(form: Any, text: Any) -> Optional:
    _require_type(NamedFormat, form)
    errors = list(form.check(require_string(text)))
    return Optional(errors) if errors else NONE


KUBERNETES_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "url": url,
    "isURL": _parses(url),
    "getScheme": _method(Url, lambda value: value.parts.scheme),
    "getHost": _method(Url, _host),
    "getHostname": _method(Url, _host_name),
    "getPort": _method(Url, _port),
    "getEscapedPath": _method(Url, _path),
    "getQuery": _method(Url, lambda value: parse_qs(value.parts.query, keep_blank_values=True)),
    "ip": ip,
    "isIP": _parses(ip),
    "ip.isCanonical": _is_canonical,
    "family": _address_part(lambda address: address.version),
    "isUnspecified": _address_part(lambda address: address.is_unspecified),
    "isLoopback": _address_part(lambda address: address.is_loopback),
    "isLinkLocalMulticast": _address_part(_is_link_local_multicast),
    "isLinkLocalUnicast": _address_part(lambda address: address.is_link_local),
    "isGlobalUnicast": _address_part(_is_global),
    "cidr": cidr,
    "isCIDR": _parses(cidr),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "prefixLength": _method(Network, lambda network: network.bits),
    "masked": _method(Network, _masked),
    "quantity": quantity,
    "isQuantity": _parses(quantity),
    "sign": _method(QuantityValue, lambda value: value.quantity.sign),
    "isGreaterThan": lambda one, other: _compared(one, other) == 1,
    "isLessThan": lambda one, other: _compared(one, other) == -1,
    "compareTo": _compared,
    "asApproximateFloat": _method(QuantityValue, _as_float),
    "asInteger": _method(QuantityValue, _as_integer),
    "isInteger": _method(QuantityValue, lambda value: value.integer() is not None),
    "add": _arithmetic(operator.add),
    "sub": _arithmetic(operator.sub),
    "semver": semver,
    "isSemver": _parses(semver),
    "major": _method(Semver, lambda version: version.numbers[0]),
    "minor": _method(Semver, lambda version: version.numbers[1]),
    "patch": _method(Semver, lambda version: version.numbers[2]),
    "validate": _validate,
    "format.named": _find_format,
    **{f"format.{name}": partial(_FORMATS.__getitem__, name) for name in _FORMATS},
}

# --- declarations -----------------------------------------------------------------------------------------------------

_OVERLOADS = """
string_to_url        url(string) url
is_url_string        isURL(string) bool
url_get_scheme       url.getScheme() string
url_get_host         url.getHost() string
url_get_hostname     url.getHostname() string
url_get_port         url.getPort() string
url_get_escaped_path url.getEscapedPath() string
url_get_query        url.getQuery() map(string, list(string))
string_to_ip         ip(string) ip
ip_family            ip.family() int
ip_is_canonical      ip.isCanonical(string) bool
ip_is_unspecified    ip.isUnspecified() bool
ip_is_loopback       ip.isLoopback() bool
ip_is_link_local_multicast ip.isLinkLocalMulticast() bool
ip_is_link_local_unicast   ip.isLinkLocalUnicast() bool
ip_is_global_unicast       ip.isGlobalUnicast() bool
is_ip                isIP(string) bool
ip_to_string         string(ip) string
string_to_cidr       cidr(string) cidr
is_cidr              isCIDR(string) bool
cidr_contains_ip_string    cidr.containsIP(string) bool
cidr_contains_ip_ip        cidr.containsIP(ip) bool
cidr_contains_cidr_string  cidr.containsCIDR(string) bool
cidr_contains_cidr         cidr.containsCIDR(cidr) bool
cidr_ip              cidr.ip() ip
cidr_prefix_length   cidr.prefixLength() int
cidr_masked          cidr.masked() cidr
cidr_to_string       string(cidr) string
string_to_quantity   quantity(string) quantity
is_quantity_string   isQuantity(string) bool
quantity_sign            sign(quantity) int
quantity_is_greater_than quantity.isGreaterThan(quantity) bool
quantity_is_less_than    quantity.isLessThan(quantity) bool
quantity_compare_to      quantity.compareTo(quantity) int
quantity_get_float       quantity.asApproximateFloat() double
quantity_get_int         quantity.asInteger() int
quantity_is_integer      quantity.isInteger() bool
quantity_add             quantity.add(quantity) quantity
quantity_add_int         quantity.add(int) quantity
quantity_sub             quantity.sub(quantity) quantity
quantity_sub_int         quantity.sub(int) quantity
string_to_semver         semver(string) semver
string_bool_to_semver    semver(string, bool) semver
is_semver_string         isSemver(string) bool
is_semver_string_bool    isSemver(string, bool) bool
semver_is_greater_than   semver.isGreaterThan(semver) bool
semver_is_less_than      semver.isLessThan(semver) bool
semver_compare_to        semver.compareTo(semver) int
semver_major             semver.major() int
semver_minor             semver.minor() int
semver_patch             semver.patch() int
format-validate          format.validate(string) optional(list(string))
format-named             format.named(string) optional(format)
"""
"""Overloads as in cel/declarations.py."""

_FORMAT_OVERLOADS = "\n".join(f"format.{name} format.{name}() format" for name in _FORMATS)
_QUALIFIED_NAMES = ("ip.isCanonical", "format.named", *(f"format.{name}" for name in _FORMATS))

KUBERNETES_LIBRARY = Library(
    parse_overloads(_OVERLOADS + _FORMAT_OVERLOADS, _QUALIFIED_NAMES), functions=KUBERNETES_FUNCTIONS
)
"""Functions that expressions of the API server may call in addition to CEL's own."""
