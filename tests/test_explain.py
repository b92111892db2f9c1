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
    assert entry.title and entry.message and entry.cause and entry.fix and (entry.patterns or entry.across or entry.like)
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


def sections(path):
    """The headings of a chapter, without code marks, and below each all that stands under it, outputs included."""
    found, heading = {}, None
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for line in "".join(cell["source"]).split("\n"):
            if cell["cell_type"] == "markdown" and re.match(r"#{1,3} ", line):
                heading = line.lstrip("#").strip().replace("`", "")
                found[heading] = ""
            elif heading:
                found[heading] += line + "\n"
        if heading:
            found[heading] += "".join("".join(output.get("text", ())) for output in cell.get("outputs", ()))
    return found


#: For each entry with a section, words that the section must hold: a link to where nothing is said of an error is none.
TOLD = {
    "unscale-fp16": "FP16 gradients", "scaler-order": "No inf checks", "old-amp": "torch.cuda.amp", "tf32-mixed": "fp32_precision",
    "clip-before-unscale": "Without `unscale_`", "worker-options": "prefetch_factor option",
    "batch-behind": "same device", "labels-behind": "class weights", "plain-attribute": "register_buffer",
    "layers-in-list": "empty parameter list", "made-in-forward": "device=", "moved-not-kept": "returns a tensor",
    "index-elsewhere": "indices should be either on", "gpu-to-numpy": "tensor to numpy", "numpy-and-grad": "detach",
    "batch-has-no-to": "lists and dicts", "module-has-no-device": "no attribute 'device'", "built-without-cuda": "for the CPU only",
    "no-driver": "Found no NVIDIA driver", "driver-too-old": "is too old", "device-name": "start of device string",
    "device-number": "invalid device ordinal", "gpus-hidden": "CUDA_VISIBLE_DEVICES", "fabric-manager": "fabric manager",
    "cuda-not-available": "is_available", "no-kernel-image": "no kernel image", "mps-float64": "float64",
    "device-assert": "device-side assert", "target-out-of-range": "out of bounds", "checkpoint-device": "map_location",
    "weights-only": "Weights only load failed", "wrapped-names": "_orig_mod", "out-of-memory": "out of memory",
    "host-memory": "compare before you allocate", "memory-grows": "graph", "cuda-in-worker": "Cannot re-initialize CUDA",
    "unpicklable-file": "torch.save(net", "unpicklable-worker": "Can't pickle", "shared-memory": "Bus error", "worker-died": "Killed",
    "child-process": "can only test a child process", "ragged-batch": "equal size", "pinned-on-gpu": "pinned",
    "pinning-without-gpu": "nothing to pin for", "generator-device": "device type for generator", "generator-on-gpu": "generator",
    "dtype-mismatch": "float32", "flatten-first": "Flatten", "accumulation": "adding up the gradients",
    "timing-without-wait": "synchronize", "slow-loop": ".item()", "read-too-early": "non_blocking",
    "nccl-without-gpus": "only supported with GPUs", "unused-parameters": "find_unused_parameters", "no-process-group": "torchrun",
    "nccl-timeout": "Watchdog", "nccl-error": "NCCL_DEBUG", "port-in-use": "EADDRINUSE", "same-shuffle": "set_epoch",
    "cards-apart": "plain attribute", "parallel-elsewhere": "device_ids[0]",
    "network-behind": "weight type", "optimizer-behind": "load its own state",
    "allocator-setting": "ALLOC_CONF",
    "graph-output": "overwritten", "capture-forbids": "not permitted when stream is capturing",
    "capturable": "state_steps must be on supported devices", "card-too-old-to-compile": "older than compute capability 7.0",
}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_section_is_there_and_says_something_about_the_error(root, entry):
    assert bool(entry.section) == (entry.name in TOLD)
    if entry.section:
        chapter, heading = entry.section.split("#")
        assert TOLD[entry.name] in sections(root / "chapters" / f"{chapter}.ipynb")[heading]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_fix_does_what_it_is_for(entry, tmp_path, monkeypatch):
    attempts = explain_fixes.FIXES[entry.name]
    if isinstance(attempts, str):
        pytest.skip(attempts)
    monkeypatch.chdir(tmp_path)
    for attempt in attempts:
        attempt(entry.fix)


def test_every_fix_is_tried_or_has_a_reason():
    assert set(explain_fixes.FIXES) == {entry.name for entry in ENTRIES}
    assert sum(isinstance(attempts, str) for attempts in explain_fixes.FIXES.values()) <= 6


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
    "AttributeError: 'Namespace' object has no attribute 'device'",
    "AttributeError: 'NoneType' object has no attribute 'device'",
    "AttributeError: 'TrainConfig' object has no attribute 'device'",
    "AttributeError: 'function' object has no attribute 'device'",
    "TypeError: cannot pickle '_thread.lock' object",
    "TypeError: cannot pickle 'generator' object",
    "OSError: [Errno 98] Address already in use",
    "what does a convolution do?",
    "my loss does not go down",
    "IndexError: loss list is empty: nan",
]


@pytest.mark.parametrize("text", UNRELATED)
def test_an_unrelated_error_finds_nothing_and_gets_the_general_way(text):
    found = d2l.explain(text)
    assert found.causes == []
    assert "not in the table" in str(found) and "CUDA_LAUNCH_BLOCKING=1" in str(found) and "on the CPU" in str(found)


@pytest.mark.parametrize("text", [
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: train.py FAILED",
    "[rank1]: RuntimeError: Connection closed by peer",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:1234",
    "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (node1, 29500).",
    "NCCL WARN Call to connect returned Connection refused",
])
def test_an_unknown_error_of_several_processes_gets_a_way_of_its_own(text):
    found = d2l.explain(text)
    assert found.causes == [] and "--nproc-per-node=1" in str(found) and "NCCL_DEBUG=INFO" in str(found)
    assert all(len(line) <= 80 for line in str(found).split("\n"))


@pytest.mark.parametrize("text, expected", [
    ('File "train.py", line 3, in f\n    torch.save(net, path)\n  File "/venv/lib/python3.12/site-packages/torch/serialization.py", '
     "line 900, in save\n    pickler.dump(obj)\nTypeError: cannot pickle '_thread.lock' object", ["unpicklable-file"]),
    ("RuntimeError: DataLoader worker (pid 1) is killed by signal: Aborted.", ["worker-crashed"]),
    ("RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: Too many open files (24)", ["too-many-files"]),
    ("RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: No space left on device (28)", ["shared-memory"]),
    ("RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode", ["too-many-files", "shared-memory"]),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", ["device-assert", "out-of-memory"]),
    ("Expected a 'cpu' device type for generator but found 'cuda'", ["generator-on-gpu"]),
    ("Expected a 'cuda' device type for generator but found 'cpu'", ["generator-device"]),
    ("UserWarning: pin_memory_device is deprecated, the current accelerator will be used", ["pin-memory-device"]),
])
def test_what_looks_alike_is_told_apart(text, expected):
    assert names(text) == expected


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


@pytest.mark.parametrize("said, name", [("mat1 is on cuda:0, different from other tensors on cpu", "network-behind"),
                                        ("mat1 is on cpu, different from other tensors on cuda:0", "batch-behind"),
                                        ("mat2 is on cuda:0, different from other tensors on cpu", "batch-behind")])
def test_in_text_alone_the_direction_tells_a_layer_from_a_batch(said, name):
    assert names(f"RuntimeError: Expected all tensors to be on the same device, but got {said} (when checking argument in method "
                 "wrapper_CUDA_addmm)")[0] == name


def test_a_closure_of_the_optimizer_is_no_state_of_it():
    text = ('  File "train.py", line 9, in <module>\n    optimizer.step(closure)\n'
            '  File "/venv/lib/python3.11/site-packages/torch/optim/lbfgs.py", line 330, in step\n    orig_loss = closure()\n'
            '  File "train.py", line 5, in closure\n    loss = net(X).sum()\n'
            '  File "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134, in forward\n    return F.linear(X)\n'
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!")
    assert names(text)[0] == "batch-behind"


def test_in_a_container_the_process_itself_is_no_other():  # tsugumi-sys/SA-ConvLSTM-Pytorch#22, on Colab
    text = ("CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacty of 14.75 GiB of which 821.06 MiB is free. Process 5543 "
            "has 13.94 GiB memory in use. Of the allocated memory 13.20 GiB is allocated by PyTorch, and 621.20 MiB is reserved by PyTorch")
    assert "others" not in str(d2l.explain(text))


@pytest.mark.parametrize("text, said", [
    ("CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB free;",
     "asked for 2.26 GiB; the GPU has 6.00 GiB, of which 3.03 GiB were free"),
    ("CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 11.06 MiB is free.", "11.06 MiB were free"),
    ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.50 GiB is free. Process 4711 has "
     "18.00 GiB memory in use. Of the allocated memory 3.00 GiB is allocated by PyTorch", "holds 3.00 GiB of it here, and others most of it (process 4711 has 18.00 GiB). A smaller batch "),
    ("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 14.75 GiB of which 5.06 MiB is free. Process 2245 has 14.74 GiB "
     "memory in use. Of the allocated memory 280.00 MiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.",
     "PyTorch holds 0.29 GiB of it here, and others most"),
    ("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 14.75 GiB total capacity; 280.00 MiB already allocated; 5.06 MiB free; 300.00 MiB "
     "reserved in total by PyTorch)", "PyTorch holds 0.29 GiB of it here, and others most of it. A smaller"),
    ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 500.00 MiB is free. Of the allocated memory "
     "14.00 GiB is allocated by PyTorch, and 8.00 GiB is reserved by PyTorch but unallocated.", "not in one piece (PyTorch keeps 8.00 GiB that no"),
    ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.50 GiB is free. Of the allocated memory "
     "9.00 GiB is allocated by PyTorch, and 12.00 GiB is reserved by PyTorch but unallocated.", "keeps 12.00 GiB that no tensor uses): PYTORCH_ALLOC_CONF=exp"),
    ("CUDA out of memory. Tried to allocate 100.00 GiB. GPU 0 has a total capacity of 15.90 GiB of which 15.00 GiB is free.", "a shape that is wrong"),
    ("MPS backend out of memory (MPS allocated: 5.50 GB, other allocations: 14.76 GB, max allowed: 20.40 GB). Tried to allocate 147.24 MB on private pool.",
     "may use 20.40 GB"),
    ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 132426121216 bytes.", "132.4 GB"),
    ("The NVIDIA driver on your system is too old (found version 11070).", "CUDA 11.7 at most: no build of today serves it"),
    ("NVIDIA A100 with CUDA capability sm_80 is not compatible with the current PyTorch installation. The current PyTorch install supports "
     "CUDA capabilities sm_37 sm_50.", "card is sm_80, and this torch has code for sm_37, sm_50. The card is newer than this torch: take"),
    ("Tesla P100 with CUDA capability sm_60 is not compatible with the current PyTorch installation. The current PyTorch install supports CUDA "
     "capabilities sm_70 sm_75 sm_90 compute_90.", "this torch has code for sm_70, sm_75, sm_90. The card is older than this torch serves: take"),
    ("Found GPU0 Tesla K80 which is of cuda capability 3.7. Minimum and Maximum cuda capability supported by this version of PyTorch is "
     "(7.0) - (12.0)", "card is sm_37, and this torch has code for sm_70, sm_120. No release of torch"),
    ("Found GPU0 RTX 5060 Ti which is of compute capability (CC) 12.0. The following list shows the CCs this version of PyTorch was built for and "
     "the hardware CCs it supports: - 8.0 which supports hardware CC >=8.0,<9.0 - 9.0 which supports hardware CC >=9.0,<10.0",
     "card is sm_120, and this torch has code for sm_80, sm_90. The card is newer"),
    ("The NVIDIA driver on your system is too old (found version 12020).", "CUDA 12.2 at most: a build for CUDA 12 will do."),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasCreate(handle)`", "does not say why"),
    ("torch/serialization.py pickler.dump(obj) AttributeError: Can't pickle local object 'make.<locals>.hook'", "`make.<locals>.hook`"),
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


class Encoding(nn.Module):
    def __init__(self):
        super().__init__()
        self.pe = torch.ones(8, 4)

    def forward(self, X):
        return X + self.pe[:len(X)]


class OwnLoss(nn.Module):
    def forward(self, scores, y):
        w = torch.ones(4)
        return ((scores - y) ** 2 * w).mean()


def network(device, X, y):
    net = nn.Linear(4, 3).to(device)
    return net(X)


def network_behind(device, X, y):
    net, X = nn.Linear(4, 3), X.to(device)
    return net(X)


def addition(device, X, y):
    weights = torch.ones(8, 4, device=device)
    return X + weights


def mask(device, X, y):
    w = torch.ones(8, 4)
    scores = X.to(device)
    return scores * w


def mask_of_another(device, X, y):
    w = torch.ones(8, 4)
    scores, w = X.to(device), X * w
    return scores * w


def picture(device, X, y):
    net = nn.Conv2d(1, 1, 1).to(device)
    return net(X.reshape(8, 1, 2, 2))


def deep(device, X, y):
    model = Scaled().to(device)
    model.scale = model.scale.to(device)
    return model(X)


def split(device, X, y):
    net = nn.Sequential(nn.Linear(4, 4).to(device), nn.Linear(4, 3).to("cuda:1"))
    return net[1](net[0](X.to(device)))


def split_labels(device, X, y):
    scores, y = nn.Linear(4, 3).to("cuda:1")(X.to("cuda:1")), y.to(device)
    return F.cross_entropy(scores, y)


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
    (network_behind, "network-behind", "`X` is on cuda:0, the parameters of `net` are on cpu"),
    (addition, "batch-behind", "`X` is on cpu, `weights` is on cuda:0"),
    (mask, "made-in-forward", "`scores` is on cuda:0, `w` is on cpu"),
    (mask_of_another, "batch-behind", "`scores` is on cuda:0, `w` is on cpu"),
    (picture, "batch-behind", "`X` is on cpu, the parameters of `net` are on cuda:0"),
    (deep, "batch-behind", "`X` is on cpu, the parameters of `model` are on cuda:0"),
    (split_labels, "cards-apart", "`scores` is on cuda:1, `y` is on cuda:0"),
    (labels, "labels-behind", "`scores` is on cuda:0, `y` is on cpu"),
    (labels_in_one_line, "labels-behind", "`y` is on cpu"),
    (squares, "labels-behind", "`predictions` is on cuda:0, `X` is on cpu"),
    (weights, "labels-behind", "the buffers of `loss` are on cpu"),
    (lambda device, X, y: Scaled().to(device)(X.to(device)), "plain-attribute", "`self.scale` is on cpu and is neither"),
    (lambda device, X, y: Listed().to(device)(X.to(device)), "layers-in-list", "`self.layers` is no nn.ModuleList"),
    (lambda device, X, y: Named().to(device)(X.to(device)), "layers-in-list", "the layers in it are on cpu"),
    (lambda device, X, y: Recurrent().to(device)(torch.ones(3, 2, 4, device=device)), "made-in-forward", "`h` was made on cpu"),
    (lambda device, X, y: Positions().to(device)(X.to(device)), "made-in-forward", "`positions` was made on cpu"),
    (lambda device, X, y: Encoding().to(device)(X.to(device)), "plain-attribute",
     "`self.pe` is on cpu and is neither a parameter nor a buffer; the arguments are on cuda:0."),
    (lambda device, X, y: OwnLoss().to(device)(X.to(device), X.to(device)), "made-in-forward",
     "`w` was made on cpu; the arguments are on cuda:0."),
    (lambda device, X, y: OwnLoss().to(device)(X.to(device), X), "batch-behind", "`scores` is on cuda:0, `y` is on cpu"),
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


def test_a_network_on_two_cards_is_told_from_a_batch_that_stays_behind():
    with d2l.simulate_gpus(2):
        found = d2l.explain(fail(lambda: split(torch.device("cuda:0"), *explain_fixes.data())))
    assert found.causes[0].name == "cards-apart"


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


def test_an_opened_entry_has_other_wordings_of_the_message():
    marked = d2l.errors()._repr_markdown_()
    entry = next(entry for entry in ENTRIES if entry.name == "device-number")
    assert entry.also == ("CUDA unavailable, invalid device 2 requested",)  # its other texts say what its message says
    assert f"Also said as: `` {entry.also[0]} ``\n" in marked
    assert sum(bool(entry.also) for entry in ENTRIES) >= 40
    for entry in ENTRIES:
        for said in entry.also:
            assert len(said) <= 80 and "Error: " not in said and "``" not in said and said not in entry.message, entry.name
            assert names(said)[:1] == [entry.name] and said in marked


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
