"""What a load came to: plain tables, and goals that are reached or not."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.load.machine import Watch
from tests.load.visitor import Visitor

MOST_PROBLEMS = 10
MB = 1e6


@dataclass
class Report:
    """Lines for a person, goals for the exit status."""

    title: str
    lines: list[tuple[str, str]] = field(default_factory=list)
    goals: list[tuple[str, str, bool]] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)

    def line(self, what: str, value: str) -> None:
        """One row of the table."""
        self.lines.append((what, value))

    def goal(self, what: str, value: str, *, reached: bool) -> None:
        """One thing that has to hold."""
        self.goals.append((what, value, reached))

    def failed(self, what: str) -> None:
        """A visitor's problem; the same one is counted."""
        self.problems[what[:300]] += 1

    @property
    def is_good(self) -> bool:
        """Whether every goal was reached."""
        return all(reached for _, _, reached in self.goals)

    def show(self) -> None:
        """Prints all of it."""
        print(f"\n{self.title}")
        for what, value in self.lines:
            print(f"  {what:<44} {value}")
        for problem, count in self.problems.most_common(MOST_PROBLEMS):
            print(f"  problem, {count}×: {problem}")
        for what, value, reached in self.goals:
            print(f"  {'reached' if reached else 'MISSED ':<8} {what:<44} {value}")

    def count_visitors(self, visitors: Iterable[Visitor]) -> None:
        """Errors, lost and mixed tokens of all visitors: none may have any."""
        visitors = list(visitors)
        for visitor in visitors:
            for problem in visitor.problems:
                self.failed(problem)
        tokens, runs = sum(visitor.n_steps for visitor in visitors), sum(visitor.n_runs for visitor in visitors)
        self.line("tokens, runs compared with the same run alone", f"{tokens:,}, {runs}")
        lost, mixed = (sum(getattr(visitor, name) for visitor in visitors) for name in ("n_lost", "n_mixed"))
        self.goal("errors", str(self.problems.total()), reached=not self.problems)
        self.goal("lost tokens", str(lost), reached=lost == 0)
        self.goal("tokens that are not those of the run alone", str(mixed), reached=mixed == 0)

    def machine(self, watch: Watch) -> None:
        """Memory, processor, and the engine's own figures as far as the server gives them."""
        sizes = [size / MB for _, size in watch.resident]
        self.line("server memory, MB: at first, most, at last", f"{sizes[0]:.0f}, {max(sizes):.0f}, {sizes[-1]:.0f}")
        self.line("processor cores: server, clients", f"{watch.server_cores:.2f}, {watch.client_cores:.3f}")
        self.line("others' cores, of all there are", f"{watch.other_cores:.2f} of {os.cpu_count()}")
        peaks = {name.removeprefix("tbt_"): value for name, value in watch.peaks.items() if name.startswith("tbt_")}
        if peaks:
            cache = (peaks.get(f"cache_{name}_bytes", 0) / MB for name in ("held", "promised", "budget"))
            self.line("caches, MB: most held, most promised, budget", ", ".join(f"{value:.1f}" for value in cache))
            waiting, largest = peaks.get("queue_runs", 0), peaks.get("batch_runs", 0)
            self.line("most runs waiting, largest batch seen", f"{waiting:.0f}, {largest:.0f}")


def share(values: Sequence[float], part: float) -> float:
    """The value below which this part of them lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else float("nan")


def spread(seconds: Sequence[float]) -> str:
    """Median, 95% and largest, in milliseconds."""
    return ", ".join(f"{share(seconds, part) * 1e3:.0f}" for part in (0.5, 0.95, 1.0)) + " ms"
