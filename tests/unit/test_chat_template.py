"""Chat templates: the same text as transformers, and an end to every hostile one (known fault B30)."""

from __future__ import annotations

import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from transformers import PreTrainedTokenizerFast

from core.model.files.gguf_header import read_gguf_header
from core.model.text import template_budget
from core.model.text.chat_template import ChatTemplate, Message
from core.model.text.tokenizer import Tokenizer
from core.refusal import Refusal

CONVERSATIONS = [
    [Message("user", "Hi")],
    [Message("system", "Be brief."), Message("user", "你好 <|im_end|> {{ 7 * 7 }} {% raw %}")],
    [Message("user", " a\n"), Message("assistant", "b <think>c</think> d"), Message("user", "e\n\n")],
    [Message("system", "s"), *[Message("user", "u"), Message("assistant", "a")] * 5, Message("user", "")],
]
# The habits of published templates: whitespace control, namespaces, macros, filters, tests, methods, slices.
HABITS = """
{%- macro heading(role, end='>') -%}
<|{{ role }}|{{ end }}
{%- endmacro %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = none %}
    {%- set rest = messages %}
{%- endif %}
{{- bos_token }}
{%- if system is not none and system %}{{ heading('system') ~ '\\n' + system + eos_token }}{% endif %}
{%- if tools is defined and tools %}{{ tools | tojson(indent=4) }}{% endif %}
{%- set ns = namespace(last=-1, seen=[]) %}
{%- for message in rest[::-1] %}
    {%- set index = (rest | length - 1) - loop.index0 %}
    {%- if message.role == "user" and ns.last < 0 %}
        {%- set ns.last = index %}
    {%- endif %}
    {%- set ns.seen = ns.seen + [message.role] %}
{%- endfor %}
{%- for message in rest if message.content is string %}
    {%- set content = message.content %}
    {%- if '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- if message['role'] not in ['user', 'assistant'] %}
        {{- raise_exception('unknown role ' + message.role) }}
    {%- endif %}
    {{- heading(message.role) }}
    {%- generation %}{{ content.replace('a', 'A').strip() ~ loop.index }}{% endgeneration %}
    {%- if not loop.last %}{{ ',' }}{% else %}{{ eos_token }}{% endif %}
    {%- if loop.index % 7 == 0 %}{% break %}{% endif %}
{%- endfor %}
{{ ns.seen | unique | join('/') }} {{ ns.last }} {{ messages[-1] | tojson }}
{{ rest | map(attribute='role') | list | length }} {{ messages[0].items() | list | first }}
{{ (rest | selectattr('role', 'equalto', 'user') | list)[0].content }} {{ missing }}
{{ 'x' if missing is defined else 'y' }} {{ [1, 2.5, true, none, "é"] }} {{ {'a': 1}.get('a') }}
    {% if add_generation_prompt %}
{{ heading('assistant', end='') }}
    {% endif %}
"""


def render(source: str, messages: list[Message] | None = None) -> str:
    return ChatTemplate(source, start_token="<s>", end_token="</s>").render(messages or [Message("user", "hi")])


@pytest.fixture(scope="module")
def fields(smollm2_gguf: Path) -> dict[str, Any]:
    with smollm2_gguf.open("rb") as file:
        return read_gguf_header(file, smollm2_gguf.stat().st_size, smollm2_gguf.name).fields


@pytest.fixture(scope="module")
def peer() -> Any:
    library = tokenizers.Tokenizer(tokenizers.models.BPE({"<s>": 0, "</s>": 1}, []))
    return PreTrainedTokenizerFast(tokenizer_object=library, bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("name", ["smollm2", "habits"])
def test_same_text_as_transformers(
    fields: dict[str, Any], peer: Any, name: str, messages: list[Message], add_generation_prompt: bool
) -> None:
    source = fields["tokenizer.chat_template"] if name == "smollm2" else HABITS
    expected = peer.apply_chat_template(
        [{"role": message.role, "content": message.content} for message in messages],
        chat_template=source,
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
    )
    template = ChatTemplate(source, start_token="<s>", end_token="</s>")
    assert template.render(messages, add_generation_prompt) == expected


def test_one_start_token_with_and_without_a_template(fields: dict[str, Any]) -> None:
    tokenizer = Tokenizer.from_gguf(fields | {"tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.add_bos_token": True})
    template = ChatTemplate(
        "{{ bos_token }}{{ messages[0].content }}", start_token=tokenizer.token_name(0), end_token=""
    )
    assert tokenizer.encode(template.render([Message("user", "Hello")])) == tokenizer.encode("Hello") == [0, 19_556]


def test_dates_and_the_templates_own_refusals() -> None:
    assert render("{{ strftime_now('%Y') }}") == str(time.localtime().tm_year)
    with pytest.raises(Refusal, match="roles must alternate") as refusal:
        render("{{ raise_exception('roles must alternate') }}")
    assert refusal.value.key == "text.template_refuses"


def test_a_long_conversation_and_a_huge_message() -> None:
    history = [Message("user", "x" * 300), Message("assistant", "y" * 300)] * 150
    assert len(render(HABITS, history)) > 1000
    huge = "长 text " * 200_000
    assert huge in render("{% for m in messages %}{{ '<' + m.role + '>' + m.content + eos_token }}{% endfor %}", [
        Message("user", huge)
    ])  # fmt: skip


def test_renderings_at_the_same_time_do_not_meet() -> None:
    template = ChatTemplate(
        "{% for i in range(300) %}{{ messages[0].content }}{% endfor %}", start_token="", end_token=""
    )
    with ThreadPoolExecutor(8) as pool:
        texts = pool.map(lambda i: template.render([Message("user", f"<{i}>")]), range(40))
    assert list(texts) == [f"<{i}>" * 300 for i in range(40)]


GROWING = "{%% set ns = namespace(v=%s) %%}{%% for i in range(60) %%}{%% set ns.v = %s %%}{%% endfor %%}{{ ns.v }}"
COSTLY = [
    "{% for i in range(10**9) %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) if false %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% set a = range(100000)|list %}{% endfor %}",
    "{{ 'a' * 10**9 }}",
    "{{ [0] * 10**9 }}",
    "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
    "{{ ('a' * 100000)|replace('a', 'b' * 100000) }}",
    "{{ range(100000)|list|join('b' * 100000) }}",
    "{{ ('b' * 100000).join(range(100000)|map('string')) }}",
    "{{ ('ab ' * 900000).split() }}",
    "{{ ['a' * 1000000] * 10 | map('list') }}",
    "{{ 10 ** (10 ** 10) }}",
    GROWING % ("'aaaaaaaa'", "ns.v + ns.v"),
    GROWING % ("'aaaaaaaa'", "ns.v ~ ns.v"),
    GROWING % ("'aaaaaaaa'", "ns.v.replace('a', 'aa')"),
    GROWING % ("['a']", "[ns.v, ns.v]"),
    GROWING % ("['a']", "(ns.v, ns.v)"),
    GROWING % ("['a']", "{'a': ns.v, 'b': ns.v}"),
    GROWING % ("['a']", "dict(a=ns.v, b=ns.v)"),
    GROWING % ("3", "ns.v * ns.v"),
    "{% set ns = namespace(v='aa') %}{% for i in range(60) %}{% set ns.v %}{{ ns.v * 2 }}{% endset %}{% endfor %}",
    "{% macro f(s) %}{{ s }}{{ s }}{% endmacro %}" + GROWING % ("'aaaa'", "f(ns.v)"),
    "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% if n %}{% set a = f(n - 1) %}{% set b = f(n - 1) %}{% endif %}{% endmacro %}{{ f(99) }}",
    "{% set ns = namespace(v=0) %}{% for i in range(100000) %}"
    "{% set ns.v = namespace(a=ns.v, b=range(100000)|list) %}{% endfor %}",
    "{{ range(100000)|select('in', range(100000)|list)|list }}",
    "{% set a = range(100000)|list %}{% for i in range(100000) %}{% if -1 in a %}{% endif %}{% endfor %}",
]
FORBIDDEN = [
    "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "{{ 1" + " + 1" * 15_000 + " }}",
    "{{ a" + ".a" * 30_000 + " }}",
    "x" * 70_000,
    "{{ ''.__class__ }}",
    "{% if ''.__class__ %}{% endif %}",
    "{{ ''['__class__'] }}",
    "{{ ''|attr('__class__') }}",
    "{{ [['a']]|map(attribute='__class__')|list }}",
    "{{ raise_exception.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ namespace(__class__=1) }}",
    "{% set ns = namespace() %}{% set ns.__html__ = 1 %}",
    "{{ self }}",
    "{{ self._TemplateReference__context }}",
    "{{ range }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ lipsum() }}",
    "{{ cycler('a') }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{:1000000000d}'.format(1) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ 'a'.ljust(10**9) }}",
    "{{ 'a'|center(10**9) }}",
    "{{ 'a'.zfill(10**9) }}",
    "{{ 'ab'|batch(10**9, 'x') }}",
    "{{ [1, [2]]|tojson(indent=10**9) }}",
    "{{ range(100)|list|tojson(separators=('a' * 100000, ':')) }}",
    "{{ 'a\\nb'|indent(10**9) }}",
    "{{ 'a'.encode() }}",
    "{{ strftime_now('%1000000000Y' * 20) }}",
    "{% include 'x' %}",
    "{% import '/etc/passwd' as x %}",
    "{% extends 'x' %}",
    "{% block a %}{% endblock %}",
    "{% for a in [[1]] recursive %}{{ loop(a) }}{% endfor %}",
    "{% call f() %}{% endcall %}",
    "{% for",
    "{{ 1 / 0 }}",
    "{{ none.x.y }}",
    "{{ missing.x }}",
    "{{ 1 + 'a' }}",
]


@pytest.mark.parametrize("source", COSTLY, ids=lambda source: source[:50])
def test_costly_templates_are_stopped_early(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "MOST_SECONDS", 0.5)
    tracemalloc.start()
    started = time.process_time()
    try:
        with pytest.raises(Refusal) as refusal:
            render(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < 10  # the limit, and one operation
    assert peak < 100e6
    assert refusal.value.key in ("text.template_too_costly", "text.template_not_allowed")


@pytest.mark.parametrize("source", FORBIDDEN, ids=lambda source: source[:50])
def test_forbidden_and_broken_templates_end_in_one_sentence(source: str) -> None:
    with pytest.raises(Refusal) as refusal:
        render(source)
    for language in ("en", "zh"):
        assert "\n" not in refusal.value.sentence(language)


def test_what_is_said_stays_text() -> None:
    said = "{{ 7 * 7 }} {% for %} <script> ${x} \\ {#"
    assert render("{{ messages[0].content }}", [Message("user", said)]) == said
