"""API versions and resources that --runtime-config switches off.

Source: apiserver pkg/server/resourceconfig/helpers.go of v1.36.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from kubeloop.devcluster.api.served_resources import BY_PATH, VERSIONS
from kubeloop.kube.user_error import UserError

log = logging.getLogger(__name__)

_TRUE = frozenset({"", "1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_STAGES = {"api/ga": r"v\d+", "api/beta": r"v\d+beta\d+", "api/alpha": r"v\d+alpha\d+", "api/all": r".*"}
"""Patterns of the versions of a stage; later ones are overridden by earlier ones."""


def disabled_apis(settings: Mapping[str, str]) -> frozenset[str]:
    """Return the APIs that are off, as "-GROUP/VERSION" and "-GROUP/VERSION/RESOURCE".

    settings: booleans by API, such as "apps/v1": "false"; "v1" is the core group's. A resource or version overrides the
    stages api/ga, api/beta and api/alpha, and these api/all. Raises UserError for an API that is not served.
    """
    values = {api: _boolean(api, text) for api, text in settings.items()}
    versions = {f"{group}/{version}" for group, versions in VERSIONS.items() for version in versions}
    disabled = set()
    for name in versions:
        stages = (values.get(stage) for stage, pattern in _STAGES.items() if _is_of_stage(name, pattern))
        own = values.get(name.removeprefix("/"), values.get(f"api{name}" if name.startswith("/") else name))
        if next((value for value in (own, *stages) if value is not None), True) is False:
            disabled.add(f"-{name}")
    for api, value in values.items():
        if api in _STAGES:
            if value and api != "api/ga":
                log.warning("--runtime-config=%s: the versions that kubeloop serves are on anyway, and no others", api)
        elif not _is_known(api, versions):
            if value:
                problem = f"--runtime-config: kubeloop does not serve {api}"
                raise UserError(
                    problem, hint=f"it serves {', '.join(sorted(name.removeprefix('/') for name in versions))}"
                )
        elif api.count("/") == 2 and not value:
            disabled.add(f"-{api}")
    return frozenset(disabled)


def _boolean(api: str, text: str) -> bool:
    if text not in _TRUE | _FALSE:
        problem = f"--runtime-config: invalid value {api}={text}"
        raise UserError(problem, hint=f"use {api}=true or {api}=false")
    return text in _TRUE


def _is_of_stage(version: str, pattern: str) -> bool:
    return re.fullmatch(pattern, version.rpartition("/")[2]) is not None


def _is_known(api: str, versions: set[str]) -> bool:
    """Raise UserError for an unknown group; return False for a version or resource that is not served."""
    group, _, rest = api.rpartition("/") if api.count("/") < 2 else api.partition("/")
    if api in ("v1", "api/v1"):
        return True
    if group not in VERSIONS:
        raise UserError(
            f"--runtime-config: unknown api groups {group or api}",
            hint=f"there are {', '.join(filter(None, VERSIONS))}",
        )
    version, _, resource = rest.partition("/")
    return (group, version, resource) in BY_PATH if resource else api in versions
