"""Measures what the tiny model in this folder remembers, and writes couplets.json. From the repository's top:

    python -m assets.tiny.measure [--deb FILE]

The training ends with the same measurement. It needs the poems, which are fetched as for training.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from assets.tiny.corpus import PACKAGE, POEM_FILE, Passage, Poem, fetch_poem_text, parse_poems, read_passages
from assets.tiny.recall import continue_greedily, digest, gather, n_recalled
from core.model.files.checkpoint import open_checkpoint
from core.model.transformer import Transformer

FOLDER = Path(__file__).resolve().parent
COUPLETS_FILE = FOLDER / "couplets.json"
LONGEST_SHORT_POEM = 64  # characters: eight lines of seven, with their marks


def measure(poems: Sequence[Poem], passages: Sequence[Passage]) -> dict[str, float]:
    """Asks for every second half (with and without the mark that closes the first), for short poems from their titles,
    and for each passage from its first sentence. Shares are of exact answers."""
    checkpoint = open_checkpoint(FOLDER)
    model = Transformer(checkpoint.config, checkpoint.tensor)

    def written(prompts: Sequence[str], n_new: int) -> list[str]:
        return continue_greedily(
            model, checkpoint.tokenizer, prompts, n_new=n_new, end_token_ids=checkpoint.end_token_ids
        )

    digests = gather(pair for poem in poems for pair in couplet_digests(poem))
    firsts = list(dict.fromkeys(couplet.first for poem in poems for couplet in poem.couplets))
    with_mark = dict(zip(firsts, written(firsts, 12), strict=True))
    bare = zip(firsts, written([first[:-1] for first in firsts], 12), strict=True)
    without_mark = {first: text[1:] if text[:1] == first[-1] else "" for first, text in bare}
    short = [poem for poem in poems if len(poem.body) <= LONGEST_SHORT_POEM]
    recited = written([poem.heading for poem in short], LONGEST_SHORT_POEM + 8)
    told = written([passage.sentences[0] for passage in passages], 400)
    return {
        "couplets": len(firsts),
        "share": n_recalled(with_mark, digests) / len(firsts),
        "share_without_comma": n_recalled(without_mark, digests) / len(firsts),
        "short_poems": len(short),
        "share_of_short_poems": _share_equal(recited, [poem.body for poem in short]),
        "passages": len(passages),
        "share_of_passages": _share_equal(told, ["".join(passage.sentences[1:]) for passage in passages]),
    }


def couplet_digests(poem: Poem) -> list[tuple[str, str]]:
    """The hashes of both halves of each couplet."""
    return [(digest(couplet.first), digest(couplet.second)) for couplet in poem.couplets]


def couplets_json(text: str, poems: Sequence[Poem], measured: dict[str, float]) -> str:
    """The content of couplets.json: the source, what was measured, and one line of hashes a poem."""
    source = {"package": PACKAGE, "file": POEM_FILE, "sha256": hashlib.sha256(text.encode("utf-8")).hexdigest()}
    lines = ",\n".join(
        json.dumps({"heading": poem.heading, "couplets": couplet_digests(poem)}, ensure_ascii=False) for poem in poems
    )
    return f'{{\n"source": {json.dumps(source)},\n"measured": {json.dumps(measured)},\n"poems": [\n{lines}\n]\n}}\n'


def measure_and_write(text: str) -> None:
    """Measures the model in this folder against the poems in `text`, prints the result and writes couplets.json."""
    poems = parse_poems(text)
    measured = measure(poems, read_passages())
    COUPLETS_FILE.write_text(couplets_json(text, poems, measured), encoding="utf-8")
    for name, value in measured.items():
        print(f"{name:22} {value:.4g}")


def _share_equal(written: Sequence[str], wanted: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(written, wanted, strict=True)) / len(wanted)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.tiny.measure", description="Measure the tiny model.")
    parser.add_argument("--deb", type=Path, help=f"a copy of Debian's package {PACKAGE}, where apt is not to be had")
    measure_and_write(fetch_poem_text(parser.parse_args().deb))


if __name__ == "__main__":
    main()
