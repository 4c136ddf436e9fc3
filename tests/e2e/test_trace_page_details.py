"""The trace page in headless Chromium: its state in the URL, details, comparisons, accessibility, and many pods."""

from __future__ import annotations

import contextlib
import time

import aiohttp
import pytest

from kubeloop.tracing.views.browser_page import self_contained_page
from support.processes.accessibility import AxeUnavailable, accessibility_problems
from support.processes.browser import open_page, wait_for
from support.traces.trace_documents import document, span
from support.traces.traced_pods import TracedPods

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROWS = "[...document.querySelectorAll('.row:not([hidden])')]"
NAMES = f"{ROWS}.map(row => row.querySelector('b').textContent)"
SHOWN = "document.getElementById('shown-pods').textContent"
TITLE = "document.querySelector('#detail h2')?.textContent"
CELLS = """[...document.querySelectorAll('.detail tr')].map(
    row => [...row.cells].map(cell => cell.textContent).join(' '))"""
HASH = "decodeURIComponent(location.hash)"
POD_STATE = {
    "phase": "Running",
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "NotReady", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    ],
    "containers": [
        {"name": "app", "image": "web", "state": "running", "reason": "", "ready": True, "restarts": 0},
        {"name": "proxy", "image": "p", "state": "waiting", "reason": "Crash", "ready": False, "restarts": 7},
    ],
    "events": [
        {"time": "", "type": "Warning", "reason": "BackOff", "message": "restarts", "count": 3, "from": "kubelet"}
    ],
    "eventsProblem": "",
}  # fmt: skip
NODE = {
    "name": "node-1", "stage": "ready", "created": "2026-01-01T12:00:00Z", "since": "2026-01-01T12:00:00Z",
    "reason": "", "zone": "zone-a", "allocatable": {"cpu": 8000, "memory": 32 << 30, "pods": 110},
}  # fmt: skip
OBJECTS = {
    "pod": POD_STATE,
    "logs": {"log": "first line\nsecond <b>line</b>\n"},
    "owner": {"state": "2 of 3 available", "complete": False, "problems": ["FailedCreate: quota exceeded"]},
    "nodes": [NODE | {"requested": {"cpu": 7600, "memory": 1 << 30, "pods": 3}}, NODE | {"name": "idle"}],
}


@contextlib.asynccontextmanager
async def traced_page(browser, pods, fragment="", **options):
    """Open the page of these pods, of a cluster with OBJECTS."""
    pods.objects = OBJECTS
    async with pods.running() as url, open_page(browser, f"{url}/traces{fragment}", **options) as page:
        yield page


def some_pods() -> TracedPods:
    """Return six pods: one unschedulable, five ready on two nodes."""
    pods = TracedPods()
    for number in range(6):
        pods.pending(f"web-5f-{number}", message="0/3 nodes are available" if number == 0 else "")
        if number:
            pods.bound(f"web-5f-{number}", node=f"node-{number % 2}")
    return pods


async def test_root_leads_to_the_page():
    async with TracedPods().running() as url, aiohttp.request("GET", f"{url}/") as response:
        assert response.status == 200
        assert str(response.url) == f"{url}/traces"


async def test_state_is_in_the_url_and_read_from_it(browser):
    async with traced_page(browser, some_pods()) as page:
        await wait_for(page, f"{SHOWN} === '6'")
        await page.keyboard.press("/")
        await page.keyboard.insert_text("web-5f")
        await page.click(".stage[data-phase=ready]")
        await page.select_option("#sort", "name")
        await page.select_option("#namespace", "shop")
        await wait_for(page, f"{SHOWN} === '5' && {NAMES}[1] === 'web-5f-2'")
        await page.evaluate(f"{ROWS}[1].click()")
        await wait_for(page, f"{TITLE} === 'web-5f-2'")
        await page.click(".sections .events summary")
        state = "#pod=shop/web-5f-2&show=events&q=web-5f&stage=ready&ns=shop&sort=name"
        await wait_for(page, f"{HASH} === '{state}'")
        await page.reload()
        await wait_for(page, f"{TITLE} === 'web-5f-2' && {SHOWN} === '5' && {NAMES}[0] === 'web-5f-1'")
        await wait_for(page, "document.querySelector('.events[open] td')?.textContent === 'BackOff'")
        values = "['search', 'sort', 'namespace'].map(id => document.getElementById(id).value).join()"
        assert await page.evaluate(values) == "web-5f,name,shop"
        assert (
            await page.evaluate("document.querySelector('.stage[aria-pressed=true]').lastChild.textContent") == "ready"
        )
        await page.keyboard.press("Escape")
        await page.keyboard.press("n")
        await wait_for(page, f"{HASH} === '#tab=nodes&q=web-5f&stage=ready&ns=shop&sort=name'")
        await page.evaluate("history.back()")
        await wait_for(page, f"{TITLE} === 'web-5f-2' && !document.getElementById('detail').hidden")
        await wait_for(page, "document.getElementById('tab-pods').getAttribute('aria-selected') === 'true'")


async def test_broken_urls_are_ignored(browser):
    async with traced_page(browser, some_pods(), "#stage=none,ready&sort=what&tab=x&q=%E0%A4%A&nonsense") as page:
        await wait_for(page, f"{SHOWN} === '5'")
        assert await page.evaluate("document.getElementById('sort').value") == "newest"


async def test_link_opens_an_owner_and_leaves_the_search(browser):
    async with traced_page(browser, some_pods(), "#pod=shop/web-5f-3&q=5f") as page:
        await page.click(".meta a[href='#node=node-1']")
        await wait_for(page, f"{TITLE} === 'node-1' && {HASH} === '#node=node-1&q=5f'")
        await page.evaluate("history.back()")
        await page.click(".meta a[href='#rollout=shop/deployment/web']")
        await wait_for(page, f"{TITLE} === 'deployment/web' && {HASH} === '#rollout=shop/deployment/web&q=5f'")


async def test_pod_shows_conditions_and_the_log_of_a_container(browser):
    async with traced_page(browser, some_pods(), "#pod=shop/web-5f-3&show=conditions,log") as page:
        await wait_for(page, "document.querySelector('.log pre')?.textContent.startsWith('first line')")
        assert await page.evaluate("document.querySelector('.log pre').textContent.includes('<b>line</b>')")
        pressed = "document.querySelector('.log button[aria-pressed=true]').textContent"
        assert await page.evaluate(pressed) == "proxy"  # it is not ready
        await page.click(".log button:not([aria-pressed=true])")
        await wait_for(page, f"{pressed} === 'app'")
        text = await page.evaluate("document.querySelector('.conditions').innerText")
        assert "NotReady" in text
        assert "waiting: Crash" in text


BOXES = "['.waterfall', '.sections'].map(name => document.querySelector(name).getBoundingClientRect())"


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (900, 700)])
async def test_sections_are_beside_the_waterfall(browser, width, height):
    log = "".join(f"line {number}\n" for number in range(100))
    pods = some_pods()
    async with traced_page(
        browser, pods, "#pod=shop/web-5f-3&show=events,conditions,log", width=width, height=height
    ) as page:
        pods.objects = OBJECTS | {"logs": {"log": log}}
        await page.reload()
        await wait_for(page, "document.querySelector('.log pre')?.textContent.includes('line 99')")
        trace, sections = await page.evaluate(BOXES)
        assert trace["right"] <= sections["left"]
        assert abs(trace["top"] - sections["top"]) < 10
        await page.evaluate("document.getElementById('detail').scrollTop = 1e6")
        trace, sections = await page.evaluate(BOXES)
        header = await page.evaluate("document.querySelector('.detail header').getBoundingClientRect().bottom")
        assert sections["top"] < header - 50
        assert header <= trace["top"] < header + 10  # it is shorter, and remains visible


async def test_sections_are_below_the_waterfall_on_a_phone(browser):
    async with traced_page(browser, some_pods(), "#pod=shop/web-5f-3&show=events", width=390) as page:
        await wait_for(page, "document.querySelector('.events[open] td')?.textContent === 'BackOff'")
        trace, sections = await page.evaluate(BOXES)
        assert trace["bottom"] <= sections["top"]


async def test_rollout_shows_what_it_waits_for(browser):
    pods = some_pods()
    async with traced_page(browser, pods, "#rollout=shop/deployment/web") as page:
        waits = "[...document.querySelectorAll('.waits li')].map(item => item.textContent)"
        await wait_for(page, f"{waits}[0] === '2 of 3 available'")
        _, problem, pod = await page.evaluate(waits)
        assert problem == "FailedCreate: quota exceeded"
        assert pod.startswith("1 pod unschedulable, for up to ")
        assert pod.endswith(": 0/3 nodes are available (web-5f-0)")
        pods.bound("web-5f-0")
        await wait_for(page, f"{waits}.at(-1) === 'its controller: no pod of it waits'")


async def test_node_shows_its_pods_and_the_room_left(browser):
    async with traced_page(browser, some_pods(), "#tab=nodes&sort=name") as page:
        await wait_for(page, f"{NAMES}.join() === 'idle,node-0,node-1'")
        await page.evaluate(f"{ROWS}[2].click()")
        await wait_for(page, f"{CELLS}.includes('cpu  7.6 8 0.4')")
        assert "memory  1Gi 32Gi 31Gi" in await page.evaluate(CELLS)
        assert await page.evaluate("document.querySelector('.fill.room i').getBoundingClientRect().width") > 100
        await wait_for(page, "document.querySelectorAll('.slowest a').length === 3")


async def test_two_pods_are_compared_phase_by_phase(browser):
    async with traced_page(browser, some_pods(), "#pod=shop/web-5f-1") as page:
        await page.click(".compare-form summary")
        await page.fill(".compare-form input[type=text]", "shop/web-5f-2")
        await page.keyboard.press("Enter")
        await wait_for(page, f"{TITLE} === 'shop/web-5f-1 and shop/web-5f-2'")
        assert await page.evaluate(HASH) == "#pod=shop/web-5f-1&with=shop/web-5f-2"
        assert await page.evaluate("document.querySelectorAll('.compared .fill').length") == 2
        rows = "[...document.querySelectorAll('.detail th[scope=row]')].map(cell => cell.textContent)"
        assert {"queue", "bind", "in all", "node"} <= set(await page.evaluate(rows))
        await page.reload()
        await wait_for(page, f"{TITLE} === 'shop/web-5f-1 and shop/web-5f-2'")


async def test_rollouts_of_two_pages_are_compared(browser, tmp_path):
    """Such as those of two replays."""

    def page_of(milliseconds):
        traces = []
        for number in range(3):
            trace = document(
                span("queue active", 0, milliseconds, parent=f"root-{number}"),
                end_ms=milliseconds, name=f"web-5f-{number}", k8s__deployment__name="web", k8s__node__name="n1",
            )  # fmt: skip
            trace["traceId"], trace["spans"][0]["spanId"] = f"{number + 1:032x}", f"root-{number}"
            traces.append(trace)
        path = tmp_path / f"{milliseconds}.html"
        path.write_text(self_contained_page(traces, kind="", name="", title=f"replay {milliseconds}"))
        return path

    async with open_page(browser, f"{page_of(100).as_uri()}#rollout=*") as page:
        await wait_for(page, f"{TITLE} === 'all pods'")
        await page.click(".compare-form summary")
        await page.set_input_files(".compare-form input[type=file]", page_of(300))
        await wait_for(page, f"{TITLE} === 'all pods here and in replay 300'")
        assert "queue 100 ms 300 ms +200 ms, \u00d73" in await page.evaluate(CELLS)
        await page.reload()
        await wait_for(page, "document.querySelector('.detail .note')?.textContent.startsWith('Choose the saved page')")


async def test_one_waiting_pod_does_not_flatten_the_bars(browser, tmp_path):
    traces = []
    for number in range(20):
        milliseconds = 3_600_000 if number == 0 else 100
        trace = document(
            span("queue active", 0, milliseconds, parent=f"root-{number}"),
            outcome="bound" if number else "open", end_ms=milliseconds, name=f"web-{number}",
        )  # fmt: skip
        trace["traceId"], trace["spans"][0]["spanId"] = f"{number + 1:032x}", f"root-{number}"
        traces.append(trace)
    path = tmp_path / "traces.html"
    path.write_text(self_contained_page(traces, kind="", name="", title="x"))
    async with open_page(browser, path.as_uri()) as page:
        await wait_for(page, f"{SHOWN} === '20'")
        bars = await page.evaluate(f"{ROWS}.map(row => row.querySelector('.fill').classList.contains('cut'))")
        assert sum(bars) == 1
        shares = f"{ROWS}.map(row => row.querySelector('.fill i').offsetWidth / row.querySelector('.fill').offsetWidth)"
        assert sorted(round(share, 1) for share in await page.evaluate(shares))[:5] == [0.8] * 5
        axis = await page.evaluate(
            "[...document.querySelectorAll('.headings .axis i')].map(label => label.textContent)"
        )
        assert axis[-1] == "125 ms"


async def test_empty_lists_say_what_to_do_next(browser):
    empty = "document.getElementById('empty').textContent"
    pods = TracedPods()
    async with traced_page(browser, pods) as page:
        await wait_for(page, f"{empty}.includes('kubectl create deployment')")
        pods.pending("web-5f-1")
        await wait_for(page, f"{SHOWN} === '1'")
        await page.keyboard.press("/")
        await page.keyboard.insert_text("nothing like it")
        await page.click("#empty button")
        await wait_for(page, f"{SHOWN} === '1' && document.getElementById('search').value === ''")


FRAGMENTS = {
    "pods": "", "rollouts": "#tab=rollouts", "nodes": "#tab=nodes", "empty": "#q=nothing",
    "pod": "#pod=shop/web-5f-3&show=events,conditions,log", "pending": "#pod=shop/web-5f-0",
    "rollout": "#rollout=shop/deployment/web", "node": "#node=node-1",
    "compared": "#pod=shop/web-5f-1&with=shop/web-5f-2",
}  # fmt: skip


@pytest.mark.parametrize("view", FRAGMENTS)
@pytest.mark.parametrize(
    ("width", "dark"),
    [(1440, False), (900, True), (390, True)],
    ids=["desktop", "tablet in the dark", "phone in the dark"],
)
async def test_accessibility_checker_finds_nothing(browser, view, width, dark):
    async with traced_page(browser, some_pods(), FRAGMENTS[view], width=width, dark=dark) as page:
        await wait_for(page, f"{SHOWN} === '{0 if view == 'empty' else 6}'")
        await page.wait_for_timeout(300)  # until sections are filled
        try:
            assert await accessibility_problems(page) == []
        except AxeUnavailable as error:
            pytest.skip(f"axe-core is not available: {error}")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_phone_shows_the_stage_as_a_word(browser):
    async with traced_page(browser, some_pods(), width=390, height=844) as page:
        await wait_for(page, f"{SHOWN} === '6'")
        cells = f"{ROWS}.map(row => row.querySelector('.stage-name')).filter(cell => cell.checkVisibility())"
        assert set(await page.evaluate(f"{cells}.map(cell => cell.textContent)")) == {"ready", "unschedulable"}


@pytest.mark.parametrize(("count", "seconds"), [(10_000, 2), (100_000, 10)])
async def test_many_pods_are_there_in_time_with_flat_memory(browser, count, seconds):
    """The time is that of the CPU in page and process, which an idle machine takes; twice as much while others run."""
    pods = TracedPods()
    for number in range(10_000):
        pods.pending(f"web-5f-{number:05}")
        pods.bound(f"web-5f-{number:05}", node=f"node-{number % 100}")
    for number in range(10_000, count):
        pods.untraced(f"web-5f-{number:05}")
    async with pods.running() as url, open_page(browser, "about:blank") as page:
        devtools = await page.context.new_cdp_session(page)
        await devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

        async def measured(name):
            metrics = (await devtools.send("Performance.getMetrics"))["metrics"]
            return next(metric["value"] for metric in metrics if metric["name"] == name)

        async def heap_mb():
            await devtools.send("HeapProfiler.collectGarbage")
            return await measured("JSHeapUsedSize") / 1e6

        began = time.process_time()
        await page.goto(f"{url}/traces")
        await wait_for(page, f"{SHOWN} === '{count:,}'")
        assert time.process_time() - began + await measured("TaskDuration") < 2 * seconds
        before = await heap_mb()
        for part in (0.5, 1, 0, 1):
            await page.evaluate(f"(l => {{ l.scrollTop = l.scrollHeight * {part}; }})(document.getElementById('list'))")
            await page.wait_for_timeout(1000)  # a poll
        assert await heap_mb() < before + 5
        assert await page.evaluate("document.querySelectorAll('*').length") < 1500
