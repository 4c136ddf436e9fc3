"""Field errors in Kubernetes' words, and the checks of single values that all kinds share.

An `Errors` collects causes of a metav1.Status, {"reason", "message", "field"}, in the order in which kube-apiserver
finds them. Paths are text: "spec.containers[0].name". Source: apimachinery util/validation and validation/field.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from difflib import unified_diff
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import msgspec

from kubeloop.devcluster.api.errors import quoted
from kubeloop.devcluster.api.name_checks import label_value, port_name, port_number, qualified_name, regex_error
from kubeloop.devcluster.validation.internal_types import HOST_FIELDS, ORDER, PLAIN
from kubeloop.kube import schema
from kubeloop.kube.json_object import JSON


def go_json(value: Any, type_name: str = "") -> str:
    """A value as Go's json.Marshal writes it inside kube-apiserver.

    Types of meta/v1 have JSON tags. All others are there in their internal version, which has none: fields carry their
    Go names and appear even if they are empty.
    """
    if type_name.startswith("meta/v1."):
        return _escaped(msgspec.json.encode(_tagged(value, type_name)))
    return _escaped(msgspec.json.encode(internal(value, type_name)))


def _escaped(text: bytes) -> str:
    """Go's encoder writes what HTML gives a meaning in hexadecimal."""
    return text.decode().replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _element(ref: schema.TypeRef) -> schema.TypeRef:
    return ref.element if ref.kind in ("list", "map") and ref.element is not None else ref


def _tagged(value: Any, type_name: str) -> Any:
    if type(value) is list:
        return [_tagged(each, type_name) for each in value]
    if type(value) is not dict:
        return value
    struct = schema.type_named(type_name) if type_name else None
    if struct is None:
        return {key: _tagged(value[key], "") for key in sorted(value)}
    return {
        name: _tagged(value[name], _element(each.type).named if each.type.kind != "map" else "")
        for name, each in struct.json.items()
        if name in value and not (each.omit_empty and value[name] in ([], {}))
    }


def internal(value: Any, type_name: str) -> Any:
    """A value of a type by its name, or of a list of them, as the internal version of its Go struct."""
    if type(value) is list:
        return [internal(each, type_name) for each in value]
    if type(value) is not dict:
        return value
    struct = schema.type_named(type_name) if type_name else None
    if struct is None:
        return {key: internal(value[key], "") for key in sorted(value)}
    result: JSON = {}
    for each in struct.json.values():
        if each.go_name == "ObjectMeta":  # embedded, and has tags of its own
            result |= _tagged(value.get(each.name, {}), each.type.named)
        else:
            result[each.go_name] = _internal_field(value.get(each.name), each.type)
            if result[each.go_name] is None and (type_name, each.go_name) in PLAIN:
                result[each.go_name] = 0
    order = ORDER.get(type_name)
    if order is None:
        return result
    if type_name == "core/v1.PodSpec" and result["SecurityContext"] is not None:
        result["SecurityContext"] |= {name: result[name] for name in HOST_FIELDS}
    return {name: result.get(name, False if name in _HOST_SWITCHES else None) for name in order}


_HOST_SWITCHES = HOST_FIELDS[:3]  # the others are pointers


def struct_differences(old: Any, new: Any, type_name: str) -> str:
    """How a Go struct has changed, as Kubernetes appends it to some messages."""
    return json_differences(internal(old, type_name), internal(new, type_name))


def json_differences(old: Any, new: Any) -> str:
    """A unified diff without the names of files, as apimachinery's diff.Diff writes it."""
    before, after = (
        f"{_escaped(msgspec.json.format(msgspec.json.encode(each), indent=1))}\n".splitlines(keepends=True)
        for each in (old, new)
    )
    return "".join(list(unified_diff(before, after))[2:])


_ZERO: dict[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float64": 0,
    "quantity": "0",
    "intOrString": 0,
    "duration": "0s",
}


def _internal_field(value: Any, ref: schema.TypeRef) -> Any:
    if value is None and (ref.pointer or ref.kind != "struct"):
        return None if ref.pointer else _ZERO.get(ref.kind)
    if ref.kind == "struct":
        return _tagged(value, ref.named) if ref.named.startswith("meta/v1.") else internal(value or {}, ref.named)
    if ref.kind == "list" and ref.element is not None:
        return [_internal_field(each, ref.element) for each in value]
    if ref.kind == "map" and ref.element is not None:
        return {key: _internal_field(value[key], ref.element) for key in sorted(value)}
    return value


def shown(value: Any, type_name: str = "") -> str:
    """A bad value inside a message."""
    if type(value) is str:
        return quoted(value)
    if type(value) is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    if type(value) in (int, float):
        return str(value)
    return go_json(value, type_name)


class Errors(list[JSON]):
    """Field errors as they are found."""

    __slots__ = ()

    def _add(self, reason: str, path: str, message: str) -> None:
        self.append({"reason": f"FieldValue{reason}", "message": message, "field": path})

    def required(self, path: str, detail: str = "") -> None:
        self._add("Required", path, f"Required value: {detail}" if detail else "Required value")

    def invalid(self, path: str, value: Any, detail: str, type_name: str = "") -> None:
        told = f"Invalid value: {shown(value, type_name)}"
        self._add("Invalid", path, f"{told}: {detail}" if detail else told)

    def invalid_without_value(self, path: str, detail: str) -> None:
        self._add("Invalid", path, f"Invalid value: {detail}")

    def invalid_each(self, path: str, value: Any, details: Iterable[str]) -> None:
        for detail in details:
            self.invalid(path, value, detail)

    def duplicate(self, path: str, value: Any, detail: str = "", type_name: str = "") -> None:
        self._add("Duplicate", path, f"Duplicate value: {shown(value, type_name)}{': ' + detail if detail else ''}")

    def not_found(self, path: str, value: Any, detail: str = "") -> None:
        self._add("NotFound", path, f"Not found: {shown(value)}{': ' + detail if detail else ''}")

    def not_supported(self, path: str, value: Any, supported: Iterable[str], type_name: str = "") -> None:
        told = ", ".join(quoted(each) for each in supported)
        self._add("NotSupported", path, f"Unsupported value: {shown(value, type_name)}: supported values: {told}")

    def forbidden(self, path: str, detail: str) -> None:
        self._add("Forbidden", path, f"Forbidden: {detail}")

    def internal(self, path: str, detail: str) -> None:
        self.append({"reason": "InternalError", "message": f"Internal error: {detail}", "field": path})

    def too_long(self, path: str, limit: int) -> None:
        self._add("TooLong", path, f"Too long: may not be more than {limit} {'byte' if limit == 1 else 'bytes'}")

    def too_many(self, path: str, actual: int, limit: int) -> None:
        items = "item" if limit == 1 else "items"
        self._add("TooMany", path, f"Too many: {actual}: must have at most {limit} {items}")

    def not_negative(self, path: str, value: int | float | None) -> None:
        if value is not None and value < 0:
            self.invalid(path, value, NOT_NEGATIVE)

    def immutable(self, path: str, new: Any, old: Any, type_name: str = "") -> None:
        if new != old:
            self.invalid(path, new, IMMUTABLE, type_name)


NOT_NEGATIVE = "must be greater than or equal to 0"
PROTOCOLS = ("SCTP", "TCP", "UDP")
NOT_POSITIVE = "must be greater than zero"
IMMUTABLE = "field is immutable"


def port_number_or_name(errors: Errors, path: str, value: int | str) -> None:
    errors.invalid_each(path, value, port_name(value) if type(value) is str else port_number(int(value)))


_PERCENT_ERROR = regex_error(
    "a valid percent string must be a numeric string followed by an ending '%'", "[0-9]+%", "1%", "93%"
)


def positive_int_or_percent(errors: Errors, path: str, value: int | str | None) -> None:
    if type(value) is str:
        if not re.fullmatch("[0-9]+%", value):
            errors.invalid(path, value, _PERCENT_ERROR)
    elif value is not None:
        errors.not_negative(path, int(value))


def not_more_than_100_percent(errors: Errors, path: str, value: int | str | None) -> None:
    if type(value) is str and re.fullmatch("[0-9]+%", value) and int(value[:-1]) > 100:
        errors.invalid(path, value, "must not be greater than 100%")


def local_path(errors: Errors, path: str, value: str) -> None:
    """A relative path that does not climb."""
    if value.startswith("/"):
        errors.invalid(path, value, "must be a relative path")
    if ".." in value.split("/"):
        errors.invalid(path, value, "must not contain '..'")


def local_path_not_reserved(errors: Errors, path: str, value: str) -> None:
    """As local_path, and does not begin with two dots: such names are the kubelet's."""
    local_path(errors, path, value)
    if value.startswith("..") and not value.startswith("../"):
        errors.invalid(path, value, "must not start with '..'")


_HEADER_ERROR = regex_error(
    "a valid HTTP header must consist of alphanumeric characters or '-'", "[-A-Za-z0-9]+", "X-Header-Name"
)


def header_name(text: str) -> tuple[str, ...]:
    return () if re.fullmatch("[-A-Za-z0-9]+", text) else (_HEADER_ERROR,)


def sloppy_ip(text: str) -> IPv4Address | IPv6Address | None:
    """What older versions of Kubernetes make of an address: zeros may lead its numbers. None: it is none."""
    if "%" in text or not text.isascii():  # Go knows no zones here
        return None
    head, colon, tail = text.rpartition(":")
    numbers = ".".join(each.lstrip("0") or each[-1:] for each in tail.split(".")) if "." in tail else tail
    try:
        return ip_address(f"{head}{colon}{numbers}")
    except ValueError:
        return None


def _is_strict_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def ip(errors: Errors, path: str, text: str, known: Collection[str] = ()) -> None:
    """An address, of those that may be written in more than one way. known: these were there before."""
    if text in known:
        return
    address = sloppy_ip(text)
    if address is None:
        errors.invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
    elif not _is_strict_ip(text):
        errors.invalid(path, text, "must not have leading 0s")
    elif isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        errors.invalid(path, text, "must not be an IPv4-mapped IPv6 address")


def ip_warning(path: str, text: str) -> str:
    """How a valid address should rather have been written; empty if it is well as it is."""
    address = sloppy_ip(text)
    if address is None:
        return ""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if mapped is not None or not _is_strict_ip(text):
        return f"{path}: non-standard IP address {quoted(text)} is invalid: use {quoted(str(mapped or address))}"
    if isinstance(address, IPv6Address) and str(address) != text:
        told = f"should be in RFC 5952 canonical format ({quoted(str(address))})"
        return f"{path}: IPv6 address {quoted(text)} {told}"
    return ""


def sloppy_network(text: str) -> IPv4Network | IPv6Network | None:
    """What older versions of Kubernetes make of a range: an address in it will do. None: it is none."""
    address, slash, length = text.partition("/")
    plain = sloppy_ip(address)
    if plain is None or not slash or not length.isascii() or not length.isdigit():
        return None
    try:
        return ip_network(f"{plain}/{int(length)}", strict=False)
    except ValueError:
        return None


def cidr_warning(path: str, text: str) -> str:
    """How a valid range should rather have been written; empty if it is well as it is."""
    network = sloppy_network(text)
    if network is None:
        return ""
    address, _, length = text.partition("/")
    plain = sloppy_ip(address)
    mapped = plain.ipv4_mapped if isinstance(plain, IPv6Address) else None
    if mapped is not None or not _is_strict_ip(address) or str(int(length)) != length:
        return f"{path}: non-standard CIDR value {quoted(text)} is invalid: use {quoted(str(network))}"
    if network.network_address != plain:
        told = f"CIDR value {quoted(text)} is ambiguous in this context (should be {quoted(str(network))}"
        return f"{path}: {told} or {quoted(f'{plain}/{network.max_prefixlen}')}?)"
    if isinstance(plain, IPv6Address) and str(network) != text:
        return f"{path}: IPv6 CIDR value {quoted(text)} should be in RFC 5952 canonical format ({quoted(str(network))})"
    return ""


def cidr(errors: Errors, path: str, text: str, known: Collection[str] = ()) -> IPv4Network | IPv6Network | None:
    """The range, of those that may be written in more than one way; None if it is wrong. known: these were there
    before, and are not looked at."""
    if text in known:
        return None
    network = sloppy_network(text)
    if network is None:
        errors.invalid(path, text, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
        return None
    address, _, length = text.partition("/")
    plain = sloppy_ip(address)
    if not _is_strict_ip(address) or str(int(length)) != length:
        errors.invalid(path, text, "must not have leading 0s in IP or prefix length")
    elif isinstance(plain, IPv6Address) and plain.ipv4_mapped is not None:
        errors.invalid(path, text, "must not have an IPv4-mapped IPv6 address")
    elif network.network_address != plain:
        errors.invalid(path, text, "must not have bits set beyond the prefix length")
    else:
        return network
    return None


def labels(errors: Errors, path: str, values: Mapping[str, str] | None) -> None:
    for key, value in sorted(values.items()) if values else ():
        errors.invalid_each(path, key, qualified_name(key))
        errors.invalid_each(path, value, label_value(value))


def label_name(errors: Errors, path: str, key: str) -> None:
    errors.invalid_each(path, key, qualified_name(key))


def label_selector(errors: Errors, path: str, selector: JSON | None) -> None:
    """A LabelSelector, as far as its parts are wrong by themselves."""
    if not selector:
        return
    labels(errors, f"{path}.matchLabels", selector.get("matchLabels"))
    for i, requirement in enumerate(selector.get("matchExpressions", ())):
        where, operator = f"{path}.matchExpressions[{i}]", requirement.get("operator", "")
        values = requirement.get("values", ())
        if operator in ("In", "NotIn"):
            if not values:
                errors.required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                errors.forbidden(
                    f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                )
        else:
            errors.invalid(f"{where}.operator", operator, "not a valid selector operator")
        label_name(errors, f"{where}.key", requirement.get("key", ""))
        for j, value in enumerate(values):
            errors.invalid_each(f"{where}.values[{j}]", value, label_value(value))


def is_valid_selector(selector: JSON | None) -> bool:
    """Whether LabelSelectorAsSelector takes it."""
    wrong = Errors()
    label_selector(wrong, "", selector)
    return not wrong


def selector_matches(selector: JSON | None, values: Mapping[str, str]) -> bool:
    """Whether a valid selector selects these labels; an absent one selects nothing."""
    if selector is None:
        return False
    if any(values.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for requirement in selector.get("matchExpressions", ()):
        key, operator, wanted = requirement["key"], requirement["operator"], requirement.get("values", ())
        if operator == "In" and values.get(key) not in wanted:
            return False
        if operator == "NotIn" and key in values and values[key] in wanted:
            return False
        if operator == "Exists" and key not in values:
            return False
        if operator == "DoesNotExist" and key in values:
            return False
    return True
