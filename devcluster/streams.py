"""log, exec, attach and portforward of pods, as far as an API server answers them by itself.

Simulated nodes run no containers: a pod on a node has an empty log, and nothing that one could attach to.
Source: pkg/registry/core/pod (strategy.go, rest), ValidatePodLogOptions of v1.36.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from kubeloop.devcluster import errors
from kubeloop.devcluster.request import Request, Response, text_response
from kubeloop.devcluster.validation.field import Errors, quoted

JSON = dict[str, Any]
_NUMBER = re.compile(r"[+-]?[0-9]+")
_MOST = 2**63


def check_log_options(request: Request, name: str) -> None:
    """Raises StatusError 400 for options that cannot be read, 422 for those that make no sense."""
    given = {each: _number(request, each) for each in ("sinceSeconds", "tailLines", "limitBytes")}
    since = request.option("sinceTime")
    if since:
        _check_time(since)
    wrong = Errors()
    seconds, lines, most = given["sinceSeconds"], given["tailLines"], given["limitBytes"]
    if lines is not None and lines < 0:
        wrong.invalid("tailLines", lines, "must be greater than or equal to 0")
    if most is not None and most < 1:
        wrong.invalid("limitBytes", most, "must be greater than 0")
    if seconds is not None and since:
        wrong.forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif seconds is not None and seconds < 1:
        wrong.invalid("sinceSeconds", seconds, "must be greater than 0")
    if "stream" in request.query:  # a feature that is off
        wrong.forbidden("stream", "may not be specified")
    if wrong:
        causes = [{**each, "field": each["field"] or "[]"} for each in wrong]
        raise errors.invalid("", "PodLogOptions", name, causes)


def _number(request: Request, name: str) -> int | None:
    text = request.option(name)
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise errors.bad_request(f"strconv.ParseInt: parsing {quoted(text)}: invalid syntax")
    if not -_MOST <= int(text) < _MOST:
        raise errors.bad_request(f"strconv.ParseInt: parsing {quoted(text)}: value out of range")
    return int(text)


def _check_time(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        told = f'parsing time {quoted(text)} as "2006-01-02T15:04:05Z07:00": cannot parse {quoted(text)} as "2006"'
        raise errors.bad_request(told) from error


def check_ports(request: Request) -> None:
    """Raises StatusError 400 for ports that are no numbers."""
    for text in request.query.get("ports", ()):
        for each in text.split(","):
            if each and not (each.isascii() and each.isdigit()):
                told = f"strconv.ParseUint: parsing {quoted(each)}: invalid syntax"
                raise errors.bad_request(f"cannot convert to []int32: {told}")


def log_of(pod: JSON, container: str) -> Response:
    """Raises StatusError 400 for a container that is not there."""
    _check_container(pod, container)
    if not pod["spec"].get("nodeName"):
        return Response(204, b"", "")  # nobody to ask, and nothing to tell
    return text_response(200, "")


def refuse_stream(pod: JSON, subresource: str, container: str) -> Response:
    """Raises StatusError 400, always."""
    name = pod["metadata"]["name"]
    if subresource != "portforward":
        _check_container(pod, container)
    if not pod["spec"].get("nodeName"):
        raise errors.bad_request(f"pod {name} does not have a host assigned")
    raise errors.bad_request(f"simulated nodes run no containers: there is no {subresource}")


def _check_container(pod: JSON, container: str) -> None:
    spec, name = pod["spec"], pod["metadata"]["name"]
    usual, first, later = (
        [each["name"] for each in spec.get(kind) or ()]
        for kind in ("containers", "initContainers", "ephemeralContainers")
    )
    if not container and len(usual) == 1:
        return
    if not container:
        choice = f", choose one of: [{' '.join([*first, *usual, *later])}]" if usual else ""
        raise errors.bad_request(f"a container name must be specified for pod {name}{choice}")
    if container not in (*usual, *first, *later):
        raise errors.bad_request(f"container {container} is not valid for pod {name}")
