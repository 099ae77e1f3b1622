"""How a text is cut before merging, by the name a GGUF file gives (`tokenizer.ggml.pre`).

The file holds vocabulary and merges but only the name of the rules, so the rules are here; an unknown name is refused,
because a near miss cuts texts almost right and nobody notices. Sources: the tokenizer.json of SmolLM2, Llama 3 and
Qwen 2, and llama.cpp's table of the same names.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from core.model.text.subword_tokenizer import SPACE_SIGN, attempt
from core.refusal import Refusal

# What the two patterns share after the rule for digits: punctuation, line ends, runs of blanks.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_DIGITS = {"llama-bpe": r"\p{N}{1,3}", "qwen2": r"\p{N}"}
PRETOKENIZERS = ("smollm", "llama-bpe", "qwen2")

# Splitting a name in all ways is quadratic; SentencePiece's own limit is 16 characters, runs of blanks are longer.
_LONGEST_NAME = 256


def byte_level_library(pretokenizer: str, names: Sequence[str], merges: Sequence[str]) -> Tokenizer:
    """A byte-level BPE tokenizer (GPT-2's kind). `merges`: "left right", the most frequent first.

    Raises Refusal for an unknown `pretokenizer`, and for merges that do not fit the names.
    """
    if pretokenizer not in PRETOKENIZERS:
        raise Refusal("text.unknown_pretokenizer", name=pretokenizer[:40], known=", ".join(PRETOKENIZERS))
    halves = [merge.partition(" ") for merge in merges]
    pairs = [(left, right) for left, _, right in halves]
    model = attempt(
        # Llama 3 takes a whole word that is in the vocabulary without asking the merges.
        lambda: models.BPE(_ids(names), pairs, ignore_merges=pretokenizer == "llama-bpe"),
        "text.broken_tokenizer",
    )
    library = Tokenizer(model)
    if pretokenizer == "smollm":
        library.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        return library
    if pretokenizer == "qwen2":
        library.normalizer = normalizers.NFC()
    pattern = f"{_WORDS}|{_DIGITS[pretokenizer]}|{_REST}"
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return library


def sentencepiece_library(names: Sequence[str], scores: Sequence[float], *, space_prefix: bool) -> Tokenizer:
    """A SentencePiece BPE tokenizer (Llama 2's kind) with bytes for characters it lacks.

    The file has no merges: two neighbours merge where their union is in the vocabulary, the highest score first. Every
    way to split a name is therefore a merge, ranked by the name's score. Raises Refusal when the library refuses.
    """
    ids = _ids(names)
    ranked: list[tuple[float, int, int, str, str]] = []
    for name, token_id in ids.items():
        for cut in range(1, min(len(name), _LONGEST_NAME)):
            left, right = name[:cut], name[cut:]
            if left in ids and right in ids:
                ranked.append((-scores[token_id], ids[left], ids[right], left, right))
    ranked.sort()
    model = attempt(
        lambda: models.BPE(ids, [(left, right) for *_, left, right in ranked], byte_fallback=True, fuse_unk=True),
        "text.broken_tokenizer",
    )
    library = Tokenizer(model)
    blanks = normalizers.Replace(" ", SPACE_SIGN)
    library.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_SIGN), blanks]) if space_prefix else blanks
    return library


def _ids(names: Sequence[str]) -> dict[str, int]:
    """Name to id; of two equal names the first is used."""
    return {name: token_id for token_id, name in reversed(list(enumerate(names)))}
