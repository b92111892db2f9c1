"""What is put into which stream, and what is left to chance there: `watch_streams`. The bookkeeping is in races.py."""

import contextlib
from functools import wraps

import torch

from .races import Streams, Watch


@contextlib.contextmanager
def watch_streams(**names):
    """Watch what a `with` block puts into which stream of a GPU, real or simulated, and what is not in order there.

        with d2l.watch_streams(side=side) as seen:      # a stream may be given a name
            ...
        seen

    Gives a `Streams`. A *race* is a pair of accesses to one piece of memory, at least one of them writing, that are in
    different streams (or one of them on the host) and that no wait puts in order; or memory that may be given to another
    tensor while a stream other than the one that made it still uses it. That a race went well in this run proves nothing.

    It sees PyTorch's operators in the calling thread, `record`, `wait`, `synchronize` and `query` of torch.cuda's events and
    streams, `torch.cuda.synchronize` and `record_stream`. It does not see the waits that backward() inserts between streams,
    torch.Stream and torch.Event, reading a host tensor through NumPy or tolist(), nor kernels that are not PyTorch's. Memory is
    watched by storage: two streams that use different parts of one tensor count as a race.

    PyTorch's own detector, for real GPUs, is TORCH_CUDA_SANITIZER=1 (torch.cuda._sanitizer). The method is that of vector
    clocks: Mattern, "Virtual time and global states of distributed systems", 1989.
    """
    seen = Streams()
    watch = Watch(seen, names)
    with _patched(watch), watch:
        yield seen


@contextlib.contextmanager
def _patched(watch):
    """Let `watch` see the calls on streams and events, which are no operators."""
    undo = contextlib.ExitStack()

    def after(owner, name, tell):
        original = getattr(owner, name)

        @wraps(original)
        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            tell(result, *args, **kwargs)
            return result

        undo.callback(setattr if name in vars(owner) else lambda owner, name, _: delattr(owner, name), owner, name, original)
        setattr(owner, name, call)

    def host_waits_for_event(result, event):
        if result is not False and id(event) in watch.events:  # not if query() says "not yet"
            watch.host_waits(*watch.events[id(event)][1:])

    def host_waits_for_stream(result, stream):
        if result is not False:
            watch.host_waits(watch.name(stream), watch.clock(watch.name(stream)))

    def host_waits_for_device(result, device=None):
        index = torch.cuda._utils._get_device_index(device, optional=True)
        watch.host_waits_for_device(torch.device("cuda", index))

    def recorded(result, tensor, stream):
        watch.memory(tensor).recorded.add(watch.name(stream))

    with undo:
        event, stream = torch.cuda.Event, torch.cuda.Stream
        after(event, "record", lambda result, event, stream=None: watch.record(event, stream))
        after(event, "wait", lambda result, event, stream=None: watch.wait(event, stream))
        for name in ("synchronize", "query"):
            after(event, name, host_waits_for_event)
            after(stream, name, host_waits_for_stream)
        after(torch.cuda, "synchronize", host_waits_for_device)
        for kind in (torch.Tensor, *torch.Tensor.__subclasses__()):  # simulated tensors have a record_stream of their own
            if kind is torch.Tensor or "record_stream" in vars(kind):
                after(kind, "record_stream", recorded)
        yield
