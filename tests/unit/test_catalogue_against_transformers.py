"""Every model of the catalogue at its real size, as transformers builds it on the meta device, to the unit."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from core.estimate.catalogue import models, shape
from core.estimate.weights import parameters

# What transformers has no class for; their totals are held against what their makers published (test_catalogue).
WITHOUT_CLASS = {"chatglm", "internlm2"}
BUILT = [slug for slug, model in models().items() if model.config["model_type"] not in WITHOUT_CLASS]


def test_hardly_any_is_left_out() -> None:
    assert len(models()) - len(BUILT) == 2


@pytest.mark.parametrize("slug", BUILT)
def test_parameters_are_those_of_transformers(slug: str) -> None:
    settings = dict(models()[slug].config)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    # Trained, though no gradient reaches it: the bias that evens out DeepSeek-V3's routing is a buffer there.
    numbers += sum(buffer.numel() for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias"))
    assert parameters(shape(slug)).total == numbers
    windows = [kind == "sliding_attention" for kind in getattr(config, "layer_types", None) or []]
    ours = sum(group.n_layers for group in shape(slug).groups if group.attention and group.attention.window)
    if getattr(config, "sliding_window", None) and windows:
        assert ours == sum(windows)
