"""Memory over time: people come and go, some vanish without closing, some in the middle of a long prefill."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from tests.browser.server import Server
from tests.load.machine import Watch
from tests.load.plan import Plan, endless
from tests.load.report import MB, Report, spread
from tests.load.scenes import MOST_SECONDS_BESIDES, everybody
from tests.load.visitor import Visitor

MOST_GROWTH = 1.10
FIRST_WAVE_SECONDS = 60.0
LEAST_SETTLING, MOST_SETTLING, LOOK_SECONDS = 35.0, 110.0, 5.0
"""Streamlit keeps a closed session for twenty seconds, and the server tidies up every 45."""
PRINTED_SECONDS = 30.0
Act = Callable[[Visitor, random.Random], Awaitable[None]]


async def soak(server: Server, plans: Sequence[Plan], seconds: float, seats: int) -> Report:
    """Fills `seats` with visitors, one after another, in two waves; between and behind them everybody has left."""
    report = Report(f"soak: {seats} seats, {seconds:.0f} s of coming and going")
    gone: list[Visitor] = []
    async with Watch(server) as watch:
        await everybody(report, [Visitor(server.address, plans[0])], lambda visitor, _: first(visitor), 60)
        before = await settled(server, 0)
        await wave(server, plans, min(FIRST_WAVE_SECONDS, seconds / 2), seats, gone)
        after_first = await settled(server, before)
        await wave(server, plans, max(seconds - FIRST_WAVE_SECONDS, seconds / 2), seats, gone)
        at_last = await settled(server, min(before, after_first))
    report.line("visitors who came", f"{len(gone)}")
    report.line(
        "Prefill to first token: p50, p95, max", spread([seconds for visitor in gone for seconds in visitor.firsts])
    )
    shown = watch.resident[:: int(PRINTED_SECONDS)]
    report.line(f"server memory, MB, every {PRINTED_SECONDS:.0f} s", " ".join(f"{size / MB:.0f}" for _, size in shown))
    report.machine(watch)
    for name, size in (("before the crowd", before), ("after the first wave", after_first)):
        text = f"{size / MB:.0f} → {at_last / MB:.0f} MB"
        report.goal(f"memory at last, against {name}", text, reached=at_last <= MOST_GROWTH * size)
    report.count_visitors(gone)
    return report


async def first(visitor: Visitor) -> None:
    """Somebody comes and goes, so that everything the pages load is loaded."""
    await visitor.arrive()
    await visitor.prefill()
    await visitor.leave()


async def settled(server: Server, goal: float) -> int:
    """What the server holds some time after the last one left: when it is down to the goal, or does not get there."""
    began = time.monotonic()
    least = server.resident_bytes
    while time.monotonic() - began < (MOST_SETTLING if goal else LEAST_SETTLING + 20):
        await asyncio.sleep(LOOK_SECONDS)
        least = server.resident_bytes
        if time.monotonic() - began > LEAST_SETTLING and least <= goal * MOST_GROWTH:
            break
    return least


async def wave(server: Server, plans: Sequence[Plan], seconds: float, seats: int, gone: list[Visitor]) -> None:
    """So many seats, each taken by the next visitor as soon as it is free, for so long."""
    until = time.monotonic() + seconds

    async def seat(number: int) -> None:
        chance = random.Random(number)
        await asyncio.sleep(chance.random() * min(5.0, seconds / 2))
        while time.monotonic() < until:
            act = chance.choices(list(ACTS), list(ACTS.values()))[0]
            plan = endless(plans[0].settings["model"], number) if act is vanishes_in_prefill else chance.choice(plans)
            visitor = Visitor(server.address, plan)
            gone.append(visitor)
            report = Report("one")
            await everybody(report, [visitor], lambda visitor, _: act(visitor, chance), MOST_SECONDS_BESIDES)  # noqa: B023

    await asyncio.gather(*(seat(number) for number in range(seats)))


async def clicks_and_leaves(visitor: Visitor, chance: random.Random) -> None:
    """Reads along, click by click."""
    await visitor.arrive()
    await visitor.prefill()
    for _ in range(chance.randrange(2, 12)):
        await asyncio.sleep(1)
        if visitor.can_decode:
            await visitor.click()
    await visitor.leave()


async def plays_and_leaves(visitor: Visitor, _chance: random.Random) -> None:
    """Plays to the end."""
    await visitor.arrive()
    await visitor.prefill()
    if visitor.can_decode:
        await visitor.play()
    await visitor.leave()


async def vanishes_between_clicks(visitor: Visitor, chance: random.Random) -> None:
    """A lid is closed."""
    await visitor.arrive()
    await visitor.prefill()
    for _ in range(chance.randrange(3)):
        if visitor.can_decode:
            await visitor.click()
    visitor.finish_run()
    await visitor.vanish()


async def vanishes_in_play(visitor: Visitor, chance: random.Random) -> None:
    """The network is gone in the middle of a stream."""
    await visitor.arrive()
    await visitor.prefill()
    if visitor.can_decode:
        await visitor.play(min(chance.randrange(1, 20), len(visitor.plan.ids) - 1))
    visitor.finish_run()
    await visitor.vanish()


async def vanishes_in_prefill(visitor: Visitor, chance: random.Random) -> None:
    """Nobody waits for the end of a long prompt."""
    await visitor.arrive()
    visitor.tab.ask("prefill")
    await asyncio.sleep(1 + 2 * chance.random())
    await visitor.vanish()


ACTS: dict[Act, int] = {
    clicks_and_leaves: 6,
    plays_and_leaves: 4,
    vanishes_between_clicks: 2,
    vanishes_in_play: 2,
    vanishes_in_prefill: 1,
}
"""What people do, and how often."""
