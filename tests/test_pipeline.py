"""The timeline of loading and training: hand-worked cases, and what must hold for every setting."""

import itertools
import multiprocessing
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

import d2l_gpu as d2l


def spans(lane):
    return [(span.batch, span.start, span.end) for span in lane]


def steady(*args, **kwargs):
    """Seconds per batch and the GPU's idle share in the long run: over 840 batches, a multiple of every number of workers."""
    found = d2l.timeline(*args, batches=1080, **kwargs)
    return found.per_batch(after=240), found.idle(after=240)


def test_without_workers_everything_happens_in_turn():
    found = d2l.timeline(load=3, compute=2, copy=1, batches=2)
    assert spans(found.lanes[0]) == [(0, 0, 3), (1, 6, 9)]
    assert spans(found.copies) == [(0, 3, 4), (1, 9, 10)] and spans(found.computes) == [(0, 4, 6), (1, 10, 12)]
    assert found.per_batch() == 6 and found.idle() == pytest.approx(0.5)


def test_a_loop_that_does_not_wait_for_the_gpu_loads_meanwhile():
    found = d2l.timeline(load=3, compute=2, copy=1, batches=2, sync=False)
    assert spans(found.lanes[0]) == [(0, 0, 3), (1, 4, 7)] and spans(found.computes) == [(0, 4, 6), (1, 8, 10)]
    assert steady(3, 5, copy=1, sync=False)[0] == pytest.approx(6)


def test_two_workers_take_turns():
    found = d2l.timeline(load=4, compute=1, workers=2, prefetch=1, batches=4)
    assert spans(found.lanes[0]) == [(0, 0, 4), (2, 4, 8)]
    assert spans(found.lanes[1]) == [(1, 0, 4), (3, 5, 9)]  # batch 3 is asked for when batch 1 is taken, after batch 0
    assert spans(found.computes) == [(0, 4, 5), (1, 5, 6), (2, 8, 9), (3, 9, 10)]


def test_batches_come_in_order_though_a_later_one_is_ready():
    found = d2l.timeline(lambda k: 9 if k == 0 else 1, compute=1, workers=2, batches=3)
    assert spans(found.lanes[1])[0] == (1, 0, 1) and spans(found.computes)[:2] == [(0, 9, 10), (1, 10, 11)]


def test_at_most_prefetch_times_workers_batches_are_ahead():
    for workers, prefetch in itertools.product((1, 2, 4), (1, 2, 3)):
        found = d2l.timeline(load=1, compute=100, workers=workers, prefetch=prefetch, batches=40)
        first_done = found.computes[0].end
        loaded = sum(span.start < first_done for lane in found.lanes for span in lane)
        assert loaded == 1 + workers * prefetch  # the first was taken, and made room for one


class Counted(Dataset):
    """Each item is the number of the worker that loads it; `loaded` counts the loads of all workers."""

    def __init__(self):
        self.loaded = multiprocessing.get_context().Value("i", 0)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        with self.loaded.get_lock():
            self.loaded.value += 1
        return torch.tensor(get_worker_info().id)


def test_pytorchs_dataloader_runs_as_far_ahead_and_takes_turns():
    data, expected = Counted(), 1 + 2 * 3
    batches = iter(DataLoader(data, batch_size=1, num_workers=2, prefetch_factor=3))
    workers = [int(next(batches))]
    deadline = time.monotonic() + 60
    while data.loaded.value < expected and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)  # would it go on?
    assert data.loaded.value == expected
    workers += [int(batch) for batch in batches]
    model = d2l.timeline(1, 1, workers=2, prefetch=3, batches=40)
    assert workers == [next(k for k, lane in enumerate(model.lanes) if batch in [s.batch for s in lane]) for batch in range(40)]


def test_a_batch_that_takes_long_needs_a_larger_prefetch():
    load = lambda k: 40 if k % 7 == 6 else 10  # noqa: E731
    (tight, idle), (wide, none) = (steady(load, 8, workers=2, prefetch=p) for p in (1, 8))
    assert wide == pytest.approx(8) and none == pytest.approx(0) and tight > 1.2 * wide and idle > 0.1


def test_the_gpu_is_never_idle_where_the_workers_are_faster():
    assert steady(load=10, compute=6, workers=2)[1] == 0
    assert steady(load=10, compute=4, workers=2)[1] == pytest.approx(0.2)  # 4 of 5 ms


def test_a_core_serves_one_worker_at_a_time():
    assert steady(load=8, compute=1, workers=4, cores=2)[0] == pytest.approx(4)
    found = d2l.timeline(load=8, compute=1, workers=4, cores=2, batches=8)
    for moment in range(1, 32):
        assert sum(span.start < moment < span.end for lane in found.lanes for span in lane) <= 2


GRID = list(itertools.product((1, 8, 40), (1, 5, 10), (0, 2), range(0, 9, 2), (1, 2, 4), (None, 1, 3), (True, False)))


@pytest.mark.parametrize("load, compute, copy, workers, prefetch, cores, sync", GRID[::29])
def test_the_simulation_comes_to_the_expected_step(load, compute, copy, workers, prefetch, cores, sync):
    expected = d2l.expected_step(load, compute, workers, copy, cores, sync)
    found, idle = steady(load, compute, workers=workers, prefetch=prefetch, copy=copy, cores=cores, sync=sync)
    assert found == pytest.approx(expected, rel=0.01)
    assert idle == pytest.approx(1 - (copy + compute) / expected, abs=0.01)


def test_more_workers_a_faster_gpu_a_shorter_load_never_hurt():
    steps = [d2l.expected_step(20, 6, workers) for workers in range(9)]
    assert steps == sorted(steps, reverse=True) and steps[:3] == [26, 20, 10] and steps[4:] == [6] * 5
    assert [round(steady(20, 6, workers=n)[0], 9) for n in range(9)] == pytest.approx(steps)
    assert d2l.expected_step(20, 3, 2) == d2l.expected_step(20, 6, 2)  # a GPU twice as fast changes nothing


def test_nothing_happens_twice_at_once_in_a_lane():
    found = d2l.timeline(lambda k: 1 + k % 5, 2, workers=3, copy=1, batches=60)
    for lane in [*found.lanes, sorted(found.copies + found.computes, key=lambda span: span.start)]:
        assert all(a.end <= b.start for a, b in zip(lane, lane[1:]))
    assert [span.batch for span in found.computes] == list(range(60))


@pytest.mark.parametrize("wrong, says", [(dict(load=-1), "load must be 0 or more, not -1"),
                                         (dict(workers=-1), "workers must be 0 or more, not -1"),
                                         (dict(prefetch=0), "prefetch must be 1 or more, not 0"),
                                         (dict(cores=0), "cores must be 1 or more, not 0"),
                                         (dict(batches=0), "batches must be 1 or more, not 0")])
def test_what_cannot_be_is_refused_by_name(wrong, says):
    with pytest.raises(ValueError, match=says):
        d2l.timeline(**dict(load=1, compute=1) | wrong)


def test_a_window_without_batches_is_refused():
    with pytest.raises(ValueError, match="after must be from 0 to 11, not 12"):
        d2l.timeline(1, 1).per_batch(after=12)
