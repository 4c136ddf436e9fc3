"""Messages between a test process and its `host` process: lines of JSON on the latter's stdin and stdout.

Responses come in any order and carry the request's `id`; `Ended` is unsolicited.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from kubeloop.process.development_cluster.kubeconfig_file import kubeconfig_document
from kubeloop.testing.cluster_options import ClusterOptions


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Start a cluster. import_path: sys.path entries to import scheduler plugins from."""

    id: int
    options: ClusterOptions
    import_path: list[str]


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    id: int
    cluster: int


class Keep(msgspec.Struct, frozen=True, tag="keep"):
    """Let this cluster run on after the test process has ended, until SIGTERM."""

    id: int
    cluster: int


class ClusterAddress(msgspec.Struct, frozen=True):
    """Address of a cluster. `server` uses TLS; `plain_server` is the same server without TLS, for this machine.
    `endpoint` serves traces and explanations. directory: private to the cluster, removed with it."""

    cluster: int
    pid: int
    server: str
    plain_server: str
    token: str
    endpoint: str
    directory: str

    @property
    def kubeconfig(self) -> str:
        """Path of the kubeconfig whose context has the namespace `default`."""
        return str(self.kubeconfig_of("default"))

    @property
    def certificate(self) -> Path:
        return Path(self.directory) / "ca.pem"

    def kubeconfig_of(self, namespace: str) -> Path:
        """Return the path of a namespace's kubeconfig, which `write_kubeconfig_of` creates."""
        return Path(self.directory) / f"{namespace}.yaml"

    def write_kubeconfig_of(self, namespace: str) -> None:
        path = self.kubeconfig_of(namespace)
        document = kubeconfig_document(
            server=self.server, token=self.token, certificate=self.certificate, namespace=namespace
        )
        partial = path.with_suffix(".partial")
        partial.touch(mode=0o600)
        partial.write_bytes(msgspec.json.encode(document))  # JSON is valid YAML, and faster to write
        partial.rename(path)


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Success. address: of the started cluster."""

    id: int
    address: ClusterAddress | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Failure. hint: suggested fix; "" if the input is not at fault."""

    id: int
    problem: str
    hint: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A cluster ended unexpectedly."""

    cluster: int
    problem: str


Request = Start | Stop | Keep
Response = Done | Failed | Ended
