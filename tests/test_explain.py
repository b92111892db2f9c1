"""explain(): each real text finds its cause first, other errors find none, and every fix that can run here does."""

import dataclasses
import importlib
import json
import re
import subprocess
import sys
import weakref

import explain_fixes
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import d2l_gpu as d2l
from d2l_gpu.doctor import knowledge
from d2l_gpu.doctor.pasted import take_apart

explain_module = importlib.import_module("d2l_gpu.doctor.explain")
ENTRIES = knowledge.entries()
TEXTS = [pytest.param(entry, text, id=f"{entry.name}-{k}") for entry in ENTRIES for k, (_, text) in enumerate(entry.texts)]


def names(what):
    return [entry.name for entry in d2l.explain(what).causes]


# --------------------------------------------------------------------------------------------------------- the table
@pytest.mark.parametrize("entry, text", TEXTS)
def test_a_text_finds_its_entry_first(entry, text):
    assert names(text)[:1] == [entry.name]


PARTS = [pytest.param(entry, kind, k, id=f"{entry.name}-{kind}-{k}") for entry in ENTRIES
         for kind in ("patterns", "across", "clues", "own") for k in range(len(getattr(entry, kind)))]


@pytest.mark.parametrize("entry, kind, k", PARTS)
def test_every_pattern_is_needed_by_some_text(monkeypatch, entry, kind, k):
    parts = getattr(entry, kind)
    without = dataclasses.replace(entry, **{kind: parts[:k] + parts[k + 1:]})
    monkeypatch.setattr(explain_module, "entries", lambda: tuple(without if e is entry else e for e in ENTRIES))
    assert any(names(text)[:1] != [entry.name] for _, text in entry.texts)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_is_complete_and_fits_a_page(entry):
    assert re.fullmatch(r"[a-z0-9-]+", entry.name) and entry.kind in ("error", "warning", "silent")
    assert entry.title and entry.message and entry.cause and entry.fix and (entry.patterns or entry.like)
    assert len(entry.texts) >= 2 and all(source and text.strip() for source, text in entry.texts)
    assert not entry.like or entry.like in {e.name for e in ENTRIES}
    assert len(entry.message) <= 90 and max(map(len, entry.fix.split("\n"))) <= 76
    assert all(len(line) <= 80 for line in str(d2l.explain(entry.texts[0][1])).split("\n"))
    compile(entry.fix, entry.name, "exec")


def test_names_are_unique_and_texts_name_nobody():
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES) >= 40
    for entry in ENTRIES:
        for _, text in entry.texts:
            assert not re.search(r"/(home|root|Users|mnt)/|Users\\(?!someone)", text), entry.name


def headings(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return {line.lstrip("#").strip().replace("`", "") for line in text.split("\n") if re.match(r"#{1,3} ", line)}


#: Entries whose chapters (mixed precision, graphs, several GPUs) are not there yet.
NO_CHAPTER = {"unscale-fp16", "scaler-order", "old-amp", "tf32-mixed", "clip-before-unscale", "graph-output",
              "unused-parameters", "no-process-group", "same-shuffle"}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_chapter_and_the_heading_exist(root, entry):
    if not entry.section:
        assert entry.name in NO_CHAPTER
        return
    chapter, heading = entry.section.split("#")
    assert heading in headings(root / "chapters" / f"{chapter}.ipynb")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_fix_does_what_it_is_for(entry, tmp_path, monkeypatch):
    attempt = explain_fixes.FIXES[entry.name]
    if isinstance(attempt, str):
        pytest.skip(attempt)
    monkeypatch.chdir(tmp_path)
    attempt(entry.fix)


def test_every_fix_is_tried_or_has_a_reason():
    assert set(explain_fixes.FIXES) == {entry.name for entry in ENTRIES}
    assert sum(isinstance(attempt, str) for attempt in explain_fixes.FIXES.values()) <= 6


# ---------------------------------------------------------------------------------------------------- what it is not
UNRELATED = [
    "ZeroDivisionError: division by zero",
    "NameError: name 'net' is not defined",
    "KeyError: 'weight'",
    "IndexError: list index out of range",
    "AttributeError: 'NoneType' object has no attribute 'shape'",
    "AttributeError: module 'torch' has no attribute 'acccelerator'",
    "AttributeError: 'list' object has no attribute 'shape'",
    "AttributeError: module 'torch' has no attribute 'device'",
    "TypeError: forward() takes 2 positional arguments but 3 were given",
    "TypeError: 'int' object is not callable",
    "SyntaxError: invalid syntax",
    "ModuleNotFoundError: No module named 'torchtext'",
    "ImportError: cannot import name 'Literal' from 'typing'",
    "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
    "PermissionError: [Errno 13] Permission denied: 'net.pt'",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "OSError: [Errno 24] Too many open files: 'log.txt'",
    "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='example.org', port=443): Read timed out. (read timeout=10)",
    "urllib.error.HTTPError: HTTP Error 404: Not Found",
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    "RecursionError: maximum recursion depth exceeded",
    "MemoryError: Unable to allocate 14.9 GiB for an array with shape (2000000, 1000) and data type float64",
    "ValueError: operands could not be broadcast together with shapes (3,) (4,)",
    "ValueError: setting an array element with a sequence. The requested array has an inhomogeneous shape after 1 dimensions.",
    "ValueError: could not convert string to float: 'abc'",
    "numpy.linalg.LinAlgError: Singular matrix",
    "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
    "RuntimeError: shape '[2, 3]' is invalid for input of size 8",
    "RuntimeError: Given groups=1, weight of size [16, 3, 3, 3], expected input[8, 1, 28, 28] to have 3 channels, but got 1 channels instead",
    "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 2 but got size 3 for tensor number 1 in the list.",
    "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
    "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",
    "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation",
    "RuntimeError: grad can be implicitly created only for scalar outputs",
    "IndexError: index 9 is out of bounds for dimension 0 with size 3",
    "ValueError: Expected input batch_size (64) to match target batch_size (32).",
    "RuntimeError: Error(s) in loading state_dict for Net: size mismatch for fc.weight: copying a param with shape torch.Size([10, 84]) "
    "from checkpoint, the shape in current model is torch.Size([2, 84]).",
    "KeyboardInterrupt",
    "pandas.errors.EmptyDataError: No columns to parse from file",
    "cv2.error: OpenCV(4.5.1) error: (-215:Assertion failed) !_src.empty() in function 'cvtColor'",
    "what does a convolution do?",
    "my loss is nan after ten epochs",
]


@pytest.mark.parametrize("text", UNRELATED)
def test_an_unrelated_error_finds_nothing_and_gets_the_general_way(text):
    found = d2l.explain(text)
    assert found.causes == []
    assert "not in the table" in str(found) and "CUDA_LAUNCH_BLOCKING=1" in str(found) and "on the CPU" in str(found)


def test_code_in_a_traceback_is_no_message():
    text = ('Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
            '    print("CUDA out of memory"); 1 / 0\n                                 ~~^~~\nZeroDivisionError: division by zero\n')
    assert names(text) == []
    cell = 'ZeroDivisionError        Traceback (most recent call last)\nCell In[1], line 2\n      1 x = "CUDA out of memory"\n' \
           "----> 2 1 / 0\n\nZeroDivisionError: division by zero"
    assert names(cell) == []


@pytest.mark.parametrize("what, hint", [(5, "str("), (b"CUDA out of memory", "str("), (RuntimeError, "except RuntimeError as error"),
                                        (torch.ones(1), "str("), (["a"], "str(")])
def test_another_type_is_refused_with_the_way_out(what, hint):
    with pytest.raises(TypeError, match=re.escape(hint)):
        d2l.explain(what)


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_a_text_without_a_word_is_refused(text):
    with pytest.raises(ValueError, match="without a word"):
        d2l.explain(text)


# ------------------------------------------------------------------------------------------------- as people paste it
def worker(text):
    inner = "".join(f"{line}\n" for line in text.strip("\n").split("\n"))
    return ("Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    for X, y in loader:\n"
            "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
            '  File "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 375, in _worker_loop\n'
            "    data = fetcher.fetch(index)\n" + inner)


WRAPPERS = {
    "colors": lambda text: "".join(f"\x1b[0;31m{line}\x1b[0m\n" for line in text.split("\n")),
    "rank": lambda text: "".join(f"[rank1]: {line}\n" for line in text.split("\n")),
    "elastic": lambda text: "".join(f"E1130 16:20:01.123000 42 torch/distributed/elastic.py:882] {line}\n" for line in text.split("\n")),
    "container": lambda text: "".join(f"trainer_1  | {line}\n" for line in text.split("\n")),
    "quoted": lambda text: "".join(f"> {line}\n" for line in text.split("\n")),
    "windows": lambda text: text.replace("\n", "\r\n"),
    "pytest": lambda text: "".join(f"E   {line}\n" for line in text.split("\n")),
    "worker": worker,
    "warned before": lambda text: "dataloader.py:554: UserWarning: This DataLoader will create 8 worker processes in total. "
                                  "Our suggested max number of worker in current system is 2\n" + text,
    "handled": lambda text: "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    d[1]\nKeyError: 1\n\nDuring handling of the "
                            f"above exception, another exception occurred:\n\n{text}",
}


@pytest.mark.parametrize("how", WRAPPERS)
@pytest.mark.parametrize("name", ["batch-behind", "out-of-memory", "device-assert", "gpu-to-numpy", "ragged-batch", "weights-only"])
def test_what_surrounds_a_message_does_not_hide_it(how, name):
    entry = next(entry for entry in ENTRIES if entry.name == name)
    for _, text in entry.texts:
        assert names(WRAPPERS[how](text))[:1] == [name], text


def test_the_error_that_ended_the_program_comes_before_the_one_it_handled():
    text = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n\n"
            "During handling of the above exception, another exception occurred:\n\n"
            "TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")
    assert names(text) == ["gpu-to-numpy", "out-of-memory"]


def test_a_cause_comes_before_what_it_led_to():
    text = ("AttributeError: Can't pickle local object 'main.<locals>.<lambda>'\n\nThe above exception was the direct cause of the "
            "following exception:\n\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\n"
            "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly")
    assert names(text) == ["unpicklable-worker", "worker-died"]


def test_in_text_alone_the_frame_tells_an_attribute_from_a_batch():
    frame = ('  File "model.py", line 9, in forward\n    return self.net(X) * self.scale\n           {}\n{}'
             "RuntimeError: Expected all tensors to be on the same device, but got mat1 is on cpu, different from other tensors on cuda:0")
    deeper = ('  File "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134, in forward\n'
              "    return F.linear(input, self.weight, self.bias)\n")
    assert names(frame.format("~~~~~~~~~~~~^~~~~~~~~~~~", ""))[0] == "plain-attribute"
    assert names(frame.format("^^^^^^^^^^^", deeper))[0] == "batch-behind"


@pytest.mark.parametrize("text, said", [
    ("CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB free;",
     "asked for 2.26 GiB; the GPU has 6.00 GiB, of which 3.03 GiB were free"),
    ("CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 11.06 MiB is free.", "11.06 MiB were free"),
    ("CUDA out of memory. Tried to allocate 100.00 GiB. GPU 0 has a total capacity of 15.90 GiB of which 15.00 GiB is free.", "a shape that is wrong"),
    ("MPS backend out of memory (MPS allocated: 5.50 GB, other allocations: 14.76 GB, max allowed: 20.40 GB). Tried to allocate 147.24 MB on private pool.",
     "may use 20.40 GB"),
    ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 132426121216 bytes.", "132.4 GB"),
    ("The NVIDIA driver on your system is too old (found version 11070).", "CUDA 11.7"),
    ("NVIDIA A100 with CUDA capability sm_80 is not compatible with the current PyTorch installation. The current PyTorch install supports "
     "CUDA capabilities sm_37 sm_50.", "card is sm_80, and this torch has code for sm_37, sm_50"),
    ("IndexError: Target 12 is out of bounds.", "label is 12"),
    ("Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1.", "cuda:1, and 1 GPU is"),
    ('Unexpected key(s) in state_dict: "module.weight"', "file begin with `module.`"),
    ('Missing key(s) in state_dict: "_orig_mod.weight"', "network's names begin with `_orig_mod.`"),
    ("WeightsUnpickler error: Unsupported global: GLOBAL __main__.MyNet was not an allowed global by default.", "`__main__.MyNet`"),
    ("AttributeError: Can't pickle local object 'main.<locals>.<lambda>'", "`main.<locals>.<lambda>`"),
    ("Can't get attribute 'MyDataset' on <module '__main__' (built-in)>", "`MyDataset`"),
    ("RuntimeError: Expected one of cpu, cuda device type at start of device string: gpu", "name was `gpu`"),
    ("mat1 and mat2 shapes cannot be multiplied (1792x28 and 784x128)", "28 wide, and the layer takes 784"),
    ("This DataLoader will create 8 worker processes in total. Our suggested max number of worker in current system is 2,", "8 workers"),
])
def test_what_the_message_says_of_this_very_case_is_said(text, said):
    assert said in " ".join(str(d2l.explain(text)).split())


# --------------------------------------------------------------------------------------------------- live exceptions
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 4), torch.ones(4)

    def forward(self, X):
        return self.linear(X) * self.scale


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.out, self.layers = nn.Linear(4, 4), [nn.Linear(4, 4)]

    def forward(self, X):
        for layer in self.layers:
            X = layer(X)
        return self.out(X)


class Named(Listed):
    def __init__(self):
        super().__init__()
        self.layers = {"first": nn.Linear(4, 4)}

    def forward(self, X):
        return self.layers["first"](self.out(X))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 4)

    def forward(self, X):
        h, c = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)
        return self.rnn(X, (h, c))


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, X):
        positions = torch.arange(4.0)
        return self.linear(X) + positions


def network(device, X, y):
    net = nn.Linear(4, 3).to(device)
    return net(X)


def network_behind(device, X, y):
    net, X = nn.Linear(4, 3), X.to(device)
    return net(X)


def addition(device, X, y):
    weights = torch.ones(8, 4, device=device)
    return X + weights


def picture(device, X, y):
    net = nn.Conv2d(1, 1, 1).to(device)
    return net(X.reshape(8, 1, 2, 2))


def deep(device, X, y):
    model = Scaled().to(device)
    model.scale = model.scale.to(device)
    return model(X)


def labels(device, X, y):
    scores = nn.Linear(4, 3).to(device)(X.to(device))
    return F.cross_entropy(scores, y)


def labels_in_one_line(device, X, y):
    net, X, loss = nn.Linear(4, 3).to(device), X.to(device), nn.CrossEntropyLoss()
    return loss(net(X), y)


def squares(device, X, y):
    predictions = X.to(device)
    return F.mse_loss(predictions, X)


def weights(device, X, y):
    loss = nn.CrossEntropyLoss(weight=torch.ones(4))
    X, y = X.to(device), y.to(device)
    return loss(X, y)


LIVE = [
    (network, "batch-behind", "`X` is on cpu, the parameters of `net` are on cuda:0"),
    (network_behind, "batch-behind", "`X` is on cuda:0, the parameters of `net` are on cpu"),
    (addition, "batch-behind", "`X` is on cpu, `weights` is on cuda:0"),
    (picture, "batch-behind", "`X` is on cpu, the parameters of `net` are on cuda:0"),
    (deep, "batch-behind", "`X` is on cpu, the parameters of `model` are on cuda:0"),
    (labels, "labels-behind", "`scores` is on cuda:0, `y` is on cpu"),
    (labels_in_one_line, "labels-behind", "`y` is on cpu"),
    (squares, "labels-behind", "`predictions` is on cuda:0, `X` is on cpu"),
    (weights, "labels-behind", "the buffers of `loss` are on cpu"),
    (lambda device, X, y: Scaled().to(device)(X.to(device)), "plain-attribute", "`self.scale` is on cpu and is neither"),
    (lambda device, X, y: Listed().to(device)(X.to(device)), "layers-in-list", "`self.layers` is no nn.ModuleList"),
    (lambda device, X, y: Named().to(device)(X.to(device)), "layers-in-list", "the layers in it are on cpu"),
    (lambda device, X, y: Recurrent().to(device)(torch.ones(3, 2, 4, device=device)), "made-in-forward", "`h` was made on cpu"),
    (lambda device, X, y: Positions().to(device)(X.to(device)), "made-in-forward", "`positions` was made on cpu"),
]


@pytest.mark.parametrize("function, name, said", LIVE, ids=[f"{name}-{k}" for k, (_, name, _) in enumerate(LIVE)])
def test_a_live_exception_names_what_is_where(function, name, said):
    with d2l.simulate_gpus(2):
        with pytest.raises(RuntimeError) as caught:
            function(torch.device("cuda:0"), *explain_fixes.data())
        found = d2l.explain(caught.value)
    assert found.causes[0].name == name
    assert said.lower() in " ".join(found.notes[name]).lower()
    assert "less likely" not in str(found)  # it was seen


def test_labels_out_of_range_are_named_with_their_range():
    X, y = explain_fixes.data()
    y = y + 2
    with pytest.raises(IndexError) as caught:
        F.cross_entropy(X, y)
    found = d2l.explain(caught.value)
    assert found.causes[0].name == "target-out-of-range"
    assert "`X` has scores for 4 classes; `y` goes from 2 to 4." in found.notes["target-out-of-range"]


def test_rows_of_an_embedding_are_named():
    table, index = nn.Embedding(4, 2), torch.tensor([1, 9])
    with pytest.raises(IndexError) as caught:
        table(index)
    assert "`table` has 4 rows; `index` goes from 1 to 9." in d2l.explain(caught.value).notes["target-out-of-range"]


def test_labels_on_a_simulated_gpu_are_read_without_a_wait():
    with d2l.simulate_gpus(1):
        X, y = explain_fixes.data("cuda:0")
        y = y + 3
        with pytest.raises(IndexError) as caught:
            F.cross_entropy(X, y)
        with d2l.count_transfers() as used:
            found = d2l.explain(caught.value)
    assert not used.waits and "goes from 3 to 5" in str(found)


def fail(action):
    try:
        action()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_a_chain_a_note_and_a_group_are_read():
    memory = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def chain():
        try:
            raise memory
        except Exception as error:
            raise ValueError("the step failed") from error

    assert names(fail(chain)) == ["out-of-memory"]
    noted = ValueError("the step failed")
    noted.add_note("CUDA out of memory")
    assert names(noted) == ["out-of-memory"]
    assert names(ExceptionGroup("several", [ValueError("a"), memory])) == ["out-of-memory"]


def test_an_exception_of_a_worker_is_read():
    loader = torch.utils.data.DataLoader([torch.ones(1), torch.ones(2)], 2, num_workers=1)
    assert names(fail(lambda: next(iter(loader)))) == ["ragged-batch"]


def test_inside_except_no_argument_is_needed():
    try:
        torch.ones(2, requires_grad=True).numpy()
    except RuntimeError:
        assert d2l.explain().causes[0].name == "numpy-and-grad"


def test_the_last_exception_of_the_session_is_taken(monkeypatch):
    for name in ("last_exc", "last_value"):
        monkeypatch.delattr(sys, name, raising=False)
    found = d2l.explain()
    assert found.causes == [] and "no exception in this session yet" in str(found)
    monkeypatch.setattr(sys, "last_value", RuntimeError("CUDA out of memory"), raising=False)
    assert d2l.explain().causes[0].name == "out-of-memory"


def test_in_a_notebook_the_cell_before_is_explained():
    code = ("from IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
            "shell.run_cell('import torch, d2l_gpu as d2l; net = torch.nn.Linear(784, 2)')\n"
            "shell.run_cell('net(torch.ones(64, 1, 28, 28))')\n"
            "shell.run_cell('print(\"FOUND\", d2l.explain().causes[0].name)')\n")
    pytest.importorskip("IPython")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "FOUND flatten-first" in done.stdout, done.stdout + done.stderr


# ------------------------------------------------------------------------------------------------------ hands off
def test_nothing_of_the_readers_is_kept():
    alive = []

    def step():
        X, net = torch.ones(2, 4), nn.Linear(4, 3, device="cuda:0")
        alive.extend([weakref.ref(X), weakref.ref(net)])
        net(X)

    with d2l.simulate_gpus(1):
        error = fail(step)
        found = d2l.explain(error)
        assert "`X` is on cpu" in str(found)
        del error
        import gc
        gc.collect()
        assert [ref() for ref in alive] == [None, None]


def test_a_function_that_still_runs_can_free_its_tensors():
    with d2l.simulate_gpus(1):
        X, net = torch.ones(2, 4), nn.Linear(4, 3, device="cuda:0")
        ref = weakref.ref(X)
        try:
            net(X)
        except RuntimeError as error:
            d2l.explain(error)
        del X
        assert ref() is None


def test_the_readers_code_is_not_run_by_looking():
    ran = []

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, X):
            return self.linear(X)

        def __getattr__(self, name):
            ran.append(name)
            return super().__getattr__(name)

        def parameters(self, recurse=True):
            ran.append("parameters")
            return super().parameters(recurse)

        @property
        def size(self):
            ran.append("size")

    class Own(torch.Tensor):
        @property
        def device(self):
            ran.append("device")
            return super().device

    with d2l.simulate_gpus(1):
        net, X, odd = Odd().to("cuda:0"), torch.ones(2, 4), torch.ones(2).as_subclass(Own)
        error = fail(lambda: (net.linear, net(X), odd, net.size))
        fail_again = fail(lambda: torch.ones(2, device="cuda:0") + odd)
        ran.clear()
        assert "`X` is on cpu, the parameters of `net`" in str(d2l.explain(error))
        d2l.explain(fail_again)
    assert ran == []


def test_an_exception_that_resists_is_explained_all_the_same():
    class Silent(RuntimeError):
        def __str__(self):
            raise KeyError("no")

    assert d2l.explain(Silent("device")).causes == []
    error = RuntimeError("Expected all tensors to be on the same device")
    error.exceptions = 5
    assert names(error)[0] == "batch-behind"


def test_variables_stay_as_they_are():
    with d2l.simulate_gpus(1):
        def step(X):
            net = nn.Linear(4, 3, device="cuda:0")
            before = dict(locals())
            try:
                net(X)
            except RuntimeError as error:
                d2l.explain(error)
            return before, dict(locals())

        before, after = step(torch.ones(2, 4))
    assert {name: after[name] for name in before} == before


# -------------------------------------------------------------------------------------------------- without torch
WITHOUT = """
import sys
sys.path.insert(0, {root!r})
sys.modules["torch"] = None                     # importing it fails
import d2l_gpu as d2l
print(d2l.explain("CUDA out of memory").causes[0].name, len(d2l.errors()) > 40)
try:
    raise RuntimeError("Expected all tensors to be on the same device")
except RuntimeError as error:
    print(d2l.explain(error).causes[0].name)
"""


def test_text_is_explained_where_torch_is_missing(root):
    done = subprocess.run([sys.executable, "-c", WITHOUT.format(root=str(root))], capture_output=True, text=True)
    assert done.stdout == "out-of-memory True\nbatch-behind\n", done.stderr


def test_importing_the_package_does_not_read_the_knowledge(root):
    code = f"import sys; sys.path.insert(0, {str(root)!r}); import d2l_gpu; print('d2l_gpu.doctor.explain' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# ------------------------------------------------------------------------------------------------------ the display
def test_the_table_is_text_and_markdown_in_one_order():
    table = d2l.errors()
    assert tuple(table) == ENTRIES and repr(table) == str(table)
    plain, marked = str(table), table._repr_markdown_()
    places = [marked.index(f"**{entry.title}.**") for entry in ENTRIES]
    assert places == sorted(places) and all(len(line) <= 78 for line in plain.split("\n"))
    assert marked.count("<details>") == marked.count("</details>") == marked.count("```python") == len(ENTRIES)
    assert all(entry.fix in marked and entry.link in marked for entry in ENTRIES)
    assert marked.count("](") == sum(bool(entry.section) for entry in ENTRIES) and "<lambda>" not in marked


@pytest.mark.parametrize("heading, expected", [
    ("Out of memory", "out-of-memory"), ("The optimizer and .to", "the-optimizer-and-to"),
    ("Pinned memory: faster, at a price", "pinned-memory-faster-at-a-price"), ("Which PyTorch do I have?", "which-pytorch-do-i-have"),
])
def test_anchors_are_those_of_the_book(heading, expected):
    assert knowledge.anchor(heading) == expected


def test_the_explanation_is_plain_text_of_eighty_columns():
    text = str(d2l.explain("RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"))
    assert "    X, y = X.to(device), y.to(device)" in text and 'chapter 06, "A batch that stays behind"' in text
    assert "less likely" in text and "Labels that stay behind" in " ".join(text.split())
    assert max(map(len, text.split("\n"))) <= 80 and "\x1b" not in text


def test_a_long_message_is_cut():
    head = str(d2l.explain("RuntimeError: CUDA out of memory. " + "word " * 200)).split("\n\n")[0]
    assert head.endswith(" ...") and len(head.split("\n")) == 3


@pytest.mark.parametrize("text", [text for entry in ENTRIES for _, text in entry.texts[:1]] + ["\x00\ud800", "File \"", "│", "----> 1", "(" * 500])
def test_any_text_can_be_taken_apart(text):
    for cut in (text, text[: len(text) // 2], text[::-1], "\n".join(f"  {line}" for line in text.split("\n"))):
        take_apart(cut or "x")


def test_a_traceback_of_python_has_the_readers_frame_last(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("import torch\nnet = torch.nn.Linear(2, 2)\ndef forward():\n    return net(torch.ones(1, 3))\nforward()\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    taken = take_apart(done.stderr)
    assert taken.raised and taken.own.startswith(", in forward") and "net(torch.ones(1, 3))" in taken.own and taken.own.endswith("<deeper>")
    assert taken.error.startswith("RuntimeError: mat1 and mat2") and names(done.stderr) == ["flatten-first"]


LARGE = {"blanks": " " * 50_000 + "x", "word": "a" * 200_000, "words": "memory " * 20_000, "bars": "| " * 50_000,
         "log": "x = 1\n" * 200_000}


def test_a_large_text_is_no_trap(root, tmp_path):
    for name, text in LARGE.items():
        (tmp_path / name).write_text(text)
    code = (f"import sys; sys.path.insert(0, {str(root)!r}); import d2l_gpu as d2l; from pathlib import Path\n"
            f"for file in Path({str(tmp_path)!r}).iterdir(): print(d2l.explain(file.read_text()).causes)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)  # seconds, or hours
    assert done.stdout == "[]\n" * len(LARGE), done.stderr
