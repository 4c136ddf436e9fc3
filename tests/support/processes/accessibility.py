"""axe-core, which checks pages for accessibility; tests download it from the npm registry."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page

_PACKAGE = "axe-core@4.14.1"
_TIMEOUT_SECONDS = 120


class AxeUnavailable(Exception):
    """There is no npm, or it cannot download the package."""


@functools.cache
def _axe_script() -> str:
    if shutil.which("npm") is None:
        raise AxeUnavailable("npm is not on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(
                ["npm", "pack", "--silent", "--prefer-offline", _PACKAGE],
                cwd=folder,
                check=True,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise AxeUnavailable(f"npm cannot download axe-core: {error.stderr}") from None
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as package:
            script = package.extractfile("package/axe.min.js")
            assert script is not None
            return script.read().decode()


async def accessibility_problems(page: Page) -> list[str]:
    """Return the violations that axe-core finds in the page: its rule, and the elements. Raises AxeUnavailable."""
    await page.evaluate(_axe_script())
    result = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{violation['id']}: {', '.join(node['html'][:120] for node in violation['nodes'][:3])}"
        for violation in result["violations"]
    ]
