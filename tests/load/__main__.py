"""`python -m tests.load SCENE`: a server of its own on a loopback port, and a class of protocol clients in front of it.

Clients speak Streamlit's websocket protocol and the stage's stream as a browser does, so a hundred of them cost less
than one core's tenth. At most a hundred, for a limited time; exit status 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import uvloop

from tests.browser.server import Server, serving
from tests.load.plan import Plan, plans
from tests.load.report import Report
from tests.load.scenes import CLICKS_IN_A_CROWD, clicks, crowd, play
from tests.load.soak import soak
from tools.targets import LARGE_PAGES

MOST_VISITORS, MOST_SECONDS, MOST_TOKENS = 100, 1800, 500
PAGE_MAX_NEW, PLANS_OF_A_SOAK = 64, 24


def main() -> int:
    """Runs one scene and prints it."""
    arguments = parsed()
    os.environ.update({**LARGE_PAGES, **os.environ})  # as `make run` starts a server
    count, model = min(arguments.visitors, MOST_VISITORS), arguments.model
    if arguments.scene == "play":
        tokens = min(arguments.tokens, MOST_TOKENS)
        made = plans(model, count, max_new=tokens + 1, least=tokens + 1)
    elif arguments.scene == "crowd":
        made = plans(model, count, max_new=PAGE_MAX_NEW, least=CLICKS_IN_A_CROWD + 1, most=CLICKS_IN_A_CROWD + 1)
    else:
        made = plans(model, PLANS_OF_A_SOAK if arguments.scene == "soak" else count, max_new=PAGE_MAX_NEW, least=16)
    print(f"{len(made)} runs alone made; starting the server", flush=True)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        report = uvloop.run(scene(server, made, arguments))
    report.show()
    return 0 if report.is_good else 1


def scene(server: Server, made: list[Plan], arguments: argparse.Namespace) -> Coroutine[Any, Any, Report]:
    """The load that was asked for."""
    if arguments.scene == "clicks":
        return clicks(server, made, min(arguments.seconds, MOST_SECONDS))
    if arguments.scene == "play":
        return play(server, made, min(arguments.tokens, MOST_TOKENS))
    if arguments.scene == "crowd":
        return crowd(server, made)
    return soak(server, made, min(arguments.minutes * 60, MOST_SECONDS), min(arguments.visitors, MOST_VISITORS))


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    scenes = parser.add_subparsers(dest="scene", required=True)
    visitors = {"clicks": 50, "play": 30, "crowd": 100, "soak": 20}
    for name, count in visitors.items():
        one = scenes.add_parser(name)
        one.add_argument("--visitors", type=int, default=count, help=f"how many, at most {MOST_VISITORS} ({count})")
        one.add_argument("--model", default="smollm2", choices=("smollm2", "tiny"), help="(smollm2)")
    scenes.choices["clicks"].add_argument("--seconds", type=float, default=180, help="of clicking (180)")
    scenes.choices["play"].add_argument("--tokens", type=int, default=100, help="played by each (100)")
    scenes.choices["soak"].add_argument("--minutes", type=float, default=10, help="of coming and going (10)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
