"""Allocations that fail, in whatever library: one kind of error."""

import pytest
import torch

from ragauge.engines.memory import MEMORY_ERRORS, unified_memory_errors


class OtherLibraryError(Exception):
    pass


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried ..."
        ),
        RuntimeError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError(
            "Expected mha_graph.execute(handle, variant_pack, workspace_ptr.get()).is_good() to be true"
        ),
        RuntimeError("std::bad_alloc"),
        OtherLibraryError(
            "[ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer of size 123"
        ),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        MemoryError(),
    ],
)
def test_failed_allocations_are_memory_errors(error):
    with pytest.raises(MEMORY_ERRORS) as found, unified_memory_errors():
        raise error
    assert "\n" not in str(found.value)
