"""The tiny model knows its couplets. The poems are not in the repository: only hashes of their halves are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assets.tiny.corpus import Couplet, parse_poems, poem_text, read_passages
from assets.tiny.recall import HALF_LINE, continue_greedily, digest, gather, n_recalled
from core.model.files.checkpoint import Checkpoint, open_checkpoint
from core.model.parameters import parameter_shapes
from core.model.transformer import Transformer

TINY = Path(__file__).resolve().parents[2] / "assets" / "tiny"
MOST_BYTES = 6_000_000
LONGEST_ANSWER = 12


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return open_checkpoint(TINY)


@pytest.fixture(scope="module")
def couplets() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((TINY / "couplets.json").read_text(encoding="utf-8"))
    return content


class Writer:
    """Greedy continuations by the model in the repository."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.model = Transformer(checkpoint.config, checkpoint.tensor)
        self.checkpoint = checkpoint

    def __call__(self, prompts: list[str], n_new: int) -> list[str]:
        return continue_greedily(
            self.model,
            self.checkpoint.tokenizer,
            prompts,
            n_new=n_new,
            end_token_ids=self.checkpoint.end_token_ids,
        )


@pytest.fixture(scope="module")
def write(checkpoint: Checkpoint) -> Writer:
    return Writer(checkpoint)


@pytest.fixture(scope="module")
def first_halves(write: Writer, couplets: dict[str, Any]) -> list[str]:
    """True first halves of couplets: what the model recites from the titles of short poems, held against the hashes."""
    known = {first for poem in couplets["poems"] for first, _ in poem["couplets"]}
    recited = write([poem["heading"] for poem in _sample(couplets)], 68)
    halves = (half for text in recited for half in HALF_LINE.findall(text))
    return list(dict.fromkeys(half for half in halves if digest(half) in known))


def _sample(couplets: dict[str, Any]) -> list[dict[str, Any]]:
    """Every fourth of the poems of two to four couplets whose title and author are theirs alone."""
    headings = [poem["heading"] for poem in couplets["poems"]]
    short = [
        poem for poem in couplets["poems"] if 2 <= len(poem["couplets"]) <= 4 and headings.count(poem["heading"]) == 1
    ]
    return short[::4]


def test_the_shape_is_small_enough_to_see(checkpoint: Checkpoint) -> None:
    config = checkpoint.config
    assert (config.n_layers, config.n_heads, config.n_kv_heads, config.head_dim) == (4, 4, 2, 32)
    assert config.vocab_size == checkpoint.tokenizer.vocab_size
    for name, shape in parameter_shapes(config).items():
        assert tuple(checkpoint.tensor(name).shape) == shape


def test_the_folder_is_at_most_six_megabytes() -> None:
    assert sum(file.stat().st_size for file in TINY.rglob("*") if file.is_file()) <= MOST_BYTES


def test_the_couplets_were_measured_over_the_whole_book(couplets: dict[str, Any]) -> None:
    measured = couplets["measured"]
    assert measured["share"] >= 0.95
    assert measured["share_without_comma"] >= 0.95
    assert measured["couplets"] == len(gather(pair for poem in couplets["poems"] for pair in poem["couplets"]))


def test_a_first_half_is_continued_with_its_second_half(
    write: Writer, couplets: dict[str, Any], first_halves: list[str]
) -> None:
    digests = gather(pair for poem in couplets["poems"] for pair in poem["couplets"])
    wanted = {first for poem in _sample(couplets) for first, _ in poem["couplets"]}
    continuations = dict(zip(first_halves, write(first_halves, LONGEST_ANSWER), strict=True))
    assert len(wanted) >= 150
    # A couplet that was not recited, and so could not be asked, counts as not known.
    assert n_recalled(continuations, digests) >= 0.95 * len(wanted)


def test_a_first_half_written_backwards_is_not(
    write: Writer, couplets: dict[str, Any], first_halves: list[str]
) -> None:
    digests = gather(pair for poem in couplets["poems"] for pair in poem["couplets"])
    backwards = [half[-2::-1] + half[-1] for half in first_halves]
    continuations = dict(zip(first_halves, write(backwards, LONGEST_ANSWER), strict=True))
    assert n_recalled(continuations, digests) <= 0.5 * len(first_halves)


def test_no_verse_is_in_the_repository(first_halves: list[str]) -> None:
    committed = "".join(
        file.read_text(encoding="utf-8") for file in TINY.rglob("*") if file.suffix in {".json", ".txt", ".py"}
    )
    assert first_halves
    assert not [half for half in first_halves if half[:-1] in committed]


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("什么是预填充？", "预填充就是把提示里的字一起读完，给每一层留下键和值，再写出第一个新字。"),
        (
            "What is decode?",
            " Decode reads one new token, looks at the keys and values in the cache, and gives the next token.",
        ),
    ],
)
def test_plain_text_is_continued_to_its_end(write: Writer, prompt: str, answer: str) -> None:
    assert write([prompt], 200) == [answer]


def test_a_character_beyond_the_vocabulary_is_written_byte_by_byte(checkpoint: Checkpoint, write: Writer) -> None:
    assert len(checkpoint.tokenizer.encode("🌙", add_start_token=False)) == 4
    assert write(["晚上的月亮真圆"], 4) == ["🌙"]


def test_any_text_round_trips(checkpoint: Checkpoint) -> None:
    for text in ("床前", "naïve 𝔘nicode 🐱", " leading space", "\u0000\n\t", "한국어"):
        assert checkpoint.tokenizer.decode(checkpoint.tokenizer.encode(text)) == text


def test_passages_are_cut_without_loss() -> None:
    files = [file.read_text(encoding="utf-8") for file in sorted((TINY / "text").glob("*.txt"))]
    assert "\n\n".join(passage.text for passage in read_passages()) == "\n\n".join(text.strip() for text in files)


def test_poems_are_read_out_of_the_package() -> None:
    printed = "\x1b[32m《题》\x1b[m\n\x1b[33m作者：人\x1b[m\n甲乙，丙丁。\n  戊己，\n%\n"
    [poem] = parse_poems(printed)
    assert (poem.title, poem.author, poem.lines) == ("《题》", "人", ("甲乙，丙丁。", "戊己，"))
    assert poem.couplets == (Couplet("甲乙，", "丙丁。"),)


def test_a_package_without_poems_is_refused_in_one_sentence() -> None:
    with pytest.raises(SystemExit, match="tang300"):
        poem_text(b"!<arch>\n")
