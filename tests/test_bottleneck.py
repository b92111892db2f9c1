"""find_bottleneck, with a clock of our own: what was planted as slow must be named."""

import multiprocessing

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import d2l_gpu as d2l
from d2l_gpu import bottleneck


class Clock:
    """A clock that only moves when told."""

    now = 100.0

    def __call__(self):
        return self.now


class Slow(TensorDataset):
    """A data set whose items take `seconds` each."""

    def __init__(self, clock, seconds, n=32):
        super().__init__(torch.arange(float(n)))
        self.clock, self.seconds = clock, seconds

    def __getitem__(self, i):
        self.clock.now += self.seconds
        return super().__getitem__(i)


class Parcel:
    """A batch whose copy takes `seconds`."""

    def __init__(self, clock, seconds, content):
        self.clock, self.seconds, self.content = clock, seconds, content

    def to(self, device):
        self.clock.now += self.seconds
        return self


def planted(item, copy, step, n=32):
    """A loader of batches of 4 items and a step; `item`, `copy` and `step` are seconds."""
    clock = Clock()
    loader = DataLoader(Slow(clock, item, n), 4, collate_fn=lambda items: Parcel(clock, copy, items))

    def train(batch):
        assert isinstance(batch, Parcel)
        clock.now += step
    return clock, loader, train


@pytest.mark.parametrize("times, limit, words", [
    ((0.25, 0.2, 0.3), "loader", "Make loading cheaper"),
    ((0.05, 0.5, 0.3), "copy", "send fewer bytes"),
    ((0.05, 0.1, 0.7), "step", "more workers cannot help"),
])
def test_what_is_slow_is_named(times, limit, words):
    item, copy, step = times
    clock, loader, train = planted(*times)
    found = d2l.find_bottleneck(loader, train, "cpu", clock=clock, seconds=1000, workers=[0])
    assert found.limit == limit and any(words in sentence for sentence in found.advice)
    assert (found.load, found.copy, found.step) == pytest.approx((4 * item, copy, step))
    assert found.together == pytest.approx(4 * item + copy + step)
    assert f"the {limit} limits" in str(found)


class Beside:
    """A loader whose workers prepare batches beside the step: a batch takes `seconds` of its own, less what has passed."""

    def __init__(self, clock, seconds, workers=2, n=40):
        self.clock, self.seconds, self.num_workers, self.n = clock, seconds, workers, n

    def __len__(self):
        return self.n

    def __iter__(self):
        ready = self.clock.now
        for _ in range(self.n):
            ready += self.seconds
            self.clock.now = ready = max(ready, self.clock.now)
            yield Parcel(self.clock, 0.3, None)


@pytest.mark.parametrize("load, step, limit", [(0.5, 0.4, "step"), (0.5, 0.25, "copy"), (0.5, 0.1, "loader"),
                                               (0.8, 0.4, "loader")])
def test_with_workers_the_loader_limits_only_if_it_is_slower_than_the_rest_together(load, step, limit):
    clock = Clock()

    def train(batch):
        clock.now += step
    found = d2l.find_bottleneck(Beside(clock, load), train, "cpu", clock=clock)
    assert found.limit == limit
    assert found.together == pytest.approx(max(load, 0.3 + step), rel=0.05)


def test_it_says_what_overlap_could_reach(monkeypatch):
    clock, loader, train = planted(0.25, 0.1, 0.1)
    fake_workers(monkeypatch, clock, dict.fromkeys((0, 1, 2, 8), 1.0))
    found = d2l.find_bottleneck(loader, train, "cpu", clock=clock, workers=[0, 1, 2, 8])
    assert found.expected == pytest.approx({0: 1.2, 1: 1.0, 2: 0.5, 8: 0.2})


def fake_workers(monkeypatch, clock, seconds):
    """Loaders with n workers take `seconds[n]` a batch; those tried are returned."""
    tried = []

    def with_workers(loader, n):
        tried.append(n)
        if isinstance(seconds[n], Exception):
            raise seconds[n]
        return Beside(clock, seconds[n], n)
    monkeypatch.setattr(bottleneck, "_with_workers", with_workers)
    return tried


def test_the_fastest_number_of_workers_is_one_that_was_measured(monkeypatch):
    clock, loader, train = planted(0.25, 0.3, 0.0)
    tried = fake_workers(monkeypatch, clock, {0: 1.0, 1: 0.9, 2: 0.5, 4: 0.6, 8: 0.7})
    found = d2l.find_bottleneck(loader, train, "cpu", clock=clock, workers=[0, 1, 2, 4, 8], seconds=10_000)
    assert tried == [0, 1, 2, 4, 8] and found.best_workers == 2 and set(found.measured) == set(tried)
    assert "num_workers=2 made the loop 2.0 times as fast as num_workers=0" in found.advice[0]
    assert "2 workers: expected 500 ms, measured: 500 ms" in str(found)


def test_when_workers_make_it_slower_it_says_so(monkeypatch):
    clock, loader, train = planted(0.25, 0.3, 0.0)
    fake_workers(monkeypatch, clock, {0: 1.0, 1: 2.0})
    found = d2l.find_bottleneck(loader, train, "cpu", clock=clock, workers=[0, 1], seconds=10_000)
    assert found.best_workers == 0 and "Workers do not help here" in found.advice[0]


def test_a_gain_that_may_be_noise_is_not_advised(monkeypatch):
    clock, loader, train = planted(0.25, 0.3, 0.0)
    fake_workers(monkeypatch, clock, {0: 1.0, 1: 0.95})
    found = d2l.find_bottleneck(loader, train, "cpu", clock=clock, workers=[0, 1], seconds=10_000)
    assert found.best_workers == 1 and "No other number of workers was clearly faster" in found.advice[0]


def test_the_search_ends_with_the_time(monkeypatch):
    clock, loader, train = planted(0.25, 0.3, 0.0)
    tried = fake_workers(monkeypatch, clock, {0: 1.0, 1: 1.0, 2: 1.0, 4: 1.0})
    found = d2l.find_bottleneck(loader, train, "cpu", clock=clock, workers=[0, 1, 2, 4], seconds=20)
    assert 0 < len(tried) < 4 and set(found.measured) == set(tried) and found.best_workers in tried


def test_a_number_of_workers_that_fails_is_reported_and_the_others_are_measured(monkeypatch):
    clock, loader, train = planted(0.25, 0.3, 0.0)
    fake_workers(monkeypatch, clock, {0: 1.0, 1: RuntimeError("no room in /dev/shm\nmore"), 2: 0.5})
    found = d2l.find_bottleneck(loader, train, "cpu", clock=clock, workers=[0, 1, 2], seconds=10_000)
    assert found.advice[0] == "1 worker failed: RuntimeError: no room in /dev/shm" and found.best_workers == 2


def test_no_workers_are_tried_where_they_cannot_share_the_work():
    class Stream(IterableDataset):
        def __iter__(self):
            yield from range(100)
    for loader in (d2l.DeviceLoader(torch.arange(64), 4, device="cpu"), [torch.ones(2)] * 5, DataLoader(Stream(), 4)):
        found = d2l.find_bottleneck(loader, lambda batch: None, "cpu", seconds=0.1)
        assert found.expected == found.measured == {} and found.best_workers is None


@pytest.mark.parametrize("loader, step, words", [
    ((torch.ones(2) for _ in range(9)), print, "several times, and generator cannot be: give a DataLoader"),
    (TensorDataset(torch.ones(9)), print, "TensorDataset cannot be"),
    ([torch.ones(2)] * 9, None, "a function of one batch .*not NoneType"),
], ids=range(3))
def test_what_cannot_be_timed_is_refused_with_the_way_out(loader, step, words):
    with pytest.raises(TypeError, match=words):
        d2l.find_bottleneck(loader, step, "cpu")


def test_batches_may_be_dicts():
    batches = [{"x": torch.ones(2), "name": "a"}] * 9
    assert d2l.find_bottleneck(batches, lambda batch: batch["x"].sum(), "cpu", seconds=0.1).step > 0


def test_one_batch_is_too_few():
    with pytest.raises(ValueError, match="batches that the loader gave: 1; at least 2"):
        d2l.find_bottleneck([torch.ones(2)], lambda batch: None, "cpu")


# ------------------------------------------------------------------------------------- with real worker processes
def real(workers, **options):
    return DataLoader(TensorDataset(torch.arange(400.0)), 4, num_workers=workers, **options)


def test_real_workers_are_measured_and_stopped():
    found = d2l.find_bottleneck(real(1), lambda batch: None, "cpu", seconds=1, workers=[0, 1])
    assert found.workers == 1 and found.limit == "loader" and found.best_workers in (0, 1)
    assert multiprocessing.active_children() == []


def test_kept_workers_are_stopped_and_the_loader_can_be_used_again():
    loader = real(1, persistent_workers=True)
    list(loader)
    d2l.find_bottleneck(loader, lambda batch: None, "cpu", seconds=0.5, workers=[])
    assert multiprocessing.active_children() == []
    assert len(list(loader)) == 100
    loader._iterator._shutdown_workers()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_interrupt_in_a_step_leaves_no_worker(error, persistent):
    steps = []

    def step(batch):
        steps.append(batch)
        if len(steps) == 1010:  # in the loop with everything together
            raise error("stopped")
    with pytest.raises(error) as caught:
        d2l.find_bottleneck(real(2, persistent_workers=persistent), step, "cpu", seconds=60)
    assert multiprocessing.active_children() == [] and caught.value is not None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # PyTorch's iterator, half made
def test_an_interrupt_while_workers_start_leaves_none(monkeypatch):
    start = multiprocessing.Process.start
    started = []

    def interrupted(process):
        start(process)
        started.append(process)
        if len(started) == 2:
            raise KeyboardInterrupt
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        d2l.find_bottleneck(real(2), lambda batch: None, "cpu")
    for process in started:
        process.join(10)
    assert len(started) == 2 and multiprocessing.active_children() == []


def test_a_loader_with_another_number_of_workers_is_otherwise_the_same():
    order = torch.utils.data.SequentialSampler(range(10))
    loader = DataLoader(TensorDataset(torch.arange(10.0)), 4, sampler=order, drop_last=True, num_workers=2, prefetch_factor=3,
                        timeout=5, multiprocessing_context="spawn", worker_init_fn=print, in_order=False)
    one, none = bottleneck._with_workers(loader, 1), bottleneck._with_workers(loader, 0)
    assert (one.num_workers, one.prefetch_factor, one.timeout, one.in_order, len(one)) == (1, 3, 5, False, 2)
    assert one.multiprocessing_context.get_start_method() == "spawn" and one.collate_fn is loader.collate_fn
    assert none.num_workers == 0 and [batch[0].tolist() for batch in none] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    rows = DataLoader(torch.arange(3), batch_size=None)
    assert [row.item() for row in bottleneck._with_workers(rows, 0)] == [0, 1, 2]
