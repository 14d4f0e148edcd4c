"""ONNX graphs: writing them from torch, and opening them in ONNX Runtime."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.errors import UserError, in_one_line

if TYPE_CHECKING:
    from torch import nn

OPSET = 20
CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
# float32 is float32, as in torch
OPTIONS: dict[str, dict[str, str]] = {CPU: {}, CUDA: {"use_tf32": "0"}}


def write_graph(
    graph: nn.Module,
    path: Path,
    arguments: tuple[Any, ...],
    shapes: Any,
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> None:
    """Write a module as ONNX, with its weights in a second file; `arguments` are an example of what
    `forward` takes. `shapes`: of each argument the dynamic dimensions, as `torch.export` names
    them; `inputs`, `outputs`: their names.
    """
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        # as below: the exporter's messages on its progress and on optional packages
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            torch.onnx.export(
                graph.eval(),
                arguments,
                path,
                dynamo=True,
                opset_version=OPSET,
                external_data=True,
                verbose=False,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_shapes=shapes,
            )
        finally:
            logging.disable(disabled)


def open_session(path: Path, threads: int | None = None, cuda: bool = False) -> Any:
    """Open a graph in ONNX Runtime.

    Raises:
        UserError: it cannot be read, or there is no GPU for `cuda`.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    known = onnxruntime.get_available_providers()
    wanted = CUDA if cuda else CPU
    if wanted not in known:
        missing = f"the installed ONNX Runtime has no {CUDA} (it has {', '.join(known)})"
        raise UserError(f"device 'cuda': {missing}; install the extra: pip install 'ragauge[gpu]'")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=[(wanted, OPTIONS[wanted])]
        )
    except Exception as error:  # the library raises a dozen kinds that share no class of their own
        raise UserError(f"{path}: ONNX Runtime cannot read it: {in_one_line(error, 200)}") from None
    if session.get_providers()[0] != wanted:  # it goes on without a provider that it cannot load
        hint = "are CUDA and cuDNN of its version here?"
        raise UserError(f"device 'cuda': ONNX Runtime cannot load its {wanted}; {hint}")
    return session
