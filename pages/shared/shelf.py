"""The models of this process: loaded once, in a thread of their own, and shared by all visitors, read-only.

Imports neither streamlit nor (before it loads) torch, so that a page can say what is loading within a second.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from core.engine.worker import Worker
from core.refusal import Refusal

if TYPE_CHECKING:
    from core.model.load import LanguageModel

REAL_MODEL, SMALL_MODEL = "smollm2", "tiny"
Load = Callable[[str], "LanguageModel"]


def load_by_name(name: str) -> LanguageModel:
    """The model `name` on the operator's device and in the operator's dtype (TBT_DEVICE, TBT_DTYPE)."""
    from core.model.load import load_model  # imports torch, which takes seconds

    return load_model(name, device=os.environ.get("TBT_DEVICE") or None, dtype=os.environ.get("TBT_DTYPE") or None)


def operator_models() -> list[str]:
    """What lies in the operator's folder TBT_MODELS: GGUF files and folders with a config.json, by name."""
    folder = os.environ.get("TBT_MODELS")
    entries = sorted(Path(folder).iterdir()) if folder and Path(folder).is_dir() else []
    return [entry.name for entry in entries if entry.suffix == ".gguf" or (entry / "config.json").is_file()]


class Shelf:
    """Our two models, loaded by `start`, and the operator's, each loaded when somebody first asks for it."""

    def __init__(self, load: Load = load_by_name, extra: Callable[[], list[str]] = operator_models) -> None:
        self._load = load
        self._lock = Lock()
        self._worker = Worker("loader")
        self._futures: dict[str, Future[LanguageModel]] = {}
        self._extra = tuple(name for name in extra() if name not in (REAL_MODEL, SMALL_MODEL))

    def start(self) -> None:
        """Begins to load our own models; returns at once. Asking again changes nothing."""
        for name in (REAL_MODEL, SMALL_MODEL):
            self.ask(name)

    def ask(self, name: str) -> Future[LanguageModel]:
        """The model, or the promise of it: loaded once, however many ask. Raises KeyError for an unknown name."""
        if name not in (REAL_MODEL, SMALL_MODEL, *self._extra):
            raise KeyError(name)
        with self._lock:
            if name not in self._futures:
                self._futures[name] = self._worker.submit(lambda: self._loaded(name))
            return self._futures[name]

    def wait_until_started(self) -> None:
        """Returns when our own models are loaded, have failed, or were given up because the server stops."""
        for name in (REAL_MODEL, SMALL_MODEL):
            # Not `concurrent.futures.wait`: that one is never woken for a future that is cancelled while it waits.
            with suppress(CancelledError):
                self.ask(name).exception()

    @property
    def loading(self) -> list[str]:
        """Which of our own models are not there yet."""
        return [name for name in (REAL_MODEL, SMALL_MODEL) if not self.ask(name).done()]

    @property
    def loaded(self) -> list[LanguageModel]:
        """The models in memory, in the order they were asked for."""
        with self._lock:
            futures = list(self._futures.values())
        return [future.result() for future in futures if future.done() and not future.exception()]

    @property
    def usable(self) -> list[str]:
        """Which of our own models are loaded."""
        return [name for name in (REAL_MODEL, SMALL_MODEL) if self.ask(name).done() and not self.problem(name)]

    @property
    def choices(self) -> list[str]:
        """What a visitor can choose: our own models as far as they loaded, then the operator's. Never nothing."""
        return [*self.usable, *self._extra] or [REAL_MODEL]

    def problem(self, name: str) -> Refusal | None:
        """Why a model could not be loaded; None when it could, or is still loading."""
        future = self.ask(name)
        error = future.exception() if future.done() else None
        if error is None or isinstance(error, Refusal):
            return error
        return Refusal("pages.model_failed", name=name)

    def stop(self) -> None:
        """Ends the loading thread."""
        self._worker.stop()

    def _loaded(self, name: str) -> LanguageModel:
        try:
            return self._load(name)
        except Refusal:
            raise
        except Exception:
            logging.getLogger(__name__).exception("The model %s could not be loaded.", name)
            raise
