"""Addresses without secrets, and a key that appears nowhere but in a header to the server that was named."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cli.sweep_endpoint import sweep_endpoint
from core.lab.remote.address import KEY_VARIABLES, Key, address_of, key_from_environment
from core.refusal import Refusal
from tests.endpoint_options import options
from tests.fake_openai import FakeOpenAI

SECRET = "sk-Zq7Vb9-secret-0123456789"


@pytest.mark.parametrize(
    ("url", "shown", "models", "metrics"),
    [
        ("http://localhost:8000", "http://localhost:8000", "/v1/models", "/metrics"),
        ("http://localhost:8000/v1/", "http://localhost:8000", "/v1/models", "/metrics"),
        ("https://example.org/llm/v1", "https://example.org:443/llm", "/llm/v1/models", "/llm/metrics"),
        ("HTTP://[::1]:30000", "http://[::1]:30000", "/v1/models", "/metrics"),
    ],
)
def test_addresses(url: str, shown: str, models: str, metrics: str) -> None:
    address = address_of(url)
    assert (str(address), address.of("models"), address.metrics) == (shown, models, metrics)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("localhost:8000", "url_scheme"),
        ("file:///etc/passwd", "url_scheme"),
        ("ftp://host/", "url_scheme"),
        ("", "url_scheme"),
        (f"http://user:{SECRET}@host/v1", "url_credentials"),
        (f"http://{SECRET}@host/v1", "url_credentials"),
        (f"http://host/v1?key={SECRET}", "url_query"),
        (f"http://host/v1#{SECRET}", "url_query"),
        ("http://", "url_unreadable"),
        ("http://host:0/", "url_unreadable"),
        ("http://host:99999/", "url_unreadable"),
        ("http://ho st/", "url_unreadable"),
        ("http://host/\r\nX-Evil: 1", "url_unreadable"),
        ("http://höst/", "url_unreadable"),
        ("http://[::1", "url_unreadable"),
        ("http://host/" + "a" * 600, "url_unreadable"),
    ],
)
def test_what_is_no_address(url: str, word: str) -> None:
    with pytest.raises(Refusal) as refused:
        address_of(url)
    assert refused.value.key == f"endpoint.{word}"
    for language in ("en", "zh"):
        assert SECRET not in refused.value.sentence(language)


def test_only_the_loopback_is_here() -> None:
    here = ("http://127.0.0.1", "http://127.8.9.1:1", "http://[::1]", "http://localhost")
    assert all(address_of(url).is_here for url in here)
    assert not any(address_of(url).is_here for url in ("http://10.0.0.1", "http://localhost.example.org"))


def test_the_key_comes_from_the_environment() -> None:
    ours, other = KEY_VARIABLES
    assert key_from_environment({other: "b", ours: "a"}).headers() == {"Authorization": "Bearer a"}
    assert key_from_environment({other: " b\n", ours: ""}).headers() == {"Authorization": "Bearer b"}
    assert not key_from_environment({}) and key_from_environment({}).headers() == {}
    with pytest.raises(Refusal) as refused:
        key_from_environment({ours: f"{SECRET}\r\nX: y"})
    assert SECRET not in str(refused.value)


def test_nothing_prints_or_copies_the_key() -> None:
    key = Key(SECRET)
    assert SECRET not in f"{key!r} {key} {[key]}"
    with pytest.raises(TypeError):
        json.dumps(key)
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copied(key)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, len(SECRET) - 6), st.integers(6, 30))
def test_no_piece_of_the_key_is_left_in_what_a_server_says(before: str, after: str, begin: int, n: int) -> None:
    said = Key(SECRET).without(before + SECRET[begin : begin + n] + after)
    assert said == ""


@given(st.text())
def test_what_a_server_says_is_one_short_line(said: str) -> None:
    line = Key().without(said)
    assert len(line) <= 200 and line.isprintable() and line == line.strip()


@pytest.mark.parametrize("has_key", [True, False])
def test_a_whole_sweep_leaves_no_trace_of_the_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    has_key: bool,
) -> None:
    """With the right key everything works; with another one the server quotes it back, and even that is not shown."""
    caplog.set_level(logging.DEBUG)
    right = SECRET if has_key else "another"
    monkeypatch.setenv(KEY_VARIABLES[0], SECRET)
    with FakeOpenAI(key=right) as fake:
        status = sweep_endpoint(options(fake.url, tmp_path / "a.csv"))
        assert fake.keys and set(fake.keys) == {f"Bearer {SECRET}"}
        assert SECRET not in json.dumps(fake.asked) and SECRET not in " ".join(fake.paths)
    out = capsys.readouterr()
    written = "".join(file.read_text(encoding="utf-8") for file in tmp_path.iterdir())
    assert status == (0 if has_key else 2)
    assert SECRET not in out.out + out.err + written + caplog.text
    if not has_key:
        assert "does not accept the key" in out.err


def test_a_failure_has_no_key_in_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLES[1], SECRET)
    with pytest.raises(Refusal) as refused:
        sweep_endpoint(options(f"http://u:{SECRET}@127.0.0.1:1", tmp_path / "a.csv"))
    assert SECRET not in "".join(traceback.format_exception(refused.value)) and not list(tmp_path.iterdir())
