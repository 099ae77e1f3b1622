"""What runs here: everything asked of the models and the machine, nothing typed in."""

from __future__ import annotations

from core.estimate.weights import parameters
from core.lab.roofs.record import Roofs
from core.model.load import LanguageModel
from core.model.products import available_cores
from core.words import sentence
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note
from pages.shared.language import language, t
from pages.shared.numbers import count, scaled_bytes
from pages.shared.units import units


def machine_line(model: LanguageModel) -> str:
    """dtype, device and, on a CPU, how many cores the model may use: "f16 · CPU, 2 cores"."""
    kind = model.device.kind
    return machine_words(model.dtype_name, kind, available_cores() if kind == "cpu" else 0, language())


def machine_words(dtype: str, device: str, n_cores: int, language: str) -> str:
    """The same of a machine that is known by name only; `n_cores` 0: they do not matter, or nobody knows."""
    words = {0: "machine", 1: "machine_one_core"}.get(n_cores, "machine_cores")
    return sentence(f"pages.{words}", language, dtype=dtype, device=device.upper(), count=n_cores)


def model_table(models: list[LanguageModel]) -> Html:
    """One column of facts a model."""
    rows: dict[str, list[object]] = {
        "fact_model": [model.name for model in models],
        "fact_architecture": [model.config.architecture for model in models],
        "fact_params": [count(parameters(model.shape).total) for model in models],
        "fact_weights": [scaled_bytes(model.transformer.product_bytes, units()) for model in models],
        "fact_shape": [_shape(model) for model in models],
        "fact_context": [count(model.config.context_limit) for model in models],
        "fact_machine": [machine_line(model) for model in models],
    }
    lines = [
        fill(
            '<tr><th scope="row">{name}</th>{cells}</tr>',
            name=t(key),
            cells=join(fill("<td>{value}</td>", value=value) for value in values),
        )
        for key, values in rows.items()
    ]
    return fill(
        '<div class="tbt-scroll" tabindex="0"><table class="tbt-facts"><tbody>{lines}</tbody></table></div>',
        lines=join(lines),
    )


def bandwidth_line(roofs: Roofs | None) -> Html:
    """How fast this machine was measured to read its memory, and when; where to measure it, if it never was."""
    if roofs is None:
        return note(t("home_bandwidth_none"))
    date = roofs.measured_at.partition("T")[0]
    return note(t("home_bandwidth", rate=f"{scaled_bytes(round(roofs.read_bytes_per_s), 'decimal')}/s", date=date))


def _shape(model: LanguageModel) -> Html:
    config = model.config
    return fill(
        "L={layers} · d={width} · h={heads} · n<sub>kv</sub>={kv_heads} · d<sub>h</sub>={head_dim}",
        layers=config.n_layers,
        width=config.d_model,
        heads=config.n_heads,
        kv_heads=config.n_kv_heads,
        head_dim=config.head_dim,
    )
