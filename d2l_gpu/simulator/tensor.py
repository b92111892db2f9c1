"""A tensor on a simulated device, and what happens when an operator meets one.

A SimulatedTensor is a wrapper subclass: a torch.Tensor without memory of its own that holds an
ordinary host tensor with the values.  For Python it is on cuda:i, for C++ on meta:i.  That is why
the design is safe: autograd sees different devices and records every copy between them, the
autograd engine runs such tensors in the calling thread, every build of torch has a device guard
for meta, and no C++ kernel can read or write the values by accident.  All work arrives, below
autograd, in dispatch(): it checks placement, runs the CPU's kernel on the host tensors, wraps the
result and keeps the books.
"""

from __future__ import annotations

import torch
from torch import nn

from . import autocast, placement
from .devices import Gpu, gpu_of, running
from .errors import boundaries, in_words_of_cuda, reader_traceback, unsupported

SPECIAL = {}  # operators with a rule of their own (operators.py, rnn.py): operator -> function


def special(*operators):
    """Decorate the function that takes the place of dispatch() for `operators`."""

    def enter(function):
        SPECIAL.update(dict.fromkeys(operators, function))
        return function

    return enter


@boundaries
class SimulatedTensor(torch.Tensor):
    """A tensor on a simulated device; `_value` is the host tensor with its values.

    What torch.empty() leaves in memory must not look like a result, so it is NaN.  A `_blank`
    tensor gets its NaNs when somebody reads it (see host_value), so that a copy from the host,
    which starts with torch.empty(), need not write twice.
    """

    _blank = False

    # Everything is decided at dispatch; a Python __torch_function__ would only cost time.
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, value: torch.Tensor, gpu: Gpu, block=None):
        refuse_layout(value)
        self = torch.Tensor._make_wrapper_subclass(
            cls, value.size(), strides=value.stride(), storage_offset=value.storage_offset(),
            dtype=value.dtype, device=gpu.in_cpp, _extra_dispatch_keys=autocast.KEY,
        )
        self._block = gpu.machine.block(value, gpu) if block is None else block
        self._value, self._gpu = value, gpu
        return self

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        try:
            return dispatch(func, args, kwargs or {})
        except BaseException as error:
            reader_traceback(error)
            raise

    # ------------------------------------------------------------------------------ where it is
    device = property(lambda self: self._gpu.device)
    is_cuda = property(lambda self: True)
    is_cpu = is_meta = property(lambda self: False)

    def get_device(self):
        return self._gpu.index

    # ------------------------------------------------------------- to another device or type
    def to(self, *args, copy=False, **kwargs):
        if args and isinstance(args[0], torch.Tensor):
            args = (args[0].device, args[0].dtype, *args[1:])
        if len(args) > 1 and isinstance(args[-2], bool):
            *args, copy = args
        device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        gpu = self._gpu if device is None else gpu_of(device)
        dtype = dtype or self.dtype
        stays = gpu is self._gpu and dtype == self.dtype
        if stays and not copy and memory_format in (None, torch.preserve_format):
            return self
        return torch.ops.aten._to_copy(
            self, dtype=dtype, device=gpu.in_cpp if gpu else device, non_blocking=non_blocking,
            memory_format=memory_format,
        )

    def cpu(self, memory_format=torch.preserve_format):
        return self.to("cpu", memory_format=memory_format)

    def type(self, dtype=None, non_blocking=False):
        if dtype is None:
            return placement.type_name(self)
        device_type, dtype = parse_type(dtype)
        device = "cpu" if device_type == "cpu" else self.device
        return self.to(device, dtype, non_blocking=non_blocking)

    def numpy(self, *, force=False):
        if not force:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to "
                "copy the tensor to host memory first."
            )
        return self.detach().cpu().numpy()

    def tolist(self):
        return self.detach().cpu().tolist()

    # ------------------------------------------------------------------------ others of its kind
    def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
        return torch.tensor(
            data, dtype=dtype or self.dtype, device=device or self.device,
            requires_grad=requires_grad,
        )

    def new(self, *args, device=None):
        """The constructor of old: x.new(2, 3) is unwritten memory, x.new([2, 3]) is data."""
        return legacy_new(args, self.dtype, device or self.device)

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            return super().__deepcopy__(memo)  # PyTorch's own error
        if id(self) not in memo:
            memo[id(self)] = new = like(self, self.detach().clone())
            new.grad = None if self.grad is None else self.grad.detach().clone()
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        """Pickle as a CUDA tensor does; torch.save asks for the location (see modules.py)."""
        if isinstance(self, nn.Parameter):
            return torch._utils._rebuild_parameter, (self.detach(), self.requires_grad, {})
        running(self._gpu).books.copied("D2H", self._value.nbytes, "save")
        rebuild, (*geometry, _, hooks) = host_value(self).__reduce_ex__(protocol)
        return rebuild, (*geometry, self.requires_grad, hooks)

    # -------------------------------------------------------------------------------- its memory
    def data_ptr(self):
        return self._value.data_ptr()

    def untyped_storage(self):
        return DeviceStorage(self, 1)

    def storage(self):
        return DeviceStorage(self, self.element_size())

    _typed_storage = storage

    def is_shared(self):
        return True  # memory of a CUDA device can be seen by every process

    def share_memory_(self):
        return self  # a no-op, as documented for CUDA tensors

    def record_stream(self, stream):
        """Nothing to do: memory is never reused while a tensor needs it."""

    def apply_(self, function):
        raise TypeError("apply_ is only implemented on CPU tensors")

    def __dlpack__(self, *args, **kwargs):
        raise unsupported("the exchange of a device tensor's memory (DLPack)")

    __dlpack_device__ = __dlpack__

    @property
    def __cuda_array_interface__(self):
        raise unsupported("the exchange of a device tensor's memory (__cuda_array_interface__)")

    # ---------------------------------------------------------------------------------- as text
    def __format__(self, spec):
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def __repr__(self, *, tensor_contents=None):
        running(self._gpu)
        suffixes = [f"device='{self.device}'"]
        if self.numel() == 0 and self.dim() != 1:
            suffixes.append(f"size={tuple(self.shape)}")
        if self.dtype not in (torch.get_default_dtype(), torch.int64, torch.bool):
            suffixes.append(f"dtype={self.dtype}")
        if self.grad_fn is not None:
            suffixes.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
        elif self.requires_grad:
            suffixes.append("requires_grad=True")
        start = "tensor("
        contents = "[]"
        if self.numel():  # PyTorch's own code, on the device: each number it looks at is a wait
            contents = torch._tensor_str._tensor_str(self.detach(), len(start))
        text = torch._tensor_str._add_suffixes(start + contents, suffixes, len(start), False)
        return "Parameter containing:\n" + text if isinstance(self, nn.Parameter) else text


class DeviceStorage:
    """What may be asked of the storage behind a SimulatedTensor: its size and its identity."""

    is_cuda, is_sparse = True, False

    def __init__(self, tensor: SimulatedTensor, itemsize: int):
        self._host, self._itemsize = tensor._value.untyped_storage(), itemsize
        self.device = tensor.device

    def nbytes(self):
        return self._host.nbytes()

    def size(self):
        return self._host.nbytes() // self._itemsize

    __len__ = size

    def element_size(self):
        return self._itemsize

    def data_ptr(self):
        return self._host.data_ptr()

    @property
    def _cdata(self):
        return self._host._cdata

    def _weak_ref(self):
        return self._host._weak_ref()

    def is_shared(self):
        return True

    def __eq__(self, other):
        return isinstance(other, DeviceStorage) and self._cdata == other._cdata

    def __hash__(self):
        return hash(self._cdata)

    def __getattr__(self, name):
        raise unsupported(f"access to the storage of a tensor on a device ({name})")

    def _refuse(self, *args):
        raise unsupported("access to the storage of a tensor on a device")

    __getitem__ = __setitem__ = __iter__ = _refuse


boundaries(DeviceStorage)


def refuse_layout(value: torch.Tensor):
    """Raise for a tensor that no simulated device can hold."""
    if value.is_nested:
        raise unsupported("a nested tensor on a device")
    if value.layout is not torch.strided:
        raise unsupported(f"a {value.layout} tensor on a device")
    if value.is_quantized:
        raise unsupported("a quantized tensor on a device")


def parse_type(kind) -> tuple[str | None, torch.dtype]:
    """The device type and dtype that an argument of Tensor.type() names: a dtype, a type of old
    (torch.FloatTensor, torch.cuda.FloatTensor), or the name of one."""
    if isinstance(kind, torch.dtype):
        return None, kind
    if isinstance(kind, str):
        name, kind = kind, torch
        for part in name.split(".")[1:]:
            kind = getattr(kind, part, None)
        if not name.startswith("torch.") or not hasattr(kind, "is_cuda"):
            raise ValueError(f"invalid type: '{name}'")
    return "cuda" if kind.is_cuda else "cpu", kind.dtype


def legacy_new(args, dtype, device):
    """What the constructors of old make of their arguments: sizes, a tensor, or a sequence."""
    if len(args) == 1 and isinstance(args[0], torch.Tensor):
        return args[0].to(device).to(dtype).detach()
    if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
        return torch.tensor(args[0], dtype=dtype, device=device)
    return torch.empty(*args or (0,), dtype=dtype, device=device)


def like(old, new):
    """`new`, made a parameter if `old` is one."""
    if isinstance(old, nn.Parameter):
        return nn.Parameter(new, old.requires_grad)
    return new.requires_grad_(old.requires_grad)


_set_data = torch.Tensor.data.__set__


def set_value(tensor: SimulatedTensor, new: SimulatedTensor):
    """Give `tensor` the sizes, values and device of `new`, in place."""
    _set_data(tensor, new)
    tensor._value, tensor._gpu, tensor._block = host_value(new), new._gpu, new._block
    tensor._blank = False


# ------------------------------------------------------------------------------------ dispatch
_traits = {}  # by the operator's id: operators live as long as the process, and hash slowly


def traits_of(func) -> placement.Traits:
    traits = _traits.get(id(func))
    if traits is None:
        traits = _traits[id(func)] = placement.Traits(func)
        traits.special = SPECIAL.get(func)
    return traits


def where(tensor: torch.Tensor) -> Gpu | None:
    """The simulated device that holds `tensor`; None for the host."""
    return tensor._gpu if isinstance(tensor, SimulatedTensor) else None


def host_value(tensor: torch.Tensor) -> torch.Tensor:
    """The host tensor with the values of `tensor`, which is that itself for a host tensor."""
    if not isinstance(tensor, SimulatedTensor):
        return tensor
    if tensor._blank:
        tensor._blank = False
        tensor._value.fill_(float("nan"))
    return tensor._value


def unwrap(argument, places: list):
    """The host tensors in an operator's argument; their devices are appended to `places`."""
    if isinstance(argument, SimulatedTensor):
        places.append(argument._gpu)
        return host_value(argument) if argument._blank else argument._value
    if isinstance(argument, torch.Tensor):
        places.append(None)
        return argument
    if isinstance(argument, (list, tuple)):
        return [unwrap(item, places) for item in argument]
    return argument


def wrap(result, gpu: Gpu, block=None):
    """Put the host tensors in an operator's result on a device."""
    if isinstance(result, torch.Tensor):
        if torch.is_inference_mode_enabled() and not result.is_inference():
            # A view of an ordinary tensor is an ordinary tensor; its wrapper has to be one, too.
            with torch.inference_mode(False):
                return SimulatedTensor(result, gpu, block)
        return SimulatedTensor(result, gpu, block)
    if isinstance(result, (list, tuple)):
        return [wrap(item, gpu, block) for item in result]
    return result


def dispatch(func, args, kwargs):
    """Run one operator: the device's rules first, then the CPU's kernel."""
    traits = traits_of(func)
    if traits.special is not None:
        return traits.special(func, *args, **kwargs)
    if traits.composite:
        # Autograd takes these apart, but it is skipped in inference mode and by its tensors.
        with autocast.reachable():
            return decomposed(func, args, kwargs)

    places = []
    values = [unwrap(argument, places) for argument in args]
    options = {name: unwrap(argument, places) for name, argument in kwargs.items()}
    gpu = next(filter(None, places), None)
    if traits.always_checked or any(place is not gpu for place in places):
        placement.check(traits, args, kwargs)
    if options.get("device") is not None:
        gpu = gpu_of(options["device"])
        options["device"] = "cpu" if gpu else options["device"]
    if gpu is None:
        return func(*values, **options)
    return finish(func, traits, args, kwargs, run_kernel(func, gpu, values, options), gpu)


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def decomposed(func, args, kwargs):
    """Run a composite operator as the operators that it consists of in C++."""
    try:
        return func._op_dk(_COMPOSITE, *args, **kwargs)
    except RuntimeError as error:
        if "meta" not in str(error) or isinstance(error, NotImplementedError):
            raise
        raise in_words_of_cuda(error) from None


def run_kernel(func, gpu: Gpu, values, options):
    """The CPU's result of an operator that draws its random numbers, if any, on `gpu`."""
    machine = running(gpu)
    generator = options.get("generator")
    if generator is not None:
        if generator._cdata not in machine.generators:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    elif traits_of(func).random:
        with machine.random_numbers(gpu):
            return func(*values, **options)
    return func(*values, **options)


def finish(func, traits, args, kwargs, out, gpu: Gpu):
    """Enter one operator in the books and put its result on the device."""
    books = gpu.machine.books
    if traits.view:
        return wrap(out, gpu, args[0]._block)
    if traits.blank:
        result = wrap(out, gpu)
        result._blank = out.is_floating_point()
        return result
    if traits.computes:
        books.computed(gpu.name)
    if traits.indexes:
        _enter_indices(books, args[1])
    elif traits.waits:
        books.waited(traits.name)
    if traits.returns == [None]:
        return _wrap_lists(args, out, gpu) if traits.many else wrap(out, gpu)

    def argument(position):
        return args[position] if position < len(args) else kwargs[traits.arguments[position]]

    if traits.reshapes:  # an operator like t_(), or out=: the wrapper's geometry follows
        for written in map(argument, traits.written):
            if isinstance(written, SimulatedTensor):
                set_value(written, SimulatedTensor(written._value, gpu))
    outs = out if len(traits.returns) > 1 else [out]
    results = tuple(
        argument(source) if source is not None
        else value if (traits.name, position) in placement.HOST_RESULTS
        else wrap(value, gpu)
        for position, (source, value) in enumerate(zip(traits.returns, outs))
    )
    return results[0] if len(results) == 1 else results or None


def _enter_indices(books, indices):
    """A mask makes the host wait for the size of the result; indices on the host are copied."""
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8) and where(index):
            books.waited("index")
        if index is not None and where(index) is None:
            books.copied("H2D", index.nbytes, "H2D")


def _wrap_lists(args, out, gpu):
    """Element k of the result stays where element k of the first list is."""
    if not isinstance(out, (list, tuple)):
        return wrap(out, gpu)
    first = next(argument for argument in args if isinstance(argument, (list, tuple)))
    return [wrap(value, where(t)) if where(t) else value for value, t in zip(out, first)]
