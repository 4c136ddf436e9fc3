"""Validation of a webhook's clientConfig and review versions, for conversion and admission webhooks.

Source: apiserver pkg/util/webhook/validation.go of Kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from kubeloop.devcluster.validation.common.error_list import ErrorList
from kubeloop.kube.json_object import JSON
from kubeloop.kube.validation.name_checks import dns_1035_label, dns_subdomain

_MAX_PORT = 65535


def validate_review_versions(errors: ErrorList, versions: Sequence[str], path: str, detail: str = "") -> None:
    """Validate the versions of reviews that a webhook knows. detail: about missing ones."""
    if not versions:
        errors.required(path, detail)
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            errors.invalid(f"{path}[{index}]", version, "duplicate version")
            continue
        for message in dns_1035_label(version):
            errors.invalid(f"{path}[{index}]", version, message)
    if not {"v1", "v1beta1"} & {*versions}:
        errors.invalid(path, versions, "must include at least one of v1, v1beta1")


def validate_webhook_url(errors: ErrorList, text: str, path: str) -> None:
    """Validate the URL of a webhook. Source: apiserver pkg/util/webhook/validation.go."""
    form = "; desired format: https://host[/path]"
    try:
        url = urlsplit(text)
    except ValueError as error:
        errors.required(path, f"url must be a valid URL: {error}{form}")
        return
    user, at, host = url.netloc.rpartition("@")
    if url.scheme != "https":
        errors.invalid(path, url.scheme, f"'https' is the only allowed URL scheme{form}")
    if not host:
        errors.invalid(path, host, f"host must be specified{form}")
    if at:
        errors.invalid(path, user, "user information is not permitted in the URL")
    if url.fragment:
        errors.invalid(path, url.fragment, "fragments are not permitted in the URL")
    if url.query:
        errors.invalid(path, url.query, "query parameters are not permitted in the URL")


def validate_webhook_service(errors: ErrorList, service: JSON, path: str) -> None:
    errors.required_fields(path, service, "name", "namespace")
    port = service.get("port", 443)
    if not 1 <= port <= _MAX_PORT:
        errors.invalid(f"{path}.port", port, f"port is not valid: must be between 1 and {_MAX_PORT}, inclusive")
    service_path = service.get("path") or "/"
    if service_path == "/":
        return
    if service_path == "//":
        errors.invalid(f"{path}.path", service_path, "segment[0] may not be empty")
        return
    if not service_path.startswith("/"):
        errors.invalid(f"{path}.path", service_path, "must start with a '/'")
    for index, step in enumerate(service_path[1:].removesuffix("/").split("/")):
        for message in dns_subdomain(step) if step else ():
            errors.invalid(f"{path}.path", service_path, f"segment[{index}]: {message}")
        if not step:
            errors.invalid(f"{path}.path", service_path, f"segment[{index}] may not be empty")
