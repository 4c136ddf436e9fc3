"""Syntax checks of names and values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubeloop.kube.validation import name_checks

ENDS = "must start and end with an alphanumeric character"
LONG_NAME = ".".join(["a" * 63] * 4)
LABEL_MESSAGE = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {ENDS} "
    "(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
NAME_MESSAGE = (
    f"name part must consist of alphanumeric characters, '-', '_' or '.', and {ENDS} (e.g. 'MyName',  or 'my.name',  "
    "or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
KEY_MESSAGE = (
    f"a valid label key {NAME_MESSAGE.removeprefix('name part ')} with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)


@pytest.mark.parametrize(
    ("check", "text", "messages"),
    [
        (name_checks.dns_label, "a-1", ()),
        (name_checks.dns_label, "a.b", ("must not contain dots",)),
        (name_checks.dns_label, "-a", (LABEL_MESSAGE,)),
        (name_checks.dns_label, "a" * 64, ("must be no more than 63 characters",)),
        (name_checks.dns_subdomain, "a.b-c", ()),
        (name_checks.dns_subdomain, LONG_NAME, ("must be no more than 253 characters",)),
        (name_checks.long_name, LONG_NAME, ("must be no more than 253 bytes",)),
        (name_checks.dns_1035_label, "1a", (name_checks.DNS_1035_ERROR,)),
        (name_checks.dns_subdomain_with_underscores, "_tcp.a_b", ()),
        (name_checks.qualified_name, "example.com/My.Name", ()),
        (name_checks.qualified_name, "/a", ("prefix part must be non-empty",)),
        (name_checks.qualified_name, "a/", ("name part must be non-empty", NAME_MESSAGE)),
        (name_checks.qualified_name, f"{LONG_NAME}/b", ("prefix part must be no more than 253 bytes",)),
        (name_checks.qualified_name, "a/b/c", (KEY_MESSAGE,)),
        (name_checks.qualified_name, "A/b", (f"prefix part {name_checks.SUBDOMAIN_ERROR}",)),
        (name_checks.qualified_name, "a" * 64, ("name part must be no more than 63 bytes",)),
        (name_checks.label_value, "", ()),
        (name_checks.label_value, "a.b", ()),
        (name_checks.label_value, "a" * 64, ("must be no more than 63 bytes",)),
        (name_checks.port_name, "http", ()),
        (name_checks.port_name, "80", ("must contain at least one letter (a-z)",)),
        (name_checks.port_name, "a--b", ("must not contain consecutive hyphens",)),
        (name_checks.port_name, "a-", ("must not begin or end with a hyphen",)),
        (name_checks.port_name, "a" * 16, ("must be no more than 15 characters",)),
        (name_checks.config_key, "..a", ("must not start with '..'",)),
        (name_checks.config_key, "..", ("must not be '..'",)),
        (name_checks.environment_name, "a b", ()),
    ],
)  # fmt: skip
def test_messages_of_a_name(check: Callable[[str], tuple[str, ...]], text: str, messages: tuple[str, ...]):
    assert check(text) == messages


@pytest.mark.parametrize("text", ["", "a=b", "a\n", "\u00e4"])
def test_invalid_environment_name(text: str):
    assert name_checks.environment_name(text) == (
        "a valid environment variable name must consist only of printable ASCII characters other than '='",
    )


@pytest.mark.parametrize(("port", "is_valid"), [(0, False), (1, True), (65535, True), (65536, False)])
def test_port_number_range(port: int, is_valid: bool):
    assert name_checks.port_number(port) == (() if is_valid else ("must be between 1 and 65535, inclusive",))


@pytest.mark.parametrize(("prefix", "is_valid"), [("web-", True), ("web", True), ("-", True), ("Web-", False)])
def test_generate_name_may_end_with_a_dash(prefix: str, is_valid: bool):
    assert (name_checks.prefix_of(name_checks.dns_subdomain, prefix) == ()) is is_valid
