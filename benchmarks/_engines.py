"""The engines that `peers.py` compares: they read token ids and write a fixed number greedily.

A class is an engine. `__init__` loads it or raises `NotHereError` with the reason; `computes` says
in what it computes; `answer` returns when its first and its last token were known; `answer_many`,
where there is one, reads several prompts of one length together.
"""

import importlib
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

Ids = Sequence[int]
Times = tuple[float, float]  # seconds until the first token, and until the last


class NotHereError(Exception):
    """The engine cannot be used on this machine; the message says why."""


@dataclass(frozen=True)
class Setting:
    """What all engines are given."""

    model: str  # name of the catalog, source or folder
    gguf: str | None  # the file that the model's weights came from
    threads: int
    room: int  # tokens of the longest prompt with its response
    side: int  # prompts read together


class Engine(ABC):
    computes = ""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    @abstractmethod
    def answer(self, ids: Ids, new: int) -> Times:
        """Seconds until the first and the last of `new` tokens."""

    def answer_many(self, prompts: Sequence[Ids], new: int) -> float:
        """Seconds until the last token of the last response."""
        raise NotHereError("it answers one prompt at a time")


# ---- ours


class Ours(Engine):
    options: dict[str, Any] = {}

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        from ragauge.engines.loading import load_lm
        from ragauge.errors import UserError

        unknown = self.options.keys() - inspect.signature(load_lm).parameters.keys()
        if unknown:
            raise NotHereError(f"the decoder has no option {', '.join(sorted(unknown))}")
        try:
            self.lm = load_lm(setting.model, threads=setting.threads, **self.chosen(setting))
        except UserError as error:
            raise NotHereError(str(error)) from None
        self.computes = ", ".join(f"{key} {value}" for key, value in self.options.items())

    def chosen(self, setting: Setting) -> dict[str, Any]:
        """The decoder's options."""
        return self.options

    def answer(self, ids: Ids, new: int) -> Times:
        return _times(self.lm, ids, new)

    def answer_many(self, prompts: Sequence[Ids], new: int) -> float:
        from ragauge.engines.batching import BatchScheduler
        from ragauge.engines.protocol import Limits

        limits = Limits(max_new_tokens=new, ignore_stop=True)
        started = time.perf_counter()
        with BatchScheduler(self.lm, len(prompts)) as batch:
            done = batch.run(partial(_respond, ids=list(ids), limits=limits) for ids in prompts)
            assert all(len(task.result().ids) == new for task in done)
        return time.perf_counter() - started

    def floor(self, ids: Ids, new: int, rates: dict[str, Any]) -> float:
        """Roofline seconds of a decoded token after `ids`, at the machine's `rates`."""
        from ragauge.cost import gap

        with self.lm.tracing() as trace:
            self.answer(ids, new)
        return gap.stages(trace, self.lm.shape, self.lm.precision, rates)["decode"][
            "roofline_s"
        ] / (new - 1)


def _respond(engine: Any, ids: list[int], limits: Any) -> Any:
    return engine.respond(ids, limits)


def _times(engine: Any, ids: Ids, new: int) -> Times:
    from ragauge.engines.protocol import Limits

    times = engine.respond(list(ids), Limits(max_new_tokens=new, ignore_stop=True)).token_s
    return times[0], times[-1]


class OursFloat32(Ours):
    options = {"dtype": "float32"}


class OursBfloat16(Ours):
    options = {"dtype": "bfloat16"}


class OursAuto(Ours):
    def chosen(self, setting: Setting) -> dict[str, Any]:
        import torch

        from ragauge.engines import tuning

        torch.set_num_threads(setting.threads)  # the choice is of a number of threads
        self.options = {"dtype": tuning.fastest_dtype("cpu")}
        return self.options


class OursInt8(OursAuto):
    weights = "int8"

    def chosen(self, setting: Setting) -> dict[str, Any]:
        self.options = {**super().chosen(setting), "weights": self.weights}
        return self.options


class OursInt4(OursInt8):
    weights = "int4"


# ---- transformers


class Transformers(Engine):
    attention = "sdpa"
    dtype = "float32"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        import torch
        from transformers import AutoModelForCausalLM

        from ragauge.assets.gguf_weights import float_checkpoint
        from ragauge.assets.resolver import resolve

        torch.set_num_threads(setting.threads)
        self.model = AutoModelForCausalLM.from_pretrained(
            float_checkpoint(resolve(setting.model)),
            dtype=self.dtype,
            attn_implementation=self.attention,
        ).eval()
        self.computes = self.dtype

    def answer(self, ids: Ids, new: int) -> Times:
        at: list[float] = []
        started = time.perf_counter()
        self._generate([list(ids)], new, streamer=_Clock(at))
        return at[1] - started, at[-1] - started  # the streamer is told of the prompt first

    def answer_many(self, prompts: Sequence[Ids], new: int) -> float:
        started = time.perf_counter()
        self._generate([list(ids) for ids in prompts], new)
        return time.perf_counter() - started

    def _generate(self, rows: list[list[int]], new: int, **more: Any) -> None:
        import torch

        tokens = torch.tensor(rows)
        limits = {
            "do_sample": False,
            "min_new_tokens": new,
            "max_new_tokens": new,
            "pad_token_id": 0,
        }
        self.model.generate(tokens, attention_mask=torch.ones_like(tokens), **limits, **more)


class _Clock:
    """A streamer, as transformers calls it: it is told of the prompt and of every new token."""

    def __init__(self, at: list[float]) -> None:
        self.at = at

    def put(self, value: Any) -> None:
        self.at.append(time.perf_counter())

    def end(self) -> None:
        pass


class TransformersBfloat16(Transformers):
    dtype = "bfloat16"


class TransformersEager(Transformers):
    attention = "eager"


# ---- OpenVINO GenAI


class OpenVino(Engine):
    precision = "bf16"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        genai = _installed("openvino_genai")
        self.pipeline = genai.LLMPipeline(
            _gguf(setting),
            "CPU",
            INFERENCE_PRECISION_HINT=self.precision,
            INFERENCE_NUM_THREADS=setting.threads,
        )
        self.computes = f"the GGUF's weights, {self.precision} hint, other settings its own"

    def answer(self, ids: Ids, new: int) -> Times:
        started = time.perf_counter()
        metrics = self._generate([list(ids)], new).perf_metrics
        total = time.perf_counter() - started
        return metrics.get_ttft().mean / 1e3, total

    def answer_many(self, prompts: Sequence[Ids], new: int) -> float:
        raise NotHereError("its pipeline over a GGUF file takes one prompt of token ids at a time")

    def _generate(self, rows: list[list[int]], new: int) -> Any:
        import numpy as np
        import openvino
        import openvino_genai as genai

        how = genai.GenerationConfig()
        how.max_new_tokens = new
        how.ignore_eos = True
        how.do_sample = False
        found = self.pipeline.generate(openvino.Tensor(np.array(rows, np.int64)), how)
        written = {len(row) for row in found.tokens}
        if written != {new}:
            raise RuntimeError(f"wrote {written} tokens in place of {new}")
        return found


class OpenVinoFloat32(OpenVino):
    precision = "f32"


# ---- llama.cpp


class LlamaCpp(Engine):
    computes = "the GGUF's weights, activations and cache as llama.cpp takes them by default"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        llama = _installed("xllamacpp")
        gguf = _gguf(setting)
        self.one = self._server(llama, gguf, 1)
        self.several = self._server(llama, gguf, setting.side)

    def _server(self, llama: Any, gguf: str, slots: int) -> Any:
        how = llama.CommonParams()
        how.model.path = gguf
        how.n_ctx = slots * (self.setting.room + 8)
        how.n_parallel = slots
        how.verbosity = 0
        how.cpuparams.n_threads = how.cpuparams_batch.n_threads = self.setting.threads
        how.warmup = False
        return llama.Server(how)

    def answer(self, ids: Ids, new: int) -> Times:
        return self._complete(self.one, ids, new)

    def answer_many(self, prompts: Sequence[Ids], new: int) -> float:
        with ThreadPoolExecutor(len(prompts)) as clients:
            started = time.perf_counter()
            list(clients.map(lambda ids: self._complete(self.several, ids, new), prompts))
            return time.perf_counter() - started

    def _complete(self, server: Any, ids: Ids, new: int) -> Times:
        at: list[float] = []
        replies: list[Any] = []

        def heard(reply: Any) -> bool:
            at.append(time.perf_counter())
            replies.append(reply)
            return False

        asked = {
            "prompt": list(ids),
            "n_predict": new,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": True,
        }
        started = time.perf_counter()
        server.handle_completions({**asked, "cache_prompt": False}, heard)
        usage = replies[-1].get("usage", {}) if replies else {}
        if usage.get("completion_tokens") != new:
            raise RuntimeError(f"wrote {usage.get('completion_tokens')} tokens in place of {new}")
        return at[0] - started, at[-1] - started


# ---- vLLM


class Vllm(Engine):
    computes = "float32"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        vllm = _installed("vllm")
        from ragauge.assets.gguf_weights import float_checkpoint
        from ragauge.assets.resolver import resolve

        folder = str(float_checkpoint(resolve(setting.model)))
        self.llm = vllm.LLM(
            folder,
            dtype=self.computes,
            max_model_len=setting.room + 8,
            max_num_seqs=setting.side,
            enable_prefix_caching=False,
        )

    def answer(self, ids: Ids, new: int) -> Times:
        """Two calls, as its offline interface tells no times: one for the first token alone."""
        return self.answer_many([ids], 1), self.answer_many([ids], new)

    def answer_many(self, prompts: Sequence[Ids], new: int) -> float:
        from vllm import SamplingParams

        limits = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True)
        started = time.perf_counter()
        self.llm.generate(
            [{"prompt_token_ids": list(ids)} for ids in prompts], limits, use_tqdm=False
        )
        return time.perf_counter() - started


ENGINES: dict[str, type[Engine]] = {
    "ragauge float32": OursFloat32,
    "ragauge bfloat16": OursBfloat16,
    "ragauge auto": OursAuto,
    "ragauge int8": OursInt8,
    "ragauge int4": OursInt4,
    "transformers sdpa": Transformers,
    "transformers sdpa bfloat16": TransformersBfloat16,
    "transformers eager": TransformersEager,
    "OpenVINO bf16": OpenVino,
    "OpenVINO f32": OpenVinoFloat32,
    "llama.cpp": LlamaCpp,
    "vLLM": Vllm,
}


def _installed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NotHereError(
            f"{module} cannot be imported: {error}; the extra `peers` has it"
        ) from None


def _gguf(setting: Setting) -> str:
    if setting.gguf is None:
        raise NotHereError(
            f"{setting.model} was not converted from a GGUF file, which this engine reads"
        )
    return setting.gguf
