"""Syntax checks of names and values: DNS labels and subdomains, qualified names, label values, port names.

Each check returns its error messages, () if the text is valid. Source: apimachinery pkg/util/validation/validation.go
and pkg/api/validate/content.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any


def regex_error(message: str, pattern: str, *examples: str) -> str:
    """Return the message of validation.RegexError."""
    example_list = " or ".join(f"'{example}', " for example in examples) if examples else ""
    return f"{message} (e.g. {example_list}regex used for validation is '{pattern}')"


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_dns_label = re.compile(_LABEL).fullmatch
_dns_subdomain = re.compile(_SUBDOMAIN).fullmatch
_dns_1035 = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?").fullmatch
_name = re.compile(_NAME).fullmatch
_label_value = re.compile(f"({_NAME})?").fullmatch
_path_label = re.compile(r"[-._a-zA-Z0-9]+").fullmatch

_ENDS = "and must start and end with an alphanumeric character"
LABEL_ERROR = regex_error(
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}",
    _LABEL,
    "my-name",
    "123-abc",
)
SUBDOMAIN_ERROR = regex_error(
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}",
    _SUBDOMAIN,
    "example.com",
)
DNS_1035_ERROR = regex_error(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    "my-name",
    "abc-123",
)
_NAME_WORDS = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
_NAME_ERROR = regex_error(_NAME_WORDS, _NAME, "MyName", "my.name", "123-abc")
_KEY_ERROR = (
    f"a valid label key {_NAME_ERROR} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_VALUE_ERROR = regex_error(
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS}",
    f"({_NAME})?",
    "MyValue",
    "my_value",
    "12345",
)


@lru_cache(maxsize=8192)
def dns_label(text: str) -> tuple[str, ...]:
    errors = ("must be no more than 63 characters",) if len(text.encode()) > 63 else ()
    if _dns_label(text):
        return errors
    return (*errors, "must not contain dots" if _dns_subdomain(text) else LABEL_ERROR)


@lru_cache(maxsize=8192)
def dns_subdomain(text: str) -> tuple[str, ...]:
    errors = ("must be no more than 253 characters",) if len(text) > 253 else ()
    return errors if _dns_subdomain(text) else (*errors, SUBDOMAIN_ERROR)


def long_name(text: str) -> tuple[str, ...]:
    """Check a DNS subdomain with the message of declarative validation. Source: apimachinery api/validate."""
    return tuple(error.replace("253 characters", "253 bytes") for error in dns_subdomain(text))


_UNDERSCORED_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORED = rf"{_UNDERSCORED_LABEL}(\.{_UNDERSCORED_LABEL})*"
_UNDERSCORED_ERROR = regex_error(
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', {_ENDS}",
    _UNDERSCORED,
    "example.com",
)


def dns_subdomain_with_underscores(text: str) -> tuple[str, ...]:
    """Check a resolver's search path."""
    errors = ("must be no more than 253 characters",) if len(text.encode()) > 253 else ()
    return errors if re.fullmatch(_UNDERSCORED, text) else (*errors, _UNDERSCORED_ERROR)


@lru_cache(maxsize=1024)
def dns_1035_label(text: str) -> tuple[str, ...]:
    errors = ("must be no more than 63 characters",) if len(text) > 63 else ()
    return errors if _dns_1035(text) else (*errors, DNS_1035_ERROR)


@lru_cache(maxsize=8192)
def qualified_name(text: str) -> tuple[str, ...]:
    """Check a label key, a resource name, a condition type and similar names."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return (_KEY_ERROR,)
    errors: list[str] = []
    if slash:
        if not prefix:
            errors.append("prefix part must be non-empty")
        errors += [f"prefix part {error}" for error in (long_name(prefix) if prefix else ())]
    if not name:
        errors.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        errors.append("name part must be no more than 63 bytes")
    if not _name(name):
        errors.append(f"name part {_NAME_ERROR}")
    return tuple(errors)


@lru_cache(maxsize=8192)
def label_value(text: str) -> tuple[str, ...]:
    errors = ("must be no more than 63 bytes",) if len(text.encode()) > 63 else ()
    return errors if _label_value(text) else (*errors, _VALUE_ERROR)


def prefix_of(check: Any, text: str) -> tuple[str, ...]:
    """Check a generateName: a trailing dash is allowed, because a suffix follows."""
    return check(text[:-1] + "a" if text.endswith("-") else text)  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def port_name(text: str) -> tuple[str, ...]:
    errors = []
    if len(text) > 15:
        errors.append("must be no more than 15 characters")
    if not re.fullmatch("[-a-z0-9]+", text):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        errors.append("must contain at least one letter (a-z)")
    if "--" in text:
        errors.append("must not contain consecutive hyphens")
    if text and (text[0] == "-" or text[-1] == "-"):
        errors.append("must not begin or end with a hyphen")
    return tuple(errors)


def port_number(value: int) -> tuple[str, ...]:
    return () if 1 <= value <= 65535 else ("must be between 1 and 65535, inclusive",)


@lru_cache(maxsize=1024)
def config_key(text: str) -> tuple[str, ...]:
    """Check a key of a ConfigMap or Secret."""
    errors = []
    if len(text) > 253:
        errors.append("must be no more than 253 characters")
    if not _path_label(text):
        message = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        errors.append(regex_error(message, "[-._a-zA-Z0-9]+", "key.name", "KEY_NAME", "key-name"))
    if text == ".":
        errors.append("must not be '.'")
    elif text == "..":
        errors.append("must not be '..'")
    elif text.startswith(".."):
        errors.append("must not start with '..'")
    return tuple(errors)


@lru_cache(maxsize=1024)
def environment_name(text: str) -> tuple[str, ...]:
    good = text and all(" " <= char <= "~" and char != "=" for char in text)
    return (
        ()
        if good
        else ("a valid environment variable name must consist only of printable ASCII characters other than '='",)
    )
