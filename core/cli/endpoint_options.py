"""What `python -m core sweep` may be asked about a server; light to import, since every command's parser is built."""

from __future__ import annotations

import argparse

from core.cli.values import number, whole_number
from core.lab.remote.interface import Api
from core.lab.remote.limits import DEFAULT_NEW_TOKENS, LEAST_NEW_TOKENS, MOST_NEW_TOKENS, Limits

_DEFAULTS = Limits()


def add_endpoint(command: argparse.ArgumentParser) -> None:
    """The options of a sweep that are for a server alone."""
    server = command.add_argument_group(
        "a server", "any that speaks OpenAI's protocol; its key from TBT_ENDPOINT_KEY or OPENAI_API_KEY"
    )
    server.add_argument("--endpoint", metavar="URL", help="measure this server instead of a model on this machine")
    server.add_argument("--served-model", default="", help="its name for the model (default: the one it serves)")
    server.add_argument("--api", choices=[str(api) for api in Api], help="its interface (default: what it has)")
    server.add_argument(
        "--new-tokens",
        type=whole_number(LEAST_NEW_TOKENS, MOST_NEW_TOKENS),
        default=DEFAULT_NEW_TOKENS,
        help=f"tokens of each answer ({DEFAULT_NEW_TOKENS})",
    )
    server.add_argument("--weight-dtype", default="bf16", help="of the server's model, for the formulas (bf16)")
    server.add_argument("--kv-dtype", default="bf16", help="of its cache, for the formulas (bf16)")
    for name, default, text in (
        ("--total-s", _DEFAULTS.total_s, "seconds the sweep may take"),
        ("--first-token-s", _DEFAULTS.first_token_s, "seconds a first token is waited for"),
        ("--between-tokens-s", _DEFAULTS.between_tokens_s, "seconds a next token is waited for"),
    ):
        server.add_argument(name, type=number(0.1, 10**6), default=default, help=f"{text} ({default:g})")
    server.add_argument("--requests", type=whole_number(1, 10**6), default=_DEFAULTS.requests, help="requests at most")
    server.add_argument("--retries", type=whole_number(0, 20), default=_DEFAULTS.retries, help="repetitions of a point")
