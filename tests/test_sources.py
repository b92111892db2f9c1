"""The data sets for DataLoader workers: they report truly, and they reach a worker that starts as a new Python."""

import pickle

import pytest
import torch
from torch.utils.data import DataLoader

from d2l_gpu import MappedImages, Probe, Stream


def column(loader, k):
    return torch.cat([batch[k] for batch in loader]).tolist()


def test_a_probe_says_who_fetched_each_sample():
    assert [Probe(3)[i][:2] for i in range(3)] == [(0, -1), (1, -1), (2, -1)]
    loader = DataLoader(Probe(8), batch_size=2, num_workers=2)
    assert column(loader, 0) == list(range(8)) and column(loader, 1) == [0, 0, 1, 1] * 2


def test_a_probe_counts_in_the_process_that_fetches():
    probe = Probe(8)
    list(DataLoader(probe, batch_size=2, num_workers=1))
    assert probe.fetched == 0
    list(DataLoader(probe, batch_size=2))
    assert probe.fetched == 8


def test_a_probe_draws_what_torch_would_draw_there():
    torch.manual_seed(0)
    drawn = Probe(1)[0][2]
    torch.manual_seed(0)
    assert drawn == torch.rand(()).item()


def test_a_probe_takes_its_time(monkeypatch):
    slept = []
    monkeypatch.setattr("d2l_gpu.sources.time.sleep", slept.append)
    Probe(3, seconds=0.5)[1]
    assert slept == [0.5]


@pytest.mark.parametrize("i", [-1, 3])
def test_a_sample_outside_is_an_index_error(i, file):
    with pytest.raises(IndexError, match=f"sample {i} of a data set of 3"):
        Probe(3)[i]
    with pytest.raises(IndexError, match=f"image {i} of a file of 3"):
        MappedImages(file(3)[0], torch.arange(3), (3, 4, 4))[i]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_stream_is_shared_among_workers_or_repeated_by_each(workers):
    def read(split):
        return sorted(int(i) for i in DataLoader(Stream(10, split), batch_size=None, num_workers=workers))
    assert read(True) == list(range(10))
    assert read(False) == sorted(list(range(10)) * max(1, workers))


@pytest.fixture
def file(tmp_path):
    def make(n, shape=(3, 4, 4)):
        images = torch.randint(256, (n, *shape), dtype=torch.uint8)
        path = tmp_path / "images.bin"
        path.write_bytes(bytes(images.flatten().tolist()))
        return path, images
    return make


def test_mapped_images_are_those_of_the_file(file):
    path, images = file(5)
    data = MappedImages(path, torch.arange(5) * 2, (3, 4, 4))
    assert len(data) == 5
    for i in (3, 0, 4):
        image, label = data[i]
        assert torch.equal(image, images[i]) and label == 2 * i and image.dtype == torch.uint8
    data[1][0].zero_()
    assert torch.equal(data[1][0], images[1]), "a sample is a copy: the file cannot be written through it"


def test_mapped_images_are_transformed_one_at_a_time(file):
    path, images = file(2)
    shapes = []
    data = MappedImages(path, torch.arange(2), (3, 4, 4), transform=lambda image: shapes.append(image.shape) or image.float())
    assert data[0][0].dtype == torch.float32 and shapes == [(3, 4, 4)]


def test_a_file_of_another_size_is_refused(file):
    path, _ = file(3)
    with pytest.raises(ValueError, match=r"144 bytes; 4 images of shape \(3, 4, 4\) are 192"):
        MappedImages(path, torch.arange(4), (3, 4, 4))
    with pytest.raises(FileNotFoundError):
        MappedImages(path.with_name("none.bin"), torch.arange(4), (3, 4, 4))


def test_a_used_map_is_left_behind_when_the_data_set_is_sent(file):
    path, images = file(3)
    data = MappedImages(path, torch.arange(3), (3, 4, 4))
    data[0]
    assert torch.equal(pickle.loads(pickle.dumps(data))[2][0], images[2])


def test_all_of_them_reach_a_worker_that_starts_as_a_new_python(file):
    path, images = file(4)
    mapped = MappedImages(path, torch.arange(4), (3, 4, 4))
    mapped[0]
    for data in (Probe(4), Stream(4), mapped):
        loader = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="spawn")
        got = [batch if isinstance(data, Stream) else batch[-1 if data is mapped else 0] for batch in loader]
        assert [int(k) for k in got] == [0, 1, 2, 3]
