"""Out-of-memory errors of all libraries, on a CPU or a GPU, as one kind of error."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# of allocations inside `unified_memory_errors`
MEMORY_ERRORS = (MemoryError, torch.OutOfMemoryError)
# Of libraries that have no exception of their own for it.
_MESSAGES = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "mha_graph.execute",  # cuDNN's attention on a full GPU, as seen on an H100; it gives no reason
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "std::bad_alloc",
    "bad allocation",
    "dnnl: out of memory",
    "Failed to allocate memory for requested buffer",
)


@contextmanager
def unified_memory_errors() -> Iterator[None]:
    """Raise MemoryError where an allocation fails in a library that has no exception of its own for
    that.
    """
    try:
        yield
    except MEMORY_ERRORS:
        raise
    except Exception as error:  # ONNX Runtime's are no RuntimeErrors
        for line in str(error).splitlines():
            if any(text in line for text in _MESSAGES):
                reason = line.partition("DefaultCPUAllocator: ")[2] or line.strip()
                raise MemoryError(reason) from None
        raise
