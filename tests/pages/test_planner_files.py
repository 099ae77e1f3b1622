"""Files of strangers on the planner, and the file it gives away; the picture's figure."""

from __future__ import annotations

import csv
import io
import json

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from core.estimate import catalogue
from core.refusal import Refusal
from core.words import LANGUAGES, sentence
from pages.shared.figures.planner import MemoryBar, memory_figure
from pages.shared.planner import COLUMNS, dropped_model
from tests.pages.planner_screen import LINK, follow, table
from tests.pages.screen import html, text


def config_of(slug: str, **more: object) -> bytes:
    return json.dumps({**catalogue.models()[slug].config, **more}).encode()


def drop(session: AppTest, name: str, data: bytes) -> AppTest:
    session.file_uploader(key="plan_config").set_value((name, data, "application/json")).run()
    assert not session.exception
    return session


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_dropped_config_is_a_model_like_any_other(language: str) -> None:
    session = drop(follow(language, models="qwen3-8b"), "mine & <b>yours.json", config_of("qwen3-8b"))
    lines = table(session)
    assert len(lines) == 6
    for ours, dropped in zip(lines[:3], lines[3:], strict=True):
        assert dropped[1:] == ours[1:] and dropped[0][0].startswith("mine & <b>yours")
    assert "<b>yours" not in html(session)


BROKEN = [
    ("config.json", b"{", "model.json_broken"),
    ("config.json", b"\xff\xfe\x00", "model.json_broken"),
    ("config.json", b"[1, 2]", "model.json_broken"),
    ("config.json", b'{"a":' * 100_000, "model.json_too_deep"),
    ("config.json", b'{"a": NaN}', "model.json_not_a_number"),
    ("config.json", b'{"a": 1, "a": 2}', "model.json_key_twice"),
    ("config.json", b" " * (2**20 + 1), "model.file_too_large"),
    ("../../etc/<script>.json", b'{"model_type": "<img src=x>"}', "estimate.model_type_unknown"),
    ("config.json", config_of("qwen3-8b", num_hidden_layers=10**30), "model.field_outside"),
    ("config.json", config_of("qwen3-8b", num_key_value_heads=5), "estimate.heads_not_divisible"),
]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("name", "data", "key"), BROKEN, ids=range(len(BROKEN)))
def test_a_broken_or_hostile_file_is_one_sentence(name: str, data: bytes, key: str, language: str) -> None:
    with pytest.raises(Refusal) as refused:
        dropped_model(data, name)
    if key != "model.field_outside":
        assert refused.value.key == key
    if language == "en" or key == "estimate.model_type_unknown":
        session = drop(follow(language), name, data)
        assert refused.value.sentence(language) in text(session).replace("  ", " ") and len(table(session)) == 9
        assert "<script>" not in html(session).split("tbt-refusal")[1] and "etc" not in refused.value.sentence(language)
        assert "<img" not in html(session)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("config.json", "config"), ("my-model.json", "my-model"), ("a/b\\c.json", "c"), ("", "config"), (" ", "config"),
        ("x" * 400 + ".json", "x" * 48 + "…"), ("a\nb\x00.json", "a?b?"),
    ],
)  # fmt: skip
def test_a_dropped_model_is_called_as_its_file(file: str, name: str) -> None:
    assert dropped_model(config_of("smollm2"), file).shape.name == name


def test_the_csv_says_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[str] = []
    monkeypatch.setattr(st, "download_button", lambda label, data, *more, **others: offered.append(data))
    session = drop(follow("en", **LINK), "=HYPERLINK(1).json", config_of("smollm2"))
    lines = offered[-1].splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert lines[: len(comments)] == comments and "# batch_sequences = 16" in comments
    read = list(csv.DictReader(io.StringIO("\n".join(lines[len(comments) :]))))
    assert list(read[0]) == list(COLUMNS) and read[-1]["model"] == "'=HYPERLINK(1)"
    shown = table(session)
    assert len(read) == len(shown) == 16
    for row, cells in zip(read, shown, strict=True):
        titles = [title for _, title in cells]
        assert [f"{int(row[f'{name}_per_rank_bytes']):,} B" for name in ("weights", "kv")] == titles[2:4]
        needed, capacity = (f"{int(row[f'{name}_per_rank_bytes']):,} B" for name in ("needed", "capacity"))
        assert f"{needed} / {capacity}" == titles[4]
        assert cells[5][0] == sentence(f"planner.{'yes' if row['fits'] == '1' else 'no'}", "en")
        for name, cell in (("max_context_tokens", cells[6]), ("max_batch_sequences", cells[7])):
            assert (f"{int(row[name]):,}" if row[name] else sentence("planner.no_limit", "en")) in cell[0]
        no_peak = sentence("planner.no_peak", "en")
        assert (f"{row['decode_step_floor_s']} s" if row["decode_step_floor_s"] else no_peak) == titles[8]
        rate = row["decode_tokens_per_s_at_most"]
        assert (f"{rate} tokens/s" if rate else no_peak) == titles[9]
        assert (f"{row['prefill_floor_s']} s" if row["prefill_floor_s"] else no_peak) == titles[10]
        if row["decode_bound"]:
            assert sentence(f"planner.bound_{row['decode_bound']}", "en") in cells[8][0]


def bar(name: str, *, fits: bool = True) -> MemoryBar:
    return MemoryBar(name, "Card <i>", 2**31, 2**30, 2**32, fits, "3.00 GiB", "a & <b>\n= c")


def test_the_picture_is_drawn_from_the_rows() -> None:
    bars = [bar("a"), bar("a", fits=False), bar("<b>b", fits=False)]
    words = {"weights": "W", "kv": "KV", "capacity": "C", "axis": "memory"}
    figure = memory_figure(bars, words, unit="GiB", unit_bytes=2**30)
    weights, weights_over, kv, kv_over, capacity = figure["data"]
    assert (weights["x"], weights_over["x"]) == ([2, None, None], [None, 2, 2])
    assert (kv["x"], kv_over["x"], capacity["x"]) == ([1, None, None], [None, 1, 1], [4, 4, 4])
    assert "pattern" in kv_over["marker"] and "pattern" not in kv["marker"]
    assert [label["text"] for label in figure["layout"]["annotations"]] == ["<b>a</b>", "<b>&lt;b&gt;b</b>"]
    assert figure["layout"]["yaxis"]["ticktext"] == ["Card &lt;i&gt;"] * 3
    assert capacity["customdata"] == ["a &amp; &lt;b&gt;<br>= c"] * 3
    assert figure["layout"]["height"] > memory_figure(bars[:1], words, unit="GiB", unit_bytes=2**30)["layout"]["height"]
    assert json.loads(json.dumps(figure)) == figure


def test_a_bar_far_beyond_every_device_is_cut_and_says_how_long_it_is() -> None:
    words = {"weights": "W", "kv": "KV", "capacity": "C", "axis": "memory"}
    huge = bar("b", fits=False)._replace(weights=2**40, needed="1.00 TiB")
    figure = memory_figure([bar("a"), huge], words, unit="GiB", unit_bytes=2**30)["layout"]
    assert [label["text"] for label in figure["annotations"]] == ["<b>a</b>", "<b>b</b>", "1.00 TiB →"]
    assert 4 < figure["xaxis"]["range"][1] < 8 and figure["annotations"][2]["x"] == figure["xaxis"]["range"][1]
