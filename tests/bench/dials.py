"""A dial that is dragged: from its event to the painted numbers and charts, alone and with thirty others dragging.

A server of its own and a Chromium on the same machine. The context dial of a page gets an event every tenth of a
second, as a finger gives them; the next one waits until everything has been painted. The others ask the routes that a
dragged dial of that page asks, over connections that they keep, and end by themselves.
"""

from __future__ import annotations

import asyncio
import os
import threading
from itertools import cycle
from statistics import median, quantiles
from time import monotonic
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from playwright.sync_api import Page

from tests.bench.page import app_and_browser, fresh_tab

OTHERS, ASKED_A_SECOND, MOST_SECONDS = 30, 10, 60
FIRST, MOVES, PAUSE_MS = 5, 60, 100
MOST_MEDIAN_MS, MOST_ALL_MS, MOST_P95_MS = 50, 100, 150


class Dialled(NamedTuple):
    """A page whose context dial is dragged: a figure that follows, its charts in order, and what else is asked."""

    page: str
    figure: str
    charts: tuple[str, ...]
    also: tuple[str, ...] = ("estimate",)

    @property
    def address(self) -> str:
        """Its path, with a card, so that everything there is can move."""
        return f"/{self.page}?lang=en&accelerator=h100-sxm"

    @property
    def routes(self) -> tuple[str, ...]:
        """What a dragged dial asks."""
        return (*self.also, *(f"curves/{chart}" for chart in self.charts))


DIALLED = (
    Dialled(
        "kv_cache",
        "kv_bytes",
        ("kv_against_context", "kv_against_batch", "kv_kinds"),
        also=("estimate", "curves/formulas"),
    ),
    Dialled(
        "where_the_time_goes",
        "decode.time_floor_s",
        ("roofline", "step_time", "batching", "attention_roof", "score_table"),
    ),
)

# Drags the context dial to and fro; says for every event after how many milliseconds numbers, first chart and all
# charts that are in view had been painted: in the first task behind the frame of the screen that shows the change.
DRAG = """async ({ moves, pause, figure }) => {
  const range = document.querySelector('[data-dial=context]');
  const near = 200; // assets/costs/chart.js: what lies so near to the window is drawn as if it were in it
  const inView = ({ top, bottom }) => bottom > -near && top < innerHeight + near;
  const charts = [...document.querySelectorAll('.tbt-chart')].filter((each) => inView(each.getBoundingClientRect()));
  const drawn = () => charts.map((chart) => Number(chart.dataset.drawn ?? 0));
  const text = () => document.querySelector(`[data-figure="${figure}"]`).textContent;
  const painted = () => new Promise((resolve) => requestAnimationFrame(() => {
    const behind = new MessageChannel();
    behind.port1.onmessage = () => resolve(performance.now());
    behind.port2.postMessage('');
  }));
  const seen = [];
  for (let move = 0; move < moves; move += 1) {
    const [before, times] = [text(), drawn()];
    const began = performance.now();
    const took = await new Promise((resolve) => {
      const moments = {};
      const give = () => { watcher.disconnect(); clearTimeout(patience); resolve(moments); };
      const note = async (name, isThere) => {
        if (name in moments || !isThere) return;
        moments[name] = null;
        moments[name] = (await painted()) - began;
        if (['numbers', 'first', 'all'].every((each) => moments[each])) give();
      };
      const watcher = new MutationObserver(() => {
        const now = drawn();
        note('numbers', text() !== before);
        note('first', now[0] > times[0]);
        note('all', now.every((value, place) => value > times[place]));
      });
      const patience = setTimeout(give, 3000);
      const looked = { subtree: true, childList: true, characterData: true, attributeFilter: ['data-drawn'] };
      watcher.observe(document.body, looked);
      range.value = Number(range.max) * 0.3 + (move % 16);
      range.dispatchEvent(new Event('input', { bubbles: true }));
    });
    seen.push([took.numbers ?? null, took.first ?? null, took.all ?? null]);
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, pause - (performance.now() - began))));
  }
  return seen;
}"""


class Took(NamedTuple):
    """Milliseconds of every event that was answered, and how many were not."""

    numbers: list[float]
    first: list[float]
    every: list[float]
    lost: int


def report_dials() -> None:
    """Measures and prints, page by page, the goals beside the figures; the machine's load says how quiet it was."""
    with app_and_browser() as (address, browser):
        for dialled in DIALLED:
            with fresh_tab(browser) as (page, _):
                report_page(page, address, dialled)


def report_page(page: Page, address: str, dialled: Dialled) -> None:
    """One page: alone, with the others, alone again."""
    page.goto(address + dialled.address)
    wanted = len(dialled.charts)
    page.wait_for_function(f"document.querySelectorAll('.tbt-chart[data-drawn]').length >= {wanted}")
    page.wait_for_load_state("networkidle")
    dragged(page, dialled, FIRST)
    print(f"\n/{dialled.page}: dials, {MOVES} events {PAUSE_MS} ms apart on the context dial, to paint: median, 95%")
    report("alone", dragged(page, dialled, MOVES))
    with Others(address, dialled.routes) as others:
        dragged(page, dialled, FIRST)
        report(f"with {OTHERS} others", dragged(page, dialled, MOVES))
    print(f"  the others: {others.answered / others.seconds:.0f} answers a second, {others.refused} not 200")
    report("alone again", dragged(page, dialled, MOVES))


def dragged(page: Page, dialled: Dialled, moves: int) -> Took:
    """So many events, none of them a release."""
    seen = page.evaluate(DRAG, {"moves": moves, "pause": PAUSE_MS, "figure": dialled.figure})
    whole = [event for event in seen if None not in event]
    numbers, first, every = ([event[place] for event in whole] for place in range(3))
    return Took(numbers, first, every, len(seen) - len(whole))


def report(name: str, took: Took) -> None:
    """One line a part."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    print(f"  {name}: {took.lost} events without an answer; load {load:.1f} a core")
    for part, values, goal in (
        ("numbers", took.numbers, MOST_MEDIAN_MS),
        ("chart under the finger", took.first, MOST_MEDIAN_MS),
        ("all charts in view", took.every, MOST_ALL_MS),
    ):
        p95 = quantiles(values, n=20)[-1]
        print(f"    {part:<22} {median(values):5.0f} {p95:5.0f} ms  (goals ≤ {goal}, ≤ {MOST_P95_MS})")


class Others:
    """Visitors without a browser who drag dials: each asks so often a second, one question at a time.

    They run in a thread of their own while the `with` block lasts, and never longer than MOST_SECONDS.
    """

    def __init__(self, address: str, routes: tuple[str, ...]) -> None:
        self.place = urlsplit(address)
        self.routes = routes
        self.answered = self.refused = 0
        self.seconds = 0.0
        self.deadline = monotonic() + MOST_SECONDS
        self.thread = threading.Thread(target=lambda: asyncio.run(self.ask()), daemon=True)

    def __enter__(self) -> Self:
        self.began = monotonic()
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.deadline = 0.0
        self.thread.join(5)
        self.seconds = monotonic() - self.began

    async def ask(self) -> None:
        await asyncio.gather(*(self.drag(number) for number in range(OTHERS)))

    async def drag(self, number: int) -> None:
        """One of them: routes in turn, another context each time."""
        reader, writer = await asyncio.open_connection(self.place.hostname, self.place.port)
        first = number % len(self.routes)
        routes = cycle(self.routes[first:] + self.routes[:first])
        await asyncio.sleep(number / OTHERS / ASKED_A_SECOND)
        next_time = monotonic()
        while monotonic() < self.deadline:
            context = 1000 + number + int(next_time * ASKED_A_SECOND) % 4096 * 7
            words = f"model=llama-3.1-8b&batch=4&context={context}&accelerator=h100-sxm&lang=en&figures=kv_bytes"
            writer.write(f"GET /api/{next(routes)}?{words} HTTP/1.1\r\nHost: {self.place.netloc}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0].split(b":")[1]))
            self.answered += 1
            self.refused += not head.startswith(b"HTTP/1.1 200")
            next_time = max(next_time + 1 / ASKED_A_SECOND, monotonic() - 1)
            await asyncio.sleep(max(0.0, next_time - monotonic()))
        writer.close()
