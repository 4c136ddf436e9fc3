"""What a test's process and the process of its clusters say to each other: lines of JSON on the latter's stdin and
stdout. Requests are answered in any order, by their `id`; `Ended` comes unasked."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kubeloop.process.kubeconfig_file import kubeconfig_document
from kubeloop.testing.options import ClusterOptions


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Start a cluster. import_path: where its scheduler's plugins are looked for, as sys.path."""

    id: int
    options: ClusterOptions
    import_path: list[str]


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    id: int
    cluster: int


class Keep(msgspec.Struct, frozen=True, tag="keep"):
    """Let this cluster run on when the test's process is gone, until SIGTERM."""

    id: int
    cluster: int


class Address(msgspec.Struct, frozen=True):
    """Where a cluster is. `server` speaks TLS; `plain_server` is the same without, for this machine. `endpoint` answers
    for traces and explanations. directory: private to the cluster, removed with it."""

    cluster: int
    pid: int
    server: str
    plain_server: str
    token: str
    endpoint: str
    directory: str

    @property
    def kubeconfig(self) -> str:
        """Whose context has the namespace `default`."""
        return str(self.kubeconfig_of("default"))

    @property
    def certificate(self) -> Path:
        return Path(self.directory) / "ca.pem"

    def kubeconfig_of(self, namespace: str) -> Path:
        """The path; `write_kubeconfig_of` makes the file."""
        return Path(self.directory) / f"{namespace}.yaml"

    def write_kubeconfig_of(self, namespace: str) -> None:
        path = self.kubeconfig_of(namespace)
        document = kubeconfig_document(
            server=self.server, token=self.token, certificate=self.certificate, namespace=namespace
        )
        partial = path.with_suffix(".partial")
        partial.touch(mode=0o600)
        partial.write_bytes(msgspec.json.encode(document))  # JSON is YAML, and quickly written
        partial.rename(path)


class Done(msgspec.Struct, frozen=True, tag="done"):
    """address: of the cluster that was started."""

    id: int
    address: Address | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """hint: what to try; "" if it is no mistake of the user's."""

    id: int
    problem: str
    hint: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A cluster that should have run on is gone."""

    cluster: int
    problem: str


Request = Start | Stop | Keep
Response = Done | Failed | Ended
