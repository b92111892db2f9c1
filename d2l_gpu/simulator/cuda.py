"""What torch.cuda and torch.accelerator answer while a simulation runs.

replacements() lists the attributes of torch.cuda and their stand-ins.  Most of torch.cuda is
written in Python on top of a few functions; these are answered, the rest follows.  Whatever would
ask the driver and has no answer raises NotImplementedError by name.
"""

from __future__ import annotations

import functools
import sys
import time
import types

import torch

from .devices import Gpu, Machine, cuda_gpu, gpu_of, running
from .errors import boundaries, boundary, unsupported
from .tensor import SimulatedTensor, legacy_new


# ----------------------------------------------------------------- streams, events, generators
@boundaries
class Stream:
    """What is put on a simulated stream is done at once, in program order."""

    device_type, stream_id, priority = 1, 0, 0

    def __init__(self, device=None, priority=0, **kwargs):
        self.device = cuda_gpu(device).device
        self.device_index = self.device.index

    def synchronize(self):
        running().books.waited("Stream.synchronize")

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        event.wait(self)

    def wait_stream(self, stream):
        self.wait_event(stream.record_event())

    def query(self):
        return True

    def is_capturing(self):
        return False

    def __enter__(self):
        self._previous = running().current, torch.cuda.current_stream(self.device)
        torch.cuda.set_stream(self)
        return self

    def __exit__(self, *exc):
        device, stream = self._previous
        torch.cuda.set_stream(stream)
        running().exchange_device(device)


@boundaries
class Event:
    """A time stamp of the host's clock: simulated work is done by the time it is recorded."""

    def __init__(self, enable_timing=False, **kwargs):
        self.enable_timing, self.time = enable_timing, None

    def record(self, stream=None):
        self.time = time.perf_counter()

    def elapsed_time(self, end):
        if not (self.enable_timing and end.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.time is None or end.time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end.time - self.time) * 1000

    def synchronize(self):
        running().books.waited("Event.synchronize")

    def wait(self, stream=None):
        """Nothing to wait for."""

    def query(self):
        return True


class _GeneratorType(type(torch.Generator)):
    def __instancecheck__(cls, instance):
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_GeneratorType):
    """torch.Generator, for simulated devices too, where it yields the CPU's random numbers.

    PyTorch hands kernels another Python object for the same C++ generator, so a device's generator
    is known by the address of the latter.
    """

    def __new__(cls, device="cpu"):
        gpu = gpu_of(device)
        self = super().__new__(cls) if gpu else super().__new__(cls, device)
        self._gpu = gpu
        if gpu:
            running().generators[self._cdata] = self
        return self

    def __init__(self, device="cpu"):
        pass

    @property
    def device(self):
        return self._gpu.device if self._gpu else super().device


# ------------------------------------------------------------------------------- types of old
@boundaries
class _LegacyType(type):
    is_cuda, is_sparse, layout = True, False, torch.strided

    def __instancecheck__(cls, tensor):
        return isinstance(tensor, SimulatedTensor) and tensor.dtype == cls.dtype

    def __call__(cls, *args, device="cuda"):
        return legacy_new(args, cls.dtype, device)


_LEGACY = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16,
    "BFloat16": torch.bfloat16, "Long": torch.int64, "Int": torch.int32, "Short": torch.int16,
    "Char": torch.int8, "Byte": torch.uint8, "Bool": torch.bool,
}


def _legacy_types():
    for name, dtype in _LEGACY.items():
        yield f"{name}Tensor", _LegacyType(f"{name}Tensor", (), {"dtype": dtype})


# ------------------------------------------------------------------------------------ refusals
def refusal(name, original=None):
    """A stand-in for a function that raises NotImplementedError by name."""

    def refuse(*args, **kwargs):
        raise unsupported(name)

    return boundary(functools.wraps(original)(refuse) if original else refuse)


def _refused_class(name, original):
    """A class that can be asked about (isinstance) but has no instances."""
    return type(original.__name__, (original,), {"__new__": refusal(name)})


class _RefusedObject:
    """An object that refuses every use."""

    def __init__(self, name):
        self.__dict__["_refuse"] = refusal(name)

    def __getattr__(self, name):
        self._refuse()

    def __setattr__(self, name, value):
        self._refuse()

    def __getitem__(self, index):
        self._refuse()


boundaries(_RefusedObject)


def _asks_the_driver(function):
    """Does a function of torch.cuda use one of the driver's functions, torch._C._cuda_*?"""
    def names(code):
        yield from code.co_names
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield from names(constant)

    function = getattr(function, "__wrapped__", function)
    driver = ("_cuda", "_cudart", "_nvtx", "cudart", "_lazy_init")
    return isinstance(function, types.FunctionType) and any(
        name.startswith(driver) for name in names(function.__code__)
    )


# What torch.cuda builds on answered functions and so works as it is.
_BUILT_ON_ANSWERS = frozenset(
    """device device_of stream StreamContext init is_initialized get_device_name
    get_device_capability get_device_properties memory_stats memory_allocated max_memory_allocated
    memory_reserved max_memory_reserved memory_cached max_memory_cached reset_max_memory_allocated
    reset_max_memory_cached memory_summary get_rng_state get_rng_state_all set_rng_state
    set_rng_state_all manual_seed manual_seed_all seed seed_all initial_seed is_bf16_supported
    is_tf32_supported get_arch_list get_gencode_flags check_error cudaStatus CudaError
    DeferredCudaCallError OutOfMemoryError AcceleratorError _lazy_init _lazy_call _is_compiled
    _device _DeviceGuard _get_device _get_generator _get_rng_state_offset
    _set_rng_state_offset""".split()
)


def _refusals(answered):
    """(owner, name, stand-in) of everything in torch.cuda that has no answer."""
    for module_name, module in list(sys.modules.items()):
        if module_name != "torch.cuda" and not module_name.startswith("torch.cuda."):
            continue
        public = set(getattr(module, "__all__", ())) if module is torch.cuda else set()
        for name, value in list(vars(module).items()):
            home = getattr(value, "__module__", None) or ""
            known = name in answered or name in _BUILT_ON_ANSWERS or name.endswith("Tensor")
            if known or not callable(value) or not home.startswith(("torch.cuda", "torch._C")):
                continue
            full_name = f"{module_name}.{name}"
            if isinstance(value, type):
                if name in public:
                    yield module, name, _refused_class(full_name, value)
            elif name in public or _asks_the_driver(value):
                yield module, name, refusal(full_name, value)


# ------------------------------------------------------------------------------------- answers
def _answers(machine: Machine):
    def per_gpu(answer):
        return lambda device=None: answer(cuda_gpu(device))

    def set_device(device):
        index = torch.cuda._utils._get_device_index(device)
        if index >= 0:
            running().exchange_device(index)

    def current_stream(device=None):
        gpu = cuda_gpu(device)
        return machine.thread.__dict__.get(gpu.name) or gpu.default_stream

    def set_stream(stream):
        if stream is not None:
            running().exchange_device(stream.device_index)
            machine.thread.__dict__[str(stream.device)] = stream

    def empty_cache():
        for gpu in machine.gpus:
            gpu.empty_cache()

    def exchange_device(index):
        return running().exchange_device(index)

    def free_and_total(gpu):
        return gpu.capacity - gpu.reserved, gpu.capacity

    def set_memory_fraction(fraction, device=None):
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        cuda_gpu(device).fraction = fraction

    def waits(gpu):
        gpu.machine.books.waited("synchronize")

    none = torch._C._accelerator_getAccelerator
    cuda = {
        "is_available": lambda: not machine.hidden,
        "device_count": lambda: 0 if machine.hidden else len(machine.gpus),
        "current_device": lambda: running().current,
        "set_device": set_device,
        "synchronize": per_gpu(waits),
        "_exchange_device": exchange_device,
        "_maybe_exchange_device": exchange_device,
        "_get_device_properties": lambda index: machine.gpu(index).properties,
        "_is_in_bad_fork": lambda: machine.forked,
        "_sleep": lambda cycles: None,
        "ipc_collect": lambda: None,
        "current_stream": current_stream,
        "set_stream": set_stream,
        "default_stream": per_gpu(lambda gpu: gpu.default_stream),
        "is_current_stream_capturing": lambda: False,
        "can_device_access_peer": lambda a, b: cuda_gpu(a) is not cuda_gpu(b),
        "memory_stats_as_nested_dict": per_gpu(Gpu.memory_stats),
        "mem_get_info": per_gpu(free_and_total),
        "set_per_process_memory_fraction": set_memory_fraction,
        "get_per_process_memory_fraction": per_gpu(lambda gpu: gpu.fraction),
        "empty_cache": empty_cache,
        "reset_peak_memory_stats": per_gpu(Gpu.reset_peak),
    }
    accelerator = {
        "getAccelerator": lambda: none() if machine.hidden else torch.device("cuda"),
        "getDeviceIndex": cuda["current_device"],
        "setDeviceIndex": set_device,
        "exchangeDevice": exchange_device,
        "maybeExchangeDevice": exchange_device,
        "emptyCache": empty_cache,
        "getStream": current_stream,
        "setStream": set_stream,
        "synchronizeDevice": cuda["synchronize"],
        "isAllocatorInitialized": lambda: True,
        "getDeviceStats": cuda["memory_stats_as_nested_dict"],
        "getMemoryInfo": cuda["mem_get_info"],
        "resetPeakStats": cuda["reset_peak_memory_stats"],
    }
    objects = {
        "_initialized": True, "Stream": Stream, "Event": Event,
        "default_generators": tuple(gpu.generator for gpu in machine.gpus),
    }
    cuda = {name: boundary(function) for name, function in cuda.items()}
    return cuda | objects | dict(_legacy_types()), accelerator


def prepare(machine: Machine):
    """Give every device its stream and generator.  The machine must be in force."""
    for gpu in machine.gpus:
        gpu.default_stream = Stream(gpu.device)
        gpu.generator = Generator(gpu.device)


def replacements(machine: Machine):
    """(owner, name, stand-in) of every attribute of torch.cuda and torch.accelerator."""
    cuda, accelerator = _answers(machine)
    for name, value in cuda.items():
        # Some submodules have imported functions by name.
        for module in (torch.cuda, torch.cuda.memory, torch.cuda.random):
            if module is torch.cuda or name in vars(module):
                yield module, name, value
    yield from _refusals(cuda)
    for name in dir(torch._C):
        start, found, short = name.partition("_accelerator_")
        if found and not start and not short.startswith("hooks_"):
            answer = accelerator.get(short) or refusal(f"torch.accelerator's {short}")
            yield torch._C, name, boundary(answer)
    plan_cache = _RefusedObject("torch.backends.cuda.cufft_plan_cache")
    yield torch.backends.cuda, "cufft_plan_cache", plan_cache
    yield torch, "Generator", Generator
    yield torch.backends.cudnn, "is_acceptable", lambda tensor: False
