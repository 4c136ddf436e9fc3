"""Create the screenshots of docs/tracing.md: run `python docs/make_screenshots.py` in the repository, with Chromium.

Starts `kubeloop up` with an application of 400 pods and the example of pending pods, opens the trace page in headless
Chromium, and writes docs/images/*.png.
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

from support.browser import Page, chromium, running_browser  # noqa: E402  # after the change of sys.path
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
    """The list after the page has loaded."""


async def pending_pod(page: Page) -> None:
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


SCREENSHOTS: dict[str, tuple[dict[str, int | bool], Steps]] = {
    "pods": ({}, pods),
    "pod": ({}, pod),
    "waiting": ({"dark": True}, pending_pod),
    "rollout": ({"dark": True}, rollout),
    "phone-pods": ({"width": 390, "height": 844}, pods),
    "phone-rollout": ({"width": 390, "height": 844, "dark": True}, rollout),
}


async def take_screenshots(url: str) -> None:
    async with running_browser() as browser:
        for name, (viewport, steps) in SCREENSHOTS.items():
            async with browser.page(url, **viewport) as page:
                await page.wait_for("document.querySelectorAll('.row:not([hidden])').length > 5")
                await steps(page)
                await page.evaluate("document.activeElement.blur()")
                await page.evaluate(
                    "new Promise(done => setTimeout(done, 600))"
                )  # until the animation of the bars has ended
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
            asyncio.run(take_screenshots(url))


if __name__ == "__main__":
    main()
