"""All questions, in the order of the page: the chapter's six, then what people get wrong."""

from __future__ import annotations

from core.questions import measured, reckoned_compute, reckoned_memory, reckoned_time, techniques
from core.questions.dials import (
    BATCH,
    BATCHES,
    CARD,
    CARDS,
    CONTEXTS,
    DENSE,
    EXPERTS,
    GROUPED,
    LIVE,
    PLAIN,
    WINDOWED,
    N,
    models_where,
)
from core.questions.query_cache import query_cache
from core.questions.question import Amount, Choice, Curve, Dial, Given, Link, Question, Table
from core.questions.training import training

RACE_PAGE, KV_PAGE, COMPUTE_PAGE = "prefill_and_decode", "kv_cache", "memory_and_compute"
TIME_PAGE, LAB_PAGE, TECHNIQUES_PAGE, PLANNER_PAGE = (
    "where_the_time_goes",
    "lab",
    "which_term_does_it_change",
    "planner",
)
POINT = ("model", "context")

CHAPTER: tuple[Question, ...] = (
    Question(
        key="training",
        prediction=Amount("times"),
        dials=(Dial("live", ("tiny",)),),
        given=Given(live="tiny"),
        live=training,
        link=Link(RACE_PAGE, words=(("tool", "timeline"),)),
    ),
    Question(
        key="queries",
        prediction=Choice(("none", "previous", "all")),
        dials=(LIVE, Dial("n_new", (4, 8, 12))),
        given=Given(n_new=8),
        live=query_cache,
        link=Link(RACE_PAGE, words=(("tool", "microscope"),)),
    ),
    Question(
        key="slower",
        prediction=Curve(measured.live_contexts),
        dials=(LIVE, Dial("n", (512, 1024, 2048))),
        given=Given(n=2048),
        live=measured.decode_times,
        is_timed=True,
        link=Link(LAB_PAGE),
    ),
    Question(
        key="dense",
        prediction=Amount("times"),
        dials=(EXPERTS, DENSE),
        given=Given(model="qwen3-30b-a3b", other="qwen3-8b", n=1024),
        answer=reckoned_compute.dense_or_large,
        link=Link(COMPUTE_PAGE, taken=("model",)),
    ),
    Question(
        key="flash",
        prediction=Amount("times"),
        dials=(PLAIN, N),
        given=Given(n=16384),
        answer=reckoned_compute.doubled_prompt,
        link=Link(TIME_PAGE),
    ),
    Question(
        key="techniques",
        prediction=Table(techniques.ROWS, techniques.OPTIONS),
        dials=(PLAIN,),
        given=Given(n=1000),
        answer=techniques.which_term,
        link=Link(TECHNIQUES_PAGE),
    ),
)

MISCONCEPTIONS: tuple[Question, ...] = (
    Question(
        key="constant",
        prediction=Amount("times"),
        dials=(PLAIN, CARD, N),
        given=Given(n=131_072),
        answer=reckoned_time.longer_context,
        link=Link(TIME_PAGE),
    ),
    Question(
        key="order_one",
        prediction=Curve(reckoned_compute.contexts),
        dials=(PLAIN, Dial("n", CONTEXTS[3:])),
        given=Given(n=131_072),
        answer=reckoned_compute.growing_step,
        link=Link(COMPUTE_PAGE, taken=POINT),
    ),
    Question(
        key="batch",
        prediction=Amount("times"),
        dials=(PLAIN, CARD, N, BATCH),
        given=Given(batch=32),
        answer=reckoned_time.larger_batch,
        link=Link(TIME_PAGE),
    ),
    Question(
        key="gqa",
        prediction=Amount("percent"),
        dials=(GROUPED, N),
        answer=reckoned_compute.shared_heads,
        link=Link(COMPUTE_PAGE, taken=POINT),
    ),
    Question(
        key="experts",
        prediction=Amount("B", power=3),
        dials=(EXPERTS,),
        given=Given(model="mixtral-8x7b-v0.1"),
        answer=reckoned_memory.memory_of_experts,
        link=Link(COMPUTE_PAGE, taken=("model",)),
    ),
    Question(
        key="kilo",
        prediction=Choice(("thousand", "binary", "neither")),
        dials=(models_where(lambda shape: shape.context_limit >= 1024),),
        answer=reckoned_memory.k_of_tokens,
        link=Link(KV_PAGE, taken=("model",)),
    ),
    Question(
        key="rate",
        prediction=Amount("times"),
        dials=(LIVE, Dial("n", (64, 128, 256, 512)), Dial("n_new", (8, 16, 32))),
        given=Given(n=256, n_new=16),
        live=measured.rate,
        is_timed=True,
        link=Link(RACE_PAGE),
    ),
    Question(
        key="query_heads",
        prediction=Amount("B", power=1),
        dials=(GROUPED,),
        answer=reckoned_memory.kv_of_a_token,
        link=Link(KV_PAGE, taken=("model",)),
    ),
    Question(
        key="quarter",
        prediction=Choice(("less", "exactly", "more")),
        dials=(PLAIN, Dial("kv_dtype", ("q4_0", "q8_0", "mxfp4", "int4"))),
        given=Given(n=32_768),
        answer=reckoned_memory.quantised_cache,
        link=Link(KV_PAGE, taken=(*POINT, "kv_dtype")),
    ),
    Question(
        key="prompt",
        prediction=Amount("times"),
        dials=(PLAIN, CARD, Dial("n", (256, 512, 1024, 2048, 4096, 8192))),
        given=Given(n=2048),
        answer=reckoned_time.prompt_against_answer,
        link=Link(TIME_PAGE),
    ),
    Question(
        key="card",
        prediction=Amount("times"),
        dials=(PLAIN, Dial("other_card", CARDS), CARD, Dial("batch", (1, 2, 4, 8, 16))),
        given=Given(n=2048),
        answer=reckoned_time.faster_card,
        link=Link(PLANNER_PAGE),
    ),
    Question(
        key="window",
        prediction=Amount("B", power=3),
        dials=(WINDOWED, Dial("n", CONTEXTS[3:])),
        given=Given(model="mistral-7b-v0.1", n=32_768),
        answer=reckoned_memory.windowed_cache,
        link=Link(KV_PAGE, taken=POINT),
    ),
    Question(
        key="int4",
        prediction=Amount("times"),
        dials=(PLAIN, CARD, N, BATCH),
        given=Given(n=32_768, batch=8),
        answer=reckoned_time.lighter_weights,
        link=Link(TECHNIQUES_PAGE),
    ),
    Question(
        key="past",
        prediction=Choice(("none", "some", "all")),
        dials=(LIVE,),
        live=measured.past,
        link=Link(RACE_PAGE, words=(("tool", "causality"),)),
    ),
    Question(
        key="race",
        prediction=Amount("times"),
        dials=(LIVE, Dial("n", (32, 64, 128, 256)), Dial("n_new", (8, 12, 16))),
        given=Given(n=64, n_new=8),
        live=measured.race,
        is_timed=True,
        link=Link(RACE_PAGE, words=(("tool", "race"),)),
    ),
    Question(
        key="positions",
        prediction=Choice(("prompt", "new", "one_fewer", "both")),
        dials=(LIVE, Dial("n", (8, 16, 32, 64)), Dial("n_new", (4, 6, 12))),
        given=Given(n=16, n_new=6),
        live=measured.cached_positions,
        link=Link(RACE_PAGE),
    ),
    Question(
        key="ranks",
        prediction=Amount("percent"),
        dials=(GROUPED, Dial("ranks", (2, 4, 8, 16, 32))),
        answer=reckoned_memory.cache_on_a_rank,
        link=Link(PLANNER_PAGE),
    ),
    Question(
        key="draft",
        prediction=Amount("tokens"),
        dials=(Dial("gamma", (1, 2, 3, 4, 5, 6, 7, 8)), Dial("alpha_percent", (50, 60, 70, 80, 90))),
        answer=reckoned_compute.drafted_tokens,
        link=Link(TECHNIQUES_PAGE),
    ),
    Question(
        key="weights",
        prediction=Amount("tokens"),
        dials=(PLAIN, Dial("batch", (1, *BATCHES))),
        given=Given(batch=8),
        answer=reckoned_memory.cache_equals_weights,
        link=Link(KV_PAGE, taken=("model", "batch")),
    ),
)

QUESTIONS: dict[str, Question] = {question.key: question for question in (*CHAPTER, *MISCONCEPTIONS)}
"""By key, in order."""
