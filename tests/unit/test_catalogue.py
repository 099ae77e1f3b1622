"""The catalogue of models against the figures it was compiled from: totals to the unit, windows, contexts, sources."""

from __future__ import annotations

import re
import tomllib
from typing import Any, NamedTuple

import pytest

from core.estimate.accelerators import Accelerator
from core.estimate.catalogue import CATALOGUE_FOLDER, Remark, model_named, models, shape
from core.estimate.shape import Attention, Experts, LatentAttention
from core.estimate.weights import parameters
from core.refusal import Refusal

CJK = re.compile(r"[\u3400-\u9fff]")


class Expected(NamedTuple):
    """A row of the reference: total from the config, the published one, and how much that counts besides."""

    slug: str
    name: str
    total: int
    published: int | None
    besides: int = 0
    active: int | None = None
    published_active: str = ""


VISION_TOWER = 416_866_032
MODELS = [
    Expected("chapter-8b", "Chapter 8B", 8_114_180_096, None),
    Expected("llama-2-7b", "Llama-2-7B", 6_738_415_616, 6_738_417_664, 32 * 64),
    Expected("llama-3.1-8b", "Llama-3.1-8B", 8_030_261_248, 8_030_261_248),
    Expected("llama-3.2-1b", "Llama-3.2-1B", 1_235_814_400, 1_235_814_400),
    Expected("llama-3.2-3b", "Llama-3.2-3B", 3_212_749_824, 3_212_749_824),
    Expected("qwen2.5-7b", "Qwen2.5-7B", 7_615_616_512, 7_615_616_512),
    Expected("qwen3-0.6b", "Qwen3-0.6B", 596_049_920, 751_632_384, 151_936 * 1024),
    Expected("qwen3-4b", "Qwen3-4B", 4_022_468_096, 4_022_468_096),
    Expected("qwen3-8b", "Qwen3-8B", 8_190_735_360, 8_190_735_360),
    Expected("qwen3-14b", "Qwen3-14B", 14_768_307_200, 14_768_307_200),
    Expected("qwen3-32b", "Qwen3-32B", 32_762_123_264, 32_762_123_264),
    Expected("qwen3-30b-a3b", "Qwen3-30B-A3B", 30_532_122_624, 30_532_122_624, 0, 3_041_867_776, "3.3B"),
    Expected("mistral-7b-v0.1", "Mistral-7B-v0.1", 7_241_732_096, 7_241_732_096),
    Expected("mixtral-8x7b-v0.1", "Mixtral-8x7B-v0.1", 46_702_792_704, 46_702_792_704, 0, 12_748_853_248, "12.9B"),
    Expected("gemma-2-9b", "Gemma-2-9B", 9_241_705_984, 9_241_705_984),
    Expected("gemma-3-4b", "Gemma-3-4B (text)", 3_880_263_168, 4_300_079_472, VISION_TOWER + 2_950_272),
    Expected("gemma-3-12b", "Gemma-3-12B (text)", 11_766_034_176, 12_187_325_040, VISION_TOWER + 4_424_832),
    Expected("phi-4", "Phi-4", 14_659_507_200, 14_659_507_200),
    Expected("glm-4-9b-chat", "GLM-4-9B-chat", 9_399_951_360, 9_399_951_392, 32),
    Expected("internlm2.5-7b", "InternLM2.5-7B", 7_737_708_544, None),
    Expected("yi-1.5-9b", "Yi-1.5-9B", 8_829_407_232, 8_829_407_232),
    Expected("deepseek-v2-lite", "DeepSeek-V2-Lite", 15_706_484_224, 15_706_484_224, 0, 2_451_435_008, "2.4B"),
    # Multi-token prediction, block scales and tables stored twice.
    Expected("deepseek-v3", "DeepSeek-V3", 671_026_419_200, 684_531_386_000, 13_504_966_800, 36_625_618_432, "37B"),
    Expected("gpt-oss-20b", "gpt-oss-20b", 20_914_757_184, 20_914_757_184, 0, 3_608_307_264, "3.6B"),
    Expected("gpt-oss-120b", "gpt-oss-120b", 116_829_156_672, 116_829_156_672, 0, 5_132_849_472, "5.1B"),
    Expected("olmo-2-7b", "OLMo-2-7B", 7_298_617_344, 7_298_617_344),
    Expected("smollm2", "SmolLM2-135M", 134_515_008, 134_515_008, 0, 134_515_008),
    Expected("gpt2", "GPT-2 (124M)", 124_439_808, 124_439_808),
]
# Active parameters with the whole input table, the other of the two conventions.
ACTIVE_WITH_TABLE = {
    "qwen3-30b-a3b": 3_353_032_704,
    "mixtral-8x7b-v0.1": 12_879_925_248,
    "deepseek-v2-lite": 2_661_150_208,
    "deepseek-v3": 37_552_297_472,
    "gpt-oss-20b": 4_187_440_704,
    "gpt-oss-120b": 5_711_982_912,
}
CONTEXTS = {
    "chapter-8b": 32_768,
    "llama-2-7b": 4096,
    "llama-3.1-8b": 131_072,
    "llama-3.2-1b": 131_072,
    "llama-3.2-3b": 131_072,
    "qwen2.5-7b": 131_072,
    "mistral-7b-v0.1": 32_768,
    "mixtral-8x7b-v0.1": 32_768,
    "gemma-2-9b": 8192,
    "gemma-3-4b": 131_072,
    "gemma-3-12b": 131_072,
    "phi-4": 16_384,
    "glm-4-9b-chat": 131_072,
    "internlm2.5-7b": 32_768,
    "yi-1.5-9b": 4096,
    "deepseek-v2-lite": 163_840,
    "deepseek-v3": 163_840,
    "gpt-oss-20b": 131_072,
    "gpt-oss-120b": 131_072,
    "olmo-2-7b": 4096,
    "smollm2": 8192,
    "gpt2": 1024,
} | dict.fromkeys([row.slug for row in MODELS if row.slug.startswith("qwen3-")], 40_960)
# How many layers have which window; models not named here see all positions in all layers.
WINDOWS: dict[str, dict[int | None, int]] = {
    "mistral-7b-v0.1": {4096: 32},
    "gemma-2-9b": {4096: 21, None: 21},
    "gemma-3-4b": {1024: 29, None: 5},
    "gemma-3-12b": {1024: 40, None: 8},
    "gpt-oss-20b": {128: 12, None: 12},
    "gpt-oss-120b": {128: 18, None: 18},
}


def raw(file: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((CATALOGUE_FOLDER / file).read_text(encoding="utf-8"))


def by_slug(row: Expected) -> str:
    return row.slug


def test_every_model_of_the_reference_is_there() -> None:
    assert {slug: model.name for slug, model in models().items()} == {row.slug: row.name for row in MODELS}
    assert all(slug == model.slug for slug, model in models().items())


@pytest.mark.parametrize("row", MODELS, ids=by_slug)
def test_totals_are_the_reference_s(row: Expected) -> None:
    model, counts = models()[row.slug], parameters(shape(row.slug))
    assert counts.total == row.total
    assert (model.published_total, model.published_active) == (row.published, row.published_active)
    if row.published is not None:
        assert row.published - counts.total == row.besides
    if row.published != row.total or row.published_active:
        assert model.published_note is not None
    if row.active is not None:
        assert counts.active == row.active
    if row.slug in ACTIVE_WITH_TABLE:
        assert counts.active + counts.input_table == ACTIVE_WITH_TABLE[row.slug]


def test_every_mixture_of_experts_has_its_active_parameters_held() -> None:
    assert {row.slug for row in MODELS if shape(row.slug).has_experts} == set(ACTIVE_WITH_TABLE)


@pytest.mark.parametrize("row", MODELS, ids=by_slug)
def test_shapes_are_read_as_released(row: Expected) -> None:
    made = shape(row.slug)
    assert made.name == row.name and made.context_limit == CONTEXTS[row.slug]
    windows: dict[int | None, int] = {}
    for group in made.groups:
        assert group.attention is not None and group.feed_forward is not None
        windows[group.attention.window] = windows.get(group.attention.window, 0) + group.n_layers
    assert windows == WINDOWS.get(row.slug, {None: made.n_layers})
    assert shape(row.slug) is made


def test_what_is_special_about_some_shapes() -> None:
    chapter = shape("chapter-8b").groups
    assert [(group.n_layers, group.attention) for group in chapter] == [
        (36, Attention(n_heads=32, n_kv_heads=32, head_dim=128))
    ]
    lite, v3 = shape("deepseek-v2-lite"), shape("deepseek-v3")
    latent = {"kv_rank": 512, "nope_dim": 128, "rope_dim": 64, "value_dim": 128}
    assert {group.attention for group in lite.groups} == {LatentAttention(n_heads=16, query_rank=None, **latent)}
    assert {group.attention for group in v3.groups} == {LatentAttention(n_heads=128, query_rank=1536, **latent)}
    assert [group.n_layers for group in v3.groups] == [3, 58] and [group.n_layers for group in lite.groups] == [1, 26]
    routed = v3.groups[1].feed_forward
    assert isinstance(routed, Experts) and routed.has_router_bias and (routed.n_experts, routed.n_active) == (256, 8)
    assert shape("gpt2").n_positions == 1024 and shape("gpt2").tied_head


def test_a_model_goes_by_other_names_too_and_in_any_case() -> None:
    assert model_named("Qwen3-8B") is model_named("qwen3-8b")
    assert model_named("mixtral-8x7b") is model_named("Mixtral-8x7B-v0.1")
    others = [name for model in models().values() for name in model.other_names]
    assert len(set(others)) == len(others) and not set(others) & set(models())
    assert all(name == name.lower() for name in [*others, *models()])


def test_an_unknown_model_is_refused_with_what_there_is() -> None:
    assert model_named("qwen3-8b").name == "Qwen3-8B"
    for slug in ("Qwen3", "qwen3-8b ", "", "sources", "x" * 1000, "{known}"):
        with pytest.raises(Refusal) as refused:
            shape(slug)
        assert refused.value.key == "estimate.model_unknown" and len(refused.value.sentence()) < 800
        assert all(known in refused.value.sentence(language) for language in ("en", "zh") for known in models())


@pytest.mark.parametrize(("file", "field"), [("models.toml", "source"), ("accelerators.toml", "sources")])
def test_every_entry_has_sources_that_are_spelled_out_and_remarks_in_both_languages(file: str, field: str) -> None:
    entries = raw(file)
    sources = entries.pop("sources")
    cited = {key for entry in entries.values() for key in entry[field]}
    assert all(entry[field] for entry in entries.values())
    assert cited == set(sources) and all(sources.values())
    for slug, entry in entries.items():
        for key, text in entry.items():
            if key.endswith(("_en", "_zh")):
                other = entry[key[:-2] + ("zh" if key.endswith("en") else "en")]
                assert text.strip() == text != "" and other != text, (slug, key)
                assert bool(CJK.search(text)) == key.endswith("_zh"), (slug, key)
                figures = re.compile(r"\d+(?:[.,]\d+)*")
                assert sorted(figures.findall(text)) == sorted(figures.findall(other)), (slug, key)


def test_a_remark_speaks_both_languages() -> None:
    remark = model_named("qwen3-0.6b").published_note
    assert isinstance(remark, Remark) and remark.sentence() == remark.sentence("en") == remark.en
    assert CJK.search(remark.sentence("zh"))


def test_nothing_is_kept_that_no_field_reads() -> None:
    known = {"name", "source", "config", "config_nulls", "published_total", "published_active", "other_names"}
    known |= {"published_note_en", "published_note_zh"}
    entries = raw("models.toml")
    assert {key for slug, entry in entries.items() if slug != "sources" for key in entry} <= known
    remarks = {"memory_note", "often_miscopied", "disputed"}
    fields = set(Accelerator.__dataclass_fields__) - {"slug", "dense_flops", "achieved_flops"} - remarks
    fields |= {f"{name}_{language}" for name in remarks for language in ("en", "zh")}
    fields |= {"peak_flops", "achieved_bf16_flops", "achieved_fp8_flops"}
    devices = raw("accelerators.toml")
    assert {key for slug, entry in devices.items() if slug != "sources" for key in entry} <= fields
