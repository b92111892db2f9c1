"""The bookkeeping of `watch_streams` (streams.py): what is sure to be done before what, and who uses which memory."""

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .dispatch import Operators
from .prefetch import tensors_in

HOST = "the host"


class Order:
    """One order that was put into a stream: its `name`, such as "mul", and the name of its `stream`."""

    def __init__(self, name, stream, clock):
        self.name, self.stream, self._clock = name, stream, clock

    def follows(self, other):
        """Whether `other` is sure to be done when this order begins."""
        return self is not other and self._clock.get(other.stream, 0) >= other._clock[other.stream]


class Streams:
    """What `watch_streams` saw: `orders`, a list of `Order` as they were put; `waits`, the names of what the host waited for;
    and `races`, a list of sentences. Printing gives the queue of each stream, the host's waits, and the races."""

    def __init__(self):
        self.orders, self.waits, self.races = [], [], []
        self._queues = {}  # what is printed: for each stream its orders and waits
        self._host = {}  # what the host has waited for

    def done(self, order):
        """Whether the host has waited for `order`, by itself or for something after it."""
        return self._host.get(order.stream, 0) >= order._clock[order.stream]

    def __str__(self):
        if not self._queues:
            return "nothing was put into a stream"
        lines = [f"{stream}: {', '.join(_counted(queue))}" for stream, queue in self._queues.items()]
        if self.waits:
            lines.append(f"the host waits for: {', '.join(_counted(self.waits))}")
        return "\n".join(lines + [f"races: {len(self.races) or 'none'}"] + [f"- {race}" for race in self.races])

    __repr__ = __str__


def _counted(names):
    """The names one after another, with what repeats itself said once: "mul, [copy, add] x 3"."""
    k = 0
    while k < len(names):
        best = 1, 1  # the length of what repeats itself from here on, and how often it does
        for length in range(1, 9):
            times = 1
            while names[k:k + length] == names[k + times * length:k + (times + 1) * length]:
                times += 1
            best = max(best, (length, times), key=lambda found: found[0] * found[1] if found[1] > 1 else 1)
        length, times = best
        block = ", ".join(names[k:k + length])
        yield block if times == 1 else f"{block} x {times}" if length == 1 else f"[{block}] x {times}"
        k += length * times


class Memory:
    """One storage: who made it, the last order that wrote it, and since then the last that read it in each stream."""

    def __init__(self, storage, maker, made_in):
        self.maker, self.made_in, self.storage = maker, made_in, StorageWeakRef(storage)
        self.written, self.read, self.used, self.recorded = None, {}, {}, set()


class Watch(Operators):
    def __init__(self, seen, names):
        super().__init__()
        self.seen, self.names = seen, {stream: name for name, stream in names.items()}
        self.clocks, self.memories, self.events = {}, {}, {}

    # ---------------------------------------------------------------------------------------------- who waits for whom
    def name(self, stream):
        if stream not in self.names:
            default = stream == torch.cuda.default_stream(stream.device)
            number = 1 + sum(name.startswith("stream ") for name in self.names.values())
            name = "default stream" if default else f"stream {number}"
            self.names[stream] = name + (f" of {stream.device}" if stream.device.index else "")
        return self.names[stream]

    def clock(self, name):
        """What is sure to be done when the next order of a stream begins: {stream: number of its orders}."""
        return _later(self.clocks.get(name, {}), self.seen._host)

    def record(self, event, stream):
        name = self.name(stream or torch.cuda.current_stream())
        self.events[id(event)] = event, name, self.clock(name)  # the event is kept, so that its id stays its own

    def wait(self, event, stream):
        name = self.name(stream or torch.cuda.current_stream())
        _, other, clock = self.events.get(id(event), (event, name, {}))
        self.clocks[name] = _later(self.clock(name), clock)
        if other != name:
            self.seen._queues.setdefault(name, []).append(f"(waits for {other})")

    def host_waits(self, what, clock):
        self.seen.waits.append(what)
        self.seen._host = _later(self.seen._host, clock)

    def host_waits_for_device(self, device):
        clocks = [self.clock(name) for stream, name in self.names.items() if stream.device == device]
        self.host_waits(f"all of {device}", _later(*clocks))

    # ------------------------------------------------------------------------------------------------------- operators
    def operator(self, func, args, kwargs):
        out = func(*args, **kwargs)
        name = {"aten::_local_scalar_dense": "item"}.get(func._schema.name, func._schema.name.removeprefix("aten::"))
        values = [kwargs.get(a.name) if k >= len(args) else args[k] for k, a in enumerate(func._schema.arguments)]
        if name in ("_to_copy", "copy_"):
            source, target = (args[0], out) if name == "_to_copy" else (args[1], args[0])
            if source.device != target.device and (source.is_cuda or target.is_cuda):
                self.copied(source, target, name == "_to_copy", values[2] if name == "copy_" else kwargs.get("non_blocking", False))
                return out
        aliases = [a.alias_info for a in func._schema.arguments]
        blank = name.startswith(("empty", "new_empty"))
        only_shape = name.startswith("new_") or name.endswith("_like")  # of the tensor that is given
        reads = [] if only_shape else _with_bytes(v for v, alias in zip(values, aliases) if alias is None)
        writes = _with_bytes(v for v, alias in zip(values, aliases) if alias is not None and alias.is_write)
        given = {_address(tensor) for tensor in _with_bytes(values)}
        results = [tensor for tensor in _with_bytes([out]) if _address(tensor) not in given]
        if name in ("is_pinned", "record_stream"):
            return out  # no order at all; nor is a view: it neither reads nor writes
        gpu = next((t.device for t in (*writes, *results, *reads) if t.is_cuda), None)
        if gpu is None:
            self.on_host(name, reads, writes)
            return out
        stream = self.name(torch.cuda.current_stream(gpu))
        if blank:
            self.make(name, stream, results, self.clock(stream))
        elif reads or writes or results:
            self.put(name, stream, [t for t in reads if t.is_cuda], writes, results)
        if torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags:
            self.host_waits(stream, self.clock(stream))
        return out

    def copied(self, source, target, new, non_blocking):
        stream = torch.cuda.current_stream(source.device if source.is_cuda else target.device)
        stream, place = self.name(stream), target.device if target.is_cuda else "the host"
        between = source.is_cuda and target.is_cuda  # then the streams of both GPUs wait for the copy
        if between:
            other = self.name(torch.cuda.current_stream(target.device))
            self.clocks[stream] = _later(self.clock(stream), self.clock(other))
        made = [target] if new and target.is_cuda else []  # host memory is not given away while a copy needs it
        staged = non_blocking and not source.is_cuda and not source.is_pinned()  # read when the call returns
        order = self.put(f"copy to {place}", stream, [] if staged else [source], [] if made else [target], made)
        if between:
            self.clocks[other] = _later(self.clock(other), order._clock)
        elif not non_blocking or source.is_cuda and not target.is_pinned():
            self.host_waits(stream, order._clock)

    def put(self, name, stream, reads, writes, results):
        clock = self.clock(stream)
        self.make(name, stream, results, clock)
        order = Order(name, stream, clock | {stream: self.clocks.get(stream, {}).get(stream, 0) + 1})
        self.clocks[stream] = order._clock
        self.seen.orders.append(order)
        self.seen._queues.setdefault(stream, []).append(name)
        for tensor in reads:
            memory = self.memory(tensor)
            self.check(order, "reads", memory, [memory.written])
            memory.read[stream] = memory.used[stream] = order
        for tensor in (*writes, *results):
            memory = self.memory(tensor)
            self.check(order, "writes", memory, [memory.written, *memory.read.values()])
            memory.written, memory.read = order, {}
            memory.used[stream] = order
        return order

    def on_host(self, name, reads, writes):
        """An operator on the host: it is done at once, after nothing but what the host has waited for."""
        order = Order(name, HOST, {HOST: 1} | self.seen._host)
        for tensors, does in ((reads, "reads"), (writes, "writes")):
            for memory in filter(None, map(self.known, tensors)):
                self.check(order, does, memory, [memory.written, *(memory.read.values() if does == "writes" else ())])

    # ---------------------------------------------------------------------------------------------------------- memory
    def known(self, tensor):
        memory = self.memories.get(_address(tensor))
        return None if memory is None or memory.storage.expired() else memory

    def memory(self, tensor, maker="a tensor made before", made_in=None):
        memory = self.known(tensor)
        if memory is None:
            memory = self.memories[_address(tensor)] = Memory(tensor.untyped_storage(), maker, made_in)
        return memory

    def make(self, name, stream, results, clock):
        """New tensors: the allocator may give them any memory that was made in this stream and is free again."""
        new = [t for t in results if self.known(t) is None]
        for key, memory in list(self.memories.items()) if new else ():
            if memory.made_in == stream and memory.storage.expired():
                for user, order in memory.used.items():
                    if user not in memory.recorded and clock.get(user, 0) < order._clock[user]:
                        self.race(f"the memory of '{memory.maker}' ({stream}) may go to '{name}' while '{order.name}' ({user}) "
                                  "still uses it")
                del self.memories[key]
        for tensor in new:
            self.memory(tensor, name, stream)

    def check(self, order, does, memory, earlier):
        for other in filter(None, earlier):
            if other.stream != order.stream and not order.follows(other):
                did = "written" if other is memory.written else "read"
                self.race(f"'{order.name}' ({order.stream}) {does} what '{other.name}' ({other.stream}) may not have {did} yet")

    def race(self, sentence):
        if sentence not in self.seen.races:
            self.seen.races.append(sentence)


def _address(tensor):
    return tensor.untyped_storage().data_ptr()


def _with_bytes(values):
    return [tensor for tensor in tensors_in(list(values)) if tensor.layout is torch.strided and tensor.numel()]


def _later(*clocks):
    return {key: max(c.get(key, 0) for c in clocks) for key in set().union(*clocks)}
