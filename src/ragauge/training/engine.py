"""Training steps: by DeepSpeed ZeRO-2, or by plain torch, with which it must agree."""

from __future__ import annotations

import gc
import os
import pickle
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ragauge.errors import UserError, explain_missing_extra
from ragauge.training.batches import ResponseLoss, TrainingBatch
from ragauge.training.settings import TrainingSettings

PREFIX = "decoder."  # of the decoder's parameters in a ResponseLoss


class TrainingEngine(ABC):
    """A model under training with its optimizer, on this process's device."""

    rank, processes = 0, 1

    @abstractmethod
    def step(self, batches: Sequence[TrainingBatch], lr: float) -> float:
        """Forward, backward and one update over this process's batches; their mean loss, over all processes."""

    @abstractmethod
    def loss(self, batch: TrainingBatch) -> float:
        """The loss of a batch, without a gradient."""

    @abstractmethod
    def save(self, folder: Path, tag: str) -> None:
        """Write everything needed to continue from here to `folder/tag`."""

    @abstractmethod
    def load(self, folder: Path, tag: str) -> None:
        """Continue from what `save` wrote."""

    @abstractmethod
    def weights(self, folder: Path, tag: str) -> dict[str, Tensor]:
        """The decoder's fp32 weights by name, from what `save` wrote; on the first process only."""

    def agree(self, value: bool) -> bool:
        """The first process's value, on every process."""
        return value

    def leave(self) -> None:
        """Leave the group once all processes have got here, and free what only steps need.

        Only `weights` may be called afterwards.
        """
        return  # a single process has no group, and its weights are those under training


def start(model: ResponseLoss, settings: TrainingSettings) -> TrainingEngine:
    """The engine that the settings name.

    Raises:
        UserError: DeepSpeed is not installed; plain torch with more than one process or in bfloat16.
    """
    if settings.engine == "deepspeed":
        return DeepSpeed(model, settings)
    if settings.processes > 1 or settings.dtype != "float32":
        raise UserError("engine torch trains on one process in float32; use engine deepspeed")
    return Torch(model, settings)


def update(optimizer: torch.optim.Optimizer, losses: Iterable[Tensor], count: int, clip: float) -> float:
    """One update by the mean of `count` losses, each of which is freed before the next is made; the mean."""
    total = 0.0
    for loss in losses:
        (loss / count).backward()
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], clip)
    optimizer.step()
    optimizer.zero_grad()
    return total / count


def _adamw(model: ResponseLoss, settings: TrainingSettings) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=settings.lr, eps=settings.eps, weight_decay=settings.weight_decay)


def _set_lr(optimizer: Any, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


class Torch(TrainingEngine):
    """The reference."""

    def __init__(self, model: ResponseLoss, settings: TrainingSettings) -> None:
        self.model, self.clip = model.to(settings.device), settings.clip
        self.device = torch.device(settings.device)
        self.optimizer = _adamw(model, settings)

    def step(self, batches: Sequence[TrainingBatch], lr: float) -> float:
        _set_lr(self.optimizer, lr)
        return update(self.optimizer, (self.model(batch.to(self.device)) for batch in batches), len(batches), self.clip)

    @torch.no_grad()
    def loss(self, batch: TrainingBatch) -> float:
        return float(self.model(batch.to(self.device)))

    def save(self, folder: Path, tag: str) -> None:
        (folder / tag).mkdir(parents=True, exist_ok=True)
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, folder / tag / "state.pt")

    def load(self, folder: Path, tag: str) -> None:
        state = torch.load(folder / tag / "state.pt", map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def weights(self, folder: Path, tag: str) -> dict[str, Tensor]:
        return {name.removeprefix(PREFIX): t.detach().cpu() for name, t in self.model.state_dict().items()}


class DeepSpeed(TrainingEngine):
    """ZeRO-2: gradients and optimizer states divided among the processes; bf16 passes over fp32 masters."""

    def __init__(self, model: ResponseLoss, settings: TrainingSettings) -> None:
        self.rank, self.processes = _join_processes(settings.device)
        import deepspeed

        self.device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if settings.device == "cuda" else "cpu")
        dtype = torch.bfloat16 if settings.dtype == "bfloat16" else torch.float32
        model = model.to(self.device, dtype)
        self.engine, self.optimizer, _, _ = deepspeed.initialize(
            model=model, optimizer=_adamw(model, settings), config=_zero_2(settings), dist_init_required=False
        )

    def step(self, batches: Sequence[TrainingBatch], lr: float) -> float:
        _set_lr(self.optimizer, lr)
        total = torch.zeros((), device=self.device)
        for batch in batches:
            loss = self.engine(batch.to(self.device))
            self.engine.backward(loss)
            self.engine.step()  # updates after the last of the accumulated batches
            total += loss.detach().float() / len(batches)
        dist.all_reduce(total)
        return float(total) / self.processes

    @torch.no_grad()
    def loss(self, batch: TrainingBatch) -> float:
        return float(self.engine.module(batch.to(self.device)))

    def save(self, folder: Path, tag: str) -> None:
        self.engine.save_checkpoint(str(folder), tag=tag, save_latest=False)
        dist.barrier()  # it is complete when every process has written its part

    def load(self, folder: Path, tag: str) -> None:
        with _tensors_only(folder / tag):
            path, _ = self.engine.load_checkpoint(str(folder), tag=tag)
        if path is None:
            raise UserError(f"{folder / tag}: DeepSpeed cannot read this checkpoint; remove {folder} to start again")

    def weights(self, folder: Path, tag: str) -> dict[str, Tensor]:
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

        with _tensors_only(folder / tag):
            state = get_fp32_state_dict_from_zero_checkpoint(str(folder), tag=tag)
        return {name.removeprefix(PREFIX): tensor for name, tensor in state.items()}

    def agree(self, value: bool) -> bool:
        flag = torch.tensor(int(value), device=self.device)
        dist.broadcast(flag, 0)
        return bool(flag)

    def leave(self) -> None:
        dist.barrier()
        self.engine.destroy()
        del self.engine, self.optimizer  # `weights` reads the checkpoint, which takes the same memory again
        dist.destroy_process_group()  # otherwise its threads run while the interpreter exits, which aborts the process
        gc.collect()


FORCED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


@contextmanager
def _tensors_only(checkpoint: Path) -> Iterator[None]:
    """Read tensors, plain values and the four classes of DeepSpeed's own state; its readers would run any pickle.

    Raises:
        UserError: a file of the checkpoint holds something else.
    """
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    before = os.environ.get(FORCED)
    os.environ[FORCED] = "1"  # over the `weights_only=False` of its calls
    try:
        with torch.serialization.safe_globals([DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address]):
            yield
    except pickle.UnpicklingError as error:
        raise UserError(f"{checkpoint}: holds more than tensors, so this program did not write it") from error
    finally:
        os.environ.pop(FORCED) if before is None else os.environ.update({FORCED: before})


def _zero_2(settings: TrainingSettings) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": settings.accumulation,
        "gradient_clipping": settings.clip,
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,  # torch's AdamW
        "bf16": {"enabled": settings.dtype == "bfloat16"},
        "steps_per_print": 1 << 30,  # the loop reports the progress
    }


def _join_processes(device: str) -> tuple[int, int]:
    """(rank, processes) of the group that torchrun started, or of this process alone.

    Raises UserError where DeepSpeed is missing.
    """
    with explain_missing_extra("engine deepspeed (engine torch does without) needs DeepSpeed"):
        import deepspeed
    # On a CPU it would compile a kernel that adds gradients in shared memory, for which it needs a C++ compiler, a
    # minute, and a lock that a killed build leaves behind; gloo adds them, too.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if "RANK" not in os.environ:
        alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": _free_port()}
        os.environ.update({name: str(value) for name, value in alone.items()})
    deepspeed.init_distributed(dist_backend="nccl" if device == "cuda" else "gloo", verbose=False)
    return dist.get_rank(), dist.get_world_size()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
