"""A saved run as one HTML file that replays it: the stage's own modules, its words, the run's frame.

The file asks nobody for anything. Its policy names the one script by its hash, so nothing else in it can run, whatever
a visitor or a model wrote.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from functools import cache
from hashlib import sha256

from core.engine.saved_run import SavedRun
from core.words import sentence
from pages.shared import wire
from pages.shared.bundle import ASSETS, bundle
from pages.shared.facts import machine_words
from pages.shared.html import Html, fill, join
from pages.shared.language import HTML_TAGS
from pages.shared.tools.one_script import one_script
from pages.shared.tools.replay import replay_header, when, words_of

SHEETS = ("page.css", "stage.css", "webpage.css")
SPEED = 4
_BEGINS = """
const { alone, unpacked } = modules['alone.js'];
const text = (id) => document.getElementById(id).textContent;
alone(document.getElementById('stage'), await unpacked(text('run')), JSON.parse(text('words')));
"""
_PAGE = """<!doctype html>
<html lang="{tag}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{css}</style>
</head>
<body class="stApp tbt-page">
<header class="tbt-header"><h1>{title}</h1><p>{what}</p></header>
<main>
<section class="tbt-card tbt-about" aria-label="{facts_label}">
<dl class="tbt-wide">{texts}</dl>
<dl>{facts}</dl>
</section>
<noscript><p class="tbt-notice tbt-info">{no_script}</p></noscript>
<div id="stage"></div>
</main>
<footer class="tbt-note">{made_with}</footer>
<script type="text/plain" id="run">{run}</script>
<script type="application/json" id="words">{words}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def web_page(saved: SavedRun, language: str, units: str) -> bytes:
    """The file, in `language`, with bytes in `units`."""

    def t(key: str, **values: object) -> str:
        return sentence(key if "." in key else f"keepsake.{key}", language, **values)

    frame = wire.saved_frame(replay_header(saved, "page", language, units, SPEED), saved, 0)
    texts = {t("page_prompt"): saved.prompt, t("page_answer"): saved.trace.text}
    page = fill(
        _PAGE,
        tag=HTML_TAGS[language],
        policy=_policy(_script()),
        title=t("page_title", model=saved.model.name),
        what=t("page_what"),
        css=_css(),
        facts_label=t("page_facts"),
        texts=join(_fact(name, text) for name, text in texts.items()),
        facts=join(_fact(name, value) for name, value in _facts(saved, language).items()),
        no_script=t("page_no_script"),
        made_with=t("made_with"),
        run=Html(b64encode(gzip.compress(frame, mtime=0)).decode()),
        words=Html(_as_data(bundle().files[f"stage/words/{language}.json"].body.decode())),
        script=Html(_script()),
    )
    return page.encode()


def _facts(saved: SavedRun, language: str) -> dict[str, str]:
    """The model, the machine and the settings, by what they are called."""
    model, config = saved.model, saved.model.config
    told = words_of(saved, language)
    shape = (
        f"L={config.n_layers} · d={config.d_model} · h={config.n_heads} · "
        f"n_kv={config.n_kv_heads} · d_h={config.head_dim}"
    )
    facts = {
        "pages.fact_model": f"{model.name} · {config.architecture} · {shape}",
        "pages.fact_machine": machine_words(model.dtype_name, model.device, model.n_cores, language),
        "stage.kv_cache": sentence(f"stage.{'on' if saved.config.use_cache else 'off'}", language),
        "keepsake.sampling": told["sampling"],
        "keepsake.tokens": told["tokens"],
        "keepsake.fact_saved": sentence("keepsake.when", language, when=when(saved)),
    }
    return {sentence(key, language): value for key, value in facts.items()}


def _fact(name: str, value: str) -> Html:
    return fill("<dt>{name}</dt><dd><bdi>{value}</bdi></dd>", name=name, value=value)


@cache
def _script() -> str:
    files = bundle().files
    modules = {
        name.removeprefix("stage/"): file.body.decode()
        for name, file in files.items()
        if name.startswith("stage/") and name.endswith(".js")
    }
    return "\n" + one_script(modules, "alone.js") + _BEGINS


@cache
def _css() -> Html:
    css = "\n".join((ASSETS / sheet).read_text(encoding="utf-8") for sheet in SHEETS)
    if "</" in css:
        raise ValueError("a style sheet in a page must not hold what ends it")
    return Html(f"\n{css}")


def _policy(script: str) -> str:
    """Only this script runs, nothing is fetched or sent; styles stand in the file and on its elements."""
    known = b64encode(sha256(script.encode()).digest()).decode()
    allowed = (f"script-src 'sha256-{known}'", "style-src 'unsafe-inline'", "base-uri 'none'", "form-action 'none'")
    return "; ".join(("default-src 'none'", *allowed))


def _as_data(text: str) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(json.loads(text), ensure_ascii=False).replace("<", "\\u003c")
