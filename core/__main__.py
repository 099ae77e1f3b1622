"""The command line: `python -m core COMMAND …`. A refusal is one sentence on stderr and exit status 2."""

from __future__ import annotations

import importlib
import io
import os
import sys

from core.cli.arguments import build_parser
from core.cli.values import one_line
from core.refusal import Refusal

# Command → module and function. A module is imported when its command is asked for: torch takes seconds to import.
COMMANDS = {
    "trace": ("core.cli.trace", "trace_command"),
    "estimate": ("core.cli.estimate", "estimate_command"),
    "count": ("core.cli.count", "count_command"),
    "sweep": ("core.cli.sweep", "sweep_command"),
    "roofs": ("core.cli.roofs", "roofs_command"),
}


def main() -> int:
    """Parses, runs one command, and turns a refusal into its sentence. Returns the exit status."""
    if sys.stdout is None:  # closed by whoever started this
        print("python -m core: there is nowhere to write the answer: leave the output open.", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Chinese shows what it can
    arguments = build_parser().parse_args()
    module, function = COMMANDS[arguments.command]
    try:
        status: int | None = getattr(importlib.import_module(module), function)(arguments)
        sys.stdout.flush()
    except Refusal as refusal:
        print(one_line(f"python -m core {arguments.command}: {refusal}"), file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; nothing is left to say
        return 1
    except OSError as broken:
        # Python would try once more at its end, and say so in a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(one_line(f"python -m core: the answer cannot be written: {broken.strerror}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status or 0


if __name__ == "__main__":
    sys.exit(main())
