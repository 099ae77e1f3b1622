"""What whoever waits is told of an error, and what is not handed on with it."""

from __future__ import annotations

import logging
from typing import TypeVar

from core.engine.run import Interrupted
from core.refusal import Refusal

Error = TypeVar("Error", bound=BaseException)


def without_frames(error: Error) -> Error:
    """The same error, and those it came of, without the frames they passed through.

    Frames hold runs, those of others in the same pass too: whoever kept the error would keep their memory.
    """
    chain: list[BaseException | None] = [error]
    seen: set[int] = set()
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = None
            chain += [link.__cause__, link.__context__]
    return error


def told(error: BaseException) -> BaseException:
    """What the future of whoever waits is given: the error itself, or a sentence for what ends a thread.

    An error that nobody foresaw is logged with its frames, since it is handed on without.
    """
    if not isinstance(error, Refusal | Interrupted):
        logging.getLogger(__name__).error("What a visitor waited for failed.", exc_info=error)
    return without_frames(error if isinstance(error, Exception) else failed_step(error))


def failed_step(error: BaseException) -> Refusal:
    """A sentence for a visitor whose step failed for no fault of theirs."""
    sentence = Refusal("engine.step_failed")
    sentence.__cause__ = error
    return sentence
