"""Loads with a goal each: a class that clicks, a class that plays, a crowd that arrives at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from tests.browser.server import Server
from tests.load.machine import Watch
from tests.load.plan import Plan
from tests.load.report import Report, share, spread
from tests.load.visitor import Visitor

MOST_P95_S, LEAST_TOKENS_A_SECOND, LEAST_CLICKS = 1.0, 8.0, 0.95
ARRIVAL_SECONDS, CLICKS_IN_A_CROWD = 10.0, 8
MOST_SECONDS_BESIDES = 400.0
"""For arriving, waiting and leaving: whoever takes longer has failed."""


async def clicks(server: Server, plans: Sequence[Plan], seconds: float) -> Report:
    """Each visitor prefills a prompt of their own, then clicks once a second; at the end of the run they begin anew."""
    report = Report(f"clicks: {len(plans)} visitors, a click a second each, {seconds:.0f} s")
    visitors = [Visitor(server.address, plan) for plan in plans]
    took, firsts = list[float](), list[float]()

    async def come(visitor: Visitor) -> None:
        await visitor.arrive()
        firsts.append(await visitor.prefill())

    async def click(visitor: Visitor, number: int) -> None:
        due = began + number / len(visitors)  # nobody clicks in step with the others
        while due < began + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if visitor.can_decode:
                took.append(await visitor.click())
            else:
                firsts.append(await visitor.prefill())
            due = max(due + 1, time.monotonic())

    async with Watch(server) as watch:
        await everybody(report, visitors, lambda visitor, _: come(visitor), MOST_SECONDS_BESIDES)
        began = time.monotonic()
        await everybody(report, visitors, click, seconds + MOST_SECONDS_BESIDES)
        clicked_for = time.monotonic() - began
        await everybody(report, visitors, lambda visitor, _: visitor.leave(), MOST_SECONDS_BESIDES)
    report.line("click to token: p50, p95, max", spread(took))
    report.line("Prefill to first token: p50, p95, max", spread(firsts))
    report.machine(watch)
    done = (len(took) + len(firsts) - len(visitors)) / (len(visitors) * max(seconds, clicked_for))
    report.goal("clicks a second each (one was meant)", f"{done:.2f}", reached=done >= LEAST_CLICKS)
    report.goal("95% of clicks within a second", f"{share(took, 0.95):.2f} s", reached=share(took, 0.95) <= MOST_P95_S)
    report.count_visitors(visitors)
    return report


async def play(server: Server, plans: Sequence[Plan], tokens: int) -> Report:
    """All of them prefill, and when everybody has, all press Play at once, to the end of their runs."""
    report = Report(f"play: {len(plans)} visitors at once, {tokens} tokens each")
    visitors = [Visitor(server.address, plan) for plan in plans]
    rates, firsts, prefills, arrivals = list[float](), list[float](), list[float](), list[float]()

    async def come(visitor: Visitor) -> None:
        await visitor.arrive()
        prefills.append(await visitor.prefill())

    async def watch_it_play(visitor: Visitor) -> None:
        arrived = await visitor.play()
        firsts.append(arrived[0] - began)
        rates.append(len(arrived) / (arrived[-1] - began))
        arrivals.extend(arrived)

    async with Watch(server) as watch:
        await everybody(report, visitors, lambda visitor, _: come(visitor), MOST_SECONDS_BESIDES)
        await asyncio.sleep(1)
        began = time.perf_counter()
        await everybody(report, visitors, lambda visitor, _: watch_it_play(visitor), MOST_SECONDS_BESIDES)
        await everybody(report, visitors, lambda visitor, _: visitor.leave(), MOST_SECONDS_BESIDES)
    together = len(arrivals) / (max(arrivals, default=began + 1) - began)
    report.line("tokens/s each: least, p50, most", ", ".join(f"{share(rates, part):.1f}" for part in (0, 0.5, 1)))
    report.line("tokens/s together", f"{together:.0f}")
    report.line("Prefill to first token: p50, p95, max", spread(prefills))
    report.line("Play to its first token: p50, p95, max", spread(firsts))
    report.machine(watch)
    least = min(rates, default=0.0)
    report.goal("tokens/s, the slowest", f"{least:.1f}", reached=least >= LEAST_TOKENS_A_SECOND)
    report.count_visitors(visitors)
    return report


async def crowd(server: Server, plans: Sequence[Plan]) -> Report:
    """They arrive within ten seconds, prefill, click a few times, and stay until the last one is through."""
    report = Report(f"crowd: {len(plans)} visitors within {ARRIVAL_SECONDS:.0f} s")
    visitors = [Visitor(server.address, plan) for plan in plans]
    opened, firsts, took = list[float](), list[float](), list[float]()

    async def come(visitor: Visitor, number: int) -> None:
        await asyncio.sleep(number / len(visitors) * ARRIVAL_SECONDS)
        began = time.perf_counter()
        await visitor.arrive()
        opened.append(time.perf_counter() - began)
        firsts.append(await visitor.prefill())
        for _ in range(CLICKS_IN_A_CROWD):
            await asyncio.sleep(1)
            took.append(await visitor.click())

    async with Watch(server) as watch:
        began = time.monotonic()
        await everybody(report, visitors, come, MOST_SECONDS_BESIDES)
        needed = time.monotonic() - began
        await everybody(report, visitors, lambda visitor, _: visitor.leave(), MOST_SECONDS_BESIDES)
    told = [sentence for visitor in visitors for sentence in visitor.tab.waiting_notices]
    report.line("until the last one was through", f"{needed:.0f} s")
    report.line("page to its stage: p50, p95, max", spread(opened))
    report.line("Prefill to first token: p50, p95, max", spread(firsts))
    report.line("click to token: p50, p95, max", spread(took))
    placed = sum(any(map(names_a_place, visitor.tab.waiting_notices)) for visitor in visitors)
    report.line("visitors who were told their place in a queue", str(placed))
    for sentence in sorted(set(told), key=told.count)[:-4:-1]:
        report.line("  told while waiting", sentence)
    report.machine(watch)
    if watch.peaks.get("tbt_queue_runs"):
        report.goal("visitors in the queue who were told their place", str(placed), reached=placed > 0)
    report.goal("visitors served", f"{len(firsts)} of {len(visitors)}", reached=len(firsts) == len(visitors))
    report.count_visitors(visitors)
    return report


def names_a_place(sentence: str) -> bool:
    """Whether what a waiting visitor is told has a number in it."""
    return any(character.isdigit() for character in sentence)


async def everybody(
    report: Report, visitors: Sequence[Visitor], act: Callable[[Visitor, int], Awaitable[object]], seconds: float
) -> None:
    """All visitors do something at the same time, for so long at most; whoever fails is noted, the others go on."""

    async def one(visitor: Visitor, number: int) -> None:
        try:
            async with asyncio.timeout(seconds):
                await act(visitor, number)
        except Exception as error:
            visitor.problems.append(f"{type(error).__name__}: {error}")

    await asyncio.gather(*(one(visitor, number) for number, visitor in enumerate(visitors)))
