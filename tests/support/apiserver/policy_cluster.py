"""A development API server with admission policies, for tests."""

from __future__ import annotations

from typing import Any

from kubeloop.devcluster.server.apiserver import ApiServer
from kubeloop.devcluster.storage.data_directory import DataDirectory
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
EVERY_RESOURCE = {
    "resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]
}


class PolicyCluster:
    """A server with admission policies. Requests must succeed unless `expect` is another status."""

    def __init__(self, data_directory: DataDirectory | None = None) -> None:
        self._api = InProcessApi(data_directory=data_directory)

    @property
    def server(self) -> ApiServer:
        return self._api.server

    def request(self, method: str, path: str, body: Any = None, expect: int | None = None) -> Any:
        status, content = self._api(method, path, body)
        assert status in ((200, 201, 202) if expect is None else (expect,)), content
        return content

    def create_policy(
        self, spec: JSON, binding: JSON | None = None, *, kind: str = "validating", name: str = "p"
    ) -> None:
        spec = {"matchConstraints": EVERY_RESOURCE, **spec}
        self.request("POST", f"{ADMISSION}/{kind}admissionpolicies", {"metadata": {"name": name}, "spec": spec})
        self.create_binding(binding, kind=kind, name=name)

    def create_binding(self, binding: JSON | None = None, *, kind: str = "validating", name: str = "p") -> None:
        spec = {"policyName": name, **(binding or {})}
        if kind == "validating":
            spec.setdefault("validationActions", ["Deny"])
        self.request("POST", f"{ADMISSION}/{kind}admissionpolicybindings", {"metadata": {"name": name}, "spec": spec})

    def create_config_map(self, name: str, expect: int = 201, **fields: Any) -> Any:
        return self.request("POST", CONFIG_MAPS, {"metadata": {"name": name}, **fields}, expect)
