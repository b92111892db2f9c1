"""The ProgressBoard. Tests named `defect_x` hold one of d2l.torch's known defects mended."""

import base64
import copy
import inspect
import math
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("matplotlib", reason="the board draws with matplotlib")
pytest.importorskip("IPython", reason="the board shows figures in a notebook")

import matplotlib.colors
from matplotlib.figure import Figure

import d2l_gpu as d2l
from d2l_gpu import progress
from d2l_gpu.progress import Point

PNG = progress._png  # the real one


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves: `clock.now`, in seconds."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture
def notebook(monkeypatch, clock):
    """A notebook's display: a list of displays, each the list of the pictures that it showed."""
    displays = []

    def display(bundle, raw, display_id):
        assert raw and display_id
        displays.append([bundle])
        return SimpleNamespace(update=lambda bundle, raw: displays[-1].append(bundle))

    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", display)
    return displays


def wave(board, n=100, **options):
    for i in range(n):
        board.draw(i / 10, math.sin(i / 10), "sin", **options)


def contrast(a, b):
    """WCAG 2.1's contrast of two colors, 1 to 21."""
    def luminance(color):
        rgb = matplotlib.colors.to_rgb(color)
        channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
        return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), channels))
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


# --------------------------------------------------------------------------------------- the points
def test_the_signatures_are_d2ls():
    names = "xlabel ylabel xlim ylim xscale yscale ls colors fig axes figsize display"
    assert list(inspect.signature(d2l.ProgressBoard).parameters) == names.split()
    assert list(inspect.signature(d2l.ProgressBoard.draw).parameters) == ["self", "x", "y", "label", "every_n"]


def test_every_n_points_become_their_mean():
    board = d2l.ProgressBoard(display=False)
    for x in range(7):
        board.draw(x, 10 * x, "line", every_n=3)
    assert board.data == {"line": [Point(1, 10), Point(4, 40)]}
    assert board.raw_points["line"] == [(6, 60)]


def test_tensors_and_numbers_mix_and_keep_their_order():
    board = d2l.ProgressBoard(display=False)
    for x, y in enumerate([torch.tensor(0.0), 1, torch.tensor([2]), torch.tensor(3.0, dtype=torch.bfloat16), 4.0]):
        board.draw(x, y, "y")
        board.draw(x, -y, "-y")
    assert board.data == {"y": [Point(i, i) for i in range(5)], "-y": [Point(i, -i) for i in range(5)]}
    assert all(type(p.y) is float for p in board.data["y"])


def test_a_tensor_is_kept_as_it_was_and_lets_go_of_its_graph():
    board, w = d2l.ProgressBoard(display=False), torch.ones(1, requires_grad=True)
    total = (2 * w).sum()
    board.draw(0, total, "total")
    assert not board._pending[0][2][0].requires_grad
    with torch.no_grad():
        total += 1  # an accumulator goes on
    board.draw(1, total, "total")
    assert [p.y for p in board.data["total"]] == [2, 3]


def test_tensors_are_fetched_together(monkeypatch):
    fetched = []
    real = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: fetched.append(len(self)) or real(self))
    board = d2l.ProgressBoard(display=False)
    for i in range(10):
        for label in "ab":
            board.draw(i, torch.tensor(float(i)), label)
    assert fetched == []
    board.flush()
    assert fetched == [20] and board.data["b"][9] == Point(9, 9)
    board.flush()
    assert fetched == [20]


def test_a_point_is_one_number():
    with pytest.raises(ValueError, match=r"'loss' is one number, not a tensor of shape \(3,\)"):
        d2l.ProgressBoard().draw(0, torch.ones(3), "loss")


def test_clear_forgets_all_points_or_those_after_an_x(notebook):
    board = d2l.ProgressBoard()
    wave(board, 10)
    board.show()
    board.clear(after=0.5)
    assert [p.x for p in board.data["sin"]] == [0, 0.1, 0.2, 0.3, 0.4, 0.5]
    board.show()
    assert len(board.fig.axes[0].lines) == 1
    board.clear()
    assert board.data == {}
    wave(board, 3)
    assert len(board.data["sin"]) == 3


# ------------------------------------------------------------------------------------- the notebook
def test_defect_g_drawing_keeps_one_figure_with_one_line_for_each_curve(notebook, clock):
    board = d2l.ProgressBoard()
    for i in range(30):
        clock.now += 1
        board.draw(i, i, "up")
        board.draw(i, -i, "down")
    figure, axes = board.fig, board.fig.axes[0]
    assert len(board.fig.axes) == 1 and len(axes.lines) == 2 and board.fig is figure
    assert [len(line.get_xdata()) for line in axes.lines] == [30, 29]
    assert len(notebook) == 1 and len(notebook[0]) == 29  # one display, replaced
    board.finish()
    assert [len(line.get_xdata()) for line in axes.lines] == [30, 30]


def test_drawing_waits_while_the_last_one_is_recent(notebook, clock):
    board = d2l.ProgressBoard()
    wave(board)
    assert notebook == []
    clock.now += progress.DRAW_SECONDS
    wave(board)
    assert len(notebook[0]) == 1
    board.finish()
    assert len(notebook[0]) == 2
    board.finish()
    assert len(notebook[0]) == 2  # nothing new


def test_a_slow_drawing_is_repeated_less_often(notebook, clock, monkeypatch):
    def slow(figure):
        clock.now += 2
        return PNG(figure)
    monkeypatch.setattr(progress, "_png", slow)
    board = d2l.ProgressBoard()
    for _ in range(100):
        clock.now += 1
        wave(board, 1)
    assert 5 <= len(notebook[0]) <= 6  # 2 s of drawing in every 20


def test_points_on_a_device_are_not_fetched_for_every_drawing(notebook, clock):
    board = d2l.ProgressBoard()
    board.draw(0, torch.tensor(1.0), "loss")
    clock.now += 1
    board.draw(1, torch.tensor(1.0), "loss")
    assert notebook == []
    clock.now += progress.FETCH_SECONDS
    board.draw(2, torch.tensor(1.0), "loss")
    assert len(notebook[0]) == 1


def test_the_next_cell_gets_a_display_of_its_own(notebook):
    board = d2l.ProgressBoard()
    wave(board)
    board.finish()
    wave(board)
    board.finish()
    assert len(notebook) == 2


@pytest.mark.parametrize("curves", [1, 16])
def test_the_picture_is_a_png_under_100_kb_whose_text_does_not_vary(notebook, curves):
    torch.manual_seed(0)
    board = d2l.ProgressBoard(xlabel="epoch", figsize=(8, 6))
    for label in range(curves):
        for i, y in enumerate(torch.rand(3000).tolist()):
            board.draw(i, y, f"curve {label}")
    board.finish()
    bundle = notebook[0][-1]
    png = base64.b64decode(bundle["image/png"])
    assert png.startswith(b"\x89PNG") and len(png) < 100_000
    assert bundle["text/plain"] == "curves against epoch"


def test_defect_i_a_short_epoch_is_drawn(clock):
    board = d2l.ProgressBoard(display=False)
    module = d2l.Module(plot_train_per_epoch=5)
    module.board = board
    module.trainer = SimpleNamespace(train_batch_idx=0, num_train_batches=3)
    for module.trainer.train_batch_idx in range(3):
        module.plot("loss", torch.tensor(1.0), train=True)
    assert [p.x for p in board.data["train_loss"]] == [0, 1 / 3, 2 / 3]


def test_no_points_an_epoch_draws_none():
    module = d2l.Module(plot_train_per_epoch=0)
    module.trainer = SimpleNamespace(train_batch_idx=0, num_train_batches=3)
    module.plot("loss", torch.tensor(1.0), train=True)
    assert module.board.data == {}


def test_defect_j_no_curve_is_dropped_and_no_two_look_the_same(notebook):
    board = d2l.ProgressBoard()
    for label in range(16):
        wave_label = f"curve {label}"
        board.draw(0, label, wave_label)
        board.draw(1, label, wave_label)
    board.finish()
    axes = board.fig.axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [f"curve {i}" for i in range(16)]
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 16


def test_defect_k_no_xlabel_is_needed(notebook):
    board = d2l.ProgressBoard()
    wave(board)
    board.finish()
    assert notebook[0] and board.fig.axes[0].get_xlabel() == ""


def test_labels_limits_and_scales_are_those_of_the_moment(notebook):
    board = d2l.ProgressBoard(yscale="log")
    wave(board)
    board.xlabel, board.ylabel, board.xlim, board.ylim = "epoch", "loss", [0, 3], [0.1, 1]
    board.finish()
    axes = board.fig.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()) == ("epoch", "loss", "log")
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 3), (0.1, 1))


def test_one_point_is_visible(notebook):
    board = d2l.ProgressBoard()
    board.draw(1, 2, "val_acc")
    board.finish()
    assert board.fig.axes[0].lines[0].get_marker() == "o"


def test_colors_and_text_are_readable_on_the_board_whatever_the_page(notebook):
    board = d2l.ProgressBoard("x", "y")
    wave(board)
    board.finish()
    axes = board.fig.axes[0]
    paper = axes.get_facecolor()
    assert board.fig.get_facecolor() == paper and paper[3] == 1  # the board brings its own background
    inks = [axes.xaxis.label.get_color(), axes.yaxis.label.get_color(), axes.xaxis.get_ticklabels()[0].get_color(),
            axes.get_legend().get_texts()[0].get_color(), *board.colors]
    assert all(contrast(ink, paper) >= 4.5 for ink in inks)


def test_a_trained_board_can_be_copied(notebook):
    board = d2l.ProgressBoard()
    wave(board)
    board.finish()
    twin = copy.deepcopy(board)
    wave(twin, 5)
    twin.show()
    assert len(twin.data["sin"]) == 105 and len(board.data["sin"]) == 100


def test_without_matplotlib_a_notebook_gets_text(notebook, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    board = d2l.ProgressBoard("x")
    wave(board, 1)
    board.finish()
    assert capsys.readouterr().out == "x 0: sin 0\n"


# --------------------------------------------------------------------------------------- the script
def test_defect_h_a_script_gets_lines_of_text(root):
    script = """
import math, sys
import d2l_gpu as d2l
board = d2l.ProgressBoard("x")
for i in range(101):
    board.draw(i / 10, math.sin(i / 10), "sin", every_n=2)
    board.draw(i / 10, math.cos(i / 10), "cos", every_n=10)
print("matplotlib" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert done.stderr == "" and done.stdout.splitlines()[-1] == "x 9.85: sin -0.412, cos -0.9589"  # at the exit
    assert "Figure" not in done.stdout and "\x1b" not in done.stdout and "False\n" in done.stdout


def test_in_a_script_a_drawing_is_a_line_with_the_last_values(clock, capsys):
    board = d2l.ProgressBoard("epoch")
    for epoch in (1, 2, 3):
        clock.now += 1
        board.draw(epoch, torch.tensor(1 / epoch), "val_loss")
        board.flush()
    assert capsys.readouterr().out.splitlines() == ["epoch 2: val_loss 0.5", "epoch 3: val_loss 0.3333"]


def test_in_a_script_the_readers_own_axes_are_drawn_on(capsys):
    axes = Figure().add_subplot()
    board = d2l.ProgressBoard("x", axes=axes)
    wave(board)
    board.show()
    assert len(axes.lines) == 1 and axes.get_xlabel() == "x" and capsys.readouterr().out == ""


def test_a_board_that_does_not_display_keeps_its_points(capsys, notebook):
    board = d2l.ProgressBoard(display=False)
    wave(board)
    board.show()
    board.finish()
    assert notebook == [] and capsys.readouterr().out == "" and len(board.data["sin"]) == 100


# ------------------------------------------------------------------------------- a notebook's kernel
CELLS = ["""
import math
import torch
import d2l_gpu as d2l
""", """
board = d2l.ProgressBoard("x")
for i in range(100):
    board.draw(i / 10, math.sin(i / 10), "sin", every_n=2)
    board.draw(i / 10, math.cos(i / 10), "cos", every_n=10)
""", """
class Data(d2l.DataModule):
    def train_dataloader(self):
        return [(torch.ones(4, 2), torch.ones(4, 1))] * 4
    val_dataloader = train_dataloader

class Line(d2l.Module):
    def __init__(self):
        super().__init__()
        self.lr, self.net = 0.1, torch.nn.Linear(2, 1)
    def loss(self, y_hat, y):
        return ((y_hat - y) ** 2).mean()

model, trainer = Line(), d2l.Trainer(max_epochs=3)
trainer.fit(model, Data())
""", """
trainer.fit(model, Data())
""", """
slow = [(torch.ones(4, 2), torch.ones(4, 1))] * 5
class Slow(d2l.DataModule):
    def train_dataloader(self):
        import os, signal
        class Loader:
            def __len__(self):
                return 5
            def __iter__(self):
                yield from slow[:3]
                os.kill(os.getpid(), signal.SIGINT)
                yield from slow[3:]
        return Loader()
    def val_dataloader(self):
        return None
try:
    trainer.fit(model, Slow())
except KeyboardInterrupt as error:
    print(error.__notes__)
"""]


def test_a_real_notebook_stores_one_picture_a_cell_and_survives_an_interrupt(root, monkeypatch, tmp_path):
    import nbclient
    import nbformat
    monkeypatch.setenv("PYTHONPATH", str(root))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    here = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3", resources=here).execute()
    outputs = [cell.outputs for cell in notebook.cells]
    kinds = [[output.output_type for output in cell] for cell in outputs]
    assert kinds[:4] == [[], ["display_data"], ["display_data"], ["display_data"]]
    for cell, text in zip(outputs[1:4], ("curves against x", "curves against epoch", "curves against epoch")):
        assert cell[0].data["text/plain"] == text and len(cell[0].data["image/png"]) < 100_000
    assert sorted(kinds[4]) == ["display_data", "stream"]
    printed = [output.text for output in outputs[4] if output.output_type == "stream"]
    assert printed == ["['in epoch 1 of 3, training batch 4 of 5']\n"]
