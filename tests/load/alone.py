"""`python -m tests.load.alone MODEL COUNT MAX_NEW LEAST MOST`: plans with their runs made alone, as JSON.

Same model, device, dtype and threads as the server's, and no page, scheduler or other run near them.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from itertools import count, islice

from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.model.load import LanguageModel, load_model
from core.model.sampling import SamplingConfig
from tests.load.plan import Plan, planned

MOST_TRIES = 500


def run_alone(model: LanguageModel, plan: Plan, most: int) -> Plan:
    """The plan with the first `most` tokens of its run, and their text."""
    words = plan.settings
    sampling = SamplingConfig(
        temperature=float(words.get("temp", 0)),
        top_k=int(words.get("topk", 0)),
        top_p=float(words.get("topp", 1)),
        seed=int(words["seed"]),
    )
    run = Run(model, model.prompt_ids(plan.prompt), RunConfig(sampling=sampling, max_new=int(words["max"])))
    for _ in islice(generate(model, run), most):
        pass
    return replace(plan, ids=tuple(run.output_ids), text=run.trace.text)


def main(name: str, n_plans: int, max_new: int, least: int, most: int) -> None:
    """Makes runs until enough of them are long enough."""
    device, dtype = os.environ.get("TBT_DEVICE") or None, os.environ.get("TBT_DTYPE") or None
    model = load_model(name, device=device, dtype=dtype)
    runs = (run_alone(model, planned(name, number, max_new), most) for number in islice(count(), MOST_TRIES))
    found = list(islice((plan for plan in runs if len(plan.ids) >= least), n_plans))
    if len(found) < n_plans:
        sys.exit(f"too few of the prompts make {least} tokens")
    json.dump([asdict(plan) for plan in found], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
