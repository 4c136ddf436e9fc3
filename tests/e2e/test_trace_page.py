"""The page for browsers, in headless Chromium: what one sees, by mouse, by keyboard, and with ten thousand pods."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from kubeloop.tracing.views.browser_page import self_contained_page
from kubeloop.tracing.views.phases import KEYS
from support.browser import Browser, browsing, chromium
from support.traced_pods import TracedPods

pytestmark = [
    pytest.mark.skipif(chromium() is None, reason="no chromium on the PATH"),
    pytest.mark.asyncio(loop_scope="module"),
]

NASTY = "<img src=x onerror=alert(1)> </script><script>alert(2)</script> \"'&"
ROWS = "[...document.querySelectorAll('.row:not([hidden])')]"
NAMES = f"{ROWS}.map(row => row.querySelector('b').textContent)"
SHOWN = "document.getElementById('shown-pods').textContent"

STYLED_BY_ATTRIBUTE = """new Promise(done => {
    document.addEventListener('securitypolicyviolation', event => done(event.violatedDirective));
    const node = document.createElement('div');
    node.setAttribute('style', 'color: red');
    document.body.append(node);
})"""
ANSWERS_WAIT = """window.fetch_ = fetch;
window.fetch = async (...asked) => {
    const answer = await fetch_(...asked);
    await new Promise(done => { window.pass = done; });
    return answer;
};
1"""
# Elements whose text has less contrast than WCAG 2 asks for (4.5 to 1).
FAINT_TEXT = """(() => {
    const numbers = color => color.match(/[\\d.]+/g).map(Number);
    const linear = value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const luminance = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
    const behind = node => {
        for (; node; node = node.parentElement) {
            const color = numbers(getComputedStyle(node).backgroundColor);
            if (color.length < 4 || color[3] > 0.9) return color;
        }
        return [255, 255, 255];
    };
    const found = [];
    for (const node of document.querySelectorAll('body *')) {
        const says = [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim());
        if (!says || !node.checkVisibility()) continue;
        const own = luminance(numbers(getComputedStyle(node).color)), other = luminance(behind(node));
        const ratio = (Math.max(own, other) + 0.05) / (Math.min(own, other) + 0.05);
        if (ratio < 4.5) found.push([node.className, node.textContent.slice(0, 30), ratio]);
    }
    return found;
})()"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as found:
        yield found


def stage(name: str) -> str:
    """How many pods the button of a stage counts."""
    button = f"[...document.querySelectorAll('.stage')].find(b => b.lastChild.textContent === '{name}')"
    return f"{button}.firstChild.textContent"


async def test_pods_appear_and_move_on_while_one_looks(browser):
    pods = TracedPods()
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.wait_for("document.getElementById('empty').textContent.startsWith('No pods yet')")
        pods.pending("web-5f-1")
        await page.wait_for(f"{NAMES}.join() === 'web-5f-1' && {stage('queued')} === '1'")
        pods.bound("web-5f-1")
        await page.wait_for(f"{stage('ready')} === '1' && {stage('queued')} === '0'")
        assert await page.evaluate(f"{ROWS}[0].innerText.includes('node-1')")
        await page.wait_for("document.getElementById('rate-note').textContent.startsWith('1 in the last minute')")
        phases = await page.evaluate("[...document.querySelectorAll('.phase[data-phase]')].map(p => p.dataset.phase)")
        assert set(phases) <= set(KEYS)
        assert phases


async def test_before_there_is_a_trace_it_says_so(browser):
    pods = TracedPods()
    none = "document.querySelector('#phases .note').checkVisibility()"
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.wait_for(none)
        pods.pending("web-5f-1")
        pods.bound("web-5f-1")
        await page.wait_for(f"!{none}")


async def test_names_and_namespaces_stand_on_one_line(browser):
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
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.wait_for(f"{NAMES}.length === 3")
        assert sorted(await page.evaluate(NAMES)) == ["-", "one", "web-5f-1"]
        assert len({round(each, 1) for each in await page.evaluate(f"{ROWS}.map({bottoms_apart})")}) == 1


async def test_held_still_it_asks_no_more_and_goes_on_where_it_was(browser):
    pods = TracedPods()
    pods.pending("web-5f-1")
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.wait_for(f"{NAMES}.length === 1")
        await page.evaluate(ANSWERS_WAIT)
        pods.pending("web-5f-2")
        await page.wait_for("window.pass !== undefined")  # an answer is under way
        await page.press(" ")
        assert await page.wait_for("document.getElementById('live-text').textContent === 'Paused'")
        asked = len(page.requested)
        await page.evaluate("window.fetch = fetch_; pass(); new Promise(done => setTimeout(done, 1300))")
        assert len(page.requested) == asked
        assert await page.evaluate(f"{NAMES}.length") == 1
        await page.press(" ")
        await page.wait_for(f"{NAMES}.length === 2")


async def test_search_finds_by_words_fields_and_times_and_narrows_every_picture(browser):
    pods = TracedPods()
    for number in range(30):
        pods.pending(f"web-5f-{number:02}", message="0/3 nodes are available" if number < 4 else "")
    for number in range(4, 30):
        pods.bound(f"web-5f-{number:02}", node=f"node-{number % 2}")
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.wait_for(f"{SHOWN} === '30'")
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
            await page.press("/")
            assert await page.evaluate("document.activeElement.id") == "search"
            await page.write(text)
            await page.wait_for(f"{SHOWN} === '{count}'")
            assert await page.evaluate("document.getElementById('pods-total').textContent") == str(count)
            await page.press("Escape")
            await page.wait_for(f"{SHOWN} === '30'")
        await page.click(".stage[data-phase=waiting]:not([hidden])")
        await page.wait_for(f"{SHOWN} === '4'")
        assert await page.evaluate("document.querySelector('.stage[aria-pressed=true]').innerText.includes('4')")


async def test_a_pods_waterfall_opens_with_its_reasons_and_goes_on_while_it_waits(browser):
    pods = TracedPods()
    pods.pending("web-5f-1", message="0/3 nodes are available: 3 node(s) didn't match")
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.click(".row:not([hidden])")
        await page.wait_for("document.querySelectorAll('.span').length >= 5")
        text = await page.evaluate("document.getElementById('detail').innerText")
        for expected in ("web-5f-1", "unschedulable", "attempt 1", "filter", "NodeAffinity rejected 3", "didn't match"):
            assert expected in text
        assert await page.evaluate("location.hash.startsWith('#pod=')")
        pods.bound("web-5f-1")
        await page.wait_for("document.querySelector('.pill').textContent === 'ready'")
        await page.wait_for("[...document.querySelectorAll('.span .name')].some(n => n.textContent === 'bind')")
        await page.evaluate("history.back()")
        await page.wait_for("document.getElementById('detail').hidden")


async def test_a_rollout_opens_with_its_pods_as_lines_and_leads_to_the_slowest(browser):
    pods = TracedPods()
    for number in range(50):
        pods.pending(f"web-5f-{number:02}")
        pods.bound(f"web-5f-{number:02}")
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.wait_for(f"{SHOWN} === '50'")
        await page.press("r")
        await page.click(".row.rollout")
        await page.wait_for("document.querySelectorAll('.slowest a').length === 5")
        assert "50 of 50 bound" in await page.evaluate("document.querySelector('.meta').innerText")
        assert await page.evaluate("document.querySelectorAll('table tbody tr').length") >= 3
        painted = """(() => { const c = document.querySelector('canvas');
            return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0); })()"""
        await page.wait_for(painted)
        await page.evaluate("document.querySelector('canvas').focus()")
        await page.press("End")
        await page.wait_for("document.querySelector('.at').textContent.includes('web-5f-49')")
        await page.press("Enter")
        await page.wait_for("document.querySelector('#detail h2').textContent === 'web-5f-49'")


async def test_everything_can_be_done_by_keyboard(browser):
    pods = TracedPods()
    for number in range(100):
        pods.pending(f"web-5f-{number:03}")
        pods.bound(f"web-5f-{number:03}")
    active = "document.querySelector('.row.active:not([hidden]) b')?.textContent"
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.wait_for(f"{SHOWN} === '100'")
        order = []
        for _ in range(40):
            await page.press("Tab")
            order.append(await page.evaluate("document.activeElement.id || document.activeElement.className"))
            if order[-1] == "list":
                break
        assert order[0] == "skip"
        assert [each for each in order if each in ("search", "live", "help-button", "tab-pods", "sort", "list")] == [
            "search", "live", "help-button", "tab-pods", "sort", "list",
        ]  # fmt: skip
        newest = await page.evaluate(active)
        assert newest == "web-5f-099"
        await page.press("j")
        await page.press("ArrowDown")
        assert await page.evaluate(active) == "web-5f-097"
        active_id = "document.getElementById('list').getAttribute('aria-activedescendant')"
        assert await page.evaluate(f"document.getElementById({active_id}).classList.contains('active')")
        await page.press("End")
        assert await page.evaluate(active) == "web-5f-000"
        await page.press("k")
        await page.press("Enter")
        await page.wait_for("document.querySelectorAll('.span').length > 4")
        assert await page.evaluate("document.querySelector('#detail h2').textContent") == "web-5f-001"
        assert await page.evaluate("document.getElementById('detail').contains(document.activeElement)")
        await page.press("Tab")
        for _ in range(8):
            if await page.evaluate("document.activeElement.getAttribute('role') === 'treeitem'"):
                break
            await page.press("Tab")
        await page.press("ArrowDown")
        await page.press("Enter")
        assert await page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
        assert await page.evaluate("document.activeElement.querySelector('.facts').innerText.includes('span')")
        await page.press("Escape")
        await page.wait_for("document.getElementById('detail').hidden && document.activeElement.id === 'list'")
        await page.press("s")
        assert await page.wait_for("document.getElementById('sort').value === 'slowest'")
        await page.press("?")
        assert await page.evaluate("document.getElementById('help').open")
        await page.press("Escape")
        assert not await page.evaluate("document.getElementById('help').open")


async def test_ten_thousand_pods_neither_fill_the_document_nor_hold_it_up(browser):
    pods = TracedPods()
    for number in range(10_000):
        pods.pending(f"web-5f-{number:05}")
        if number >= 2000:
            pods.bound(f"web-5f-{number:05}", node=f"node-{number % 100}")
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.evaluate("window.frames_ = 0; (function frame() { frames_++; requestAnimationFrame(frame); })(); 1")
        await page.wait_for(f"{SHOWN} === '10,000'")
        elements = await page.evaluate("document.querySelectorAll('*').length")
        assert elements < 1500
        rows = await page.evaluate("document.querySelectorAll('.row').length")
        assert 10 < rows < 60
        for part in range(1, 6):
            frames = await page.evaluate("frames_")
            await page.evaluate(
                f"(l => l.scrollTop = l.scrollHeight * {part / 5} - l.clientHeight)(document.getElementById('list'))"
            )
            await page.wait_for(f"frames_ > {frames} + 2")
        assert (await page.wait_for(f"{NAMES}.at(-1) === 'web-5f-00000' && {NAMES}"))[-1] == "web-5f-00000"
        await page.press("/")
        await page.write("node:node-77")
        await page.wait_for(f"{SHOWN} === '80'")
        await page.press("Escape")
        pods.bound("web-5f-00003")
        await page.wait_for(f"{stage('ready')} === '8,001' && {SHOWN} === '10,000'")
        assert await page.evaluate("document.querySelectorAll('.row').length") < 60
        # ten thousand came in answers of five hundred, and what changed since alone
        asked = [each for each in page.requested if "/debug/traces/lines" in each]
        assert len(asked) >= 20
        await page.press("r")
        await page.click(".row.rollout")
        await page.wait_for("document.querySelectorAll('.slowest a').length === 5")
        frames = await page.evaluate("frames_")
        await page.wait_for(f"frames_ > {frames} + 5")


async def test_what_a_pod_says_stays_text(browser):
    pods = TracedPods()
    pods.pending("web-5f-1", message=NASTY)
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.click(".row:not([hidden])")
        await page.wait_for("document.querySelectorAll('.span').length >= 5")
        assert await page.evaluate("document.querySelector('.reason').textContent") == NASTY
        assert await page.evaluate("document.querySelectorAll('img').length") == 0
        assert all(each.startswith((url, "data:")) for each in page.requested)


async def test_the_policy_of_the_page_refuses_what_is_not_its_own(browser):
    pods = TracedPods()
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.wait_for("document.getElementById('empty').textContent.length > 0")
        refused = await page.evaluate(STYLED_BY_ATTRIBUTE)
        assert refused == "style-src-attr"
        page.problems.clear()
        async with aiohttp.request("GET", f"{url}/traces") as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "unsafe" not in policy
            assert "default-src 'none'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_process_that_is_gone_is_told_and_asked_again(browser):
    pods = TracedPods()
    pods.pending("web-5f-1")
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.wait_for(f"{NAMES}.length === 1")
        fetch = "window.fetch_ = fetch; window.fetch = () => Promise.reject(new Error('refused')); 1"
        await page.evaluate(fetch)
        await page.wait_for("document.getElementById('live-text').textContent === 'Not connected'")
        assert await page.evaluate(f"{NAMES}.length") == 1
        await page.evaluate("window.fetch = fetch_; document.dispatchEvent(new Event('visibilitychange')); 1")
        await page.wait_for("document.getElementById('live-text').textContent === 'Live'")


async def test_a_pod_without_a_trace_says_so(browser):
    pods = TracedPods()
    pods.untraced("old")
    async with pods.serving() as url, browser.page(f"{url}/traces") as page:
        await page.click(".row:not([hidden])")
        await page.wait_for("document.getElementById('detail').innerText.includes('No trace')")
        assert "not traced" in await page.evaluate(f"{ROWS}[0].innerText")
        page.problems.clear()  # the browser's own note of the 404


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)], ids=["desktop", "phone"])
async def test_text_stands_out_and_nothing_is_wider_than_the_screen(browser, width, height, dark):
    pods = TracedPods()
    for number in range(40):
        pods.pending(f"web-5f-{number:02}", message="0/3 nodes are available" if number % 9 == 0 else "")
    async with pods.serving() as url, browser.page(f"{url}/traces", width=width, height=height, dark=dark) as page:
        await page.wait_for(f"{SHOWN} === '40'")
        await page.click(".row:not([hidden])")
        await page.wait_for("document.querySelectorAll('.span').length >= 3")
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        faint = await page.evaluate(FAINT_TEXT)
        assert faint == []


@pytest.mark.parametrize("width", [1440, 800])
async def test_the_list_has_room_for_the_name_of_every_stage(browser, width):
    pods = TracedPods()
    pods.pending("web-5f-a", message="0/3 nodes are available")
    async with pods.serving() as url, browser.page(f"{url}/traces", width=width, height=900) as page:
        await page.wait_for(f"{SHOWN} === '1'")
        cut = await page.evaluate("""(() => {
            const row = document.querySelector('.row:not([hidden])'), cell = row.querySelector('.stage-name');
            return Kubeloop.STAGES.filter((stage) => {
                row.dataset.phase = stage.phase; cell.textContent = stage.key;
                return cell.scrollWidth > cell.clientWidth;
            }).map((stage) => stage.key); })()""")
        assert cut == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_a_file_holds_the_same_page_and_needs_no_network(browser, tmp_path):
    pods = TracedPods()
    for number in range(450):
        pods.pending(f"web-5f-{number:03}", message=NASTY if number == 0 else "")
        if number:
            pods.bound(f"web-5f-{number:03}")
    documents = [pods.tracing.recent.document(record) for record in pods.tracing.recent.records()]
    path = tmp_path / "traces.html"
    path.write_text(self_contained_page(documents, kind="deployment", name="web", title="deployment shop/web"))
    async with browser.page(path.as_uri()) as page:
        await page.wait_for("document.querySelectorAll('.slowest a').length === 5")
        assert await page.evaluate("document.title") == "deployment shop/web · kubeloop traces"
        assert await page.evaluate(SHOWN) == "450"
        await page.press("Escape")
        await page.press("p")
        await page.press("/")
        await page.write("5f-000")
        await page.wait_for(f"{SHOWN} === '1'")
        await page.press("Enter")
        await page.wait_for("document.querySelectorAll('.span').length >= 5")
        assert await page.evaluate("document.querySelector('.reason').textContent") == NASTY
        assert all(each.startswith(("file:", "data:")) for each in page.requested)
        assert not await page.evaluate("document.getElementById('live').checkVisibility()")


async def test_a_file_of_a_pod_opens_at_its_waterfall(browser, tmp_path):
    pods = TracedPods()
    pods.pending("web-5f-1")
    path = tmp_path / "pod.html"
    path.write_text(
        self_contained_page(
            [pods.tracing.recent.find_pod_trace("shop", "web-5f-1")], kind="pod", name="web-5f-1", title="x"
        )
    )
    async with browser.page(path.as_uri()) as page:
        await page.wait_for("document.querySelectorAll('.span').length >= 3")
        assert await page.evaluate("document.querySelector('#detail h2').textContent") == "web-5f-1"
