"""What each visitor will do, and what has to come of it: the same prompt, settings and seed run alone, beforehand."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADJECTIVES = ("small", "quiet", "brave", "golden", "lonely", "clever", "frozen", "hidden", "ancient", "cheerful")
NOUNS = ("fox", "lighthouse", "gardener", "river", "clock", "astronaut", "library", "mountain", "baker", "whale")
SAMPLED = {"temp": "0.8", "topk": "40", "topp": "0.95"}


@dataclass(frozen=True, slots=True)
class Plan:
    """A prompt, the page's settings as words of its address, and the tokens and text the run has alone."""

    prompt: str
    settings: dict[str, str]
    ids: tuple[int, ...] = ()
    text: str = ""


def plans(model: str, count: int, *, max_new: int, least: int = 1, most: int | None = None) -> list[Plan]:
    """`count` plans with prompts of their own, greedy and sampled in turn; each run has at least `least` tokens.

    Of a longer run only the first `most` tokens are made, where nobody will go further. The runs are made in a process
    of their own, and before there is any load.
    """
    numbers = [count, max_new, least, max_new if most is None else most]
    command = [sys.executable, "-m", "tests.load.alone", model, *map(str, numbers)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return [Plan(**{**plan, "ids": tuple(plan["ids"])}) for plan in json.loads(done.stdout)]


def planned(model: str, number: int, max_new: int, prompt: str = "") -> Plan:
    """The plan with this number, before its run was made."""
    adjective, noun = ADJECTIVES[number % 10], NOUNS[number // 10 % 10]
    prompt = prompt or f"Tell a long story about the {adjective} {noun}" + "." * (number // 100)
    words = {"lang": "en", "model": model, "max": str(max_new), "seed": str(number)}
    return Plan(prompt, words | (SAMPLED if number % 2 else {}))


def endless(model: str, number: int) -> Plan:
    """A prompt that takes long to prefill, and nobody will wait for it."""
    times = 1100 if model == "smollm2" else 55  # 3300 tokens, 770 characters
    return planned(model, number, 64, NOUNS[number % len(NOUNS)] + " one two three" * times)
