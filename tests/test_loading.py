"""DeviceLoader: the same batches as a DataLoader, from data that lie on the device."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import d2l_gpu as d2l
from d2l_gpu import datasets, loading

X, y = torch.arange(40.0).view(20, 2), torch.arange(20)


def loader(data=(X, y), size=8, **options):
    return d2l.DeviceLoader(data, size, device="cpu", **options)


def rows(batches):
    return torch.cat([batch[-1] for batch in batches]).tolist()


@pytest.mark.parametrize("size", [1, 3, 8, 20, 21])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_length_sizes_and_coverage_are_those_of_a_data_loader(size, drop_last, shuffle):
    ours = loader(size=size, drop_last=drop_last, shuffle=shuffle)
    theirs = DataLoader(TensorDataset(X, y), size, shuffle=shuffle, drop_last=drop_last)
    assert len(ours) == len(theirs)
    ours, theirs = list(ours), list(theirs)
    assert [len(batch[1]) for batch in ours] == [len(batch[1]) for batch in theirs]
    assert len(set(rows(ours))) == len(rows(ours)) if ours else not theirs
    if not shuffle:
        assert all(torch.equal(a, b) for mine, other in zip(ours, theirs) for a, b in zip(mine, other))
    elif not drop_last:
        assert sorted(rows(ours)) == list(range(20))


def test_inputs_and_labels_stay_together_and_every_pass_has_its_own_order():
    batches = loader(shuffle=True)
    first, second = list(batches), list(batches)
    assert all(torch.equal(a[:, 0], 2.0 * b) for a, b in first)
    assert rows(first) != rows(second) != list(range(20))


def test_an_order_can_be_repeated_from_its_generator_and_from_the_seed():
    def orders(generator):
        batches = loader(shuffle=True, generator=generator)
        return rows(batches), rows(batches)
    assert orders(torch.Generator().manual_seed(3)) == orders(torch.Generator().manual_seed(3))
    assert orders(torch.Generator().manual_seed(3)) != orders(torch.Generator().manual_seed(4))
    torch.manual_seed(5)
    once = orders(None)
    torch.manual_seed(5)
    assert orders(None) == once


def test_a_batch_can_be_written_into_without_changing_the_data():
    for shuffle in (False, True):
        data = X.clone()
        for batch, _ in loader((data, y), shuffle=shuffle):
            batch.zero_()
        assert torch.equal(data, X)


def test_bytes_stay_bytes_and_the_transform_sees_batches_of_them():
    images, labels = d2l.load_images(train=False)
    seen = []

    def transform(batch):
        seen.append((batch.dtype, tuple(batch.shape)))
        return datasets.normalized(batch)
    batches = loader((images, labels), 600, transform=transform)
    assert batches.nbytes == images.nbytes + labels.nbytes and batches.tensors[0].dtype == torch.uint8
    (a, b), _ = batches
    assert seen == [(torch.uint8, (600, 1, 28, 28)), (torch.uint8, (400, 1, 28, 28))]
    assert torch.equal(a, datasets.normalized(images[:600])) and torch.equal(b, labels[:600])


def test_a_trainer_takes_it_as_its_loader():
    class Data(d2l.DataModule):
        def train_dataloader(self):
            return loader((torch.randn(20, 4), y % 3), shuffle=True)

        def val_dataloader(self):
            return None

    class Net(d2l.Classifier):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.net(x)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)
    trainer = d2l.Trainer(max_epochs=2)
    trainer.fit(Net(), Data())
    assert trainer.train_batch_idx == 6


# ------------------------------------------------------------------------------------------- what it takes
class Items(Dataset):
    """A data set of a list of items."""

    def __init__(self, items):
        self.items, self.fetched = items, 0

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        self.fetched += 1
        return self.items[i]


def test_one_tensor_and_a_tensor_data_set_will_do():
    assert [tuple(t.shape for t in batch) for batch in loader(X, 15)] == [((15, 2),), ((5, 2),)]
    assert rows(loader(TensorDataset(X, y))) == rows(loader([X, y])) == y.tolist()


def test_the_items_of_a_data_set_are_fetched_once(monkeypatch):
    monkeypatch.setattr(loading, "_AT_ONCE", 6)
    data = Items([(X[i], i) for i in range(20)])
    batches = loader(data)
    assert data.fetched == 20 and torch.equal(batches.tensors[0], X) and batches.tensors[1].tolist() == y.tolist()
    assert list(batches) and data.fetched == 20
    arrays = loader(Items([(np.full(3, i, dtype="uint8"), 0.5) for i in range(7)]))
    assert arrays.tensors[0].dtype == torch.uint8 and arrays.tensors[0][4].tolist() == [4, 4, 4]


def test_pictures_become_what_a_data_loader_gives():
    pytest.importorskip("torchvision")
    pictures = datasets.Pictures(*(t[:30] for t in d2l.load_images()))
    assert all(torch.equal(a, b) for mine, other in zip(loader(pictures), DataLoader(pictures, 8)) for a, b in zip(mine, other))


@pytest.mark.parametrize("items", [[torch.ones(3), torch.ones(4)], [torch.ones(2, 3)] * 6 + [torch.ones(1, 3)] * 6])
def test_items_of_different_shapes_are_refused(items, monkeypatch):
    monkeypatch.setattr(loading, "_AT_ONCE", 6)
    with pytest.raises(ValueError, match="items . to .* cannot be stacked.*one shape"):
        loader(Items(items))


class Endless(IterableDataset):
    def __iter__(self):
        yield from iter(int, 1)


@pytest.mark.parametrize("data, error, words", [
    (Items([("a", 1)]), TypeError, "item 0 .*no tensor, number"),
    (Items([None]), TypeError, "NoneType"),
    (Items([]), ValueError, "no example"),
    (Endless(), TypeError, "Endless has no len"),
    ((X, y[:5]), ValueError, "20 and 5 rows"),
    (X[:0], ValueError, "no example"),
    (torch.tensor(1.0), ValueError, "no example"),
    ({"images": X, "labels": y}, TypeError, "a dict .*tuple of tensors"),
    ((X.numpy(), y.numpy()), TypeError, "a tuple .*as_tensor"),
    ((X, y.tolist()), TypeError, "a tuple .*as_tensor"),
], ids=range(10))
def test_what_it_cannot_take_is_named(data, error, words):
    with pytest.raises(error, match=words):
        loader(data)


def test_a_batch_size_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1, not 0"):
        loader(size=0)


# ------------------------------------------------------------------------------------------------- memory
@pytest.mark.parametrize("data", [(X, y), Items([(X[i], i) for i in range(20)])], ids=["tensors", "items"])
def test_data_that_do_not_fit_are_refused_with_the_bytes_before_anything_is_copied(data):
    with d2l.simulate_gpus(1, memory=10_000) as gpus, d2l.count_transfers() as used:
        with pytest.raises(torch.OutOfMemoryError, match="take 320 bytes and cuda:0 has 319 free"):
            d2l.DeviceLoader(data, 8, device="cuda:0", free=lambda device: 319)
        d2l.DeviceLoader(data, 8, device="cuda:0", free=lambda device: 320)
        d2l.DeviceLoader(data, 8, device="cuda:0", free=lambda device: None)
        assert gpus is not None
    assert used.copies["H2D"] == 4


def test_the_capacity_of_a_simulated_gpu_is_respected():
    with d2l.simulate_gpus(1, memory=4096):
        resident = torch.zeros(512, device="cuda:0")  # 2,048 bytes
        with pytest.raises(torch.OutOfMemoryError, match="take 3,000 bytes and cuda:0 has 2,048 free"):
            d2l.DeviceLoader(torch.zeros(3000, dtype=torch.uint8), device="cuda:0")
        assert d2l.DeviceLoader(resident, device="cuda:0").tensors[0] is resident  # there already: nothing is asked for


def test_free_bytes_are_asked_of_the_device(monkeypatch):
    assert loading.free_bytes(torch.device("cpu")) is None or loading.free_bytes(torch.device("cpu")) > 2**20
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (700, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 200)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 150)
    assert loading.free_bytes(torch.device("cuda", 0)) == 750
    assert loading.free_bytes(torch.device("meta")) is None


def test_a_pass_copies_nothing_and_waits_for_nothing():
    with d2l.simulate_gpus(1):
        batches = d2l.DeviceLoader((X, y), 8, shuffle=True)
        assert batches.device == torch.device("cuda:0")
        with d2l.count_transfers() as used:
            seen = list(batches)
        assert used.copies.total() == used.waits.total() == 0
        assert all(t.device == batches.device for batch in seen for t in batch)


def test_a_generator_on_the_cpu_gives_the_same_order_on_a_gpu_for_one_copy():
    here = rows(loader(shuffle=True, generator=torch.Generator().manual_seed(1)))
    with d2l.simulate_gpus(1):
        batches = d2l.DeviceLoader((X, y), 8, shuffle=True, generator=torch.Generator().manual_seed(1))
        with d2l.count_transfers() as used:
            seen = list(batches)
        assert used.copies["H2D"] == 1 and used.bytes["H2D"] == 8 * 20
        assert rows(seen) == here
