"""Memory of the KV cache by the chapter's formula, exact for the models that run here."""

from __future__ import annotations

from core.model.config import ModelConfig


def kv_bytes(config: ModelConfig, *, n_tokens: int, bytes_per_element: int, batch: int = 1) -> int:
    """M_KV = 2·B·L·n_kv·n·d_h·b_kv: keys and values of every layer, KV head and position."""
    return 2 * batch * config.n_layers * config.n_kv_heads * n_tokens * config.head_dim * bytes_per_element
