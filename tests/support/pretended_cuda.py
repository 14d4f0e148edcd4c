"""A pretended GPU: operators run on the host, with real values, under CUDA's rules of what may meet
in one of them.

An operator refuses host tensors beside those on the GPU, with CUDA's two exceptions: a tensor
without dimensions in an element-wise operator, and indices of a tensor on the GPU. A captured graph
replays the operators of its capture, which refuses to wait for the host. Not rehearsed: kernels and
their data types, random numbers, memory, streams that overlap.
"""

import threading
from contextlib import contextmanager, nullcontext
from functools import cache
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

CUDA = torch.device("cuda", 0)
HOST = torch.device("cpu")
# what torch itself takes it for: a device that every build knows and none computes on
INNER = torch.device("lazy", 0)
aten = torch.ops.aten
COPIES = (aten.copy_.default, aten._to_copy.default)
INDEXING = (
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
)
BY_NUMBER = (
    aten.fill_.Tensor,
    aten.masked_fill.Tensor,
    aten.masked_fill_.Tensor,
    aten.index_fill_.int_Tensor,
)
READ_BACK = (aten._local_scalar_dense.default, aten.nonzero.default, aten.equal.default)
# of operators that torch computes by others, those that on the GPU alone can do nothing wrong
AT_ONCE = {
    aten.chunk.default, aten.flatten.using_ints, aten.linear.default, aten.matmul.default, aten.narrow.default,
    aten.repeat_interleave.self_int, aten.reshape.default, aten.rms_norm.default, aten.type_as.default,
    aten.scaled_dot_product_attention.default, aten.to.dtype,
}  # fmt: skip


class Pretended(Tensor):
    """A tensor on the pretended GPU."""

    values: Tensor  # in host memory
    device = property(lambda _: CUDA)
    is_cuda = property(lambda _: True)  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values):
        like = {
            "strides": values.stride(),
            "storage_offset": values.storage_offset(),
            "dtype": values.dtype,
        }
        # a view of a tensor that was made outside must be one that was
        with torch.inference_mode(False):
            made = Tensor._make_wrapper_subclass(cls, values.shape, device=INNER, **like)  # type: ignore[attr-defined]
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})

    def tolist(self):
        return self.cpu().tolist()

    def untyped_storage(self):
        return self.values.untyped_storage()

    def numpy(self, *_, **__):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


class Dispatch(TorchDispatchMode):
    """Sees the operators that make the first tensors on the GPU."""

    @classmethod
    def _should_skip_dynamo(cls):
        # else each operator is wrapped, against compilers, which takes longer than it does
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


class Indexed(TorchFunctionMode):
    """Numbers a device that has no number, which torch would ask the driver for; leaves tensors
    where they are.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is not Tensor.to and (not kwargs or "device" not in kwargs):
            return func(*args, **kwargs or {})

        def indexed(value):
            return (
                CUDA
                if isinstance(value, str | torch.device) and str(value) in ("cuda", "cuda:0")
                else value
            )

        first = args[:1]
        args = list(map(indexed, args[1:]))
        kwargs = {n: indexed(v) for n, v in (kwargs or {}).items()}
        if func is Tensor.to and isinstance(first[0], Pretended):
            args = [v for v in args if v != CUDA]
            kwargs = {n: v for n, v in kwargs.items() if v != CUDA}
            if all(value in (None, True, False) for value in (*args, *kwargs.values())):
                return first[0]
        return func(*first, *args, **kwargs)


class Graph:
    """A CUDA graph: the operators of its capture, which are computed again into the same tensors."""

    capturing: ClassVar["Graph | None"] = None
    thread: ClassVar[int | None] = None  # that captures
    guards_others: ClassVar[bool] = False  # whether other threads may not ask for memory meanwhile

    def __init__(self):
        self.operators = []

    def replay(self):
        with _disable_current_modes():
            for func, args, kwargs, results in self.operators:
                for old, new in zip(
                    leaves([results]), leaves([func(*args, **kwargs)]), strict=True
                ):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)

    @contextmanager
    def capture(self, capture_error_mode="global"):
        Graph.capturing, Graph.thread = self, threading.get_ident()
        Graph.guards_others = capture_error_mode == "global"
        try:
            yield
        finally:
            Graph.capturing = None


@cache
def is_composite(func):
    """Whether torch computes an operator by others on every device, so that those are checked."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def leaves(values):
    found = []
    for value in values:
        found += leaves(value) if isinstance(value, (list, tuple)) else [value]
    return found


def mapped(change, value):
    return (
        type(value)([mapped(change, v) for v in value])
        if isinstance(value, (list, tuple))
        else change(value)
    )


def compute(func, args, kwargs):
    """The result of an operator, on the device that CUDA would have it on; raises where CUDA would."""
    given = [
        leaf
        for leaf in leaves([*args, *kwargs.values()])
        if isinstance(leaf, (Tensor, torch.device))
    ]
    device = next((leaf.type for leaf in given if isinstance(leaf, torch.device)), None)
    on_gpu = [leaf for leaf in given if isinstance(leaf, Pretended)]
    if not on_gpu and device not in ("cuda", "lazy"):
        return func(*args, **kwargs)
    on_host = [
        leaf for leaf in given if isinstance(leaf, Tensor) and not isinstance(leaf, Pretended)
    ]
    if is_composite(func) and (on_host or func not in AT_ONCE):
        with Dispatch():
            return func.decompose(*args, **kwargs)
    check(func, args, on_gpu, on_host)
    if func is aten._fused_sdp_choice.default:
        return 0  # plain operators, which are seen one by one

    def to_host(leaf):
        return (
            HOST
            if isinstance(leaf, torch.device)
            else leaf.values
            if isinstance(leaf, Pretended)
            else leaf
        )

    args = mapped(to_host, args)
    kwargs = {name: mapped(to_host, value) for name, value in kwargs.items()}
    results = func(*args, **kwargs | ({"pin_memory": False} if kwargs.get("pin_memory") else {}))
    if Graph.capturing and Graph.thread == threading.get_ident() and not func.is_view:
        Graph.capturing.operators.append((func, args, kwargs, results))
    known = {id(leaf.values): leaf for leaf in on_gpu} | {id(leaf): leaf for leaf in on_host}

    def placed(leaf):
        stays = device == "cpu" or not isinstance(leaf, Tensor)
        return known[id(leaf)] if id(leaf) in known else leaf if stays else Pretended(leaf)

    return mapped(placed, results)


def synchronize(*_):
    if Graph.capturing:
        raise RuntimeError(
            "CUDA error: operation would make the legacy stream depend on a capturing blocking stream"
        )


def check(func, args, on_gpu, on_host):
    """Raise what CUDA raises where an operator's tensors may not meet, or while a graph is
    captured.
    """
    waits = func in READ_BACK or (on_host and func in COPIES)
    if Graph.capturing and (
        waits if Graph.thread == threading.get_ident() else Graph.guards_others
    ):
        raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({func})")
    if func in COPIES or not on_gpu or not on_host:
        return
    if func in INDEXING:
        is_allowed = isinstance(args[0], Pretended) and all(
            v.dim() == 0 or v.is_cuda for v in args[2:3]
        )
    else:
        elementwise = torch.Tag.pointwise in func.tags or func in BY_NUMBER
        few = len(on_host) == 1 or func is aten.where.self
        written = func._schema.is_mutable and not isinstance(args[0], Pretended)
        is_allowed = (
            elementwise and few and not written and all(leaf.dim() == 0 for leaf in on_host)
        )
    if not is_allowed:
        shapes = [tuple(leaf.shape) for leaf in on_host]
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {func} got {shapes} on the host"
        )


@contextmanager
def host():
    """Sees nothing, for work on the CPU alone."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        yield


@contextmanager
def pretended():
    """torch has one GPU in this block: a real one where there is one."""
    if torch.cuda.is_available():
        yield
        return
    stream = SimpleNamespace(wait_stream=lambda other: None, synchronize=lambda: None)
    nothing = ("_lazy_init", "set_device", "empty_cache")
    stubs = {
        **dict.fromkeys(nothing, lambda *_, **__: None),
        **dict.fromkeys(("memory_reserved", "memory_allocated", "current_device"), lambda *_: 0),
        **dict.fromkeys(("is_available", "is_bf16_supported"), lambda *_, **__: True),
        **dict.fromkeys(("Stream", "current_stream"), lambda *_: stream),
        "get_rng_state": lambda *_: torch.zeros(1, dtype=torch.uint8),
        "device_count": lambda: 1,
        "mem_get_info": lambda *_: (1 << 34, 1 << 34),
        "get_device_properties": lambda *_: SimpleNamespace(
            name="pretended", total_memory=1 << 34, major=8, minor=0
        ),
        "stream": lambda _: nullcontext(),
        "synchronize": synchronize,
        "CUDAGraph": Graph,
        "graph": Graph.capture,
    }
    run = threading.Thread.run
    generator = torch.Generator

    @contextmanager
    def dispatched():  # of one thread
        # a new tensor is copied to its device by an operator
        torch._C._set_only_lift_cpu_tensors(True)
        with Dispatch(), Indexed():
            yield
        torch._C._set_only_lift_cpu_tensors(False)

    def run_dispatched(thread):
        with dispatched():
            run(thread)

    swaps = torch.__future__.get_swap_module_params_on_conversion()
    # a moved parameter stays the same object
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with pytest.MonkeyPatch.context() as patch, dispatched():
            for name, stub in stubs.items():
                patch.setattr(torch.cuda, name, stub)
                patch.setattr(torch.cuda.random, name, stub, raising=False)
            patch.setattr(
                torch, "Generator", type("Generator", (), {"__new__": lambda *_, **__: generator()})
            )
            patch.setattr(threading.Thread, "run", run_dispatched)
            yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swaps)
