"""A release: checks, wheel, sdist, the archive and manifest for krew, checksums in dist/, and the tag.

    .venv/bin/python tests/support/development/release.py [URL]

kubeloop/__init__.py has the version. URL: of the repository, where the archive for krew will be; by default that of the
remote origin. Exit code 1: nothing was built; the messages say what to change.
"""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from string import Template

ROOT = Path(__file__).resolve().parents[3]
_SECTION = re.compile(r"^## (.+)\n((?:(?!## ).*\n)*)", re.MULTILINE)


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def project_version(root: Path) -> str:
    match = re.search(r'^__version__ = "(.+)"$', (root / "kubeloop/__init__.py").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def repository_url(root: Path, arguments: list[str]) -> str:
    """Return the URL of the repository, "" if it is not known."""
    remotes = git(root, "remote").split()
    url = arguments[0] if arguments else git(root, "remote", "get-url", "origin").strip() if "origin" in remotes else ""
    return url.removesuffix(".git") if url.startswith("https://") else ""


def problems(root: Path, url: str) -> list[str]:
    """Return what prevents a release, a sentence each."""
    version = project_version(root)
    result = []
    if changed := git(root, "status", "--porcelain").splitlines():
        result.append(f"the work tree has {len(changed)} uncommitted changes: commit or remove them")
    if git(root, "tag", "--list", f"v{version}"):
        result.append(f"the tag v{version} exists: raise __version__ in kubeloop/__init__.py")
    sections = [
        (title.split()[0], text.strip()) for title, text in _SECTION.findall((root / "CHANGELOG.md").read_text())
    ]
    written = [(title, text) for title, text in sections if text]
    if not written or written[0][0] != version:
        first = written[0][0] if written else "nothing"
        result.append(f"CHANGELOG.md begins with {first}: its first section with entries must be ## {version}")
    if not url:
        result.append("the remote origin has no https URL: make release URL=https://github.com/OWNER/kubeloop")
    return result


def build(root: Path, url: str, folder: Path) -> list[Path]:
    """Build what a release consists of into an empty folder, and return its files."""
    for step in ("sdist", "wheel"):
        code = f"import sys; from setuptools import build_meta; build_meta.build_{step}(sys.argv[1])"
        subprocess.run([sys.executable, "-c", code, str(folder)], cwd=root, check=True, capture_output=True)
    archive = folder / "kubectl-kubeloop.tar.gz"
    archive.write_bytes(_archive(root))
    template = Template((root / "deploy/krew/kubeloop.yaml").read_text())
    manifest = folder / "kubeloop.yaml"
    manifest.write_text(template.substitute(url=url, version=project_version(root), sha256=_sha256(archive)))
    files = sorted(folder.iterdir())
    (folder / "SHA256SUMS").write_text("".join(f"{_sha256(path)}  {path.name}\n" for path in files))
    return files


def _archive(root: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in ("deploy/krew/kubectl-kubeloop", "LICENSE"):
            archive.add(root / path, Path(path).name)
    return buffer.getvalue()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> int:
    url = repository_url(ROOT, sys.argv[1:])
    if reasons := problems(ROOT, url):
        print("\n".join(f"error: {reason}" for reason in reasons), file=sys.stderr)
        return 1
    folder = ROOT / "dist"
    folder.mkdir(exist_ok=True)
    if any(folder.iterdir()):
        print("error: dist/ is not empty: remove it (make clean)", file=sys.stderr)
        return 1
    for path in build(ROOT, url, folder):
        print(path.relative_to(ROOT))
    version = project_version(ROOT)
    git(ROOT, "tag", "--annotate", f"v{version}", "--message", f"kubeloop {version}")
    print(f"tagged v{version}; publish it with: git push origin v{version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
