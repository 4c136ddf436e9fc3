"""`kubeloop top`: a list that is polled once per second, and screens with details of the selected row.

Keys are those of k9s. Imports textual, an optional dependency: this module is imported by the command only.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import ClassVar, Final, cast

from rich.console import RenderableType
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Input, Static
from textual.worker import get_current_worker

from kubeloop.cli.top.rows import TopRow, cells, columns, node_rows, pod_rows, selected, workload_rows
from kubeloop.cli.top.source import TopSource
from kubeloop.kube.user_error import UserError

VIEWS: Final = ("pods", "workloads", "nodes")
_ALIASES: Final = {
    **dict.fromkeys(("po", "pod", "pods"), "pods"),
    **dict.fromkeys(("wl", "workloads", "rollouts", "deploy", "sts", "ds", "job"), "workloads"),
    **dict.fromkeys(("no", "node", "nodes"), "nodes"),
}
_POLL_SECONDS: Final = 1.0
_MAX_ROWS: Final = 1_000  # in the table; a filter selects others
_HELP: Final = """\
:pods :workloads :nodes   change the list      Tab       next list
/                         filter               Esc       back; clear the filter
Enter                     pod: waterfall; workload, node: its pods
e                         explain the pod      d         conditions and events
l                         log                  0         all pods again
Shift+N A S T             sort by name, age, stage, time in stage; again: reverse
j k g G PgUp PgDn         move                 q Ctrl+C  quit
"""


class Details(Screen[None]):
    """A text that scrolls, loaded in a thread, and again each second while `live`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "dismiss", "back"),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("g", "home", show=False),
        Binding("G", "end", show=False),
    ]

    def __init__(self, title: str, load: Callable[[], RenderableType], *, live: bool = False) -> None:
        super().__init__()
        self._heading = title
        self._load = load
        self._live = live

    def compose(self) -> ComposeResult:
        yield Static(f"{self._heading}   (Esc: back)", classes="bar", markup=False)
        with VerticalScroll():
            yield Static("loading", id="content", markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
        self.refresh_content()
        if self._live:
            self.set_interval(_POLL_SECONDS, self.refresh_content)

    @work(thread=True, exclusive=True)
    def refresh_content(self) -> None:
        try:
            content = self._load()
        except UserError as error:
            content = Text(f"{error}\n{error.hint}")
        if not get_current_worker().is_cancelled:
            self.app.call_from_thread(self.query_one("#content", Static).update, content)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_home(self) -> None:
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def action_end(self) -> None:
        self.query_one(VerticalScroll).scroll_end(animate=False)


class Top(App[None]):
    """The list. Polls `source` in a thread."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    * { background: ansi_default; color: ansi_default; }
    .bar { height: 1; text-style: bold; }
    DataTable { height: 1fr; background: ansi_default; scrollbar-size-vertical: 1; }
    DataTable > .datatable--header, DataTable:ansi > .datatable--header {
        background: ansi_default; text-style: underline; }
    DataTable > .datatable--cursor, DataTable:focus > .datatable--cursor {
        background: ansi_default; color: ansi_default; text-style: reverse; }
    Input { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", "quit", priority=False),
        # priority: keys that follow in the same read reach the prompt
        Binding("slash", "prompt('/')", "filter", priority=True),
        Binding("colon", "prompt(':')", "command", priority=True),
        Binding("tab", "next_view", "next list", priority=True),
        Binding("escape", "leave", "back"),
        Binding("e", "explain", "explain"),
        Binding("d", "describe", "describe"),
        Binding("l", "logs", "log"),
        Binding("0", "all", "all pods"),
        Binding("question_mark", "help", "help"),
        Binding("j", "move(1)", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("g", "jump(0)", show=False),
        Binding("G", "jump(-1)", show=False),
        *(
            Binding(letter, f"sort('{sort}')", show=False)
            for letter, sort in zip("NAST", ("name", "age", "stage", "time"), strict=True)
        ),
    ]

    def __init__(self, source: TopSource, view: str = "pods") -> None:
        super().__init__(ansi_color=True)  # the terminal's own colours, none with NO_COLOR
        self.theme = "ansi-dark"
        self._source = source
        self.view = view
        self.filter = ""
        self.within = ""  # workload or node whose pods are listed
        self.sort, self.reverse = "age", False
        self.listed: list[TopRow] = []
        self._pod_rows: list[TopRow] = []
        self._node_rows: list[TopRow] = []
        self._problem = "loading"
        self._shown: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield Static("loading", id="status", classes="bar", markup=False)
        table: DataTable[Text] = DataTable(cursor_type="row", header_height=1)
        table.cursor_foreground_priority = "renderable"
        yield table
        yield Input(id="prompt", select_on_focus=False)

    def on_mount(self) -> None:
        self.screen.set_focus(self.query_one(DataTable))
        self.poll()
        self.set_interval(_POLL_SECONDS, self.poll)
        for number in (signal.SIGTERM, signal.SIGHUP):  # the terminal is restored
            asyncio.get_running_loop().add_signal_handler(number, self.exit)

    # --- data ----------------------------------------------------------------------------------------------------

    @work(thread=True, exclusive=False, group="poll")
    def poll(self) -> None:
        """Read the changes, unless the last poll is still in progress."""
        try:
            state = self._source.poll(with_nodes=self.view == "nodes")
        except UserError as error:
            self.call_from_thread(self.failed, f"{error}; {error.hint}")
            return
        if state is None:
            return
        lines, nodes, now_us = state
        pods = pod_rows(lines, now_us)
        self.call_from_thread(self.received, pods, node_rows(nodes, pods, now_us))

    def failed(self, problem: str) -> None:
        self._problem = problem
        self.draw()

    def received(self, pods: list[TopRow], nodes: list[TopRow]) -> None:
        self._pod_rows, self._problem = pods, ""
        self._node_rows = nodes or self._node_rows
        self.draw()

    # --- drawing -------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Fill table and status line. The selected row stays selected."""
        if not self.screen_stack:
            return
        pods = [pod for pod in self._pod_rows if not self.within or self._is_within(pod)]
        rows = {"pods": lambda: pods, "workloads": lambda: workload_rows(pods), "nodes": lambda: self._node_rows}[
            self.view
        ]()
        chosen = self.selected_row()
        self.listed = selected(rows, self.filter, self.sort, reverse=self.reverse)
        main = self.screen_stack[0]
        table = cast("DataTable[Text]", main.query_one(DataTable))
        layout = columns(self.view, self.listed[:_MAX_ROWS], self.size.width - 1)
        if self._shown != (self.view, tuple(layout)):
            self._shown = (self.view, tuple(layout))
            table.clear(columns=True)
            for title, size in layout:
                mark = "" if self._sort_title() != title else "↑" if self.reverse else "↓"
                table.add_column(title + mark, width=size, key=title)
        drawn = self.listed[:_MAX_ROWS]
        top = table.scroll_offset
        table.clear()
        for row in drawn:
            texts = [Text(text, no_wrap=True, overflow="ellipsis", end="") for text in cells(row, layout)]
            texts[1].stylize(row.style)
            table.add_row(*texts, key=row.key)
        if drawn:
            keys = [row.key for row in drawn]
            at = keys.index(chosen.key) if chosen is not None and chosen.key in keys else 0
            table.move_cursor(row=at, animate=False, scroll=False)
            table.scroll_to(y=top.y, animate=False)
        main.query_one("#status", Static).update(self._status(len(rows)))

    def _sort_title(self) -> str:
        return {"age": "AGE", "name": "NAME", "stage": "STAGE", "time": "FOR"}[self.sort]

    def _is_within(self, pod: TopRow) -> bool:
        return pod.node == self.within or any(
            f"{pod.key.partition('/')[0]}/{owner}" == self.within for owner in pod.owners
        )

    def _status(self, total: int) -> str:
        if self._problem and not self._pod_rows:
            return f"kubeloop top: {self._problem}"
        shown = f"{len(self.listed)} of {total}" if len(self.listed) != total else f"{total}"
        parts = [f"{self.view} {shown}"]
        parts += [f"of {self.within}"] if self.within and self.view == "pods" else []
        parts += [f"/{self.filter}"] if self.filter else []
        parts += [f"first {_MAX_ROWS} shown"] if len(self.listed) > _MAX_ROWS else []
        parts += [self._problem] if self._problem else []
        if not self.listed:
            parts.append("no match: Esc clears the filter" if self.filter else f"no {self.view} yet")
        return "  ".join([*parts, "?: help"])

    def selected_row(self) -> TopRow | None:
        table = self.screen_stack[0].query_one(DataTable)
        return self.listed[table.cursor_row] if 0 <= table.cursor_row < len(self.listed) else None

    # --- keys ----------------------------------------------------------------------------------------------------

    def on_data_table_row_selected(self) -> None:
        row = self.selected_row()
        if row is None:
            return
        if self.view == "pods":
            self._open_pod(row, "waterfall", self._source.waterfall, live=True)
        else:
            self._show("pods", within=row.key)

    def _show(self, view: str, *, within: str = "") -> None:
        self.view, self.within, self.filter = view, within, ""
        self.poll()
        self.draw()

    def action_next_view(self) -> None:
        self._show(VIEWS[(VIEWS.index(self.view) + 1) % len(VIEWS)])

    def action_all(self) -> None:
        self._show("pods")

    def action_leave(self) -> None:
        """Close the prompt, clear the filter, or return to the list of all."""
        prompt = self.query_one("#prompt", Input)
        if prompt.display:
            self._close_prompt()
        elif self.filter:
            self.filter = ""
            self.draw()
        elif self.within:
            self._show("workloads" if "/" in self.within else "nodes")

    def action_sort(self, sort: str) -> None:
        self.sort, self.reverse = sort, sort == self.sort and not self.reverse
        self._shown = ()
        self.draw()

    def action_move(self, rows: int) -> None:
        table = self.query_one(DataTable)
        table.move_cursor(row=max(0, table.cursor_row + rows), animate=False)

    def action_jump(self, row: int) -> None:
        table = self.query_one(DataTable)
        table.move_cursor(row=table.row_count - 1 if row < 0 else row, animate=False)

    def action_help(self) -> None:
        self.push_screen(Details("keys", lambda: Text(_HELP)))

    def action_explain(self) -> None:
        self._open_selected("explain", self._source.explain)

    def action_describe(self) -> None:
        self._open_selected("conditions and events", self._source.describe)

    def action_logs(self) -> None:
        self._open_selected("log", self._source.log)

    def _open_selected(self, title: str, load: Callable[[str, str], RenderableType]) -> None:
        row = self.selected_row()
        if self.view == "pods" and row is not None:
            self._open_pod(row, title, load)

    def _open_pod(
        self, row: TopRow, title: str, load: Callable[[str, str], RenderableType], *, live: bool = False
    ) -> None:
        namespace, _, name = row.key.partition("/")
        self.push_screen(Details(f"{title} of pod {row.key}", lambda: load(namespace, name), live=live))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return False for keys of the list while details or the prompt are open."""
        is_list = len(self.screen_stack) == 1 and not self.query_one("#prompt", Input).display
        return is_list or action not in ("prompt", "next_view")

    # --- prompt --------------------------------------------------------------------------------------------------

    def action_prompt(self, kind: str) -> None:
        prompt = self.query_one("#prompt", Input)
        prompt.value = kind + (self.filter if kind == "/" else "")
        prompt.cursor_position = len(prompt.value)
        prompt.display = True
        self.screen.set_focus(prompt)

    def _close_prompt(self) -> None:
        self.query_one("#prompt", Input).display = False
        self.screen.set_focus(self.query_one(DataTable))

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.value.startswith("/"):
            self.filter = event.value[1:]
            self.draw()
        elif not event.value and event.input.display:
            self._close_prompt()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._close_prompt()
        if event.value.startswith(":"):
            command = event.value[1:].strip()
            if command in ("q", "quit", "q!"):
                self.exit()
            elif command in _ALIASES:
                self._show(_ALIASES[command])
            else:
                self.notify(f"no list {command!r}; there are {', '.join(VIEWS)}", severity="warning")


def run(source: TopSource, view: str) -> int:
    """Run until the user quits. Returns the exit code."""
    Top(source, view).run()
    return 0
