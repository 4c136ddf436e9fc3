"""Names that complete arguments: of a process, of a cluster, of a kubeconfig."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from click import Command, Context

from kubeloop.cli.completion.names import contexts, namespaces, nodes, targets
from kubeloop.cli.completion.shells import candidates
from kubeloop.cli.main import commands
from kubeloop.kube.user_error import UserError
from kubeloop.process.endpoint.paths import NAMES_PATH
from kubeloop.process.process_files import ProcessRecord, process_file

PARAMETER = commands.params[0]


class Names:
    """A server that has the same names for each request. requests: path, query and Accept header."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.requests: list[tuple[str, dict[str, str], str]] = []
        test = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(url.query).items()}
                test.requests.append((url.path, query, self.headers["Accept"]))
                items = [{"metadata": {"name": name}} for name in test.names]
                body = json.dumps([*test.names] if url.path == NAMES_PATH else {"items": items}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def server() -> Iterator[Names]:
    names = Names("web-1", "web-2", "db-1")
    thread = threading.Thread(target=names.server.serve_forever, args=(0.01,))
    thread.start()
    yield names
    names.server.shutdown()
    names.server.server_close()
    thread.join()


@pytest.fixture
def kubeconfig(server: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a kubeconfig of the server, and one with a plugin in its context "plugin"; no process runs."""
    path = tmp_path / "config"
    content = {
        "current-context": "dev",
        "contexts": [
            {"name": "dev", "context": {"cluster": "c", "user": "u"}},
            {"name": "plugin", "context": {"cluster": "c", "user": "p"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}, {"name": "p", "user": {"exec": {"command": "false"}}}],
    }
    path.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    return path


def context(**parameters: object) -> Context:
    result = Context(Command("test"))
    result.params = parameters
    return result


def explain(**parameters: object) -> Context:
    return context(**{"endpoint": None, "kubeconfig": None, "kube_context": None} | parameters)


def test_targets_come_from_the_cluster_of_the_kubeconfig(server: Names, kubeconfig: Path):
    assert targets(explain(kubeconfig=kubeconfig), PARAMETER, "deploy/web") == ["deploy/web-1", "deploy/web-2"]
    (path, _, accept) = server.requests[0]
    assert path == "/apis/apps/v1/deployments"
    assert accept.startswith("application/json;as=PartialObjectMetadataList")


def test_namespace_selects_the_targets_of_a_cluster(server: Names, kubeconfig: Path):
    selected = explain(kubeconfig=kubeconfig, namespace="shop", target=("pod",))
    assert targets(selected, PARAMETER, "d") == ["db-1"]
    assert server.requests[0][0] == "/api/v1/namespaces/shop/pods"


def test_targets_come_from_the_running_process(server: Names, kubeconfig: Path):
    with process_file(ProcessRecord(1, server.url, "http://nowhere", (), 1)):
        assert targets(explain(), PARAMETER, "sts/we") == ["sts/web-1", "sts/web-2", "sts/db-1"]  # as the process has
    path, query, _ = server.requests[0]
    assert (path, query) == (NAMES_PATH, {"kind": "statefulset", "prefix": "we"})


def test_chosen_endpoint_takes_precedence_over_processes(server: Names, kubeconfig: Path):
    with process_file(ProcessRecord(1, "http://127.0.0.1:9", "http://nowhere", (), 1)):
        assert targets(explain(endpoint=server.url), PARAMETER, "pod/") == ["pod/web-1", "pod/web-2", "pod/db-1"]
        assert namespaces(explain(kubeconfig=kubeconfig), PARAMETER, "") == ["db-1", "web-1", "web-2"]
    assert [path for path, _, _ in server.requests] == [NAMES_PATH, "/api/v1/namespaces"]


def test_commands_for_clusters_do_not_query_processes(server: Names, kubeconfig: Path):
    record = context(kubeconfig=kubeconfig, kube_context=None)
    with process_file(ProcessRecord(1, "http://127.0.0.1:9", "http://nowhere", (), 1)):
        assert nodes(record, PARAMETER, "w") == ["web-1", "web-2"]
    assert server.requests[0][0] == "/api/v1/nodes"


def test_nodes_are_those_of_the_newest_development_cluster(server: Names, kubeconfig: Path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG")
    with process_file(ProcessRecord(1, "http://127.0.0.1:9", server.url, (str(kubeconfig),), 1)):
        assert nodes(context(kubeconfig=None), PARAMETER, "db") == ["db-1"]


def test_nodes_never_come_from_the_default_kubeconfig(server: Names, kubeconfig: Path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(kubeconfig.parent))
    (kubeconfig.parent / ".kube").mkdir()
    kubeconfig.rename(kubeconfig.parent / ".kube" / "config")
    with pytest.raises(UserError, match="no kubeloop up runs"):
        nodes(context(kubeconfig=None), PARAMETER, "")
    assert server.requests == []


@pytest.mark.parametrize(
    "parameters", [{"source": Path("traces.json")}, {"cluster": (Path("day.kubeloop"),)}, {"kube_context": "plugin"}]
)
def test_files_and_credential_plugins_complete_no_names(parameters: dict, server: Names, kubeconfig: Path):
    assert namespaces(explain(**{"kubeconfig": kubeconfig} | parameters), PARAMETER, "") == []
    assert server.requests == []


def test_response_that_is_no_list_completes_nothing(server: Names, kubeconfig: Path):
    server.names = (None,)  # type: ignore[assignment]
    assert candidates(commands, "bash", f"kubeloop explain --kubeconfig {kubeconfig} pod/") == []
    assert len(server.requests) == 1


def test_kind_that_the_cluster_may_lack_completes_no_names(server: Names, kubeconfig: Path):
    assert targets(explain(kubeconfig=kubeconfig), PARAMETER, "rollouts.argoproj.io/") == []


@pytest.mark.parametrize(("words", "incomplete"), [(("pod/a",), "b"), (("pod", "a"), "b"), (("pod",), "b/c")])
def test_second_target_is_not_completed(words: tuple[str, ...], incomplete: str, kubeconfig: Path):
    assert targets(explain(target=words), PARAMETER, incomplete) == []


def test_contexts_come_from_the_kubeconfig_option(kubeconfig: Path):
    assert contexts(explain(kubeconfig=kubeconfig), PARAMETER, "") == ["dev", "plugin"]
    assert contexts(explain(kubeconfig=kubeconfig), PARAMETER, "pl") == ["plugin"]
    assert contexts(explain(), PARAMETER, "") == []
