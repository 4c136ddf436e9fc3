"""The pictures of docs/tracing.md, made anew: `python docs/make_screenshots.py`, from the repository, with Chromium.

Starts `kubeloop up` with an application of 400 pods and the example of pods that wait, looks at its page for browsers
in headless Chromium, and writes docs/images/*.png.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.browser import Page, browsing, chromium  # noqa: E402  # the path comes first
from support.cli_processes import MIXED, Kubeloop  # noqa: E402

APPLICATION = """
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: checkout, namespace: shop}
spec:
  replicas: 400
  selector: {matchLabels: {app: checkout}}
  template:
    metadata: {labels: {app: checkout}}
    spec:
      containers:
        - {name: app, image: checkout, resources: {requests: {cpu: 100m, memory: 64Mi}}}
"""

Steps = Callable[[Page], Awaitable[None]]


async def pods(page: Page) -> None:
    """The list, as it opens."""


async def pod_that_waits(page: Page) -> None:
    await page.press("/")
    await page.write("impossible")
    await page.press("Enter")
    await page.wait_for("document.querySelectorAll('.span').length > 5")


async def rollout(page: Page) -> None:
    await page.press("r")
    await page.wait_for("!!document.querySelector('.row.rollout')")
    await page.press("/")
    await page.write("owner:checkout")
    await page.press("Enter")
    await page.wait_for("document.querySelectorAll('.slowest a').length === 5")


async def pod(page: Page) -> None:
    await page.press("/")
    await page.write("owner:checkout attempts:1")
    await page.press("ArrowDown")
    await page.press("Enter")
    await page.wait_for("document.querySelectorAll('.span').length > 8")


PICTURES: dict[str, tuple[dict[str, int | bool], Steps]] = {
    "pods": ({}, pods),
    "pod": ({}, pod),
    "waiting": ({"dark": True}, pod_that_waits),
    "rollout": ({"dark": True}, rollout),
    "phone-pods": ({"width": 390, "height": 844}, pods),
    "phone-rollout": ({"width": 390, "height": 844, "dark": True}, rollout),
}


async def take(url: str) -> None:
    async with browsing() as browser:
        for name, (look, steps) in PICTURES.items():
            async with browser.page(url, **look) as page:
                await page.wait_for("document.querySelectorAll('.row:not([hidden])').length > 5")
                await steps(page)
                await page.evaluate("document.activeElement.blur()")
                await page.evaluate("new Promise(done => setTimeout(done, 600))")  # bars have grown to their lengths
                (IMAGES / f"{name}.png").write_bytes(await page.screenshot())


def main() -> None:
    if chromium() is None:
        sys.exit("error: no chromium on the PATH")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "application.yaml"
        manifest.write_text(APPLICATION)
        kubeloop = Kubeloop(Path(folder))
        with kubeloop.running("up", "--nodes", 20, "-f", MIXED, "-f", manifest, "--trace-until", "ready") as up:
            up.wait_for("runs until Ctrl-C")
            url = up.wait_for(r"in a browser: (http://\S+)").group(1)
            asyncio.run(take(url))


if __name__ == "__main__":
    main()
