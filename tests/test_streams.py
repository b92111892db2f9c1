"""Which orders went into which stream, and which of them are not in order. Every test runs on simulated GPUs."""

import dataclasses

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import d2l_gpu as d2l
from d2l_gpu import races


@pytest.fixture(autouse=True)
def gpu():
    with d2l.simulate_gpus(2):
        yield torch.device("cuda:0")


@pytest.fixture
def main(gpu):
    return torch.cuda.current_stream(gpu)


@pytest.fixture
def side(gpu):
    return torch.cuda.Stream(gpu)


def lines(seen):
    return str(seen).splitlines()


def test_the_queues_are_printed_without_views_and_without_empty_memory(gpu, side):
    with d2l.watch_streams(side=side) as seen:
        with torch.cuda.stream(side):
            a = torch.randn(4, 4, device=gpu)
            b = (a @ a).t()[1:]
        torch.empty(3, device=gpu)
        torch.ones(2, device=gpu), torch.ones(2, device=gpu)
    assert b._is_view() and lines(seen) == ["side: randn, mm", "default stream: ones x 2", "races: none"]


@pytest.mark.parametrize("names, said", [
    ("", ""), ("a", "a"), ("aaa", "a x 3"), ("abab", "[a, b] x 2"), ("caabaabd", "c, [a, a, b] x 2, d"), ("aabb", "a x 2, b x 2"),
    ("abcab", "a, b, c, a, b"),
])
def test_what_repeats_itself_is_said_once(names, said):
    assert ", ".join(races._counted(list(names))) == said


def test_streams_without_a_name_are_numbered_and_other_cards_named():
    with d2l.watch_streams() as seen:
        for device in ("cuda:0", "cuda:1"):
            with torch.cuda.stream(torch.cuda.Stream(device)):
                torch.ones(2, device=device)
        torch.ones(2, device="cuda:1")
    assert [order.stream for order in seen.orders] == ["stream 1", "stream 2 of cuda:1", "default stream of cuda:1"]


def crossing(side, main, there=True, back=True):
    x = torch.ones(3, device="cuda:0") * 2
    if there:
        side.wait_stream(main)
    with torch.cuda.stream(side):
        y = x.sum()
    if back:
        main.wait_stream(side)
    return y + 1


@pytest.mark.parametrize("there, back, races", [
    (True, True, []),
    (False, True, ["'sum' (side) reads what 'mul' (default stream) may not have written yet"]),
    (True, False, ["'add' (default stream) reads what 'sum' (side) may not have written yet"]),
])
def test_a_missing_wait_is_a_race(side, main, there, back, races):
    with d2l.watch_streams(side=side) as seen:
        assert crossing(side, main, there, back).item() == 7
    assert seen.races == races


@pytest.mark.parametrize("wait", [
    lambda side, main: main.wait_event(side.record_event()), lambda side, main: side.record_event().wait(main),
    lambda side, main: side.record_event().synchronize(), lambda side, main: side.record_event().query(),
    lambda side, main: side.synchronize(), lambda side, main: side.query(), lambda side, main: torch.cuda.synchronize(),
    lambda side, main: d2l.synchronize(),
], ids=["wait_event", "wait", "event.synchronize", "event.query", "stream.synchronize", "stream.query", "synchronize", "d2l"])
def test_every_kind_of_wait_counts(side, main, wait):
    with d2l.watch_streams(side=side) as seen:
        with torch.cuda.stream(side):
            x = torch.ones(3, device="cuda")
        wait(side, main)
        x + 1
    assert seen.races == []


def test_a_wait_that_does_not_cover_it_does_not_count(side, main):
    with d2l.watch_streams(side=side) as seen:
        early = side.record_event()
        with torch.cuda.stream(side):
            x = torch.ones(3, device="cuda")
        main.wait_event(early)  # recorded before
        main.wait_event(torch.cuda.Event())  # never recorded
        torch.cuda.synchronize(1)  # another card
        x + 1
    assert len(seen.races) == 1


def test_waits_add_up_over_a_third_stream(side, main):
    third = torch.cuda.Stream()
    with d2l.watch_streams() as seen:
        x = torch.ones(3, device="cuda")
        side.wait_stream(main)
        third.wait_stream(side)
        with torch.cuda.stream(third):
            x + 1
    assert seen.races == []


def test_writing_over_what_another_stream_still_reads_or_writes_is_a_race(side, main):
    x, y = torch.ones(3, device="cuda"), torch.ones(3, device="cuda")
    with d2l.watch_streams(side=side) as seen:
        with torch.cuda.stream(side):
            x.sum()
            y.fill_(2)
        x.add_(1)
        y[:1].add_(1)
    assert seen.races == ["'add_' (default stream) writes what 'sum' (side) may not have read yet",
                          "'add_' (default stream) writes what 'fill_' (side) may not have written yet"]


def test_an_order_that_writes_one_tensor_in_two_places_has_no_race_with_itself():
    x = torch.ones(3, device="cuda")
    with d2l.watch_streams() as seen:
        torch._foreach_add_([x[:1], x[1:]], 1)
    assert seen.races == [] and seen.orders


def test_tensors_without_elements_share_no_memory(side):
    with d2l.watch_streams() as seen:
        x = torch.ones(0, device="cuda")
        with torch.cuda.stream(side):
            torch.ones(0, device="cuda").add_(1)
        x.add_(1)
    assert seen.races == []


def test_two_streams_may_read_the_same_tensor(side, main):
    x = torch.ones(3, device="cuda")
    with d2l.watch_streams() as seen:
        x.sum()
        with torch.cuda.stream(side):
            x.sum()
    assert seen.races == []


def test_a_tensor_of_the_shape_of_another_does_not_read_it(side):
    with d2l.watch_streams(side=side) as seen:
        x = torch.ones(3, device="cuda")
        with torch.cuda.stream(side):
            torch.zeros_like(x), x.new_ones(3), x.new_empty(3)
    assert lines(seen) == ["default stream: ones", "side: zeros_like, new_ones", "races: none"]


def reuse(side, main, keep=False, record=False, wait_back=False):
    with torch.cuda.stream(side):
        x = torch.ones(3, device="cuda")
    main.wait_stream(side)
    y = x * 2
    if record:
        x.record_stream(main)
    if wait_back:
        side.wait_stream(main)
    if not keep:
        del x
    with torch.cuda.stream(side):
        torch.zeros(3, device="cuda")
    return y


@pytest.mark.parametrize("way", [{}, {"record": True}, {"wait_back": True}, {"keep": True}])
def test_memory_that_another_stream_still_uses_may_be_given_away(side, main, way):
    with d2l.watch_streams(side=side) as seen:
        reuse(side, main, **way)
    want = ["the memory of 'ones' (side) may go to 'zeros' while 'mul' (default stream) still uses it"]
    assert seen.races == ([] if way else want)


def test_record_stream_is_no_order():
    """PyTorch calls it an operator that writes; simulated tensors do not pass it on, real ones do."""
    class Operator:
        _schema, tags = torch.ops.aten.record_stream.default._schema, ()

        def __call__(self, tensor, stream):
            return None
    x = torch.ones(3, device="cuda")
    with d2l.watch_streams() as seen:
        races.Watch(seen, {}).__torch_dispatch__(Operator(), (), (x, torch.cuda.current_stream()))
    assert seen.orders == []


def test_memory_that_a_view_still_needs_is_not_free(side, main):
    with d2l.watch_streams() as seen:
        with torch.cuda.stream(side):
            view = torch.ones(3, device="cuda")[1:]
        main.wait_stream(side)
        view + 1
        with torch.cuda.stream(side):
            torch.zeros(3, device="cuda")
    assert seen.races == []


def test_a_new_tensor_at_the_address_of_an_old_one_is_another_tensor(side, main):
    with d2l.watch_streams() as seen:
        for k in range(20):
            with torch.cuda.stream((side, main)[k % 2]):
                torch.ones(1000, device="cuda")
    assert seen.races == []


def test_empty_memory_may_also_be_given_away(side, main):
    with d2l.watch_streams() as seen:
        with torch.cuda.stream(side):
            x = torch.ones(3, device="cuda")
        main.wait_stream(side)
        x + 1
        del x
        with torch.cuda.stream(side):
            torch.empty(3, device="cuda")
    assert len(seen.races) == 1 and "may go to 'empty'" in seen.races[0]


@pytest.mark.parametrize("pinned, non_blocking, sync, races", [(True, True, False, 1), (True, True, True, 0), (True, False, False, 0),
                                                               (False, True, False, 0)])
def test_writing_a_pinned_buffer_while_it_is_copied_is_a_race(main, pinned, non_blocking, sync, races):
    buffer = torch.ones(3)
    buffer = buffer.pin_memory() if pinned else buffer
    with d2l.watch_streams() as seen:
        buffer.to("cuda", non_blocking=non_blocking)
        buffer.sum()  # reading is allowed
        if sync:
            main.synchronize()
        buffer.fill_(2)
    assert len(seen.races) == races
    assert not races or seen.races == ["'fill_' (the host) writes what 'copy to cuda:0' (default stream) may not have read yet"]


@pytest.mark.parametrize("non_blocking, wait, races", [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_reading_a_copy_from_the_card_too_early_is_a_race(main, non_blocking, wait, races):
    x = torch.ones(3, device="cuda")
    with d2l.watch_streams() as seen:
        host = x.to("cpu", non_blocking=non_blocking)
        if wait:
            main.record_event().synchronize()
        host.is_pinned(), host.mean()
    assert len(seen.races) == races
    assert not races or seen.races[0] == "'mean' (the host) reads what 'copy to the host' (default stream) may not have written yet"


def test_a_copy_into_ordinary_memory_is_waited_for():
    x, host = torch.ones(3, device="cuda"), torch.zeros(3)
    with d2l.watch_streams() as seen:
        host.copy_(x, non_blocking=True)
        host.sum()
        host.pin_memory().copy_(x, non_blocking=True).sum()
    assert len(seen.races) == 1


def test_a_value_on_the_host_waits_for_its_stream(side):
    for look in (lambda x: x.sum().item(), lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: x.cpu()):
        with d2l.watch_streams(side=side) as seen:
            with torch.cuda.stream(side):
                x = torch.ones(3, device="cuda")
                look(x)
            x + 1
        assert seen.races == []


def test_a_copy_between_two_cards_puts_the_streams_of_both_in_order():
    with d2l.watch_streams() as seen:
        x = torch.ones(3, device="cuda:0")
        y = x.to("cuda:1")
        y.add_(1)
        x.add_(1)
        y.copy_(x)  # waits for the addition on the other card
    assert seen.races == [] and seen.orders[1].name == "copy to cuda:1"


def test_pinned_memory_is_not_given_away_while_a_copy_needs_it(side, main):
    with d2l.watch_streams() as seen:
        with torch.cuda.stream(side):
            x = torch.ones(3, device="cuda")
            host = x.to("cpu", non_blocking=True)
        main.wait_stream(side)
        host.to("cuda", non_blocking=True)
        del host
        with torch.cuda.stream(side):
            x.to("cpu", non_blocking=True)
    assert seen.races == []


def test_inside_inference_mode_the_parts_of_an_operator_are_seen():
    with torch.inference_mode(), d2l.watch_streams() as seen:
        torch.nn.functional.linear(torch.ones(2, 3, device="cuda"), torch.ones(4, 3, device="cuda"))
    assert lines(seen)[0] == "default stream: ones x 2, mm"


def test_a_training_step_on_one_stream_has_no_races():
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(3)).to("cuda")
    net(torch.ones(2, 1, 5, 5, device="cuda"))
    optimizer = torch.optim.Adam(net.parameters())
    with d2l.watch_streams() as seen:
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.rand(2, 1, 5, 5).to("cuda")).sum().backward()
            optimizer.step()
    assert seen.races == [] and len(seen.orders) > 20


def test_follows_says_what_is_sure_to_be_done(side, main):
    with d2l.watch_streams(side=side) as seen:
        crossing(side, main, back=False)
    ones, mul, total, add = seen.orders
    assert mul.follows(ones) and total.follows(mul) and not add.follows(total) and not ones.follows(mul) and not ones.follows(ones)


def test_the_host_s_waits_are_listed_and_what_is_done_is_known(side, main):
    with d2l.watch_streams(side=side) as seen:
        x = torch.ones(3, device="cuda")
        first = main.record_event()
        y = x + 1
        first.synchronize()
        assert seen.done(seen.orders[0]) and not seen.done(seen.orders[1])
        torch.cuda.Event().synchronize()  # never recorded: nothing to wait for
        y.sum().item()
        assert seen.done(seen.orders[1])
        side.synchronize()
        torch.cuda.synchronize()
    assert lines(seen)[1] == "the host waits for: default stream x 2, side, all of cuda:0"


def test_watches_can_be_nested_and_leave_nothing_behind(side):
    before = vars(torch.cuda.Event).copy(), vars(torch.cuda.Stream).copy(), torch.cuda.synchronize, "record_stream" in vars(torch.Tensor)
    with d2l.watch_streams() as outer:
        with pytest.raises(ZeroDivisionError), d2l.watch_streams() as inner:
            with torch.cuda.stream(side):
                x = torch.ones(3, device="cuda")
            x + 1
            1 / 0
    assert len(inner.races) == len(outer.races) == 1 and "record_stream" not in vars(torch.Tensor)
    assert before == (vars(torch.cuda.Event).copy(), vars(torch.cuda.Stream).copy(), torch.cuda.synchronize, "record_stream" in vars(torch.Tensor))


def test_what_stays_on_the_cpu_is_not_listed():
    with d2l.watch_streams() as seen:
        (torch.ones(3) + 1).sum().item()
        torch.ones(3).to("cpu", torch.float64)
    assert str(seen) == "nothing was put into a stream"


def test_a_change_of_dtype_on_the_card_is_no_copy_and_nobody_waits_for_it(main):
    with d2l.watch_streams() as seen:
        torch.ones(3, device="cuda").double()
        main.wait_stream(main)  # a stream waits for itself in any case
    assert lines(seen) == ["default stream: ones, _to_copy", "races: none"]


# ------------------------------------------------------------------------------------------------------ Prefetcher
def batches(n=4, pin=True):
    pairs = [(torch.full((3,), float(k)), torch.tensor([k])) for k in range(n)]
    return [tuple(t.pin_memory() for t in pair) for pair in pairs] if pin else pairs


def work(loader):
    return [(X * 2).sum() + y for X, y in loader]


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1", "cpu"])
@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_prefetcher_gives_the_same_batches_as_often_as_asked(device, n):
    prefetcher = d2l.Prefetcher(batches(n), device)
    assert len(prefetcher) == n
    for _ in range(2):
        got = list(prefetcher)
        assert all(t.device == torch.device(device) for pair in got for t in pair)
        assert [(X.tolist(), y.item()) for X, y in got] == [([k] * 3, k) for k in range(n)]


@pytest.mark.parametrize("pin", [True, False])
def test_a_prefetcher_copies_in_a_stream_of_its_own_one_batch_ahead_and_without_a_race(pin):
    with d2l.watch_streams() as seen, d2l.count_transfers() as used:
        work(d2l.Prefetcher(batches(pin=pin), "cuda"))
    assert seen.races == [] and {o.stream for o in seen.orders if "copy" in o.name} == {"stream 1"}
    steps, copies = ([o for o in seen.orders if name in o.name] for name in ("mul", "copy"))
    for k, step in enumerate(steps):
        assert step.follows(copies[2 * k + 1])
        if k < 3:
            assert seen.orders.index(copies[2 * k + 2]) < seen.orders.index(step)
            assert step.follows(copies[2 * k + 2]) is not pin  # the host has waited for a copy from ordinary memory
    assert not used.waits if pin else set(used.waits) == {"H2D"}


def test_a_prefetcher_keeps_its_stream_from_pass_to_pass_so_that_its_memory_is_used_again():
    prefetcher = d2l.Prefetcher(batches(), "cuda")
    with d2l.watch_streams() as seen:
        for _ in range(3):
            work(prefetcher)
    assert seen.races == [] and {o.stream for o in seen.orders} == {"stream 1", "default stream"}


def test_without_record_stream_a_prefetcher_would_race(monkeypatch):
    def only_wait(self, batch, copied):
        torch.cuda.current_stream().wait_event(copied)
        return batch
    monkeypatch.setattr(d2l.Prefetcher, "_hand_over", only_wait)
    with d2l.watch_streams() as seen:
        work(d2l.Prefetcher(batches(6), "cuda"))
    assert seen.races and "may go to 'copy to cuda:0'" in seen.races[0]


def test_a_prefetcher_takes_the_batches_that_to_takes():
    @dataclasses.dataclass
    class Batch:
        X: torch.Tensor
        name: str

    data = [{"X": torch.ones(2).pin_memory(), "more": [Batch(torch.ones(3).pin_memory(), "a")]} for _ in range(5)]
    with d2l.watch_streams() as seen:
        for batch in d2l.Prefetcher(data, "cuda"):
            batch["X"].sum() + batch["more"][0].X.sum()
    assert seen.races == [] and batch["more"][0].name == "a"


def test_a_prefetcher_takes_what_stays_on_the_cpu_along_and_refuses_tensors_that_it_cannot_see():
    class Hidden:
        def __init__(self, X):
            self.X = X

        def to(self, device):
            return Hidden(self.X.to(device))

    with pytest.raises(TypeError, match="a batch of type Hidden holds no tensor"):
        list(d2l.Prefetcher([Hidden(torch.ones(2))], "cuda"))
    assert [b.X.tolist() for b in d2l.Prefetcher([Hidden(torch.ones(2))], "cpu")] == [[1, 1]]
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])  # its batch_sizes stay on the CPU
    assert [b.data.device.type for b in d2l.Prefetcher([packed], "cuda")] == ["cuda"]


def test_a_prefetcher_around_a_data_loader():
    loader = DataLoader(TensorDataset(torch.arange(10.0), torch.arange(10)), batch_size=4, pin_memory=True)
    assert [y.tolist() for _, y in d2l.Prefetcher(loader, "cuda")] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_an_error_of_the_loader_passes_through_and_the_current_stream_stays(main):
    def broken():
        yield from batches(2)
        raise OSError("disk")
    with pytest.raises(OSError, match="disk"):
        for _ in d2l.Prefetcher(broken(), "cuda"):
            assert torch.cuda.current_stream() is main
    assert torch.cuda.current_stream() is main


def test_the_batches_belong_to_the_stream_that_takes_them(side):
    with d2l.watch_streams(taker=side) as seen, torch.cuda.stream(side):
        work(d2l.Prefetcher(batches(), "cuda"))
    assert seen.races == []
