"""What importing d2l_gpu asks of a machine."""

import subprocess
import sys

import pytest

ONLY_TORCH = """
import importlib.metadata, re, sys

needed, todo = set(), ["torch"]                      # torch and what torch itself requires
while todo:
    name = re.split(r"[^A-Za-z0-9_.-]", todo.pop())[0].lower().replace("_", "-")
    if name in needed:
        continue
    needed.add(name)
    try:
        requires = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        continue
    todo += [r for r in requires if "extra ==" not in r]
top = importlib.metadata.packages_distributions()
allowed = {m for m, names in top.items() if any(n.lower().replace("_", "-") in needed for n in names)}

class Refuse:
    def find_spec(self, name, path=None, target=None):
        root = name.split(".")[0]
        if root in top and root not in allowed and root not in ("d2l_gpu", "setuptools", "_distutils_hack"):
            raise ModuleNotFoundError(f"{root} is not installed in this test", name=root)
sys.meta_path.insert(0, Refuse())
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torch_alone_is_enough(root):
    printed = run(ONLY_TORCH + f"sys.path.insert(0, {str(root)!r})\n" + """
try:
    import matplotlib
except ModuleNotFoundError:
    print("refused")
import d2l_gpu as d2l
print(d2l.try_gpu().type, tuple(d2l.load_images(train=False)[0].shape), str(d2l.hardware()).count("torch"))
d2l.check("devices-1", ...)

import torch
class Line(d2l.Module):
    loss = torch.nn.MSELoss()
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(2, 1)
    def configure_optimizers(self):  # torch's own look for numpy in a way that this test's refusal breaks
        return Plain()
class Plain:
    zero_grad = step = lambda self: None
class Data(d2l.DataModule):
    def get_dataloader(self, train):
        return [(torch.ones(4, 2), torch.ones(4, 1))]
d2l.Trainer(max_epochs=2).fit(Line(), Data())
""")
    assert "epoch 2: train_loss" in printed
    assert "refused\n" in printed and "(1000, 1, 28, 28)" in printed and "Not attempted yet" in printed


@pytest.mark.parametrize("module", ["matplotlib", "IPython", "torchvision", "psutil", "tqdm"])
def test_importing_the_package_does_not_import(root, module):
    printed = run(f"import sys; sys.path.insert(0, {str(root)!r})\nimport torch; before = set(sys.modules)\n"
                  f"import d2l_gpu; print({module!r} in set(sys.modules) - before)")
    assert printed == "False\n"


def test_public_names_are_documented():
    import d2l_gpu as d2l
    for name in d2l.__all__:
        value = getattr(d2l, name)
        assert not callable(value) or len(value.__doc__.strip()) > 20, name
