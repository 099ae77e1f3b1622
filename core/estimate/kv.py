"""Memory of the KV cache by the chapter's formula, exact for the models that run here."""

from __future__ import annotations

from core.estimate.derivation import TWO, Derivation, Factor, Term, shape
from core.model.config import ModelConfig

M_KV = "M_{\\mathrm{KV}}"
B_KV = "b_{\\mathrm{kv}}"


def kv_bytes(config: ModelConfig, *, n_tokens: int, bytes_per_element: int, batch: int = 1) -> int:
    """M_KV in bytes: keys and values of every layer, KV head and position."""
    return kv_derivation(config, n_tokens=n_tokens, bytes_per_element=bytes_per_element, batch=batch).whole


def kv_derivation(config: ModelConfig, *, n_tokens: int, bytes_per_element: int, batch: int = 1) -> Derivation:
    """The chapter's M_KV = 2·B·L·n_kv·n·d_h·b_kv."""
    B, n, b_kv = Factor("B", batch), Factor("n", n_tokens), Factor(B_KV, bytes_per_element)
    model = shape(config)
    return Derivation(M_KV, (Term((TWO, B, model.L, model.n_kv, n, model.d_h, b_kv)),), "B")
