"""DeepSpeed ZeRO-2 below transformers' Trainer."""

import logging
import os
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils.other import get_free_port

from ragauge.errors import explain_missing_extra
from ragauge.training.settings import MAX_GRADIENT_NORM, TrainingSettings


def arguments(settings: TrainingSettings) -> dict[str, Any]:
    """Join DeepSpeed's process group, alone or as torchrun started this process; returns Trainer's
    arguments. Checkpoints are read as tensors, plain values and four classes of DeepSpeed's own:
    its readers would run any pickle.

    Raises:
        MissingExtraError: DeepSpeed is not installed.
    """
    if settings.device == "cpu":
        os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
    with explain_missing_extra("engine deepspeed (engine torch does without) needs DeepSpeed"):
        import deepspeed
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    torch.serialization.add_safe_globals(
        [DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address]
    )
    # Python before 3.11.4 writes members of an Enum as a call of getattr, which is not read.
    ZeroStageEnum.__reduce_ex__ = lambda member, _: (ZeroStageEnum, (member.value,))
    # over the `weights_only=False` of DeepSpeed's calls
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    # On a CPU it would compile a kernel that adds gradients in shared memory, for which it needs a
    # C++ compiler, a minute, and a lock that a killed build leaves behind; gloo adds them, too.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # else accelerate chooses anew
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(get_free_port()))
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    # it warns that DeepSpeed accumulates batches
    logging.getLogger("accelerate.accelerator").setLevel(logging.ERROR)
    # Trainer's own is not DeepSpeed's on a CPU
    PartialState(backend="nccl" if settings.device == "cuda" else "gloo")
    zero_2 = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": settings.accumulation,
        "gradient_clipping": MAX_GRADIENT_NORM,
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": settings.dtype == "bfloat16"},
        "steps_per_print": 1 << 30,  # the trainer reports the progress
    }
    return {"deepspeed": zero_2, "accelerator_config": {"use_configured_state": True}}
