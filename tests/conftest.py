"""Models that many tests share, loaded once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from core.engine import exclusive
from core.model.load import LanguageModel, load_model, smollm2_file

# One core for the model, here and in the servers that tests start: two threads of torch wait for each other at every
# product, and where another program holds one of the cores that makes a pass twenty times as long.
os.environ.setdefault("TBT_THREADS", "1")
# What is kept from one start to the next lies in a folder of this run's own.
os.environ["TBT_CACHE"] = tempfile.mkdtemp(prefix="tbt-cache-")
torch.set_num_threads(1)
# An example that the machine lets wait is no slow example, and the same examples fail everywhere or nowhere.
settings.register_profile(
    "here", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("here")


def _scope(nodeid: str) -> str:
    """What stays together: a file's tests, which share what is made for them once, and those with a server and a
    browser, in two halves, each of which keeps a process busy (and mostly waiting) from beginning to end."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/load/"):
        return "servers"
    if file.startswith("tests/browser/"):
        return "servers" if file < "tests/browser/test_l" else "servers, later"
    return file


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Beside a browser, whose tests see how long things take, the others' process steps back.

    It comes forward again for those with a browser, where it may: that takes a right of its own.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    niceness = 0 if _scope(item.nodeid).startswith("servers") else 10
    with suppress(PermissionError):
        if os.nice(0) != niceness:
            os.setpriority(os.PRIO_PROCESS, 0, niceness)


class Sharing(LoadScopeScheduling):
    """How tests are shared out to processes."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Sharing:
    return Sharing(config, log)


@pytest.fixture(scope="session", autouse=True)
def quiet_machine() -> Iterator[None]:
    """Nothing else uses the cores, as far as measurements in the tests' own processes can see: what else this machine
    does decides neither how often a point is measured nor how long a test takes. Who tests what others use says what.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exclusive, "used_by_others", lambda: 0.0)
        yield


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The GGUF file of the installed smollm2 package."""
    return smollm2_file()


@pytest.fixture(scope="session")
def smollm2_f32() -> LanguageModel:
    """The real chat model in fp32 on the CPU: where equality is tested."""
    return load_model("smollm2", device="cpu", dtype="f32")


@pytest.fixture(scope="session")
def tiny_f32() -> LanguageModel:
    """Our own model in fp32 on the CPU."""
    return load_model("tiny", device="cpu", dtype="f32")
