"""What can go wrong during set-up, as one sentence with a remedy."""

from __future__ import annotations

import errno
import re
from pathlib import Path

DISK_FULL = (
    "the disk is full: free some space (an environment takes about 2 GB, several more with a GPU's torch; "
    "pip also unpacks in the temporary folder, which TMPDIR=... moves), then try again."
)

# What pip prints when it cannot reach its index, whatever the index is.
UNREACHABLE = re.compile(
    r"Retrying \(Retry|Max retries exceeded|NewConnectionError|NameResolutionError|Name or service not known"
    r"|Temporary failure in name resolution|Network is unreachable|No route to host|Connection refused"
    r"|ConnectTimeoutError|ReadTimeoutError|Connection timed out|ProxyError"
)
NOISE = re.compile(r"^(WARNING|DEPRECATION|\[notice\]|note:|hint:)", re.IGNORECASE)


class Problem(Exception):
    """Something the person who typed `make` can put right. Its text is one whole sentence."""


class Unreachable(Problem):
    """pip's package index does not answer; nothing was written."""


class CutOff(Problem):
    """pip was stopped while it may have been writing."""


def sentence_of(error: Problem | OSError) -> str:
    """The sentence for a failed file operation, and a Problem's own."""
    if isinstance(error, Problem):
        return str(error)
    if error.errno == errno.ENOSPC:
        return DISK_FULL
    name = Path(error.filename).name if error.filename else "the checkout"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"{name} cannot be written here: run make as the user this checkout belongs to, or in a clone of your own."
        )
    return f"{name}: {error.strerror or error}."


def pip_problem(output: str, exit_status: int, program: str = "pip") -> Problem:
    """Why pip, or another program that runs it, failed; read from what it wrote to stderr."""
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return CutOff(DISK_FULL)
    if exit_status < 0:
        return CutOff(f"{program} was ended by signal {-exit_status} (is there enough memory?): run it again.")
    if UNREACHABLE.search(output):
        return Unreachable(
            "pip cannot reach its package index: connect to the network, or point pip at a mirror that you can reach."
        )
    kind = CutOff if "OSError" in output else Problem
    return kind(f"{program} failed: {last_useful_line(output).rstrip('.')}.")


def last_useful_line(output: str) -> str:
    """The last line that pip marks as an error; without one, the last line that is not a warning or a hint."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error:")]
    useful = errors or [line for line in lines if not NOISE.match(line)] or ["it printed nothing"]
    return re.sub(r"^error:\s*", "", useful[-1], flags=re.IGNORECASE)
