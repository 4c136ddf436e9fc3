"""Differences in exit code, output and errors of the same kubectl commands on two API servers.

    python -m support.comparison.kubectl_comparison --real KUBECONFIG --ours KUBECONFIG [--only TEXT] [--show]

Scenarios are sequences of commands in tests/support/kubectl/*.yaml:

    - about: the scenario's name; its namespace, the default of its commands, is derived from it
      alone: true          do not run concurrently with others, for commands that show the whole cluster
      objects: [OBJECT]    created before the commands through the API, with their status
      files: {NAME: TEXT}  in the working directory of the commands
      run:
      - get pods -o wide                      as in a shell, with quotes; $ns is the namespace
      - kubectl: apply -f -
        stdin: TEXT
        editor: s/a/b/     how `kubectl edit` changes the text: a sed script
        timeout: 3         seconds after which the command is killed: for watches
        after: 1.0         seconds after which the requests of `during` are sent
        during: [{verb: PATCH, path: ..., body: ..., type: merge}]
        lines: [TEXT]      compare only lines that contain one of these
        sorted: true       ignore the order of lines; for managed fields, which are sorted by their seconds

Values that differ between any two runs are masked: UIDs, resource versions, ages, times other than those of 2024,
generated names, allocated addresses and node ports, addresses of the servers, and messages of parsers.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import yaml

from support.apiserver.http_api import HttpApi
from support.objects.yaml_files import read_document

JSON = dict[str, Any]
COMMANDS = Path(__file__).parents[1] / "kubectl"
KILLED = 124
"""The exit code of a command that exceeded its timeout, as of timeout(1)."""
_TIMEOUT_SECONDS = 20.0
_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}


@dataclass(frozen=True)
class Command:
    """One kubectl command. The module's docstring documents the fields."""

    kubectl: str
    stdin: str = ""
    editor: str = ""
    timeout: float = _TIMEOUT_SECONDS
    after: float = 1.0
    during: list[JSON] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    sorted: bool = False


@dataclass(frozen=True)
class Scenario:
    """A sequence of commands in a namespace of their own."""

    about: str
    run: list[Command]
    objects: list[JSON] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    alone: bool = False

    @property
    def namespace(self) -> str:
        return re.sub(r"[^a-z]+", "-", self.about.lower()).strip("-")[:50].strip("-")


@dataclass(frozen=True)
class CommandOutput:
    """Exit code and masked output of a command."""

    exit_code: int
    stdout: list[str]
    stderr: list[str]


@dataclass(frozen=True)
class Difference:
    about: str
    command: str
    real: CommandOutput
    ours: CommandOutput

    def lines(self) -> Iterator[str]:
        yield f"[{self.about}] kubectl {self.command}"
        if self.real.exit_code != self.ours.exit_code:
            yield f"    exit code: real {self.real.exit_code}, ours {self.ours.exit_code}"
        for name in ("stdout", "stderr"):
            real, ours = getattr(self.real, name), getattr(self.ours, name)
            if real != ours or self.command.startswith(_CREATE):
                yield f"    {name}:{real[:1] if real == ours else ''}"
                yield from (f"      {line}" for line in _changes(real, ours))


def _changes(real: list[str], ours: list[str]) -> Iterator[str]:
    """Return a diff: "-" for lines of kube-apiserver only, "+" for lines of ours only."""
    import difflib

    for line in difflib.unified_diff(real, ours, lineterm="", n=1):
        if not line.startswith(("---", "+++")):
            yield line[:400]


def read_scenarios() -> list[Scenario]:
    """Return the scenarios of tests/support/kubectl in order. Raises TypeError for a field that does not exist."""
    scenarios = []
    for path in sorted(COMMANDS.glob("*.yaml")):
        for fields in read_document(path):
            run = [Command(**({"kubectl": line} if type(line) is str else line)) for line in fields.pop("run")]
            scenarios.append(Scenario(run=run, **fields))
    return scenarios


class KubectlServer:
    """One of the two servers and the folder in which its commands run."""

    def __init__(self, folder: Path, kubeconfig: Path, binary: str = "kubectl") -> None:
        self._folder, self._binary = folder, binary
        self._config = yaml.safe_load(kubeconfig.read_text())
        self._kubeconfig = kubeconfig
        cluster, user = self._config["clusters"][0], self._config["users"][0]
        self._url = cluster["cluster"]["server"]
        cluster["name"], user["name"] = "c", "u"
        (folder / "home").mkdir(parents=True)

    def run(self, scenario: Scenario) -> list[tuple[str, CommandOutput]]:
        """Create the scenario's objects and run its commands. Returns the commands with their output."""
        namespace = scenario.namespace
        folder = self._folder / "here" / namespace
        folder.mkdir(parents=True)
        kubeconfig = self._folder / f"{namespace}.kubeconfig"
        context = {"cluster": "c", "user": "u", "namespace": namespace}
        config = {**self._config, "contexts": [{"name": "x", "context": context}], "current-context": "x"}
        kubeconfig.write_text(json.dumps(config))
        for name, text in scenario.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text.replace("$ns", namespace))
        server = HttpApi.from_kubeconfig(self._kubeconfig)
        try:
            server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            outputs = []
            for obj in scenario.objects:
                output = self._create(server, json.loads(json.dumps(obj).replace("$ns", namespace)), namespace)
                outputs.append((f"{_CREATE} {obj['kind']} {obj['metadata']['name']}", output))
            return outputs + [
                (command.kubectl, self._run(command, namespace, folder, kubeconfig)) for command in scenario.run
            ]
        finally:
            server.close()

    def _create(self, server: HttpApi, obj: JSON, namespace: str) -> CommandOutput:
        """Create an object. Returns exit code 1 if the server refuses it."""
        collection = _collection(obj, namespace)
        response = server.request("POST", f"{collection}?fieldManager=setup", obj)
        if "status" in obj and response.status == 201:
            path = f"{collection}/{response.content['metadata']['name']}/status"
            body = {**response.content, "status": obj["status"]}
            response = server.request("PUT", f"{path}?fieldManager=setup", body)
        if response.status < 300:
            return CommandOutput(0, [], [])
        return CommandOutput(1, [], [json.dumps(response.content)])

    def _run(self, command: Command, namespace: str, folder: Path, kubeconfig: Path) -> CommandOutput:
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self._folder / "home"), "KUBECONFIG": str(kubeconfig), "TZ": "UTC",
        }  # fmt: skip
        environment["KUBE_EDITOR"] = f"sed -i -e {shlex.quote(command.editor)}" if command.editor else "true"
        concurrent = Thread(target=self._send_concurrent_requests, args=(command, namespace))
        process = subprocess.Popen(
            [self._binary, *shlex.split(command.kubectl.replace("$ns", namespace))],
            cwd=folder, env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        concurrent.start()
        try:
            stdout, stderr = process.communicate(command.stdin.replace("$ns", namespace), timeout=command.timeout)
            exit_code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # also its child processes, which hold its pipes
            stdout, stderr = process.communicate()
            exit_code = KILLED
        concurrent.join()
        return CommandOutput(exit_code, self._masked(stdout, command), self._masked(stderr, command))

    def _send_concurrent_requests(self, command: Command, namespace: str) -> None:
        """Send the requests of `during`. Runs in its own thread."""
        if not command.during:
            return
        time.sleep(command.after)
        server = HttpApi.from_kubeconfig(self._kubeconfig)
        for request in command.during:
            body = json.loads(json.dumps(request.get("body")).replace("$ns", namespace))
            media_type = _PATCH_TYPES.get(request.get("type", ""), "application/json")
            server.request(request["verb"], request["path"].replace("$ns", namespace), body, media_type)
        server.close()

    def _masked(self, text: str, command: Command) -> list[str]:
        text = text.replace(self._url, "(server)").replace(self._url.partition("://")[2], "(server)")
        text = text.replace(str(self._folder), "(folder)")
        for pattern, replacement in _MASKS:
            text = pattern.sub(replacement, text)
        lines = [re.sub(r"(?<=\S)[ \t]+", " ", line).rstrip() for line in text.rstrip("\n").split("\n")]
        if command.lines:
            lines = [line for line in lines if any(text in line for text in command.lines)]
        return sorted(lines) if command.sorted else lines


_CREATE = "(create)"
_CLUSTER_SCOPED = """
Namespace Node PersistentVolume PriorityClass StorageClass ClusterRole ClusterRoleBinding CSIDriver CSINode
VolumeAttachment VolumeAttributesClass IngressClass RuntimeClass CertificateSigningRequest CustomResourceDefinition
APIService IPAddress ServiceCIDR FlowSchema PriorityLevelConfiguration DeviceClass ResourceSlice
ValidatingWebhookConfiguration MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
""".split()  # noqa: SIM905 - thirty names
_PLURALS = {"Endpoints": "endpoints"}


def _collection(obj: JSON, namespace: str) -> str:
    """Return the path of the object's collection."""
    version, kind = obj["apiVersion"], obj["kind"]
    plural = (
        _PLURALS.get(kind) or re.sub(r"(?<=[^aeiou])y$", "ie", re.sub(r"(s|x|z|ch|sh)$", r"\1e", kind.lower())) + "s"
    )
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if kind in _CLUSTER_SCOPED:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{obj['metadata'].get('namespace', namespace)}/{plural}"


_MASKS = tuple(
    (re.compile(pattern, re.DOTALL | re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"^(\S+ )?[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ .*?\n", ""),  # kubectl's own log
        (r"^goroutine \d+ \[.*", "(stack of a kubectl that crashes)"),
        # kube-apiserver's repair loop may run between the creation of a Service and of its IPAddress
        (r"^Events:\n[^\n]*\n[^\n]*\n(?:[^\n]* ipallocator-repair-controller [^\n]*(?:\n|\Z))+", "Events: <none>\n"),
        # a source of the token volume in builds of OpenShift's fork of Kubernetes; it moves the lines of later texts
        (r"^( *)- configMap:\n *items:\n *- key: service-ca\.crt\n *path: [^\n]*\n *name: openshift-[^\n]*\n", ""),
        (
            r',\n *\{\n *"configMap": \{\n *"items": \[\n *\{\n *"key": "service-ca\.crt",\n[^\n]*\n *\}\n *\],\n'
            r' *"name": "openshift-[^\n]*\n *\}\n *\}',
            "",
        ),
        (r"^ *ConfigMapName: +openshift-[^\n]*\n[^\n]*\n", ""),
        (r"^@@ -\d+,\d+ \+\d+,\d+ @@$", "(lines)"),
        (r"\bkube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "kube-api-access-(random)"),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "(uid)"),
        (r"\b20(?!24)\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d| \+0000( UTC)?)", "(time)"),
        (r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} 20(?!24)\d\d \d\d:\d\d:\d\d [+-]\d{4}", "(time)"),
        (r"(?<![-\w.])(\d+(y|d|h|m|s))+\b(?![-.])", "(age)"),
        (r"(resourceVersion[\\\"]*: ?[\\\"]*|Resource Version:\s+|to be \d+, was )\d+", r"\1(version)"),
        (r"\b10\.(0|96|97|98|99|10\d|11[01])\.\d+\.\d+\b", "(cluster ip)"),
        (r"(?<=:)3[0-2]\d{3}(?=/)|(?<=odePort: )3[0-2]\d{3}|(?<=odePort\": )3[0-2]\d{3}", "(node port)"),
        (
            r"((?:json parse error|error decoding YAML|json: cannot unmarshal|must be of type \w+\): yaml): ?).*?$",
            r"\1(parser)",
        ),
        (r' in scheme "[^"]*"', ""),
        (r"DESCRIPTION:\n.*?(?=\n *(?:FIELDS|FIELD):|\Z)", "(prose)"),
        (r'Invalid value: "\{\\"apiVersion\\".*\}"', "Invalid value: (an object)"),
        (r"\b(?<=[a-z]-)[bcdfghjklmnpqrstvwxz2456789]{5}\b(?=\s|\")", "(generated)"),
        (r"/tmp/(kubectl-edit-)?[\w./-]+", "(temporary)"),
        (r"LIVE-\d+|MERGED-\d+", "(temporary)"),
    )
)


def compare(
    real: KubectlServer, ours: KubectlServer, scenarios: Iterable[Scenario], *, jobs: int = 2
) -> Iterator[tuple[Scenario, list[Difference]]]:
    """Run every scenario on both servers: first those marked `alone`, one by one, then the others, `jobs` at a time."""

    def compare_one(scenario: Scenario) -> tuple[Scenario, list[Difference]]:
        with ThreadPoolExecutor(2) as executor:
            real_outputs, our_outputs = executor.map(lambda server: server.run(scenario), (real, ours))
        return scenario, [
            Difference(scenario.about, command, real_output, our_output)
            for (command, real_output), (_, our_output) in zip(real_outputs, our_outputs, strict=True)
            # objects must be created: otherwise the scenario proves nothing
            if real_output != our_output or (command.startswith(_CREATE) and real_output.exit_code)
        ]

    scenarios = list(scenarios)
    yield from (compare_one(scenario) for scenario in scenarios if scenario.alone)
    with ThreadPoolExecutor(jobs) as executor:
        yield from executor.map(compare_one, (scenario for scenario in scenarios if not scenario.alone))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, required=True, help="kubeconfig of a kube-apiserver")
    parser.add_argument("--ours", type=Path, required=True, help="kubeconfig of kubeloop apiserver --nodes=0")
    parser.add_argument("--only", action="append", default=[], help="run scenarios with this text in their name")
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="print the output of kube-apiserver instead of comparing")
    options = parser.parse_args(arguments)
    scenarios = [
        scenario
        for scenario in read_scenarios()
        if not options.only or any(text in scenario.about for text in options.only)
    ]
    commands = differing = 0
    with TemporaryDirectory() as folder:
        real = KubectlServer(Path(folder) / "one", options.real, options.kubectl)
        ours = KubectlServer(Path(folder) / "two", options.ours, options.kubectl)
        if options.show:
            for scenario in scenarios:
                for command, output in real.run(scenario):
                    print(f"$ kubectl {command}  -> {output.exit_code}", *output.stdout, *output.stderr, sep="\n")
            return 0
        for scenario, differences in compare(real, ours, scenarios, jobs=options.jobs):
            commands, differing = commands + len(scenario.run), differing + len(differences)
            for difference in differences:
                print("\n".join(difference.lines()), flush=True)
    print(f"{len(scenarios)} scenarios, {commands} commands, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
