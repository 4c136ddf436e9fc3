"""The trace page in headless Chromium: content, mouse and keyboard control, and ten thousand pods."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from kubeloop.tracing.spans.pod_group_record import PlacementFacts
from kubeloop.tracing.views.browser_page import self_contained_page
from kubeloop.tracing.views.phases import KEYS
from support.processes.browser import open_page, wait_for
from support.traces.trace_documents import apply_document, document, span
from support.traces.traced_pods import TracedPods

pytestmark = pytest.mark.asyncio(loop_scope="module")

HTML_TEXT = "<img src=x onerror=alert(1)> </script><script>alert(2)</script> \"'&"
ROWS = "[...document.querySelectorAll('.row:not([hidden])')]"
NAMES = f"{ROWS}.map(row => row.querySelector('b').textContent)"
SHOWN = "document.getElementById('shown-pods').textContent"

SET_STYLE_ATTRIBUTE = """new Promise(done => {
    document.addEventListener('securitypolicyviolation', event => done(event.violatedDirective));
    const node = document.createElement('div');
    node.setAttribute('style', 'color: red');
    document.body.append(node);
})"""
# As a page of another origin: what fetches, a script and a frame of the trace page give.
READ_TRACES = """async url => {
    const read = options => fetch(url + '/debug/traces/lines', options).then(r => r.text(), error => error.name);
    const load = (tag, path) => new Promise(done => {
        const node = document.createElement(tag);
        node.onload = () => done('loaded');
        node.onerror = () => done('error');
        node.src = url + path;
        document.body.append(node);
    });
    const frame = document.createElement('iframe');
    await new Promise(done => { frame.onload = done; frame.src = url + '/traces'; document.body.append(frame); });
    return [await read({}), await read({mode: 'no-cors'}), await load('script', '/traces/app.js'),
            await load('img', '/debug/traces/lines')];
}"""
DELAY_RESPONSES = """window.fetch_ = fetch;
window.fetch = async (...request) => {
    const response = await fetch_(...request);
    await new Promise(done => { window.pass = done; });
    return response;
};
1"""
# Elements whose text has less contrast than WCAG 2 requires (4.5 to 1).
LOW_CONTRAST_TEXT = """(() => {
    const numbers = color => color.match(/[\\d.]+/g).map(Number);
    const linear = value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const luminance = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    const background = node => {
        for (; node; node = node.parentElement) {
            const color = numbers(getComputedStyle(node).backgroundColor);
            if (color.length < 4 || color[3] > 0.9) return color;
        }
        return [255, 255, 255];
    };
    const elements = [];
    for (const node of document.querySelectorAll('body *')) {
        const hasText = [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim());
        if (!hasText || !node.checkVisibility()) continue;
        const own = luminance(numbers(getComputedStyle(node).color)), other = luminance(background(node));
        const ratio = (Math.max(own, other) + 0.05) / (Math.min(own, other) + 0.05);
        if (ratio < 4.5) elements.push([node.className, node.textContent.slice(0, 30), ratio]);
    }
    return elements;
})()"""


def stage(name: str) -> str:
    """Return an expression for the pod count on the button of a stage."""
    button = f"[...document.querySelectorAll('.stage')].find(b => b.lastChild.textContent === '{name}')"
    return f"{button}.firstChild.textContent"


async def test_pods_are_updated_live(browser):
    pods = TracedPods()
    async with pods.running() as url, open_page(browser, f"{url}/traces") as page:
        await wait_for(page, "document.getElementById('empty').textContent.startsWith('No pods yet')")
        pods.pending("web-5f-1")
        await wait_for(page, f"{NAMES}.join() === 'web-5f-1' && {stage('queued')} === '1'")
        pods.bound("web-5f-1")
        await wait_for(page, f"{stage('ready')} === '1' && {stage('queued')} === '0'")
        assert await page.evaluate(f"{ROWS}[0].innerText.includes('node-1')")
        await wait_for(page, "document.getElementById('rate-note').textContent.startsWith('1 in the last minute')")
        phases = await page.evaluate("[...document.querySelectorAll('.phase[data-phase]')].map(p => p.dataset.phase)")
        assert set(phases) <= set(KEYS)
        assert phases


async def test_page_without_traces_shows_a_note(browser):
    pods = TracedPods()
    note_visible = "document.querySelector('#phases .note').checkVisibility()"
    async with pods.running() as url, open_page(browser, f"{url}/traces") as page:
        await wait_for(page, note_visible)
        pods.pending("web-5f-1")
        pods.bound("web-5f-1")
        await wait_for(page, f"!{note_visible}")


async def test_names_and_namespaces_are_aligned(browser):
    bottoms_apart = """(row => {
        const bottom = selector => {
            const range = document.createRange();
            range.selectNodeContents(row.querySelector(selector));
            return range.getBoundingClientRect().bottom;
        };
        return Math.abs(bottom('b') - bottom('small'));
    })"""
    pods = TracedPods()
    for name in ("one", "web-5f-1", "-"):
        pods.pending(name)
    async with pods.running() as url, open_page(browser, f"{url}/traces") as page:
        await wait_for(page, f"{NAMES}.length === 3")
        assert sorted(await page.evaluate(NAMES)) == ["-", "one", "web-5f-1"]
        assert len({round(offset, 1) for offset in await page.evaluate(f"{ROWS}.map({bottoms_apart})")}) == 1


async def test_uncertain_edges_of_an_observed_trace_are_faded(browser):
    pods = TracedPods()
    pods.observed("db-0")
    pods.observed("old-0", reconstructed=True, owner="old")
    now_ns = pods.clock.time_ns()
    pods.clock_skew.timestamp("node-1", now_ns + 5_000_000_000, now_ns)
    pull = "[...document.querySelectorAll('.span')].find(s => s.textContent.includes('image pull postgres:18'))"
    schedule = pull.replace("image pull postgres:18", "schedule")
    async with pods.running() as url, open_page(browser, f"{url}/traces") as page:
        await wait_for(page, f"{NAMES}.length === 2")
        assert (
            await page.evaluate(f"{ROWS}.map(row => row.classList.contains('reconstructed')).sort().join()")
            == "false,true"
        )
        assert (
            await page.evaluate("document.getElementById('skew').textContent")
            == "Clocks differ: node-1: 5.00 s or more ahead"
        )
        await page.keyboard.press("/")
        await page.keyboard.insert_text("owner:statefulset/db")
        await page.keyboard.press("Enter")
        await wait_for(page, f"{pull} !== undefined")
        assert await page.evaluate(f"[...{pull}.querySelectorAll('.edge')].map(edge => edge.title)") == [
            "start: status of the container, up to 1.00 s earlier",
            "end: Event, up to 1.00 s earlier",
        ]
        bars = f"[...{pull}.querySelectorAll('.track > *')].map(node => node.getBoundingClientRect())"
        assert await page.evaluate(
            f"(([bar, start, end]) => start.right <= bar.left + 1 && start.width > 5 && end.left > bar.left"
            f" && Math.abs(end.right - bar.right) <= 1)({bars})"
        )
        assert await page.evaluate(f"{pull}.querySelector('.duration').textContent") == "2.20 s ±1.00 s"
        assert await page.evaluate(f"{schedule}.querySelectorAll('.edge.end').length") == 0
        origin = await page.evaluate("document.querySelector('.origin').textContent")
        assert origin.startswith("Observed through watches")
        assert "Clock of node-1: 5.00 s or more ahead" in origin


async def test_paused_page_stops_requests_and_resumes(browser):
    pods = TracedPods()
    pods.pending("web-5f-1")
    requested: list[str] = []
    async with pods.running() as url, open_page(browser, f"{url}/traces", requested=requested) as page:
        await wait_for(page, f"{NAMES}.length === 1")
        await page.evaluate(DELAY_RESPONSES)
        pods.pending("web-5f-2")
        await wait_for(page, "window.pass !== undefined")  # a response is pending
        await page.keyboard.press(" ")
        await wait_for(page, "document.getElementById('live-text').textContent === 'Paused'")
        before = len(requested)
        await page.evaluate("window.fetch = fetch_; pass(); new Promise(done => setTimeout(done, 1300))")
        assert len(requested) == before
        assert await page.evaluate(f"{NAMES}.length") == 1
        await page.keyboard.press(" ")
        await wait_for(page, f"{NAMES}.length === 2")


async def test_search_filters_by_text_fields_and_durations(browser):
    pods = TracedPods()
    for number in range(30):
        pods.pending(f"web-5f-{number:02}", message="0/3 nodes are available" if number < 4 else "")
    for number in range(4, 30):
        pods.bound(f"web-5f-{number:02}", node=f"node-{number % 2}")
    async with pods.running() as url, open_page(browser, f"{url}/traces") as page:
        await wait_for(page, f"{SHOWN} === '30'")
        for text, count in {
            "5f-07": 1,
            "NODE:node-1": 13,
            "stage:ready node-0": 13,
            "0/3 nodes": 4,
            "stage:unsched": 4,
            ">1h": 0,
            "<1h owner:web": 30,
            "nothing like it": 0,
        }.items():
            await page.keyboard.press("/")
            assert await page.evaluate("document.activeElement.id") == "search"
            await page.keyboard.insert_text(text)
            await wait_for(page, f"{SHOWN} === '{count}'")
            assert await page.evaluate("document.getElementById('pods-total').textContent") == str(count)
            await page.keyboard.press("Escape")
            await wait_for(page, f"{SHOWN} === '30'")
        await page.click(".stage[data-phase=waiting]:not([hidden])")
        await wait_for(page, f"{SHOWN} === '4'")
        assert await page.evaluate("document.querySelector('.stage[aria-pressed=true]').innerText.includes('4')")


async def test_waterfall_of_a_pending_pod_is_updated(browser):
    pods = TracedPods()
    pods.pending("web-5f-1", message="0/3 nodes are available: 3 node(s) didn't match")
    async with pods.running() as url, open_page(browser, f"{url}/traces") as page:
        await page.click(".row:not([hidden])")
        await wait_for(page, "document.querySelectorAll('.span').length >= 5")
        text = await page.evaluate("document.getElementById('detail').innerText")
        for expected in ("web-5f-1", "unschedulable", "attempt 1", "filter", "NodeAffinity rejected 3", "didn't match"):
            assert expected in text
        assert await page.evaluate("location.hash.startsWith('#pod=')")
        pods.bound("web-5f-1")
        await wait_for(page, "document.querySelector('.pill').textContent === 'ready'")
        await wait_for(page, "[...document.querySelectorAll('.span .name')].some(n => n.textContent === 'bind')")
        await page.evaluate("history.back()")
        await wait_for(page, "document.getElementById('detail').hidden")


def explanation(**fields: Any) -> dict[str, Any]:
    return {"summary": "", "message": "", "nodes": [], "details": [], "advice": [], "preemption": ""} | fields


def node_scores(node: str, total: int) -> dict[str, Any]:
    return {
        "node": node,
        "total": total,
        "plugins": [{"plugin": "Fit", "raw": 7, "normalized": total, "weighted": total}],
    }


BOUND = explanation(
    summary="the pod is bound to node-1",
    scores={
        "node": "node-1",
        "problem": "",
        "nodes": [node_scores("node-0", 90), node_scores("node-1", 50)],
        "feasible": 2,
        "rank": 2,
        "ties": 0,
        "boundLater": 1200,
        "extenders": [],
    },
)
PENDING = explanation(
    summary=f"no room {HTML_TEXT}",
    nodes=[
        {"node": f"n{number}", "obstacles": [{"plugin": "Fit", "reasons": ["too small"]}], "preemptionHelps": False}
        for number in range(8)
    ],
    advice=["add a node"],
    scores={"node": "", "problem": "the pod would fit no node now"},
)


@pytest.mark.parametrize(
    ("status", "answer", "shown"),
    [
        (
            200,
            BOUND,
            [
                "the pod is bound to node-1",
                "Of 2 nodes that the pod fits, node-1 has rank 2.",
                "plugin node-1 node-0 | total 50 90 | Fit 50 7 → 50 90 7 → 90",
                "Weighted scores, with raw → normalized. "
                "They are those of now, without this pod and 1,200 bound after it.",
            ],
        ),
        (
            200,
            PENDING,
            [
                f"no room {HTML_TEXT}",
                "plugin reason nodes which | Fit too small 8 n0, n1, n2, n3, n4, n5 and 2 more",
                "What would help:",
                "add a node",
            ],
        ),
        (404, {"error": "this process runs no scheduler"}, ["No explanation: this process runs no scheduler."]),
    ],
    ids=["bound", "pending", "no scheduler"],
)
async def test_explanation_of_a_pod_is_fetched_when_opened(browser, status, answer, shown):
    pods = TracedPods()
    pods.pending("web-5f-1")
    pods.bound("web-5f-1")
    async with pods.running() as url, open_page(browser, f"{url}/traces", fails=status != 200) as page:
        queries = []

        async def answer_explain(route):
            queries.append(route.request.url.partition("?")[2])
            await route.fulfill(status=status, json=answer)

        await page.route("**/debug/explain?*", answer_explain)
        await wait_for(page, f"{NAMES}.join() === 'web-5f-1'")
        await page.evaluate(f"{ROWS}[0].click()")
        await wait_for(page, "document.querySelector('.why summary') !== null")
        assert queries == []
        await page.click(".why summary")
        await wait_for(page, "document.querySelector('.explanation p').textContent !== '…'")
        assert queries == ["namespace=shop&pod=web-5f-1&scores=true"]
        parts = await page.evaluate(
            """(() => {
                const cells = row => [...row.cells].map(cell => cell.textContent).join(' ');
                const rows = part => [...part.querySelectorAll('tr')].map(cells).join(' | ');
                const text = part => part.matches('.table') ? rows(part) : part.textContent;
                return [...document.querySelector('.explanation').children].map(text);
            })()"""
        )
        assert parts == shown
        assert await page.evaluate(LOW_CONTRAST_TEXT) == []


async def test_rollout_shows_its_pods_and_links_the_slowest(browser):
    pods = TracedPods()
    for number in range(50):
        pods.pending(f"web-5f-{number:02}")
        pods.bound(f"web-5f-{number:02}")
    async with pods.running() as url, open_page(browser, f"{url}/traces") as page:
        await wait_for(page, f"{SHOWN} === '50'")
        await page.keyboard.press("r")
        await page.click(".row.rollout")
        await wait_for(page, "document.querySelectorAll('.slowest a').length === 5")
        assert "50 of 50 bound" in await page.evaluate("document.querySelector('.meta').innerText")
        assert await page.evaluate("document.querySelectorAll('table tbody tr').length") >= 3
        painted = """(() => { const c = document.querySelector('canvas');
            return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0); })()"""
        await wait_for(page, painted)
        await page.evaluate("document.querySelector('canvas').focus()")
        await page.keyboard.press("End")
        await wait_for(page, "document.querySelector('.at').textContent.includes('web-5f-49')")
        await page.keyboard.press("Enter")
        await wait_for(page, "document.querySelector('#detail h2').textContent === 'web-5f-49'")


async def test_pod_group_is_a_rollout_with_its_attempts(browser):
    pods = TracedPods()
    pods.pending("web-5f-0")
    pods.start_group("train", 2)
    for number in (1, 2):
        pods.pending(f"web-5f-{number}")
    now_ns = pods.clock.time_ns()
    placements = [PlacementFacts("rack=a", now_ns, now_ns, 1, "1 of 2 pods fit")]
    pods.group_attempt("unschedulable", pods=2, message="0/1 placements are available", placements=placements)
    spans = "[...document.querySelectorAll('.group .span .name')].map(name => name.textContent)"
    async with pods.running() as url, open_page(browser, f"{url}/traces") as page:
        await wait_for(page, f"{SHOWN} === '3'")
        await page.keyboard.press("r")
        await wait_for(page, f"{NAMES}.sort().join() === 'deployment/web,podgroup/train'")
        await page.keyboard.press("/")
        await page.keyboard.insert_text("podgroup:train")
        await wait_for(page, f"{SHOWN} === '2'")
        await page.evaluate(f"{ROWS}.find(row => row.textContent.includes('podgroup')).click()")
        await wait_for(page, f"{spans}.includes('placement rack=a')")
        pods.group_attempt("scheduled", pods=2, scheduled_pods=2)
        for number in (1, 2):
            pods.bound(f"web-5f-{number}")
        await wait_for(page, f"{spans}.includes('attempt 2') && {spans}.includes('group binding')")
        assert "2 of 2 bound" in await page.evaluate("document.querySelector('.meta').innerText")
        await page.evaluate("document.querySelector('.slowest a').click()")
        await wait_for(page, "document.querySelector('.meta')?.innerText.includes('pod group')")
        await wait_for(page, "document.querySelector('.links a')?.textContent === 'the scheduling of its group'")
        await page.evaluate("document.querySelector('.links a').click()")
        await wait_for(page, "document.querySelector('#detail h2').textContent === 'pod group shop/train'")


async def test_file_of_a_pod_group_opens_it_with_its_attempts(browser, tmp_path):
    pods = TracedPods()
    pods.start_group("train", 2)
    for number in (1, 2):
        pods.pending(f"web-5f-{number}")
    pods.group_attempt("unschedulable", pods=2, message="no room")
    (group,) = pods.tracing.groups.open_records()
    documents = [*map(pods.tracing.recent.document, pods.tracing.recent.records())]
    documents.append(pods.tracing.recent.find_linked_trace(group.context.trace_id))
    path = tmp_path / "train.html"
    path.write_text(self_contained_page(documents, kind="podgroup", name="train", title="podgroup train"))
    async with open_page(browser, path.as_uri()) as page:
        await wait_for(page, "document.querySelector('#detail h2')?.textContent === 'podgroup/train'")
        await wait_for(page, "document.querySelector('.group')?.innerText.includes('no room')")


async def test_page_is_controlled_by_keyboard(browser):
    pods = TracedPods()
    for number in range(100):
        pods.pending(f"web-5f-{number:03}")
        pods.bound(f"web-5f-{number:03}")
    active = "document.querySelector('.row.active:not([hidden]) b')?.textContent"
    async with pods.running() as url, open_page(browser, f"{url}/traces") as page:
        await wait_for(page, f"{SHOWN} === '100'")
        order = []
        for _ in range(40):
            await page.keyboard.press("Tab")
            order.append(await page.evaluate("document.activeElement.id || document.activeElement.className"))
            if order[-1] == "list":
                break
        assert order[0] == "skip"
        assert [name for name in order if name in ("search", "live", "help-button", "tab-pods", "sort", "list")] == [
            "search", "live", "help-button", "tab-pods", "sort", "list",
        ]  # fmt: skip
        newest = await page.evaluate(active)
        assert newest == "web-5f-099"
        await page.keyboard.press("j")
        await page.keyboard.press("ArrowDown")
        assert await page.evaluate(active) == "web-5f-097"
        active_id = "document.getElementById('list').getAttribute('aria-activedescendant')"
        assert await page.evaluate(f"document.getElementById({active_id}).classList.contains('active')")
        await page.keyboard.press("End")
        assert await page.evaluate(active) == "web-5f-000"
        await page.keyboard.press("k")
        await page.keyboard.press("Enter")
        await wait_for(page, "document.querySelectorAll('.span').length > 4")
        assert await page.evaluate("document.querySelector('#detail h2').textContent") == "web-5f-001"
        assert await page.evaluate("document.getElementById('detail').contains(document.activeElement)")
        await page.keyboard.press("Tab")
        for _ in range(8):
            if await page.evaluate("document.activeElement.getAttribute('role') === 'treeitem'"):
                break
            await page.keyboard.press("Tab")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
        assert await page.evaluate("document.activeElement.querySelector('.facts').innerText.includes('span')")
        await page.keyboard.press("Escape")
        await wait_for(page, "document.getElementById('detail').hidden && document.activeElement.id === 'list'")
        await page.keyboard.press("s")
        await wait_for(page, "document.getElementById('sort').value === 'slowest'")
        await page.keyboard.press("?")
        assert await page.evaluate("document.getElementById('help').open")
        await page.keyboard.press("Escape")
        assert not await page.evaluate("document.getElementById('help').open")


async def test_ten_thousand_pods_are_rendered_incrementally(browser):
    pods = TracedPods()
    for number in range(10_000):
        pods.pending(f"web-5f-{number:05}")
        if number >= 2000:
            pods.bound(f"web-5f-{number:05}", node=f"node-{number % 100}")
    requested: list[str] = []
    async with pods.running() as url, open_page(browser, f"{url}/traces", requested=requested) as page:
        await page.evaluate("window.frames_ = 0; (function frame() { frames_++; requestAnimationFrame(frame); })(); 1")
        await wait_for(page, f"{SHOWN} === '10,000'")
        elements = await page.evaluate("document.querySelectorAll('*').length")
        assert elements < 1500
        rows = await page.evaluate("document.querySelectorAll('.row').length")
        assert 10 < rows < 60
        for part in range(1, 6):
            frames = await page.evaluate("frames_")
            await page.evaluate(
                f"(l => l.scrollTop = l.scrollHeight * {part / 5} - l.clientHeight)(document.getElementById('list'))"
            )
            await wait_for(page, f"frames_ > {frames} + 2")
        await wait_for(page, f"{NAMES}.at(-1) === 'web-5f-00000'")
        await page.keyboard.press("/")
        await page.keyboard.insert_text("node:node-77")
        await wait_for(page, f"{SHOWN} === '80'")
        await page.keyboard.press("Escape")
        pods.bound("web-5f-00003")
        await wait_for(page, f"{stage('ready')} === '8,001' && {SHOWN} === '10,000'")
        assert await page.evaluate("document.querySelectorAll('.row').length") < 60
        # pages of five hundred pods, then only changes
        requests = [url for url in requested if "/debug/traces/lines" in url]
        assert len(requests) >= 20
        await page.keyboard.press("r")
        await page.click(".row.rollout")
        await wait_for(page, "document.querySelectorAll('.slowest a').length === 5")
        frames = await page.evaluate("frames_")
        await wait_for(page, f"frames_ > {frames} + 5")


async def test_messages_of_pods_are_escaped(browser):
    pods = TracedPods()
    pods.pending("web-5f-1", message=HTML_TEXT)
    requested: list[str] = []
    async with pods.running() as url, open_page(browser, f"{url}/traces", requested=requested) as page:
        await page.click(".row:not([hidden])")
        await wait_for(page, "document.querySelectorAll('.span').length >= 5")
        assert await page.evaluate("document.querySelector('.reason').textContent") == HTML_TEXT
        assert await page.evaluate("document.querySelectorAll('img').length") == 0
        assert all(target.startswith((url, "data:")) for target in requested)


async def test_content_security_policy_refuses_inline_styles(browser):
    pods = TracedPods()
    async with pods.running() as url, open_page(browser, f"{url}/traces", fails=True) as page:
        await wait_for(page, "document.getElementById('empty').textContent.length > 0")
        refused = await page.evaluate(SET_STYLE_ATTRIBUTE)
        assert refused == "style-src-attr"
        async with aiohttp.request("GET", f"{url}/traces") as response:
            policy = response.headers["Content-Security-Policy"]
            assert "unsafe" not in policy
            assert "default-src 'none'" in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"


@contextlib.asynccontextmanager
async def empty_page() -> AsyncIterator[str]:
    """Serve an empty page, and yield its URL: of another origin than the trace page."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):  # a connection that the browser opened in advance
            await reader.readuntil(b"\r\n\r\n")
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"
            writer.write(head + b"<link rel=icon href=data:>")
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_pages_of_other_origins_cannot_read_traces(browser):
    pods = TracedPods()
    pods.pending("web-5f-1")
    async with (
        pods.running() as url,
        empty_page() as other_url,
        open_page(browser, other_url, fails=True) as page,
    ):
        assert await page.evaluate(READ_TRACES, url) == ["TypeError", "TypeError", "error", "error"]
        (frame,) = page.main_frame.child_frames
        await frame.wait_for_url("chrome-error:**")  # refused by frame-ancestors


async def test_rebound_name_cannot_read_traces(browser):
    """A name of an attacker that resolves to this machine: here, the endpoint serves as the proxy of the browser."""
    pods = TracedPods()
    pods.pending("web-5f-1")
    async with pods.running() as url:
        context = await browser.new_context(proxy={"server": url})
        try:
            page = await context.new_page()
            for path in ("/traces", "/debug/traces/lines"):
                response = await page.goto(f"http://rebound.example{path}")
                assert response.status == 403
                assert "web-5f-1" not in await page.content()
            assert (await page.goto("http://web.localhost/traces")).status == 200
        finally:
            await context.close()


async def test_lost_connection_is_shown_and_retried(browser):
    pods = TracedPods()
    pods.pending("web-5f-1")
    async with pods.running() as url, open_page(browser, f"{url}/traces") as page:
        await wait_for(page, f"{NAMES}.length === 1")
        fetch = "window.fetch_ = fetch; window.fetch = () => Promise.reject(new Error('refused')); 1"
        await page.evaluate(fetch)
        await wait_for(page, "document.getElementById('live-text').textContent === 'Not connected'")
        assert await page.evaluate(f"{NAMES}.length") == 1
        await page.evaluate("window.fetch = fetch_; document.dispatchEvent(new Event('visibilitychange')); 1")
        await wait_for(page, "document.getElementById('live-text').textContent === 'Live'")


async def test_untraced_pod_shows_a_note(browser):
    pods = TracedPods()
    pods.untraced("old")
    # the browser logs the 404 of the trace
    async with pods.running() as url, open_page(browser, f"{url}/traces", fails=True) as page:
        await page.click(".row:not([hidden])")
        await wait_for(page, "document.getElementById('detail').innerText.includes('No trace')")
        assert "not traced" in await page.evaluate(f"{ROWS}[0].innerText")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)], ids=["desktop", "phone"])
async def test_text_has_contrast_and_fits_the_screen(browser, width, height, dark):
    pods = TracedPods()
    for number in range(40):
        pods.pending(f"web-5f-{number:02}", message="0/3 nodes are available" if number % 9 == 0 else "")
    async with (
        pods.running() as url,
        open_page(browser, f"{url}/traces", width=width, height=height, dark=dark) as page,
    ):
        await wait_for(page, f"{SHOWN} === '40'")
        await page.click(".row:not([hidden])")
        await wait_for(page, "document.querySelectorAll('.span').length >= 3")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await page.evaluate(LOW_CONTRAST_TEXT) == []


@pytest.mark.parametrize("width", [1440, 800])
async def test_stage_names_are_not_truncated(browser, width):
    pods = TracedPods()
    pods.pending("web-5f-a", message="0/3 nodes are available")
    async with pods.running() as url, open_page(browser, f"{url}/traces", width=width, height=900) as page:
        await wait_for(page, f"{SHOWN} === '1'")
        truncated = await page.evaluate("""(() => {
            const row = document.querySelector('.row:not([hidden])'), cell = row.querySelector('.stage-name');
            return Kubeloop.STAGES.filter((stage) => {
                row.dataset.phase = stage.phase; cell.textContent = stage.key;
                return cell.scrollWidth > cell.clientWidth;
            }).map((stage) => stage.key); })()""")
        assert truncated == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_self_contained_page_needs_no_network(browser, tmp_path):
    pods = TracedPods()
    for number in range(450):
        pods.pending(f"web-5f-{number:03}", message=HTML_TEXT if number == 0 else "")
        if number:
            pods.bound(f"web-5f-{number:03}")
    documents = [pods.tracing.recent.document(record) for record in pods.tracing.recent.records()]
    path = tmp_path / "traces.html"
    path.write_text(self_contained_page(documents, kind="deployment", name="web", title="deployment shop/web"))
    requested: list[str] = []
    async with open_page(browser, path.as_uri(), requested=requested) as page:
        await wait_for(page, "document.querySelectorAll('.slowest a').length === 5")
        assert await page.evaluate("document.title") == "deployment shop/web · kubeloop traces"
        assert await page.evaluate(SHOWN) == "450"
        await page.keyboard.press("Escape")
        await page.keyboard.press("p")
        await page.keyboard.press("/")
        await page.keyboard.insert_text("5f-000")
        await wait_for(page, f"{SHOWN} === '1'")
        await page.keyboard.press("Enter")
        await wait_for(page, "document.querySelectorAll('.span').length >= 5")
        assert await page.evaluate("document.querySelector('.reason').textContent") == HTML_TEXT
        assert all(target.startswith(("file:", "data:")) for target in requested)
        assert not await page.evaluate("document.getElementById('live').checkVisibility()")


async def test_self_contained_page_of_a_pod_opens_its_waterfall(browser, tmp_path):
    pods = TracedPods()
    pods.pending("web-5f-1")
    path = tmp_path / "pod.html"
    path.write_text(
        self_contained_page(
            [pods.tracing.recent.find_pod_trace("shop", "web-5f-1")], kind="pod", name="web-5f-1", title="x"
        )
    )
    async with open_page(browser, path.as_uri()) as page:
        await wait_for(page, "document.querySelectorAll('.span').length >= 3")
        assert await page.evaluate("document.querySelector('#detail h2').textContent") == "web-5f-1"


async def test_partial_counts_are_no_totals_while_the_page_loads(browser):
    pods = TracedPods()
    for number in range(1200):
        pods.pending(f"web-5f-{number:04}", message="0/3 nodes are available")
    held, responses = asyncio.Event(), 0
    total, pill = "document.getElementById('pods-total').textContent", "document.querySelector('.pill').textContent"

    async def hold_all_but_the_first(route):
        nonlocal responses
        responses += 1
        if responses > 1:
            await held.wait()
        await route.continue_()

    async with pods.running() as url, open_page(browser, "about:blank") as page:
        await page.route("**/debug/traces/lines*", hold_all_but_the_first)
        await page.goto(f"{url}/traces#rollout=shop%2Fdeployment%2Fweb")
        await wait_for(page, f"{total} === 'loading 500 of 1,200' && {pill} === 'loading'")
        texts = await page.evaluate(
            f"[{stage('unschedulable')}, {SHOWN}, document.getElementById('rate-note').textContent,"
            " document.querySelector('.detail .body').textContent, document.querySelector('.detail dl').textContent]"
        )
        assert texts == ["…", "…", "loading", "Loading 500 of 1,200", ""]
        held.set()
        await wait_for(page, f"{total} === '1,200' && {stage('unschedulable')} === '1,200' && {SHOWN} === '1,200'")
        await wait_for(page, f"{pill} === 'in progress'")
        await wait_for(page, "document.querySelector('.detail dd').textContent === '0 of 1,200 bound'")


async def test_pods_and_rollouts_that_are_unknown_are_not_shown_as_such(browser):
    pods = TracedPods()
    pods.pending("web-5f-1")
    note = "document.querySelector('.detail .note')?.textContent"
    async with pods.running() as url:
        async with open_page(browser, f"{url}/traces#pod=none") as page:
            await wait_for(page, f"{note}?.startsWith('There is no such pod: it never existed')")
        async with open_page(browser, f"{url}/traces#rollout=shop%2Fdeployment%2Fnone") as page:
            await wait_for(page, f"{note}?.startsWith('No pod of it is known')")
            assert await page.evaluate("document.querySelector('.pill').textContent") == "unknown"


MINUTE_MS = 60_000
REASON = "0/3 nodes are available: 3 node(s) had untolerated taint(s)."
# Labels of one axis that overlap, and texts that are cut off.
OVERLAPS_AND_CUTS = """(() => {
    const problems = [];
    for (const axis of document.querySelectorAll('.axis, .ticks')) {
        const boxes = [...axis.querySelectorAll(':scope > i')].filter(label => label.checkVisibility())
            .map(label => [label.textContent, label.getBoundingClientRect()]);
        boxes.slice(1).forEach(([text, box], at) => { if (box.left < boxes[at][1].right + 2) problems.push(text); });
    }
    const texts = ".cell.duration, .p50, .p99, .slowest span, .slowest small, .track span, .reason, .head .duration";
    for (const node of document.querySelectorAll(texts))
        if (node.checkVisibility() && node.scrollWidth > node.clientWidth + 1) problems.push(node.textContent);
    return problems;
})()"""


def long_traces():
    """Return the traces of pods that waited for 15 minutes, and of one that has waited for 46."""
    edges = {"kubeloop__end__uncertainty_ms": 38_000}
    documents = []
    for number in range(6):
        is_open, end_ms = not number, (46 if not number else 15) * MINUTE_MS + 38_000
        wait = span("queue unschedulable", 0, end_ms, error=REASON, parent=f"root-{number}", **edges)
        node = {} if is_open else {"k8s__node__name": "n1"}
        trace = document(
            wait,
            outcome="open" if is_open else "bound",
            end_ms=end_ms,
            name=f"web-5f-{number}",
            k8s__deployment__name="web",
            **edges,
            **node,
        )
        trace["traceId"], trace["spans"][0]["spanId"] = f"{number + 1:032x}", f"root-{number}"
        documents.append(trace)
    return documents


@pytest.mark.parametrize("width", [400, 760, 1000, 1440])
async def test_labels_do_not_overlap_and_durations_keep_their_unit(browser, tmp_path, width):
    file = tmp_path / "traces.html"
    file.write_text(self_contained_page([*long_traces(), apply_document()], kind="", name="", title="long"))
    async with open_page(browser, file.as_uri(), width=width) as page:
        await wait_for(page, f"{SHOWN} === '6'")  # the apply request is none of them
        assert await page.evaluate(OVERLAPS_AND_CUTS) == []
        await page.keyboard.press("r")
        await wait_for(page, f"{ROWS}[0].querySelector('.duration').textContent === 'p99 >46.6 min'")
        assert await page.evaluate(OVERLAPS_AND_CUTS) == []
        for key in ("rollout=shop%2Fdeployment%2Fweb", "pod=root-0"):
            await page.evaluate(f"location.hash = '{key}'")
            await wait_for(page, "document.querySelector('.detail .axis i') !== null")
            assert await page.evaluate(OVERLAPS_AND_CUTS) == [], key
