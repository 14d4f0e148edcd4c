"""Methods under load: requests on a data set's questions, answered by the decoder as `cost.load` sends them."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ragauge.cost import load
from ragauge.cost.load import Level, OneByOne, Server, Targets, WallClock
from ragauge.cost.settings import LoadSettings
from ragauge.engines import LM, Limits, load_lm
from ragauge.errors import UserError
from ragauge.evaluation.inputs import Questions, specification
from ragauge.evaluation.runner import prompt_of
from ragauge.experiment.schema import Model
from ragauge.io.progress import bar
from ragauge.methods import Method, make
from ragauge.prompts import Prompt

CACHE_STATES = {
    "ready": "what a method prepares before the question is known is in memory when a request arrives",
    "computed": "what a method prepares is computed within each request, as for documents that nobody has read yet",
}


def load_model(
    variants: Mapping[str, Method],
    questions: Questions,
    model: Model,
    settings: LoadSettings,
    *,
    seed: int = 0,
    allow_load: bool = False,
) -> dict[str, Any]:
    """The load protocol on the first questions of a data set, one variant after another.

    Args:
        variants: by name; those that the model cannot run are left out with the reason.
        seed: of the arrivals, which are the same for all variants at a level.
        allow_load: report although other processes kept the machine busy.

    Returns: see `cost.load.result`.

    Raises:
        UserError: a response that the context cuts short.
    """
    levels = load.levels(settings.rates, settings.clients)
    plain = specification("naive", make("naive"), questions, model, settings.new_tokens)  # all methods' prompts
    options: dict[str, Any] = {"dtype": model.dtype, "device": model.device, "max_context": model.max_context}
    lm = load_lm(model.source, threads=settings.threads, **options)
    examples = questions.examples(settings.prompts)
    prompts = [prompt_of(example, plain, lm.tokenizer, lm.shape.max_context) for example in examples]
    unsupported = {name: reason for name, method in variants.items() if (reason := method.refusal(lm))}
    able = {name: method for name, method in variants.items() if name not in unsupported}
    runs: list[dict[str, Any]] = []
    with bar(f"load on {questions.name}", "level", len(able) * len(levels)) as progress:
        for name, method in able.items():
            progress.set_postfix_str(name)
            answering = _Answering(name, method, lm, prompts, settings)
            for level in levels:
                runs.append({"variant": name, **_level(answering, level, seed, allow_load)})
                progress.update()
    return load.result(_protocol(questions, lm, prompts, settings, seed), unsupported, runs)


@dataclass
class _Answering:
    """A method on the prompts; what it prepares is held for as long as this is."""

    name: str
    method: Method
    lm: LM
    prompts: Sequence[Prompt]
    settings: LoadSettings

    def __post_init__(self) -> None:
        self.limits = Limits(max_new_tokens=self.settings.new_tokens, ignore_stop=True)
        ready = self.settings.documents == "ready"
        self.states = [self.method.prepare(self.lm, prompt) for prompt in self.prompts] if ready else []
        for place in range(len(self.prompts)):  # warm up, and read what a method reads when it is first asked
            self.one(place)

    def one(self, place: int) -> tuple[float, float, int]:
        """Answer a prompt: when the first token and the last were known, and how many there were."""
        prompt = self.prompts[place]
        state = self.states[place] if self.states else self.method.prepare(self.lm, prompt)
        written = self.method.answer(self.lm, state, prompt, self.limits).ids
        self.lm.synchronize()
        end = time.perf_counter()
        if len(written) != self.limits.max_new_tokens:
            raise UserError(
                f"{self.name}: the model's context of {self.lm.shape.max_context} tokens ends the response after "
                f"{len(written)} of {self.limits.max_new_tokens} tokens"
            )
        assert self.lm.first_token_at is not None
        return self.lm.first_token_at, end, len(written)

    def server(self) -> Server:
        return OneByOne(self.one, WallClock())


def _level(answering: _Answering, level: Level, seed: int, allow_load: bool) -> dict[str, Any]:
    settings = answering.settings
    gc.collect()
    return load.run_level(
        answering.server(),
        level,
        prompts=len(answering.prompts),
        requests=settings.requests,
        warmup=settings.warmup,
        targets=Targets(settings.target_first_token_s, settings.target_per_token_s),
        seed=seed,
        allow_load=allow_load,
    )


def _protocol(
    questions: Questions, lm: LM, prompts: Sequence[Prompt], settings: LoadSettings, seed: int
) -> dict[str, Any]:
    return {
        **settings.model_dump(exclude={"methods"}),
        "dataset": questions.name,
        "tokens": prompts[0].token_counts(),  # of the first prompt
        "prompts": len(prompts),
        "seed": seed,
        "threads": torch.get_num_threads(),
        "dtype": str(lm.dtype).removeprefix("torch."),
        "device": lm.device.type,
        "cache_state": CACHE_STATES[settings.documents],
    }
