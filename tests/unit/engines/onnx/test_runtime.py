"""Graphs in ONNX Runtime read and write keys and values where they lie: no step takes them through
NumPy.
"""

from typing import Any

import onnxruntime
import pytest
import torch

import tiny_models
from ragauge.cli._main import main
from ragauge.engines.loading import load_lm
from ragauge.engines.onnx.graph import export_decoder
from ragauge.engines.onnx.graphs import CUDA, open_session
from ragauge.engines.onnx.runtime import Slots, check_origin
from ragauge.errors import UserError
from ragauge.pipelines.decoding import generate
from ragauge.pipelines.modes._joint import JointDecoder
from ragauge.pipelines.modes._joint_onnx import OnnxJointDecoder
from ragauge.pipelines.modes._retro import RetroLM, random_network
from ragauge.pipelines.modes._retro_onnx import PARTS, OnnxRetroLM, export_network
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.sizes import Sizes
from ragauge.pipelines.sources import BlockingRetrieval, RetrievalOptions
from ragauge.pipelines.windows import Windows
from ragauge.testing import write_checkpoint
from retro_parts import ExactRetriever, tokens

# no layer of its `upper` graph has a cache
TINY = Sizes(260, 1, 32, 4, 48, (0,), 1, 24, 2, 40, (0,))
IDS = tokens(70, 1)
DOCUMENTS = [tokens(300, 2), tokens(70, 3), tokens(400, 4)]
NO_GPU = (
    "torch finds no CUDA device"
    if not torch.cuda.is_available()
    else f"the installed ONNX Runtime has no {CUDA}: extra gpu"
    if CUDA not in onnxruntime.get_available_providers()
    else ""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`decoder`: a decoder as the command writes it, of the checkpoint in `model`; `retro`: RETRO;
    both in float16.
    """
    root = tmp_path_factory.mktemp("graphs")
    given = ["--model", str(write_checkpoint(root / "model")), "--dtype", "float16"]
    assert main(["piperag", "export", *given, "--out", str(root / "decoder")]) == 0
    export_network(random_network(TINY).half(), root / "retro")
    return root


@pytest.fixture(scope="module")
def models(folder):
    """The decoder and RETRO in ONNX Runtime."""
    return {
        "decoder": OnnxJointDecoder(Checkpoint(exported=folder / "decoder", threads=1)),
        "retro": retro(folder / "retro"),
    }


def retro(folder, device="cpu"):
    return OnnxRetroLM({name: folder / f"{name}.onnx" for name in PARTS}, device=device, threads=1)


@pytest.fixture
def bound(monkeypatch):
    """(name, address) of every input and output that is bound; nothing else feeds a graph or leaves
    it.
    """
    found = []
    for kind in ("bind_input", "bind_output"):
        given = getattr(onnxruntime.IOBinding, kind)

        def spy(self, name, *where, given=given):
            found.append((name, where[-1]))
            given(self, name, *where)

        monkeypatch.setattr(onnxruntime.IOBinding, kind, spy)

    def refused(*arguments, **options):
        raise AssertionError("keys and values went through NumPy")

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", refused)
    monkeypatch.setattr(torch.Tensor, "numpy", refused)
    monkeypatch.setattr(torch, "from_numpy", refused)
    return found


@pytest.fixture
def slots(monkeypatch):
    """Those that are made, a reader's own last."""
    made = []
    make = Slots.__init__

    def noted(self, *given, **more):
        made.append(self)
        make(self, *given, **more)

    monkeypatch.setattr(Slots, "__init__", noted)
    return made


@pytest.mark.parametrize("name", ["decoder", "retro"])
def test_every_step_binds_the_cache_where_it_lies(models, name, bound, slots):
    reader = models[name].open(80, 256)
    cached = slots[-1]
    reader.read(IDS)
    bound.clear()
    steps = 5
    reader.decode(torch.zeros(260), steps + 1)
    first = cached.states.data_ptr()
    last = cached.states.data_ptr() + cached.states.nbytes
    past = [at for given, at in bound if given.startswith("past_")]
    assert len(past) == steps * len(cached.feeds()) - steps  # all but the mask, at each step
    assert all(first <= at < last for at in past)
    assert sum(given.startswith("new_") for given, _ in bound) == len(past)


@pytest.mark.parametrize("name", ["decoder", "retro"])
def test_half_precision_is_exported(folder, models, name, slots):
    """Graphs in float16, which a CPU runs slowly, give the logits of the same weights in torch."""
    exact = RetroLM(random_network(TINY))
    if name == "decoder":
        exact = JointDecoder(load_lm(str(folder / "model")))
    logits = []
    for one in (models[name], exact):
        reader = one.open(80, 256)
        reader.read(IDS[:64])
        reader.attach([DOCUMENTS[0][:128]])
        logits.append(reader.read(IDS[64:70]))
    models[name].open(1, 0)
    assert slots[-1].states.dtype == torch.float16
    torch.testing.assert_close(*logits, atol=3e-2, rtol=3e-2)


def test_the_option_of_export_is_recorded_and_asked_for(folder, capsys):
    check_origin(folder / "decoder", {"dtype": "float16"})
    with pytest.raises(
        UserError, match="dtype is float16, not float32: exported from something else"
    ):
        check_origin(folder / "decoder", {"dtype": "float32"})
    with pytest.raises(SystemExit):
        main(f"piperag export --model {folder / 'model'} --dtype bfloat16 --out {folder}".split())
    assert "argument --dtype: unknown value 'bfloat16'" in capsys.readouterr().err


@pytest.mark.skipif(CUDA in onnxruntime.get_available_providers(), reason="this build runs on GPUs")
def test_a_gpu_without_its_build_is_told_in_one_line(tmp_path):
    with pytest.raises(
        UserError,
        match=r"device 'cuda': .* has no CUDAExecutionProvider .*pip install 'ragauge\[gpu\]'",
    ):
        open_session(tmp_path / "x.onnx", cuda=True)


@pytest.mark.skipif(bool(NO_GPU), reason=NO_GPU)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["decoder", "retro"])
def test_a_gpu_keeps_the_cache_and_gives_the_tokens_of_torch(name, dtype, slots, tmp_path):
    checkpoint = Checkpoint(exported=tmp_path, dtype=dtype, device="cuda")
    exact: Any
    model: Any
    if name == "decoder":
        export_decoder(
            tiny_models.tiny_lm(tiny_models.LLAMA, dtype=dtype).decoder, tmp_path / "decoder.onnx"
        )
        exact = JointDecoder(tiny_models.tiny_lm(tiny_models.LLAMA))
        model = OnnxJointDecoder(checkpoint)
    else:
        made = random_network(TINY)
        export_network(made.half() if dtype == "float16" else made, tmp_path)
        model = retro(tmp_path, "cuda")
        exact = RetroLM(random_network(TINY))
    found = []
    for one in (model, exact):
        reader = one.open(160, 256)
        source = BlockingRetrieval(
            RetrievalOptions(ExactRetriever(DOCUMENTS)), Windows(16), reader.note
        )
        found.append(generate(reader, IDS, 160, source, Windows(16)))
    model.open(1, 0)
    assert slots[-1].states.is_cuda
    assert dtype == "float16" or found[0] == found[1]
    assert len(found[0]) == 90
