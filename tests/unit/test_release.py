"""`make release`: what prevents it."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from support.development import release

URL = "https://example.org/kubeloop"


@pytest.fixture
def repository(tmp_path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not on the PATH")
    (tmp_path / "kubeloop").mkdir()
    (tmp_path / "kubeloop" / "__init__.py").write_text('__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-11-29)\n\n- x\n\n## 0.1.0\n\n- y\n"
    )
    release.git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def commit(repository: Path) -> None:
    release.git(repository, "add", "-A")
    release.git(repository, "-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "Change")


def test_clean_tree_with_its_changelog_can_be_released(repository):
    assert release.problems(repository, URL) == []


def test_dirty_tree_existing_tag_and_missing_address_prevent_a_release(repository):
    (repository / "new").touch()
    release.git(repository, "tag", "v0.2.0")
    dirty, tagged, address = release.problems(repository, "")
    assert "1 uncommitted changes" in dirty
    assert "tag v0.2.0 exists" in tagged
    assert "make release URL=" in address


@pytest.mark.parametrize(
    ("changelog", "first"),
    [
        ("# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0\n\n- x\n", "begins with Unreleased"),
        ("# Changelog\n\n## 0.1.0\n\n- y\n", "begins with 0.1.0"),
        ("# Changelog\n\n## 0.2.0\n", "begins with nothing"),
    ],
)
def test_changelog_without_entries_of_the_version_prevents_a_release(repository, changelog, first):
    (repository / "CHANGELOG.md").write_text(changelog)
    commit(repository)
    (problem,) = release.problems(repository, URL)
    assert first in problem


@pytest.mark.parametrize(
    ("remote", "arguments", "expected"),
    [
        (f"{URL}.git", [], URL),
        ("/srv/git/kubeloop", [], ""),
        ("/srv/git/kubeloop", [URL], URL),
        (None, [], ""),
    ],
)
def test_address_is_the_argument_or_that_of_origin(repository, remote, arguments, expected):
    if remote:
        release.git(repository, "remote", "add", "origin", remote)
    assert release.repository_url(repository, arguments) == expected


def test_lock_files_hold_each_dependency_in_an_allowed_version(locked):
    requirements, versions = locked
    for requirement in requirements:
        assert requirement.specifier.contains(versions[requirement.name.lower()]), requirement


@pytest.fixture(params=["requirements.txt", "requirements-dev.txt"])
def locked(request):
    """The dependencies of pyproject.toml that a lock file is for, and the versions in it."""
    project = tomllib.loads((release.ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["dev"] if "dev" in request.param else []
    lines = (release.ROOT / request.param).read_text().splitlines()
    pinned = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalnum()]
    versions = {it.name.lower(): str(it.specifier).removeprefix("==") for it in pinned}
    return [Requirement(text) for text in [*project["dependencies"], *extra]], versions
