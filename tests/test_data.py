import functools
import gzip
import hashlib
import http.server
import shutil
import threading

import pytest
import torch

import d2l_gpu as d2l
from d2l_gpu import data


@pytest.mark.parametrize("train, per_class", [(True, 500), (False, 100)])
def test_the_sample_has_real_images_of_every_class(train, per_class):
    images, labels = d2l.load_images(train=train)
    assert images.shape == (10 * per_class, 1, 28, 28) and images.dtype == torch.uint8
    assert labels.shape == (10 * per_class,) and labels.dtype == torch.int64
    assert labels.bincount().tolist() == [per_class] * 10
    assert images.max() == 255 and images.min() == 0
    means = torch.stack([images[labels == k].float().mean() for k in range(10)])
    assert means[d2l.CLASSES.index("pullover")] > means[d2l.CLASSES.index("sandal")]  # more cloth, more light


def test_training_and_test_images_do_not_overlap():
    train, test = (set(map(bytes, d2l.load_images(train=t)[0].numpy())) for t in (True, False))
    assert not train & test


def test_the_sample_is_at_most_3_mb():
    assert sum(path.stat().st_size for path in data._SAMPLE.iterdir()) <= 3_000_000


def test_an_unknown_set_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="'CIFAR10'.*'sample', 'FashionMNIST', 'MNIST'"):
        d2l.load_images("CIFAR10")


@pytest.fixture
def sample(monkeypatch, tmp_path):
    """A copy of the sample that a test may damage."""
    copy = tmp_path / "sample"
    shutil.copytree(data._SAMPLE, copy)
    monkeypatch.setattr(data, "_SAMPLE", copy)
    return copy


@pytest.mark.parametrize("file", ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"])
@pytest.mark.parametrize("damage", [
    lambda content: content[:len(content) // 2],
    lambda content: content[:-9] + bytes([content[-9] ^ 255]) + content[-8:],
    lambda content: gzip.compress(b"\1" + gzip.decompress(content)[1:]),
    lambda content: gzip.compress(gzip.decompress(content)[:-1] + b"\1"),
    lambda content: b"",
    lambda content: b"<html>404</html>",
], ids=["cut", "bit flip", "other header", "other pixel", "empty", "web page"])
def test_a_damaged_file_is_an_error_that_names_it(sample, file, damage):
    path = sample / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=f"{file} is damaged.*install d2l_gpu again"):
        d2l.load_images()
    d2l.load_images(train=False)  # the other files are untouched


# ------------------------------------------------------------------------- the full sets, without the internet
@pytest.fixture
def mirror(monkeypatch, tmp_path):
    """A local mirror of a MNIST of 40 + 20 images; yields the folder that it serves."""
    torchvision = pytest.importorskip("torchvision")
    folder = tmp_path / "mirror"
    folder.mkdir()
    resources, sums = [], {}
    for split, count in (("train", 40), ("t10k", 20)):
        pixels = torch.arange(count * 784).remainder(251).to(torch.uint8)
        labels = torch.arange(count).remainder(10).to(torch.uint8)
        for name, dimensions, body in ((f"{split}-images-idx3-ubyte", (count, 28, 28), pixels),
                                       (f"{split}-labels-idx1-ubyte", (count,), labels)):
            content = bytes([0, 0, 8, len(dimensions)]) + b"".join(d.to_bytes(4, "big") for d in dimensions)
            content += bytes(body.tolist())
            packed = gzip.compress(content)
            (folder / f"{name}.gz").write_bytes(packed)
            resources.append((f"{name}.gz", hashlib.md5(packed).hexdigest()))
            sums[name] = hashlib.md5(content).hexdigest()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    handler.log_message = lambda *args: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("MNIST", "FashionMNIST"):
        dataset = getattr(torchvision.datasets, name)
        monkeypatch.setattr(dataset, "mirrors", [f"http://127.0.0.1:{server.server_port}/"])
        monkeypatch.setattr(dataset, "resources", resources)
    monkeypatch.setattr(data, "_MD5", {"sample": data._MD5["sample"], "MNIST": sums, "FashionMNIST": sums})
    yield folder
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST"])
def test_a_full_set_is_downloaded_once_by_torchvision(mirror, tmp_path, name):
    images, labels = d2l.load_images(name, root=tmp_path)
    assert images.shape == (40, 1, 28, 28) and images.dtype == torch.uint8
    assert labels.tolist() == [i % 10 for i in range(40)]
    assert images.flatten()[:300].tolist() == [i % 251 for i in range(300)]
    shutil.rmtree(mirror)  # the second time needs no network
    assert len(d2l.load_images(name, train=False, root=tmp_path)[0]) == 20


@pytest.mark.parametrize("file", ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"])
@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[:-1] + b"\7", lambda c: b""], ids=["cut", "changed", "empty"])
def test_a_full_set_damaged_on_disk_is_never_used(mirror, tmp_path, file, damage):
    d2l.load_images("MNIST", root=tmp_path)
    path = tmp_path / "MNIST" / "raw" / file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=f'{file} is damaged.*delete it.*load_images\\("sample"\\)'):
        d2l.load_images("MNIST", root=tmp_path)
    path.unlink()
    assert len(d2l.load_images("MNIST", root=tmp_path)[0]) == 40  # the way out that the error names


def test_a_corrupted_download_is_one_error_that_names_the_sample(mirror, tmp_path):
    path = mirror / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConnectionError, match='MNIST could not be downloaded.*load_images\\("sample"\\)'):
        d2l.load_images("MNIST", root=tmp_path)


def test_without_a_network_one_error_names_the_sample(monkeypatch, tmp_path):
    torchvision = pytest.importorskip("torchvision")
    monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])  # nothing listens there
    with pytest.raises(ConnectionError, match='MNIST could not be downloaded.*load_images\\("sample"\\)'):
        d2l.load_images("MNIST", root=tmp_path)


def test_without_torchvision_the_error_says_what_needs_none(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "torchvision", None)
    with pytest.raises(ImportError, match="pip install torchvision"):
        d2l.load_images("MNIST", root=tmp_path)
