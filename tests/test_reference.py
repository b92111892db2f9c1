"""The cheat sheet: its code runs, on a machine without a GPU too."""

import re
import subprocess
import sys

import pytest
import torch

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def blocks(root):
    return BLOCK.findall((root / "pages" / "cheat-sheet.md").read_text(encoding="utf-8"))


def run(command, folder):
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_the_cheat_sheet_runs_from_top_to_bottom(blocks, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "sheet.py").write_text("\n".join(block for block in blocks if "torchrun" not in block), encoding="utf-8")
    printed = run(["sheet.py"], tmp_path)
    assert "limits" in printed and "copies between devices: 0" in printed and "More: chapter" in printed
    assert (tmp_path / "trace.json").exists() and (tmp_path / "checkpoint.pt").exists()


def test_the_cheat_sheets_script_for_several_gpus_runs(blocks, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (script,) = [block for block in blocks if "torchrun" in block]
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    started = re.search(r"torchrun (.*)", script)[1].split()
    run(["-m", "torch.distributed.run", *started], tmp_path)
    assert set(torch.load(tmp_path / "net.pt", weights_only=True)) == {"weight", "bias"}


def test_the_cheat_sheet_is_legible_on_paper(blocks):
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 80
