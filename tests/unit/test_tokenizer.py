"""Text to ids and back: against transformers on the real vocabulary, and against the rules written out (known faults
B13, B29, B30, B31)."""

from __future__ import annotations

import inspect
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX as QWEN2_PATTERN

from core.model.files.gguf_header import read_gguf_header
from core.model.text.character_tokenizer import CharacterTokenizer
from core.model.text.tokenizer import Tokenizer
from core.refusal import Refusal

TEXTS = [
    "",
    " ",
    "   ",
    "\n",
    "Hello, world!",
    "  leading and  inner   blanks  ",
    " ...",
    "I'll can't we've O'NEIL'S 's",
    "tabs\tand\r\nlines\n\n\n  indented\n\t\tcode",
    "def f(x: int) -> int:\n    return x ** 2  # comment\n\nprint(f(1234567890))\n",
    "1 12 123 1234 12345 3.14159 1e-5 0x1F ½ ² ٣٤ Ⅻ",
    "price:$1,234.56  2024-11-05\n42\n  7",
    "你好，世界！床前明月光，疑是地上霜。",
    "日本語のテキスト 한국어 텍스트 Русский текст Ελληνικά עברית العربية हिन्दी ไทย",
    "😀👩‍👩‍👧‍👦🏴󠁧󠁢󠁥󠁮󠁧󠁿 é e\u0301 ﬁ Å ①",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>",
    "<|endoftext|><|im_start|> <|im_end|",
    "$5 and $6 a_b_c ~~x~~ ** <b> # t ` \\n",
    "\u00a0\u2003\u3000\u200b\ufeff\u202e x\u0000\u0007\u001b[0m",
    "a" * 300 + "!" * 300 + " " * 300 + "\n" * 50,
    "mixed 中文 and English 123中文456 naïve façade",
]


@pytest.fixture(scope="module")
def fields(smollm2_gguf: Path) -> dict[str, Any]:
    with smollm2_gguf.open("rb") as file:
        return read_gguf_header(file, smollm2_gguf.stat().st_size, smollm2_gguf.name).fields


@pytest.fixture(scope="module")
def smollm2(fields: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_gguf(fields)


@pytest.fixture(scope="module")
def peer(smollm2_gguf: Path) -> Any:
    return AutoTokenizer.from_pretrained(str(smollm2_gguf.parent), gguf_file=smollm2_gguf.name)


# smollm2


@pytest.mark.parametrize("text", TEXTS)
def test_smollm2_ids_equal_transformers(smollm2: Tokenizer, peer: Any, text: str) -> None:
    # transformers reads the same file but leaves out the digit rule of the published tokenizer; with it put back:
    library = peer.backend_tokenizer
    published = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    without_rule = library.pre_tokenizer
    library.pre_tokenizer = pre_tokenizers.Sequence(published)
    try:
        ids = smollm2.encode(text)
        assert ids == peer.encode(text, add_special_tokens=False)
        assert smollm2.decode(ids) == library.decode(ids, skip_special_tokens=True)
    finally:
        library.pre_tokenizer = without_rule


def test_smollm2_ids_as_transformers_reads_the_file(smollm2: Tokenizer, peer: Any) -> None:
    """Untouched, it differs only where several blanks stand before a digit, or one before a sign such as ½ or ①."""
    for text in TEXTS:
        if "  7" not in text and not set(text) & set("½²٣٤Ⅻ①"):
            assert smollm2.encode(text) == peer.encode(text, add_special_tokens=False), text
    assert [smollm2.token_label(i) for i in smollm2.encode("x  7")] == ["x", "  ", "7"]


def test_smollm2_describes_itself(smollm2: Tokenizer) -> None:
    assert (smollm2.vocab_size, smollm2.start_token_id, smollm2.end_token_id) == (49_152, 1, 2)
    assert not smollm2.adds_start_token
    assert smollm2.token_name(1) == smollm2.token_label(1) == "<|im_start|>"
    assert smollm2.is_special(1) and not smollm2.is_special(19_556)
    assert smollm2.token_bytes(1) == b"" and smollm2.token_bytes(19_556) == b"Hello"


@pytest.mark.parametrize("text", TEXTS)
def test_smollm2_text_comes_back(smollm2: Tokenizer, text: str) -> None:
    plain = text.replace("<|im_start|>", "").replace("<|im_end|>", "").replace("<|endoftext|>", "")
    assert smollm2.decode(smollm2.encode(text)) == plain
    assert b"".join(map(smollm2.token_bytes, smollm2.encode(text))) == plain.encode()


def test_labels_show_what_is_there(smollm2: Tokenizer) -> None:
    def labels(text: str) -> list[str]:
        return [smollm2.token_label(token_id) for token_id in smollm2.encode(text)]

    assert labels("The sky") == ["The", " sky"]
    assert "".join(labels("a\n\tb\r")) == "a⏎⇥b␍"
    assert labels("你好") == ["E4 BD", "A0", "E5 A5", "BD"]
    assert "U+0007" in "".join(labels("\u0007"))
    assert labels("$x_y <b>") == ["$", "x", "_", "y", " <", "b", ">"]


@pytest.mark.parametrize("token_id", [49_152, 152_063, -1])
def test_ids_beyond_the_vocabulary(smollm2: Tokenizer, token_id: int) -> None:
    assert smollm2.token_label(token_id) == f"unused id {token_id}"
    assert smollm2.token_bytes(token_id) == b"" and not smollm2.is_special(token_id)
    assert smollm2.decode([19_556, token_id]) == "Hello"


@pytest.mark.parametrize("unit", ["a", " ", "你好", "1", " \n", "The quick brown fox. ", "<|im_start|>"])
def test_a_megabyte_does_not_hang(smollm2: Tokenizer, unit: str) -> None:
    text = unit * (1_000_000 // len(unit.encode()))
    started = time.process_time()
    assert smollm2.encode(text)
    assert time.process_time() - started < 20  # a second or less on most machines


def test_half_a_surrogate_pair_is_a_replacement_mark(smollm2: Tokenizer) -> None:
    assert smollm2.decode(smollm2.encode("a\ud83db\ude00")) == "a\ufffdb\ufffd"
    assert smollm2.decode(smollm2.encode("\ud83d\ude00")) == "😀"


# The other kinds of GGUF tokenizer


def gguf_fields(pre: str, fields: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return fields | {"tokenizer.ggml.pre": pre} | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2"])
def test_pretokenizers_equal_the_published_patterns(fields: dict[str, Any], pre: str) -> None:
    llama3 = inspect.signature(TikTokenConverter.__init__).parameters["pattern"].default
    names, merges = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.merges"]
    model = models.BPE(
        {name: i for i, name in enumerate(names)},
        [tuple(m.split(" ")) for m in merges],
        ignore_merges=pre == "llama-bpe",
    )
    published = tokenizers.Tokenizer(model)
    pattern = Regex(llama3 if pre == "llama-bpe" else QWEN2_PATTERN)
    published.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(pattern, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    if pre == "qwen2":
        published.normalizer = normalizers.NFC()
    published.add_special_tokens(names[:17])
    ours = Tokenizer.from_gguf(gguf_fields(pre, fields, add_bos_token=False))
    for text in TEXTS:
        assert ours.encode(text) == published.encode(text).ids, text


@pytest.mark.parametrize("pre", ["gpt-4o", "deepseek-llm", "default", "", None, 3])
def test_unknown_pretokenizers_are_refused_by_name(fields: dict[str, Any], pre: Any) -> None:
    with pytest.raises(Refusal) as refusal:
        Tokenizer.from_gguf(gguf_fields(pre, fields))
    for language in ("en", "zh"):
        assert str(pre) in refusal.value.sentence(language) and "llama-bpe" in refusal.value.sentence(language)


@pytest.mark.parametrize("kind", ["bert", "t5", "rwkv", None, 5])
def test_unknown_kinds_are_refused_by_name(kind: Any) -> None:
    with pytest.raises(Refusal, match=str(kind)):
        Tokenizer.from_gguf({"tokenizer.ggml.model": kind, "tokenizer.ggml.tokens": ["a"]})


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": []},
        {"tokens": None},
        {"tokens": ["a", 3]},
        {"merges": None},
        {"merges": ["a b c d", "no", ""]},
        {"merges": ["zzzz qqqq"]},
        {"token_type": [1]},
        {"token_type": "x"},
        {"bos_token_id": 10**6},
        {"eos_token_id": -1},
        {"eos_token_id": "2"},
        {"add_bos_token": "yes"},
    ],
)
def test_damaged_fields_are_refused(fields: dict[str, Any], changes: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refusal:
        Tokenizer.from_gguf(gguf_fields("smollm", fields, **changes))
    assert "/" not in refusal.value.sentence("en") + refusal.value.sentence("zh")


def test_users_own_and_unused_tokens(fields: dict[str, Any]) -> None:
    names, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    wide = {"tokens": [*names, "<think>", "[PAD1]", "[PAD2]"], "token_type": [*types, 4, 5, 5]}
    tokenizer = Tokenizer.from_gguf(gguf_fields("smollm", fields, **wide))
    assert tokenizer.vocab_size == 49_153  # padding at the end is no vocabulary
    assert tokenizer.encode("a<think>b")[1] == 49_152
    assert tokenizer.decode(tokenizer.encode("a<think>b")) == "a<think>b"
    assert tokenizer.token_label(49_153) == "unused id 49153"


# SentencePiece


def sentencepiece_fields(**changes: Any) -> dict[str, Any]:
    words = [
        "▁t",
        "he",
        "▁the",
        "th",
        "is",
        "▁this",
        "▁is",
        "▁a",
        "est",
        "▁test",
        "▁s",
        "tr",
        "ing",
        "▁string",
        "in",
        "es",
    ]
    words += ["in" + "g", "▁▁", "▁▁▁▁", "..", "...", "▁..."]
    words = list(dict.fromkeys(words))
    letters = [*"▁abcdefghijklmnopqrstuvwxyzT.,!"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words, *letters]
    types = [2, 3, 3] + [6] * 256 + [1] * (len(words) + len(letters))
    scores = [0.0] * 259 + [-float(i) for i in range(len(words))] + [-1000.0 - i for i in range(len(letters))]
    fields = {"model": "llama", "tokens": names, "token_type": types, "scores": scores}
    fields |= {"bos_token_id": 1, "eos_token_id": 2} | changes
    return {f"tokenizer.ggml.{key}": value for key, value in fields.items()}


def merge_by_score(text: str, fields: dict[str, Any]) -> list[int]:
    """SentencePiece's rule, written out: again and again the best neighbours, the leftmost of equals, become one."""
    ids = {name: i for i, name in enumerate(fields["tokenizer.ggml.tokens"])}
    scores = fields["tokenizer.ggml.scores"]
    symbols = [*("▁" + text.replace(" ", "▁"))] if text else []
    while True:
        merges = [(scores[ids[a + b]], -i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in ids]
        if not merges:
            break
        place = -max(merges)[1]
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
    return [i for s in symbols for i in ([ids[s]] if s in ids else [3 + byte for byte in s.encode()])]


SENTENCEPIECE_TEXTS = [
    *(
        "This is a test string",
        " ...",
        "",
        " ",
        "    ",
        "thethethis",
        "the string ist",
        "a  b   c",
        "你好 the 😀",
        "\n\ttest\n",
    ),
    *("testestest inging ing", ".......", "thing a thing", "  the", "x" * 100),
]


@pytest.mark.parametrize("text", SENTENCEPIECE_TEXTS)
def test_sentencepiece_merges_by_score(text: str) -> None:
    fields = sentencepiece_fields()
    tokenizer = Tokenizer.from_gguf(fields)
    ids = tokenizer.encode(text)
    assert ids == [1, *merge_by_score(text, fields)]
    assert tokenizer.decode(ids) == text
    # The space in front of a text is dropped once, at its start only.
    assert tokenizer.decode(ids[1:], after=[1]) == text
    if text.isascii() and text:
        library = tokenizers.Tokenizer(models.BPE({n: i for i, n in enumerate(fields["tokenizer.ggml.tokens"])}, []))
        library.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        assert tokenizer.decode(ids) == library.decode(ids[1:])


def test_sentencepiece_bytes_and_labels() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece_fields())
    ids = tokenizer.encode("the 你")
    assert [tokenizer.token_bytes(i) for i in ids] == [b"", b" the", b" ", b"\xe4", b"\xbd", b"\xa0"]
    assert [tokenizer.token_label(i) for i in ids] == ["<s>", " the", " ", "E4", "BD", "A0"]
    assert tokenizer.is_special(0) and tokenizer.is_special(1)


def test_sentencepiece_without_a_space_in_front() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece_fields(add_space_prefix=False))
    assert [tokenizer.token_label(i) for i in tokenizer.encode("test")] == ["<s>", "t", "est"]
    assert tokenizer.decode(tokenizer.encode(" test")) == " test"


def test_sentencepiece_megabyte() -> None:
    assert Tokenizer.from_gguf(sentencepiece_fields()).encode("this is a test " * 66_000)


@pytest.mark.parametrize("scores", [None, [], [0.0], ["x"]])
def test_sentencepiece_without_scores_is_refused(scores: Any) -> None:
    with pytest.raises(Refusal, match="scores"):
        Tokenizer.from_gguf(sentencepiece_fields(scores=scores))


# B30, B31: the start token


def test_one_start_token_whoever_writes_it() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece_fields())
    assert tokenizer.encode("the") == tokenizer.encode("<s>the")
    assert tokenizer.encode("<s>the").count(1) == 1
    assert tokenizer.encode("the", add_start_token=False).count(1) == 0
    assert tokenizer.encode("") == [1]
    silent = Tokenizer.from_gguf(sentencepiece_fields(add_bos_token=False))
    assert silent.encode("the").count(1) == 0 and silent.encode("") == []


# tokenizer.json


def byte_level_json(**changes: Any) -> str:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<s>", "</s>", *letters, "Ġt", "he", "Ġthe"]
    library = tokenizers.Tokenizer(
        models.BPE({n: i for i, n in enumerate(names)}, [("Ġ", "t"), ("h", "e"), ("Ġt", "he")])
    )
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<s>", "</s>"])
    library.add_tokens([AddedToken("<tool>", normalized=False)])
    library.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    library.enable_truncation(4)
    library.enable_padding()
    return json.dumps(json.loads(library.to_str()) | changes)


@pytest.mark.parametrize("text", TEXTS)
def test_tokenizer_json_round_trips_as_the_library_does(text: str) -> None:
    tokenizer = Tokenizer.from_tokenizer_json(byte_level_json())
    library = PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(byte_level_json()))
    ids = tokenizer.encode(text)
    assert ids == library.encode(text)
    assert tokenizer.decode(ids) == text == library.decode(ids, skip_special_tokens=True)


def test_tokenizer_json_takes_the_settings_beside_it() -> None:
    plain = Tokenizer.from_tokenizer_json(byte_level_json())
    assert (plain.start_token_id, plain.end_token_id, plain.adds_start_token) == (0, None, True)
    settings = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": False}
    told = Tokenizer.from_tokenizer_json(byte_level_json(), settings)
    assert (told.start_token_id, told.end_token_id, told.adds_start_token) == (0, 1, False)
    assert told.encode("the<tool>")[-1] == 261 == told.vocab_size - 1
    assert told.decode(told.encode("the<tool>")) == "the<tool>" and not told.is_special(261)
    with pytest.raises(Refusal, match="bos_token"):
        Tokenizer.from_tokenizer_json(byte_level_json(), {"bos_token": "<none>"})


def test_tokenizer_json_of_sentencepiece_kind() -> None:
    fields = sentencepiece_fields()
    names = fields["tokenizer.ggml.tokens"]
    library = tokenizers.Tokenizer(models.BPE({n: i for i, n in enumerate(names)}, [("▁", "t")], byte_fallback=True))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    library.add_special_tokens(names[:3])
    tokenizer = Tokenizer.from_tokenizer_json(library.to_str(), {"bos_token": "<s>", "add_bos_token": True})
    for text in SENTENCEPIECE_TEXTS:
        ids = tokenizer.encode(text)
        assert ids == [1, *library.encode(text).ids]
        assert tokenizer.decode(ids) == text == library.decode(ids)


HOSTILE: dict[str, Any] = {
    "not json": "{",
    "deep": "[" * 100_000,
    "a list": "[]",
    "empty": "{}",
    "no model": json.dumps({"model": None}),
    "word level": byte_level_json(model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}),
    "unigram": byte_level_json(model={"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 0}),
    "vocabulary": byte_level_json(model={"type": "BPE", "vocab": {"a": "b"}, "merges": []}),
    "huge id": byte_level_json(model={"type": "BPE", "vocab": {"a": 4_000_000_000}, "merges": []}),
    "merges": byte_level_json(model={"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}),
    "suffix": byte_level_json(model={"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>"}),
    "decoder": byte_level_json(decoder={"type": "CTC"}, pre_tokenizer=None),
    "no decoder": byte_level_json(decoder=None, pre_tokenizer=None),
    "blob": byte_level_json(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    "strange part": byte_level_json(normalizer=[1, 2]),
    "endless pattern": byte_level_json(
        pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated", "invert": False}
    ),
    "growth": byte_level_json(
        normalizer={
            "type": "Sequence",
            "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40,
        }
    ),
    "many parts": byte_level_json(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 10_000}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tokenizer_json_is_refused(name: str) -> None:
    with pytest.raises(Refusal) as refusal:
        Tokenizer.from_tokenizer_json(HOSTILE[name])
    for language in ("en", "zh"):
        assert "/" not in refusal.value.sentence(language).replace("</w>", "")


def test_a_panic_in_the_library_is_a_refusal(capfd: pytest.CaptureFixture[str]) -> None:
    pattern = {"type": "Split", "pattern": {"Regex": "a*a*a*a*a*a*a*a*b[0-9]"}, "behavior": "Isolated", "invert": False}
    tokenizer = Tokenizer.from_tokenizer_json(byte_level_json(pre_tokenizer=pattern))
    with pytest.raises(Refusal):
        tokenizer.encode("a" * 2000 + "b")


# Characters, for the tiny model


def characters_json(**changes: Any) -> str:
    content = {"type": "characters", "special": ["<s>", "</s>", "<pad>"], "characters": [*"床前明月光 \na"]}
    return json.dumps(content | changes, ensure_ascii=False)


@pytest.mark.parametrize("text", [*TEXTS, "床前明月光", "e\u0301 é Å"])
def test_any_text_round_trips_through_characters(text: str) -> None:
    tokenizer = CharacterTokenizer(characters_json())
    ids = tokenizer.encode(text)
    assert ids[0] == 0 and tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def test_ids_of_characters() -> None:
    tokenizer = CharacterTokenizer(characters_json())
    assert tokenizer.vocab_size == 3 + 256 + 8
    assert tokenizer.encode("床a你") == [0, 259, 266, 3 + 0xE4, 3 + 0xBD, 3 + 0xA0]
    assert tokenizer.encode("<s>床</s>") == [0, 259, 1]
    assert tokenizer.encode("床", add_start_token=False) == [259]
    assert [tokenizer.token_label(i) for i in (0, 259, 265, 3 + 0xE4, 267)] == ["<s>", "床", "⏎", "E4", "unused id 267"]
    assert (tokenizer.start_token_id, tokenizer.end_token_id) == (0, 1)
    assert tokenizer.decode(tokenizer.encode("\ud800")) == "\ufffd"


def test_a_character_file_comes_through_the_common_door() -> None:
    assert isinstance(Tokenizer.from_tokenizer_json(characters_json()), CharacterTokenizer)


@pytest.mark.parametrize(
    "source",
    [
        *("", "{", "[]", "[" * 100_000, json.dumps({"type": "characters"})),
        *(characters_json(characters=value) for value in (None, "abc", ["ab"], [""], [1], ["a", "a"], ["\ud800"])),
        *(characters_json(special=value) for value in (None, [1], [""], ["<s>", "<s>"])),
        characters_json(type="words"),
    ],
)
def test_broken_character_files_are_refused(source: str) -> None:
    with pytest.raises(Refusal):
        CharacterTokenizer(source)
