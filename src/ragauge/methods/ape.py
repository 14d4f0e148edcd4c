"""APE, adaptive parallel encoding (Yang et al., ICLR 2025, arXiv 2502.05431)."""

from dataclasses import dataclass

from ragauge.engines.protocol import SpanEngine
from ragauge.methods.base.windows import ReadWindows, Windowed, read_windows, split_paths
from ragauge.methods.prompts import Prompt
from ragauge.options import PositiveFloat


@dataclass(frozen=True)
class Ape(Windowed):
    """Parallel windows behind a shared preamble; attention on documents gets a temperature and a
    scale.

    Section 4 of the paper; defaults of the released README and demo (Infini-AI-Lab/APE,
    `demo_ape.py`; its ChatRAG script has a scale of 1.0). The question and the response attend to
    all documents' keys with the temperature, and their sum of exponentials to the power of `scale`
    x `temperature` is weighed against all other keys (in fp32; the released code rounds it to
    bfloat16). With ALiBi the temperature divides the biased scores. The engine's `KVCache.temper`
    does this in one softmax. Both at 1 are `parallel_windows` with `shared_prefix`.
    """

    temperature: PositiveFloat = 0.9  # of the scores of documents' keys
    scale: PositiveFloat = 0.9  # of the logarithm of their summed weight

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> ReadWindows:
        windows = read_windows(engine, prompt, split_paths(len(prompt.documents)), sees="preamble")
        for span in windows.spans:
            windows.reading.cache.temper(span, self.temperature, self.scale)
        return windows
