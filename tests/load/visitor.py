"""A visitor of page 1: presses Prefill, clicks Decode, plays, and looks whether every token is the one it has to be."""

from __future__ import annotations

import time
from contextlib import aclosing
from itertools import zip_longest
from urllib.parse import urlencode

from pages.shared import wire
from tests.load.plan import Plan
from tests.load.stream import Stream
from tests.load.tab import Tab

CLICK_SPEED, PLAY_SPEED = 60, 32
"""Steps a second: what the stage asks for one step, and the fastest a visitor can choose for Play."""


class Visitor:
    """One tab, its stream, and what went wrong: `problems` in words, `n_lost` and `n_mixed` tokens."""

    def __init__(self, address: str, plan: Plan) -> None:
        self.plan = plan
        self.tab = Tab(address, urlencode(plan.settings))
        self.stream = Stream(address)
        self.problems: list[str] = []
        self.firsts: list[float] = []
        self.n_steps = self.n_lost = self.n_mixed = self.n_runs = 0

    @property
    def can_decode(self) -> bool:
        """Whether another token can come."""
        record = self.tab.record
        return bool(record.steps) and len(record.ids) < len(self.plan.ids)

    async def arrive(self) -> None:
        """Opens the page and writes the prompt."""
        await self.tab.open()
        await self.tab.write_prompt(self.plan.prompt)

    async def prefill(self) -> float:
        """Presses Prefill and waits for the first token, in the queue as well. Returns the seconds it took."""
        await self.tab.answered()
        self.finish_run()
        began, before = time.perf_counter(), self.tab.record.run
        await self.tab.ask("prefill")
        took = time.perf_counter() - began
        if self.tab.record.run == before or not self.tab.record.steps:
            self._lost("Prefill brought no run")
        self.n_steps += 1
        self.firsts.append(took)
        return took

    async def click(self) -> float:
        """Clicks Decode. Returns the seconds until the step's frame was here, and leaves the stage to its look.

        A click that comes while the stage still waits for an answer is sent behind it, over the page.
        """
        began, n_before = time.perf_counter(), len(self.tab.record.steps)
        if self.tab.is_asking:
            await self.tab.answered()
            await self.tab.ask("decode")
            took = time.perf_counter() - began
        else:
            await self._take_steps(CLICK_SPEED, most=1)
            took = time.perf_counter() - began
            self.tab.ask("look")
        if len(self.tab.record.steps) != n_before + 1:
            self._lost(f"a click brought {len(self.tab.record.steps) - n_before} steps")
        self.n_steps += 1
        return took

    async def play(self, n_steps: int | None = None) -> list[float]:
        """Plays so many steps, or to the end of the run. Returns the moment each of them arrived."""
        await self.tab.answered()
        n_expected = len(self.plan.ids) - len(self.tab.record.ids) if n_steps is None else n_steps
        arrived = await self._take_steps(PLAY_SPEED, n_steps)
        if len(arrived) != n_expected:
            self._lost(f"Play brought {len(arrived)} of {n_expected} steps")
        self.n_steps += len(arrived)
        self.tab.ask("look")
        return arrived

    async def leave(self) -> None:
        """Closes the tab."""
        await self.tab.answered()
        self.finish_run()
        self.stream.close()
        await self.tab.leave()

    async def vanish(self) -> None:
        """Is gone without a word, in the middle of whatever it was at."""
        self.stream.close()
        await self.tab.vanish()

    def finish_run(self) -> None:
        """Compares the run so far with the same run alone, and takes over what the tab noticed."""
        ids, alone = self.tab.record.ids, self.plan.ids
        wrong = [place for place, pair in enumerate(zip_longest(ids, alone[: len(ids)])) if pair[0] != pair[1]]
        self.n_mixed += len(wrong)
        if wrong:
            self.problems.append(f"other tokens than alone: {self._parting(wrong[0])}")
        elif ids and len(ids) == len(alone) and self.tab.record.text != self.plan.text:
            self.problems.append("the same tokens make another text than alone")
        if self.tab.record.steps:
            self.n_runs += 1
        self.n_lost += self.tab.record.n_holes
        self.tab.record.n_holes = 0
        self.problems += self.tab.problems
        self.tab.problems = []

    def _parting(self, place: int) -> str:
        """Where a run parts from the one alone, and what the model thought of both tokens there."""
        step, words = self.tab.record.steps[place], self.plan.settings
        thought = {token_id: share for token_id, _, share, *_ in step["candidates"]}
        got, alone = step["token"][0], self.plan.ids[place] if place < len(self.plan.ids) else -1
        shares = ", ".join(f"{thought.get(token_id, 0):.4f}" for token_id in (got, alone))
        how = "sampled" if "temp" in words else "greedy"
        return f"{how}, seed {words['seed']}, at token {place} ({step['phase']}); probabilities now of both: {shares}"

    async def _take_steps(self, speed: int, n_steps: int | None = None, **values: int) -> list[float]:
        record, arrived = self.tab.record, list[float]()
        question = {"run": record.run, "seen": record.version, "have": len(record.steps), "speed": speed, **values}
        async with aclosing(self.stream.steps(record.visit, **question)) as frames:
            async for frame in frames:
                header, _ = wire.unpack(frame)
                if not record.take(header, streamed=True):
                    break
                arrived.append(time.perf_counter())
                if len(arrived) == n_steps:
                    self.stream.close()  # as a browser pauses
                    break
        return arrived

    def _lost(self, what: str) -> None:
        self.n_lost += 1
        self.problems.append(what)
