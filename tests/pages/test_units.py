"""Bytes in GiB or GB: the figures, the switch, the link."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from core.words import LANGUAGES
from pages.shared.numbers import scaled_bytes
from pages.shared.resources import shelf
from tests.pages.screen import text

OpenPage = Callable[..., AppTest]


@pytest.mark.parametrize(
    ("value", "binary", "decimal"),
    [
        (0, "0 B", "0 B"),
        (999, "999 B", "999 B"),
        (1000, "1000 B", "1.00 kB"),
        (1024, "1.00 KiB", "1.02 kB"),
        (589_824, "576.0 KiB", "589.8 kB"),
        (999_999, "976.6 KiB", "1.00 MB"),
        (1_082_880, "1.03 MiB", "1.08 MB"),
        (2**20 - 1, "1.00 MiB", "1.05 MB"),
        (10 * 2**20 - 1, "10.0 MiB", "10.5 MB"),
        (80 * 2**30, "80.0 GiB", "85.9 GB"),
        (2**40, "1.00 TiB", "1.10 TB"),
    ],
)
def test_bytes_with_a_prefix(value: int, binary: str, decimal: str) -> None:
    assert scaled_bytes(value, "binary") == binary and scaled_bytes(value, "decimal") == decimal


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_switch_changes_the_figures_and_the_link(open_page: OpenPage, language: str) -> None:
    session = open_page(language, "0_home.py")
    weights = [model.transformer.product_bytes for model in shelf().loaded]
    assert all(scaled_bytes(value, "binary") in text(session) for value in weights)
    assert "units" not in session.query_params
    session.segmented_control(key="units").set_value("decimal").run()
    assert all(scaled_bytes(value, "decimal") in text(session) for value in weights)
    assert "decimal" in session.query_params["units"] and not session.exception
    session.switch_page("1_prefill_and_decode.py").run()
    assert session.segmented_control(key="units").value == "decimal" and "decimal" in session.query_params["units"]
    session.segmented_control(key="units").set_value("binary").run()
    assert "units" not in session.query_params
