"""Compute of a pass over a dense model, by the chapter's formula and counted product by product.

A multiply-add is 2 FLOP and only matrix products count: norms, rotary positions, softmax, biases and the look-up in the
input table do not. Figures are for one sequence.
"""

from __future__ import annotations

from core.model.config import ModelConfig


def layer_matrix_params(config: ModelConfig) -> int:
    """Weights a position multiplies with in one layer: q, k, v, attention output, gate, up, down."""
    attention = config.d_model * (2 * config.attention_width + 2 * config.kv_width)
    return attention + 3 * config.d_model * config.d_ff


def head_params(config: ModelConfig) -> int:
    """Weights of the output head; a tied head is the input table, and multiplies all the same."""
    return config.vocab_size * config.d_model


def layers_flops_exact(config: ModelConfig, n_new: int, n_past: int) -> int:
    """All layers for `n_new` positions behind `n_past` cached ones, as it is computed.

    Every layer compares n_new queries with all n = n_past + n_new keys (the whole rectangle, the masked half included)
    and gathers as many values: 2·2·n_new·n·h·d_h.
    """
    products = 2 * n_new * config.n_layers * layer_matrix_params(config)
    return products + 4 * config.n_layers * n_new * (n_past + n_new) * config.attention_width


def head_flops_exact(config: ModelConfig, n_rows: int = 1) -> int:
    """The output head for `n_rows` positions; only the last one is needed to choose a token."""
    return 2 * n_rows * head_params(config)


def attended_pairs(n_new: int, n_past: int) -> int:
    """(query, key) pairs that count under the causal mask: the first new position sees n_past + 1 keys, and so on."""
    return n_new * n_past + n_new * (n_new + 1) // 2


def decode_flops_chapter(config: ModelConfig, n_params: int, n_tokens: int) -> int:
    """The chapter's C_decode = 2P + 4Lnd, with P counting the input table and d = d_model."""
    return 2 * n_params + 4 * config.n_layers * n_tokens * config.d_model


def prefill_flops_chapter(config: ModelConfig, n_params: int, n_tokens: int) -> int:
    """The chapter's C_prefill = 2nP + 4Ln²d."""
    return 2 * n_tokens * n_params + 4 * config.n_layers * n_tokens**2 * config.d_model
