"""The same kubectl commands against two API servers, and where their exit codes, output or errors differ.

    python -m support.kubectl_comparison --real KUBECONFIG --ours KUBECONFIG [--only TEXT] [--show]

Stories of commands stand in tests/support/kubectl/*.yaml:

    - about: what a reader calls it; its namespace, the commands' default, is named after it
      alone: true          not side by side with others: it looks at the whole cluster
      given: [OBJECT]      created beforehand through the API, with their status
      files: {NAME: TEXT}  in the folder that the commands run in
      run:
      - get pods -o wide                      as typed in a shell, quotes included; $ns is the namespace
      - kubectl: apply -f -
        stdin: TEXT
        editor: s/a/b/     what `kubectl edit` does to the text: a sed script
        timeout: 3         seconds after which it is killed: for watches
        after: 1.0         seconds after which the requests of `during` are sent
        during: [{verb: PATCH, path: ..., body: ..., type: merge}]
        lines: [TEXT]      compare the lines with one of these only
        sorted: true       lines in any order; for managed fields, which are in the order of their seconds

What differs between any two runs is masked: uids, resource versions, ages, times other than those of 2024, generated
names, addresses and node ports that a server chose, the servers' own addresses, and what a parser says in its language.
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

from support.differential import ApiServer

JSON = dict[str, Any]
COMMANDS = Path(__file__).parent / "kubectl"
KILLED = 124
"""The exit code of a command that its timeout ended, as of timeout(1)."""
_LONGEST_SECONDS = 20.0
_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}


@dataclass(frozen=True)
class Command:
    """One kubectl, and what happens around it; the fields are those of the module's docstring."""

    kubectl: str
    stdin: str = ""
    editor: str = ""
    timeout: float = _LONGEST_SECONDS
    after: float = 1.0
    during: list[JSON] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    sorted: bool = False


@dataclass(frozen=True)
class Scenario:
    """Commands that follow one another in a namespace of their own."""

    about: str
    run: list[Command]
    given: list[JSON] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    alone: bool = False

    @property
    def namespace(self) -> str:
        return re.sub(r"[^a-z]+", "-", self.about.lower()).strip("-")[:50].strip("-")


@dataclass(frozen=True)
class CommandOutput:
    """What a command answered, masked."""

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
            if real != ours or self.command.startswith(_GIVEN):
                yield f"    {name}:{real[:1] if real == ours else ''}"
                yield from (f"      {line}" for line in _changes(real, ours))


def _changes(real: list[str], ours: list[str]) -> Iterator[str]:
    """As a diff: "-" what only the real one says, "+" what only ours does."""
    import difflib

    for line in difflib.unified_diff(real, ours, lineterm="", n=1):
        if not line.startswith(("---", "+++")):
            yield line[:400]


def read_scenarios() -> list[Scenario]:
    """The stories of tests/support/kubectl, in order. Raises TypeError for a field that does not exist."""
    found = []
    for path in sorted(COMMANDS.glob("*.yaml")):
        for each in yaml.safe_load(path.read_text()):
            run = [Command(**({"kubectl": line} if type(line) is str else line)) for line in each.pop("run")]
            found.append(Scenario(run=run, **each))
    return found


class KubectlServer:
    """One of the two servers, and the folder where its commands run."""

    def __init__(self, folder: Path, kubeconfig: Path, binary: str = "kubectl") -> None:
        self._folder, self._binary = folder, binary
        self._config = yaml.safe_load(kubeconfig.read_text())
        self._given = kubeconfig
        cluster, user = self._config["clusters"][0], self._config["users"][0]
        self._url = cluster["cluster"]["server"]
        cluster["name"], user["name"] = "c", "u"
        (folder / "home").mkdir(parents=True)

    def tell(self, story: Scenario) -> list[tuple[str, CommandOutput]]:
        """Run a story, with all that it wants to be there: what was asked, and the answer."""
        namespace = story.namespace
        folder = self._folder / "here" / namespace
        folder.mkdir(parents=True)
        kubeconfig = self._folder / f"{namespace}.kubeconfig"
        context = {"cluster": "c", "user": "u", "namespace": namespace}
        config = {**self._config, "contexts": [{"name": "x", "context": context}], "current-context": "x"}
        kubeconfig.write_text(json.dumps(config))
        for name, text in story.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text.replace("$ns", namespace))
        server = ApiServer.from_kubeconfig(self._given)
        try:
            server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            said = []
            for obj in story.given:
                problem = self._create(server, json.loads(json.dumps(obj).replace("$ns", namespace)), namespace)
                said.append((f"{_GIVEN} {obj['kind']} {obj['metadata']['name']}", problem))
            return said + [(each.kubectl, self._run(each, namespace, folder, kubeconfig)) for each in story.run]
        finally:
            server.close()

    def _create(self, server: ApiServer, obj: JSON, namespace: str) -> CommandOutput:
        """Exit code 1 if it is refused."""
        collection = _collection(obj, namespace)
        answer = server.ask("POST", f"{collection}?fieldManager=given", obj)
        if "status" in obj and answer.status == 201:
            path = f"{collection}/{answer.content['metadata']['name']}/status"
            answer = server.ask("PUT", f"{path}?fieldManager=given", {**answer.content, "status": obj["status"]})
        return CommandOutput(0, [], []) if answer.status < 300 else CommandOutput(1, [], [json.dumps(answer.content)])

    def _run(self, command: Command, namespace: str, folder: Path, kubeconfig: Path) -> CommandOutput:
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self._folder / "home"), "KUBECONFIG": str(kubeconfig), "TZ": "UTC",
        }  # fmt: skip
        environment["KUBE_EDITOR"] = f"sed -i -e {shlex.quote(command.editor)}" if command.editor else "true"
        meanwhile = Thread(target=self._happen, args=(command, namespace))
        process = subprocess.Popen(
            [self._binary, *shlex.split(command.kubectl.replace("$ns", namespace))],
            cwd=folder, env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        meanwhile.start()
        try:
            stdout, stderr = process.communicate(command.stdin.replace("$ns", namespace), timeout=command.timeout)
            exit_code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the programs that it has started, which hold its pipes
            stdout, stderr = process.communicate()
            exit_code = KILLED
        meanwhile.join()
        return CommandOutput(exit_code, self._masked(stdout, command), self._masked(stderr, command))

    def _happen(self, command: Command, namespace: str) -> None:
        """The requests of `during`. Runs in a thread of its own beside kubectl, which is another process."""
        if not command.during:
            return
        time.sleep(command.after)
        server = ApiServer.from_kubeconfig(self._given)
        for each in command.during:
            body = json.loads(json.dumps(each.get("body")).replace("$ns", namespace))
            media_type = _PATCH_TYPES.get(each.get("type", ""), "application/json")
            server.ask(each["verb"], each["path"].replace("$ns", namespace), body, media_type)
        server.close()

    def _masked(self, text: str, command: Command) -> list[str]:
        text = text.replace(self._url, "(server)").replace(self._url.partition("://")[2], "(server)")
        text = text.replace(str(self._folder), "(folder)")
        for pattern, instead in _MASKS:
            text = pattern.sub(instead, text)
        lines = [re.sub(r"(?<=\S)[ \t]+", " ", line).rstrip() for line in text.rstrip("\n").split("\n")]
        if command.lines:
            lines = [line for line in lines if any(each in line for each in command.lines)]
        return sorted(lines) if command.sorted else lines


_GIVEN = "(given)"
_CLUSTER_SCOPED = """
Namespace Node PersistentVolume PriorityClass StorageClass ClusterRole ClusterRoleBinding CSIDriver CSINode
VolumeAttachment VolumeAttributesClass IngressClass RuntimeClass CertificateSigningRequest CustomResourceDefinition
APIService IPAddress ServiceCIDR FlowSchema PriorityLevelConfiguration DeviceClass ResourceSlice
ValidatingWebhookConfiguration MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
""".split()  # noqa: SIM905 - thirty names in lines
_PLURALS = {"Endpoints": "endpoints"}


def _collection(obj: JSON, namespace: str) -> str:
    """The path where such an object is created."""
    version, kind = obj["apiVersion"], obj["kind"]
    plural = (
        _PLURALS.get(kind) or re.sub(r"(?<=[^aeiou])y$", "ie", re.sub(r"(s|x|z|ch|sh)$", r"\1e", kind.lower())) + "s"
    )
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if kind in _CLUSTER_SCOPED:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{obj['metadata'].get('namespace', namespace)}/{plural}"


_MASKS = tuple(
    (re.compile(pattern, re.DOTALL | re.MULTILINE), instead)
    for pattern, instead in (
        (r"^(\S+ )?[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ .*?\n", ""),  # kubectl's own log
        (r"^goroutine \d+ \[.*", "(stack of a kubectl that crashes)"),
        # its look at all addresses may come between a Service and its IPAddress
        (r"^Events:\n[^\n]*\n[^\n]*\n(?:[^\n]* ipallocator-repair-controller [^\n]*(?:\n|\Z))+", "Events: <none>\n"),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "(uid)"),
        (r"\b20(?!24)\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d| \+0000( UTC)?)", "(time)"),
        (r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} 20(?!24)\d\d \d\d:\d\d:\d\d [+-]\d{4}", "(time)"),
        (r"<(unknown|invalid)>|(?<![-\w.])(\d+(y|d|h|m|s))+\b(?![-.])", "(age)"),
        (r"(resourceVersion[\\\"]*: ?[\\\"]*|Resource Version:\s+|to be \d+, was )\d+", r"\1(version)"),
        (r"\b10\.(0|96|97|98|99|10\d|11[01])\.\d+\.\d+\b", "(cluster ip)"),
        (r"(?<=:)3[0-2]\d{3}(?=/)|(?<=odePort: )3[0-2]\d{3}|(?<=odePort\": )3[0-2]\d{3}", "(node port)"),
        (
            r"((?:json parse error|error decoding YAML|json: cannot unmarshal|must be of type \w+\): yaml): ?).*?$",
            r"\1(parser)",
        ),
        (r"StorageError: invalid object, Code: 4, Key: [^,]*, ResourceVersion: 0, AdditionalErrorMsg: ", ""),
        (r' in scheme "[^"]*"', ""),
        (r"DESCRIPTION:\n.*?(?=\n *(?:FIELDS|FIELD):|\Z)", "(prose)"),
        (r'Invalid value: "\{\\"apiVersion\\".*\}"', "Invalid value: (an object)"),
        (r"\b(?<=[a-z]-)[bcdfghjklmnpqrstvwxz2456789]{5}\b(?=\s|\")", "(generated)"),
        (r"/tmp/(kubectl-edit-)?[\w./-]+", "(temporary)"),
        (r"LIVE-\d+|MERGED-\d+", "(temporary)"),
    )
)


def compare(
    real: KubectlServer, ours: KubectlServer, stories: Iterable[Scenario], *, jobs: int = 2
) -> Iterator[tuple[Scenario, list[Difference]]]:
    """Tell every story to both; those `alone` one after the other at first, the others `jobs` at a time."""

    def told(story: Scenario) -> tuple[Scenario, list[Difference]]:
        with ThreadPoolExecutor(2) as both:
            theirs, own = both.map(lambda side: side.tell(story), (real, ours))
        return story, [
            Difference(story.about, command, one, other)
            for (command, one), (_, other) in zip(theirs, own, strict=True)
            # what is given must be there: a story that begins otherwise proves nothing
            if one != other or (command.startswith(_GIVEN) and one.exit_code)
        ]

    several = list(stories)
    yield from (told(each) for each in several if each.alone)
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(told, (each for each in several if not each.alone))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, required=True, help="kubeconfig of a kube-apiserver")
    parser.add_argument("--ours", type=Path, required=True, help="kubeconfig of kubeloop apiserver --nodes=0")
    parser.add_argument("--only", action="append", default=[], help="stories with this in their name")
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="print what the real one says, too")
    options = parser.parse_args(arguments)
    stories = [s for s in read_scenarios() if not options.only or any(each in s.about for each in options.only)]
    commands = differing = 0
    with TemporaryDirectory() as folder:
        real = KubectlServer(Path(folder) / "one", options.real, options.kubectl)
        ours = KubectlServer(Path(folder) / "two", options.ours, options.kubectl)
        if options.show:
            for story in stories:
                for command, said in real.tell(story):
                    print(f"$ kubectl {command}  -> {said.exit_code}", *said.stdout, *said.stderr, sep="\n")
            return 0
        for story, differences in compare(real, ours, stories, jobs=options.jobs):
            commands, differing = commands + len(story.run), differing + len(differences)
            for each in differences:
                print("\n".join(each.lines()), flush=True)
    print(f"{len(stories)} stories, {commands} commands, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
