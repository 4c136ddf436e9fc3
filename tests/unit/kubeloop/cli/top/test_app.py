"""`kubeloop top` on a terminal of 80 columns and 24 lines, with a source of fixed pods."""

from __future__ import annotations

import asyncio

import pytest
from rich.text import Text

from kubeloop.kube.user_error import UserError
from kubeloop.tracing.views.pod_lines import PodLine

pytest.importorskip("textual", reason="textual is not installed")

from textual.widgets import DataTable, Static  # after the check that it is installed

from kubeloop.cli.top.app import Details, Top

SIZE = (80, 24)


class FixedSource:
    """Three pods of the Deployment web, the first unschedulable, and two nodes. problem: of every poll."""

    def __init__(self, pods: int = 3) -> None:
        self.problem: UserError | None = None
        self.stages = ["unschedulable"] + ["ready"] * (pods - 1)

    def poll(self, *, with_nodes):
        if self.problem is not None:
            raise self.problem
        lines = [
            PodLine(
                key=f"k{number}",
                trace_id="t",
                namespace="shop",
                name=f"web-5f-{number}",
                start_us=number * 1_000_000,
                duration_us=0,
                stage=stage,
                owner="deployment/web",
                node="" if stage == "unschedulable" else f"node-{number % 2}",
                reason="0/2 nodes are available" if stage == "unschedulable" else "",
            )
            for number, stage in enumerate(self.stages)
        ]
        node = {"stage": "ready", "created": "", "since": "", "reason": ""}
        nodes = [node | {"name": f"node-{number}"} for number in range(2)] if with_nodes else []
        return lines, nodes, 60_000_000

    def waterfall(self, namespace, name):
        return Text(f"waterfall {namespace} {name}")

    def explain(self, namespace, name):
        raise UserError("this process runs no scheduler", hint="use another")

    def describe(self, namespace, name):
        return Text("conditions")

    def log(self, namespace, name):
        return Text("\n".join(f"line {number}" for number in range(100)))


def names(app):
    table = app.screen_stack[0].query_one(DataTable)
    return [str(table.get_row_at(row)[0]) for row in range(table.row_count)]


def status(app):
    return str(app.screen_stack[0].query_one("#status", Static).content)


async def until(pilot, condition):
    async with asyncio.timeout(30):
        while not condition():
            await pilot.pause(0.02)


def detail(app):
    return str(app.screen.query_one("#content", Static).content) if isinstance(app.screen, Details) else ""


async def test_lists_are_changed_by_keys():
    app = Top(FixedSource())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: names(app) == ["shop/web-5f-2", "shop/web-5f-1", "shop/web-5f-0"])
        assert status(app).startswith("pods 3 ")
        await pilot.press("S")  # the least advanced first
        assert names(app)[0] == "shop/web-5f-0"
        await pilot.press("tab")
        await until(pilot, lambda: names(app) == ["shop/deployment/web"])
        await pilot.press("enter")
        await until(pilot, lambda: len(names(app)) == 3)
        assert "of shop/deployment/web" in status(app)
        await pilot.press("escape")
        assert names(app) == ["shop/deployment/web"]
        await pilot.press("colon", *"nodes", "enter")
        await until(pilot, lambda: names(app) == ["node-0", "node-1"])
        await pilot.press("j", "enter")
        await until(pilot, lambda: names(app) == ["shop/web-5f-1"])
        await pilot.press("0")
        assert len(names(app)) == 3


async def test_filter_is_applied_while_typing_and_cleared_by_escape():
    app = Top(FixedSource())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(names(app)) == 3)
        await pilot.press("slash", *"available")
        await until(pilot, lambda: names(app) == ["shop/web-5f-0"])
        assert "1 of 3" in status(app)
        await pilot.press("enter", "slash", *"x", "enter")
        assert "no match: Esc clears the filter" in status(app)
        await pilot.press("escape")
        await until(pilot, lambda: len(names(app)) == 3)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("enter", "waterfall shop web-5f-1"),
        ("e", "this process runs no scheduler\nuse another"),
        ("d", "conditions"),
        ("l", "line 0"),
        ("question_mark", ":pods :workloads :nodes"),
    ],
)
async def test_key_opens_details_and_escape_returns(key, text):
    app = Top(FixedSource())
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(names(app)) == 3)
        await pilot.press("j", key)
        await until(pilot, lambda: detail(app).startswith(text))
        await pilot.press("G", "escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        assert app.selected_row().key == "shop/web-5f-1"


async def test_selected_pod_stays_selected_when_others_come():
    source = FixedSource()
    app = Top(source)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(names(app)) == 3)
        await pilot.press("j")
        source.stages += ["queued"]
        await until(pilot, lambda: len(names(app)) == 4)
        assert app.selected_row().key == "shop/web-5f-1"


async def test_lost_process_is_shown_above_the_last_state():
    source = FixedSource()
    app = Top(source)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(names(app)) == 3)
        source.problem = UserError("it does not respond", hint="is it running?")
        await until(pilot, lambda: "it does not respond; is it running?" in status(app))
        assert len(names(app)) == 3
        source.problem = None
        await until(pilot, lambda: "respond" not in status(app))


async def test_table_is_bounded_and_a_filter_finds_the_rest():
    app = Top(FixedSource(pods=5000))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(names(app)) == 1000)
        assert status(app).startswith("pods 5000  first 1000 shown")
        await pilot.press("slash", *"unsched")
        await until(pilot, lambda: names(app) == ["shop/web-5f-0"])


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_key_quits(key):
    app = Top(FixedSource())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(key)
        await pilot.pause()
    assert app.return_code == 0
