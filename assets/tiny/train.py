"""Trains the tiny model and writes everything in this folder that is not source: run from the repository's top as

    python -m assets.tiny.train [--deb FILE]

Needs torch and safetensors, about five minutes on two CPU cores, and Debian's package `fortunes-zh` (fetched through
apt without root, or given with --deb). The same machine and the same torch give the same weights; another one gives
weights as good. The share of couplets the model knows is measured on the weights as written, and kept in
couplets.json beside hashes of the couplets.

A row of a batch is one text after the start token, exactly as the model is used: poems from a random line, whole poems
with title and author, passages of plain text. A text that was not cut short ends in the end token.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor

from assets.tiny.corpus import PACKAGE, Passage, Poem, fetch_poem_text, parse_poems, read_passages
from assets.tiny.measure import measure_and_write
from core.model.config import ModelConfig
from core.model.files.config_huggingface import config_from_huggingface
from core.model.parameters import parameter_shapes
from core.model.text.character_tokenizer import END_TOKEN, START_TOKEN, CharacterTokenizer
from core.model.text.tokenizer import Tokenizer
from core.model.transformer import Transformer

FOLDER = Path(__file__).resolve().parent
SEED = 4
N_STEPS = 2000
N_WARM_UP_STEPS = 100
STEPS_BETWEEN_REPORTS = 50
BATCH_TOKENS = 2048
PEAK_LEARNING_RATE = 3e-3
MAX_GRADIENT_NORM = 1.0
NO_TARGET = -100
# How many lines of a poem a row holds, and how often: a couplet on its own comes up most, the rest of a poem rarely.
EXCERPT_LINES, EXCERPT_WEIGHTS = (1, 2, 4, 12), (40, 30, 15, 15)
MID_LINE_START_SHARE = 0.1


def tokenizer_json(texts: list[str]) -> str:
    """The tokenizer file: all characters of the texts; those beyond 16 bits (emoji) are left to the bytes."""
    characters = sorted({character for text in texts for character in text if ord(character) <= 0xFFFF})
    content = {"type": "characters", "special": [START_TOKEN, END_TOKEN], "characters": characters}
    return json.dumps(content, ensure_ascii=False) + "\n"


def config_values(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of config.json: the shape of the model in the words of a Hugging Face llama."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 4,
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 352,
        "hidden_act": "silu",
        "vocab_size": tokenizer.vocab_size,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": tokenizer.start_token_id,
        "eos_token_id": tokenizer.end_token_id,
        "dtype": "float16",
    }


def initial_parameters(config: ModelConfig) -> dict[str, Tensor]:
    """Norms at 1, matrices normal; those that write into the residual stream smaller, as there are 2·L of them."""
    parameters = {}
    for name, shape in parameter_shapes(config).items():
        if len(shape) == 1:
            tensor = torch.ones(shape)
        else:
            writes_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            tensor = torch.randn(shape) * (0.04 / math.sqrt(2 * config.n_layers) if writes_residual else 0.04)
        parameters[name] = tensor.requires_grad_()
    return parameters


def texts_of_one_epoch(poems: list[Poem], passages: list[Passage], chance: random.Random) -> Iterator[str]:
    """Every poem with its title, every line as the beginning of an excerpt, every passage, and the rest of each passage
    from one of its sentences on."""
    for poem in poems:
        yield poem.heading + poem.body + END_TOKEN
        for first in range(len(poem.lines)):
            last = first + chance.choices(EXCERPT_LINES, EXCERPT_WEIGHTS)[0]
            excerpt = "".join(poem.lines[first:last])
            if chance.random() < MID_LINE_START_SHARE and "，" in excerpt:
                excerpt = excerpt.split("，", 1)[1]
            yield excerpt + (END_TOKEN if last >= len(poem.lines) else "")
    for passage in passages:
        yield passage.text + END_TOKEN
        yield "".join(passage.sentences[chance.randrange(len(passage.sentences)) :]) + END_TOKEN


def batches(rows: list[list[int]], chance: random.Random) -> Iterator[Tensor]:
    """Rows of similar length together, padded with NO_TARGET: [B, n] with B·n ≤ BATCH_TOKENS, in random order."""
    by_length = sorted(rows, key=lambda row: (len(row), chance.random()))
    groups: list[list[list[int]]] = [[]]
    for row in by_length:
        if (len(groups[-1]) + 1) * len(row) > BATCH_TOKENS:
            groups.append([])
        groups[-1].append(row)
    chance.shuffle(groups)
    for group in groups:
        batch = torch.full((len(group), len(group[-1])), NO_TARGET)
        for index, row in enumerate(group):
            batch[index, : len(row)] = torch.tensor(row)
        yield batch


def endless_batches(poems: list[Poem], passages: list[Passage], tokenizer: Tokenizer) -> Iterator[Tensor]:
    chance = random.Random(SEED)
    while True:
        yield from batches([tokenizer.encode(text) for text in texts_of_one_epoch(poems, passages, chance)], chance)


def loss_of(model: Transformer, batch: Tensor) -> Tensor:
    """Mean cross-entropy in nats of each next token in a padded batch [B, n]."""
    targets = batch[:, 1:]
    hidden = model.hidden(batch[:, :-1].clamp(min=0))  # (B, n − 1, d)
    known = targets != NO_TARGET
    return F.cross_entropy(model.logits(hidden[known]), targets[known])  # logits (known targets, vocab)


def learning_rate(step: int) -> float:
    """Rises in a line to its peak, then falls along half a cosine to a hundredth of it."""
    if step < N_WARM_UP_STEPS:
        return PEAK_LEARNING_RATE * (step + 1) / N_WARM_UP_STEPS
    progress = (step - N_WARM_UP_STEPS) / (N_STEPS - N_WARM_UP_STEPS)
    return PEAK_LEARNING_RATE * (0.01 + 0.99 * (1 + math.cos(math.pi * progress)) / 2)


def train(config: ModelConfig, data: Iterator[Tensor]) -> dict[str, Tensor]:
    """The learned parameters by their Hugging Face names, fp32."""
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    parameters = initial_parameters(config)
    optimizer = torch.optim.AdamW(parameters.values(), betas=(0.9, 0.98), weight_decay=0.0)
    begun = time.monotonic()
    losses = []
    for step in range(N_STEPS):
        optimizer.param_groups[0]["lr"] = learning_rate(step)
        loss = loss_of(Transformer(config, parameters.__getitem__, packed=False), next(data))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), MAX_GRADIENT_NORM)
        optimizer.step()
        losses.append(loss.item())
        if len(losses) == STEPS_BETWEEN_REPORTS:
            mean, seconds = sum(losses) / len(losses), time.monotonic() - begun
            print(f"step {step + 1} of {N_STEPS}: loss {mean:.3f} nats, {seconds:.0f} s", flush=True)
            losses.clear()
    return {name: tensor.detach() for name, tensor in parameters.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.tiny.train", description="Train the tiny model.")
    parser.add_argument("--deb", type=Path, help=f"a copy of Debian's package {PACKAGE}, where apt is not to be had")
    text = fetch_poem_text(parser.parse_args().deb)
    poems, passages = parse_poems(text), read_passages()
    source = tokenizer_json([poem.heading + poem.body for poem in poems] + [passage.text for passage in passages])
    tokenizer = CharacterTokenizer(source)
    values = config_values(tokenizer)
    parameters = train(config_from_huggingface(values, name=FOLDER.name), endless_batches(poems, passages, tokenizer))
    (FOLDER / "tokenizer.json").write_text(source, encoding="utf-8")
    (FOLDER / "config.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    halves = {name: tensor.half() for name, tensor in parameters.items()}
    (FOLDER / "model.safetensors").write_bytes(save(halves, {"format": "pt"}))
    measure_and_write(text)


if __name__ == "__main__":
    main()
