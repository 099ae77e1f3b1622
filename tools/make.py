"""The Makefile's targets: `python3 tools/make.py run|test|bench|clean`.

This file must parse under Python 3.6, so that a Python too old for the rest is told so in a sentence. Everything it
imports from the repository may use the Python that the app needs.
"""

import os
import signal
import sys

OLDEST_PYTHON = (3, 11)
TARGETS = ("run", "test", "bench", "clean")
FAILED = 2  # the exit status of everything that ends in a sentence; make's own for a failed target


def say_and_stop(target: str, sentence: str) -> int:
    sys.stdout.flush()
    print("make {}: {}".format(target, sentence), file=sys.stderr)
    return FAILED


def stop_on_signal(number: int, _frame: object) -> None:
    """Ends by an exception, so that a running pip is ended too and a half-made environment removed."""
    sys.exit(128 + number)


def main(arguments: "list[str]") -> int:
    if len(arguments) != 1 or arguments[0] not in TARGETS:
        return say_and_stop("run", "the targets are {}.".format(", ".join(TARGETS)))
    target = arguments[0]
    if sys.version_info < OLDEST_PYTHON:
        have = "{}.{}".format(*sys.version_info[:2])
        want = "{}.{}".format(*OLDEST_PYTHON)
        return say_and_stop(
            target,
            "this is Python {}, and Python {} or later is needed: install one and name it, as in "
            "make {} PYTHON=python{}.".format(have, want, target, want),
        )

    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.chdir(root)
    sys.path[0] = root
    from tools import targets
    from tools.problem import Problem, sentence_of

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup keeps its word
            signal.signal(number, stop_on_signal)
    try:
        return targets.carry_out(target)
    except (Problem, OSError) as error:
        return say_and_stop(target, sentence_of(error))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
