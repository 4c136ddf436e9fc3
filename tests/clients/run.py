"""Build and test the clients of tests/clients against kubeloop, each with the toolchain of its language.

    python tests/clients/run.py              all languages; one whose toolchain is missing is skipped with the reason
    python tests/clients/run.py go rust      these languages only
    python tests/clients/run.py --build-seconds 90   languages that are not built after this time are skipped
    python tests/clients/run.py --build FILE   only builds, without kubeloop, and stores the names of what is built
    python tests/clients/run.py --built FILE   tests what is built

`make clients` runs the last two. A language whose packages cannot be downloaded is skipped as well. Prints a line per
program and the output of those that fail. Programs connect to a `kubeloop up` with answers.yaml, by KUBECONFIG. Those
of Go start their API server with envtest, from `kubeloop envtest`, unless KUBEBUILDER_ASSETS names the folder of
another one, such as the real kube-apiserver.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
# compiled crates and installed packages, which a fresh clone reuses; other tools have such a cache of their own
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubeloop" / "clients"
PYTHON = CACHE / f"python{sys.version_info.major}.{sys.version_info.minor}"
BUILD_SECONDS, PROGRAM_SECONDS = 900.0, 300.0

TOO_LONG = "it takes too long"

Command = tuple[str, ...]


class Language(NamedTuple):
    """A folder of clients.

    tool: executable that must be on the PATH. download: commands that get packages from their index. build: commands
    that compile the programs.
    programs: name and command of each client; it exits 0 if its checks pass. Commands run in the folder `name`.
    """

    name: str
    tool: str
    download: tuple[Command, ...]
    build: tuple[Command, ...]
    programs: Mapping[str, Command]
    needs_cluster: bool = True


LANGUAGES = (
    Language(
        "go",
        "go",
        download=(("go", "mod", "download"),),
        build=(("go", "test", "-c", "-o", "clients.test"),),
        programs={"client-go and controller-runtime": ("./clients.test",)},
        needs_cluster=False,
    ),
    Language(
        "rust",
        "cargo",
        download=(("cargo", "fetch", "--locked", "--quiet"),),
        build=(("cargo", "build", "--locked", "--quiet", f"--target-dir={CACHE / 'rust'}"),),
        programs={"kube-rs": (str(CACHE / "rust" / "debug" / "kube-rs"),)},
    ),
    Language(
        "java",
        "mvn",
        download=(("mvn", "-B", "-q", "dependency:resolve"),),
        build=(("mvn", "-B", "-q", "test-compile"),),
        programs={"fabric8": ("mvn", "-B", "-q", "test")},
    ),
    Language(
        "node",
        "npm",
        download=(("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline"),),
        build=(),
        programs={"client-node": ("node", "--test", "--test-force-exit", "--test-reporter=spec", ".")},
    ),
    Language(
        "python",
        sys.executable,
        download=(
            (sys.executable, "-m", "venv", str(PYTHON)),
            (str(PYTHON / "bin" / "pip"), "install", "--quiet", "--requirement=requirements.txt"),
        ),
        build=(),
        programs={
            name: (str(PYTHON / "bin" / "python"), program)
            for name, program in {
                "kubernetes": "kubernetes_client.py",
                "kubernetes_asyncio": "kubernetes_asyncio_client.py",
                "kr8s": "kr8s_client.py",
                "lightkube": "lightkube_client.py",
                "kopf": "kopf_operator.py",
            }.items()
        },
    ),
    Language(
        "sample-apiserver",
        "go",
        download=(("go", "mod", "download"),),
        build=(("go", "test", "-c", "-o", "clients.test"),),
        programs={"aggregated sample-apiserver": ("./clients.test",)},
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Return 1 if a client has failed, 2 for an unknown language."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="languages")
    parser.add_argument("--build-seconds", type=float, default=BUILD_SECONDS, help="for all downloads and builds")
    parser.add_argument("--build", type=Path, metavar="FILE", help="only build; store names of languages in FILE")
    parser.add_argument("--built", type=Path, metavar="FILE", help="test the languages in FILE, which are built")
    options = parser.parse_args(arguments)
    names: Sequence[str] = options.names
    if unknown := set(names) - {language.name for language in LANGUAGES}:
        print(f"no client in {', '.join(sorted(unknown))}; there are {', '.join(row.name for row in LANGUAGES)}")
        return 2
    if options.built:
        names = options.built.read_text().split()
        return 0 if tests_pass([language for language in LANGUAGES if language.name in names]) else 1
    built, passed = build([row for row in LANGUAGES if not names or row.name in names], options.build_seconds)
    if options.build:
        options.build.parent.mkdir(exist_ok=True)
        options.build.write_text("".join(f"{language.name}\n" for language in built))
    else:
        passed &= tests_pass(built)
    return 0 if passed else 1


def build(languages: Sequence[Language], seconds: float) -> tuple[list[Language], bool]:
    """Return the languages whose clients are built, and whether no build has failed."""
    built, passed = [], True
    for language in languages:
        if shutil.which(language.tool) is None:
            print(f"clients/{language.name}: skipped: {language.tool} is not on the PATH", flush=True)
            continue
        began = time.monotonic()
        result = builds(language, seconds)
        seconds -= time.monotonic() - began
        if result:
            built.append(language)
        passed &= result is not False
    return built, passed


def tests_pass(languages: Sequence[Language]) -> bool:
    """Run the clients of the languages against kubeloop. False if one fails."""
    with contextlib.ExitStack() as stack:
        environment = dict(os.environ)
        if "KUBEBUILDER_ASSETS" not in environment:
            environment["KUBEBUILDER_ASSETS"] = envtest_folder()
        if any(language.needs_cluster for language in languages):
            environment["KUBECONFIG"] = stack.enter_context(running_cluster())
        results = [passes(language, environment) for language in languages]
    return all(results)


def builds(language: Language, seconds: float) -> bool | None:
    """Build the clients of the language. False if a command fails; None, after the reason is printed, if the packages
    cannot be downloaded or `seconds` are over."""
    began = time.monotonic()
    for command in (*language.download, *language.build):
        seconds_left = seconds - (time.monotonic() - began)
        failure = failure_of(command, language, os.environ, timeout=seconds_left) if seconds_left > 0 else TOO_LONG
        if command in language.download and failure:
            print(f"clients/{language.name}: skipped: no packages: {failure}", flush=True)
            return None
        if failure.startswith(TOO_LONG):
            print(f"clients/{language.name}: skipped: builds took too long", flush=True)
            return None
        if failure:
            print(f"clients/{language.name}: build failed: {failure}", flush=True)
            return False
    print(f"clients/{language.name}: built in {time.monotonic() - began:.0f} s", flush=True)
    return True


def passes(language: Language, environment: Mapping[str, str]) -> bool:
    """Run the clients of the language. False if one fails; prints its output."""
    passed = True
    for name, command in language.programs.items():
        began = time.monotonic()
        failure = failure_of(command, language, environment, timeout=PROGRAM_SECONDS)
        result = f"failed: {failure}" if failure else "passed"
        print(f"clients/{language.name}: {name}: {result} in {time.monotonic() - began:.0f} s", flush=True)
        passed &= not failure
    return passed


def failure_of(command: Command, language: Language, environment: Mapping[str, str], *, timeout: float) -> str:
    """Run the command for at most `timeout` seconds. Returns why it failed, after its output is printed; else ''."""
    with tempfile.TemporaryFile() as output:
        try:
            code = subprocess.run(
                command,
                cwd=FOLDER / language.name,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
            ).returncode
            failure = f"exit code {code} of '{' '.join(command)}'" if code else ""
        except subprocess.TimeoutExpired:
            failure = f"{TOO_LONG}: no end of '{' '.join(command)}' within {timeout:.0f} s"
        if failure:
            output.seek(0)
            print(output.read().decode(errors="replace"), end="", flush=True)
        return failure


def envtest_folder() -> str:
    command = [sys.executable, "-m", "kubeloop", "envtest"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def running_cluster() -> Iterator[str]:
    """Run `kubeloop up`, and yield the path of its kubeconfig."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = str(Path(folder) / "kubeconfig")
        options = ("--nodes=3", f"--stages={FOLDER / 'answers.yaml'}", f"--kubeconfig={kubeconfig}")
        command = [sys.executable, "-m", "kubeloop", "up", *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                if not process.stdout.readline():  # its address, printed when it serves
                    sys.exit(f"'{' '.join(command)}' has ended before it served")
                yield kubeconfig
            finally:
                process.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
