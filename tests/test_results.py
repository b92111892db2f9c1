"""Records of machines: that they are kept whole and clean, read with care, and put side by side."""

import copy
import io
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the results page is a Sphinx directive")
pytest.importorskip("matplotlib", reason="results are drawn with matplotlib")

import d2l_results

import d2l_gpu as d2l
from d2l_gpu import results

FILES = sorted((Path(__file__).parents[1] / "results").glob("*.json"))


def make(machine="Test CPU, 2 cores", published=None, device="cpu", factor=1.0):
    """A record with made-up figures."""
    entries = [results.entry("ladder", name, device, [factor * s, 1.1 * factor * s], images=60_000, batch=64, workers=w)
               for name, s, w in (("pictures", 4.0, 0), ("workers", 2.0, 2), ("data on the device", 0.25, 0))]
    entries += [results.entry("products", "product", device, [factor * n ** 3 / 1e9], size=n, dtype="float32") for n in (16, 256)]
    return {"format": 1, "machine": machine, "published": published, "date": "2026-01-31", "versions": {"torch": "2.14.1"},
            "driver": None, "cores": 2, "threads": 2, "devices": [{"device": device, "name": machine, "memory": None, "note": ""}],
            "parts": [{"part": "ladder", "state": "done", "seconds": 1.0, "note": ""}], "measurements": entries,
            "chapters": [{"chapter": "01-devices", "passed": True, "cells": 3, "of": 3, "seconds": 1.0, "error": None}],
            "placement": None}


PUBLISHED = make("Test GPU", {"source": "a text", "note": "one run"}, "cuda:0", 0.1)


# ------------------------------------------------------------------------------------ the files in the book
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_the_book_is_a_valid_record(path):
    assert results.problems(json.loads(path.read_text(encoding="utf-8"))) == []


def test_the_sources_figures_are_there_and_marked_published():
    records = [r for r in results.read_all() if r["published"]]
    cards = {r["machine"]: r for r in records}
    card, unnamed = cards["NVIDIA GeForce RTX 4090"], cards["unnamed hardware"]
    assert [(e["name"], e["setting"]["workers"], e["published_total"], e["median"]) for e in card["measurements"]] == [
        ("pictures", 0, 22.67, 4.53), ("workers", 8, 9.14, 1.83), ("pinned, non_blocking", 8, 9.00, 1.80)]
    assert sum(len(e["published_losses"]) for e in card["measurements"]) == 15
    assert card["versions"] == {"torch": "2.8.0+cu126"} and card["devices"][0]["memory"] == 25_800_000_000
    times = {(e["part"], e["device"]): e["median"] for e in unnamed["measurements"]}
    assert times == {("products", "cpu"): 2.145, ("products", "cuda:0"): 0.025, ("cnn", "cuda:0"): 14.23}
    assert all(e["runs"] == 1 and e["spread"] is None for r in records for e in r["measurements"])


# ----------------------------------------------------------------------------------------- reading and writing
def test_what_is_written_is_read(tmp_path):
    record = make()
    results.write(record, tmp_path / "new" / "a.json")
    assert results.read(tmp_path / "new" / "a.json") == record
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.json"]


def test_bad_files_are_named_and_left_out(tmp_path):
    results.write(make("B"), tmp_path / "b.json")
    results.write(make("A"), tmp_path / "z.json")
    results.write(PUBLISHED, tmp_path / "a.json")
    (tmp_path / "cut.json").write_text(json.dumps(make())[:200])
    (tmp_path / "new.json").write_text(json.dumps(make() | {"format": results.FORMAT + 1}))
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    said = []
    assert [r["machine"] for r in results.read_all(tmp_path, say=said.append)] == ["A", "B", "Test GPU"]
    assert len(said) == 4
    assert any("cut.json" in s for s in said) and any("binary.json" in s for s in said) and any("list.json" in s for s in said)
    assert any("new.json" in s and "update the package" in s for s in said)


def change(**changes):
    return lambda record: record | changes


def damage_entry(**changes):
    def damage(record):
        record["measurements"][0] |= changes
        return record
    return damage


@pytest.mark.parametrize("damage", [
    change(machine=None), change(measurements={}), change(date="yesterday"), change(versions="2.14"), change(format="1"),
    change(parts=[{"part": "ladder", "state": "perhaps", "seconds": 1, "note": ""}]), change(chapters=[{"chapter": "01"}]),
    damage_entry(median=float("nan")), damage_entry(median="fast"), damage_entry(median=-1.0), damage_entry(unit="hours"),
    damage_entry(spread=[5.0, 6.0]), damage_entry(spread=[1.0]), damage_entry(setting=None), damage_entry(median=True),
    lambda record: {k: v for k, v in record.items() if k != "driver"},
])
def test_an_invalid_record_is_neither_written_nor_read(tmp_path, damage):
    record = damage(copy.deepcopy(make()))
    assert results.problems(record)
    with pytest.raises(ValueError, match="a.json was not written"):
        results.write(record, tmp_path / "a.json")
    (tmp_path / "a.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="a.json is not used"):
        results.read(tmp_path / "a.json")


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    results.write(make("old"), tmp_path / "a.json")

    def fail(*paths):
        raise OSError("disk full")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError):
        results.write(make("new"), tmp_path / "a.json")
    assert results.read(tmp_path / "a.json")["machine"] == "old"


# -------------------------------------------------------------------------------------------- nothing personal
def test_paths_host_and_user_are_taken_out(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "penguin-7")
    monkeypatch.setattr("getpass.getuser", lambda: "jdoe")
    text = results.clean("FileNotFoundError: /home/jdoe/book/a.py on penguin-7, C:\\Users\\jdoe\\b.py by jdoe, 3 / 4")
    assert text == "FileNotFoundError: a.py on ..., b.py by ..., 3 / 4"


@pytest.mark.parametrize("name", ["penguin-7", "jdoe"])
def test_a_record_with_a_personal_name_is_refused(monkeypatch, tmp_path, name):
    monkeypatch.setattr(platform, "node", lambda: "penguin-7")
    monkeypatch.setattr("getpass.getuser", lambda: "jdoe")
    with pytest.raises(ValueError, match=name):
        results.write(make(f"the CPU of {name}"), tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


def test_this_machine_is_a_valid_record_without_its_host():
    record = results.this_machine([results.entry("products", "product", "cpu", [1.0, 2.0, 9.0], size=3)])
    assert results.problems(record) == []
    assert record["versions"]["torch"] and record["devices"][0]["device"] == "cpu" and record["published"] is None
    assert platform.node() not in json.dumps(record) or len(platform.node()) < 4
    assert record["measurements"][0] == {"part": "products", "name": "product", "device": "cpu", "unit": "s", "median": 2.0,
                                         "spread": [1.5, 5.5], "runs": 3, "setting": {"size": 3}}


def test_reading_needs_neither_torch_nor_matplotlib(root):
    code = (f"import sys; sys.path.insert(0, {str(root / '_ext')!r})\n"
            "for name in ('torch', 'matplotlib', 'numpy', 'd2l_gpu'): sys.modules[name] = None\n"
            f"import d2l_results; reader = d2l_results.load_reader({str(root)!r})\n"
            f"print(len(d2l_results.content(reader.read_all({str(root / 'results')!r}), reader)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) > 1000, done.stderr


# ---------------------------------------------------------------------------------------------------- drawing
def words(figure):
    figure.draw_without_rendering()
    import matplotlib.text
    return " | ".join(" ".join(t.get_text().split()) for t in figure.findobj(matplotlib.text.Text) if t.get_text())


@pytest.mark.parametrize("machines", [[make()], [make(), PUBLISHED], [make(), make("Other GPU", None, "cuda:0", 0.01), PUBLISHED]])
@pytest.mark.parametrize("part", ["ladder", "products"])
def test_a_drawing_names_machines_and_units_and_marks_what_is_published(machines, part):
    text = words(d2l.draw_results(part, machines))
    assert "time (s)" in text or "images (s)" in text
    for machine in machines:
        assert machine["machine"] in text
    assert text.count("(published)") == sum(1 for machine in machines if machine["published"])


def test_a_ladder_is_labeled_with_times_and_workers():
    text = words(d2l.draw_results("ladder", [make()]))
    assert "pictures" in text and "4.20 s" in text and "2.10 s, 2 workers" in text


def test_a_bound_is_a_row_of_its_machine_or_has_a_panel_of_its_own():
    figure = d2l.draw_results("ladder", [make(), PUBLISHED], bounds={"Test CPU, 2 cores": 0.1, "Test GPU": 0.02, "H200": 0.03})
    text = words(figure)
    assert text.count("bound on paper, arithmetic") == 2 and "100 ms" in text and "20.0 ms" in text
    assert "bound of H200" in text and "nothing measured" in text and "30.0 ms" in text and len(figure.axes) == 3
    assert all(sum(line.get_linestyle() == "--" for line in ax.lines) == 1 for ax in figure.axes)
    assert "bound" not in words(d2l.draw_results("ladder", [make()]))


@pytest.mark.parametrize("part", ["ladder", "mixed precision"])
def test_names_and_times_can_be_read_on_a_phone_and_stand_apart(part):
    figure = d2l.draw_results(part)
    figure.draw_without_rendering()
    page = figure.get_window_extent()
    for ax in figure.axes:
        rows = [t.get_window_extent() for t in ax.texts]
        assert min(t.get_fontsize() for t in [*ax.texts, *ax.get_xticklabels()]) / (72 * figure.get_figwidth()) * 360 >= 10  # pixels
        for name, time in zip(rows[::2], rows[1::2]):
            assert page.x0 <= name.x0 < name.x1 < time.x0 < time.x1 <= page.x1


def test_a_pass_over_fewer_images_is_drawn_as_one_over_60_000_and_says_so():
    text = words(d2l.draw_results("ladder", [make()], this=[results.entry("ladder", "pictures", "cpu", [0.25, 0.35], images=5000)]))
    assert "this machine, from 5,000 images" in text and "3.60 s" in text and "a pass over 60,000 images (s)" in text
    text = words(d2l.draw_results("ladder", [], this=[results.entry("ladder", "graph", "cpu", [1.0], images=59_968)]))
    assert "from" not in text and "1.00 s" in text


def test_a_notebook_gets_a_sharp_picture_of_few_bytes():
    from matplotlib.image import imread
    png = d2l.draw_results("ladder", [make(), PUBLISHED])._repr_png_()
    assert len(png) < 100_000 and imread(io.BytesIO(png)).shape[1] >= 2 * 520  # its width on a page


def test_this_machines_measurements_are_drawn_first():
    text = words(d2l.draw_results("ladder", [make()], this=[results.entry("ladder", "pictures", "cpu", [7.0])]))
    assert "this machine" in text and "7.00 s" in text


def test_a_part_that_nobody_measured_is_an_error():
    with pytest.raises(ValueError, match="no machine has measured 'streams'"):
        d2l.draw_results("streams", [make()])


def test_training_steps_are_drawn_over_the_batch_a_line_for_each_width():
    steps = [results.entry("training steps", "CNN", "cpu", [b * w / 1e6], batch=b, width=w) for w in (16, 64) for b in (16, 64)]
    text = words(d2l.draw_results("training steps", [], this=steps))
    assert "examples in a batch" in text and "CNN, width 16: cpu" in text and "CNN, width 64: cpu" in text


def test_a_roofline_names_roofs_and_operations_once_and_dashes_what_is_published():
    figure = d2l.draw_roofline({"cpu": (2e11, 4e10), "cuda:0": (8e12, 3e11), "T4 (published)": (8.1e12, 320e9)},
                               {"cpu": {"addition": (1 / 12, 3e9)}, "cuda:0": {"addition": (1 / 12, 2e10)}})
    text = words(figure)
    assert text.count("addition") == 1 and "cuda:0" in text and "FLOP per byte" in text and "rate (FLOP/s)" in text
    roofs = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    assert [line.get_linestyle() for line in roofs] == ["-", "-", "--"]
    assert [list(line.get_xydata()[1]) for line in roofs][0] == [5, 2e11]  # the ridge


def test_a_notebook_shows_a_drawing_as_a_small_picture():
    picture = d2l.draw_results("products", [make()])._repr_png_()
    assert picture[:4] == b"\x89PNG" and len(picture) < 100_000


# ------------------------------------------------------------------------------------------------- the page
def test_the_page_shows_every_machine_and_marks_published_figures():
    text = d2l_results.content([make(), PUBLISHED], results)
    assert text.count("Test GPU (published)") >= 4 and "Test CPU, 2 cores" in text
    assert "4.20 s (4.10 to 4.30 s, 2 runs)" in text and "2.10 s (2.05 to 2.15 s, 2 runs), 2 workers" in text
    assert "| 0.42 s |" in text  # a published figure as it was printed
    assert "No machine with a GPU is on this page yet" in text
    assert text.count("<svg") == 2 and "stroke-dasharray" in text and "01-devices" in text
    assert "No machine with a GPU" not in d2l_results.content([make("A", None, "cuda:0")], results)


def test_the_page_looks_right_with_nothing_and_names_what_was_left_out():
    text = d2l_results.content([], results, ["x.json is not used: why"])
    assert "No machine has been recorded yet" in text and "x.json is not used" in text


def test_a_step_and_an_operation_are_labeled_with_what_they_work_on():
    record = make()
    record["measurements"] = [results.entry("training steps", "CNN", "cpu", [1.0], width=16, batch=64),
                              results.entry("operations", "add many numbers", "cpu", [1.0], numbers=4096)]
    text = d2l_results.content([record], results)
    assert "| CNN (width 16, batch 64) |" in text and "| add many numbers (4,096 numbers) |" in text


def test_other_numbers_of_images_are_said():
    record = make()
    record["measurements"][0]["setting"]["images"] = 59_392
    assert "pictures (59,392 images)" in d2l_results.content([record], results)


def test_differences_from_real_gpus_are_listed():
    record = make() | {"placement": {"cases": 9, "differences": [{"case": "mm", "simulated": "a|b", "real": "<c>"}]}}
    text = d2l_results.content([record], results)
    assert "9 cases, 1 differ" in text and r"| mm | a\|b | &lt;c&gt; |" in text
