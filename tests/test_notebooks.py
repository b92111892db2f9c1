"""The chapters as files: their form, their outputs' completeness, and that comparing them can fail."""

import base64
import copy
import json
import re

import notebooks
import pytest

import d2l_gpu as d2l

CHAPTERS = notebooks.chapters()
each_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)

#: Cells whose output depends on the machine and is not compared, by chapter. Every entry is a decision.
IGNORED = {
    "01-devices": ["hardware", "smi", "build-cell", "ensure", "threads"],
    "02-tensors-on-gpu": ["setup"],
    "03-copying": ["setup", "cost-time", "pinned-time"],
    "04-networks-on-gpu": ["setup"],
    "05-training-loop": ["setup", "train-device", "train-time", "evaluate-figures"],
    "06-device-errors": ["setup", "absent-none", "ask-doctor"],
    "07-when-a-gpu-helps": ["setup", "wrong-figures", "copies-figures", "sweep-draw", "sweep-bound", "price-figures",
                            "price-rows", "tiny-figures", "roof-draw", "roof-gain", "cnn-figures", "cnn-layers"],
    "08-data-pipeline": ["setup", "starving-figures", "holds-figures", "cost-figures"],
    "09-dataloader": ["setup", "cause-report", "chart-cell", "chart-table", "pinning-time", "choose-report", "vary-batch",
                      "vary-storage", "again-report"],
    "10-profiling": ["guess-phases", "table-cell", "show-run", "table-a", "table-b", "table-c", "limits-cost"],
    "11-mixed-precision": ["setup", "small-plot", "epochs-ratio", "time-ratios", "time-recorded", "accumulate-ratio"],
    "12-gpu-memory": ["setup"],
    "13-streams": ["setup", "timing", "gain-measure", "gain-recorded", "products"],
    "14-several-gpus": ["setup", "products-time", "dp-two-lines", "nccl-here"],
    "15-where-next": ["setup", "fuse-load", "fuse-first", "fuse-gain", "cost-step", "cost-recorded", "layout-time", "bound-ladder",
                      "capstone-solution", "capstone-ladder"],
}


@each_chapter
def test_a_chapter_is_in_the_canonical_form(path):
    assert path.read_text(encoding="utf-8") == notebooks.canonical(notebooks.read(path)), \
        f"run: python tools/notebooks.py format {path.stem}"


@each_chapter
def test_cells_were_run_once_each_in_order(path):
    cells = notebooks.code_cells(notebooks.read(path))
    assert cells and [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))


@each_chapter
def test_cell_ids_are_unique_words(path):
    ids = [cell["id"] for cell in notebooks.read(path)["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9-]{2,64}", id) for id in ids)


@each_chapter
def test_code_fits_the_page(path):
    long = [line for cell in notebooks.code_cells(notebooks.read(path)) for line in "".join(cell["source"]).split("\n")
            if len(line) > 84 and not re.fullmatch(r' *"git\+\S+"', line)]  # an address stays in one piece
    assert not long


@each_chapter
def test_a_chapter_holds_nothing_of_the_machine_that_recorded_it(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|Users)/|[A-Z]:\\\\Users|ipykernel_\d|site-packages", text)
    assert not re.search(r"0x[0-9a-f]{6,}", text), "an object's address changes with every run"
    assert "application/vnd.jupyter.widget" not in text


@each_chapter
def test_pictures_in_outputs_are_small(path):
    for cell in notebooks.code_cells(notebooks.read(path)):
        for output in cell["outputs"]:
            for kind, content in output.get("data", {}).items():
                if kind.startswith("image/") and kind != "image/svg+xml":
                    assert len(base64.b64decode("".join(content))) <= 100_000, cell["id"]


@each_chapter
def test_no_cell_ended_in_an_error_unless_it_means_to(path):
    for cell in notebooks.code_cells(notebooks.read(path)):
        failed = any(output["output_type"] == "error" for output in cell["outputs"])
        assert failed == ("raises-exception" in notebooks.tags(cell)), cell["id"]


@each_chapter
def test_the_ignored_outputs_are_the_listed_ones(path):
    ignored = [cell["id"] for cell in notebooks.code_cells(notebooks.read(path))
               if "nbval-ignore-output" in notebooks.tags(cell) or "NBVAL" in "".join(cell["source"])]
    assert ignored == IGNORED.get(path.stem, [])


@each_chapter
def test_a_chapter_says_what_it_was_recorded_with(path):
    assert set(notebooks.read(path)["metadata"]["d2l"]["recorded"]) == {"torch", "gpus"}


@each_chapter
def test_names_used_by_a_chapter_exist(path):
    used = set(re.findall(r"\bd2l\.([A-Za-z_]\w*)", path.read_text(encoding="utf-8"))) - {"ai", "torch"}  # d2l.ai
    assert used and not [name for name in used if not hasattr(d2l, name)]


@each_chapter
def test_a_chapter_has_all_its_parts(path):
    headings = re.findall(r"^#+ (.+)$", "\n".join("".join(cell["source"]) for cell in notebooks.read(path)["cells"]
                                                  if cell["cell_type"] == "markdown"), re.MULTILINE)
    for part in ("Summary", "Pitfalls", "Check yourself", "Exercises", "Further reading"):
        assert part in headings


@each_chapter
def test_answers_open_in_the_page_in_jupyter_and_in_colab(path):
    texts = {cell["id"]: "".join(cell["source"]) for cell in notebooks.read(path)["cells"] if cell["cell_type"] == "markdown"}
    for name, text in texts.items():  # the blank lines make what is inside Markdown again
        assert len(re.findall(r"^<details><summary>[^<\n]+</summary>\n\n", text, re.MULTILINE)) == text.count("<details"), name
        assert len(re.findall(r"\n\n</details>$", text, re.MULTILINE)) == text.count("</details") == text.count("<details"), name
    questions = next(text for text in texts.values() if "## Check yourself" in text).partition("## Check yourself")[2].partition("\n## ")[0]
    asked = re.findall(r"^(?:\*\*\d+\.\*\*|\d+\.) ", questions, re.MULTILINE)
    assert len(asked) == questions.count("<summary>Answer</summary>") >= 3


# ------------------------------------------------------------------------------------- the comparison itself
SMALL = {"cells": [{"cell_type": "code", "execution_count": None, "id": f"cell-{k}", "metadata": {}, "outputs": [], "source": [source]}
                   for k, source in enumerate(["import torch", "torch.ones(2).sum().item()", "print('same')", "2 + 2"])],
         "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A small notebook, recorded the way chapters are."""
    path = tmp_path_factory.mktemp("small") / "small.ipynb"
    path.write_text(json.dumps(SMALL))
    notebooks.record(path)
    return notebooks.read(path)


def compare(notebook, folder, **options):
    path = folder / "small.ipynb"
    path.write_text(notebooks.canonical(notebook))
    return notebooks.compare([path], **options)


def test_a_recorded_notebook_passes(recorded, tmp_path):
    result = compare(recorded, tmp_path)
    assert (result["cells"], result["passed"], result["failed"]) == (4, 4, [])


@pytest.mark.parametrize("cell, stored", [(1, {"data": {"text/plain": ["3.0"]}}), (2, {"text": ["other\n"]})])
def test_nbval_rejects_exactly_the_cell_whose_stored_output_was_changed(recorded, tmp_path, cell, stored):
    changed = copy.deepcopy(recorded)
    changed["cells"][cell]["outputs"][0].update(stored)
    result = compare(changed, tmp_path)
    assert result["cells"] == 4 and len(result["failed"]) == 1
    assert f"Cell {cell}" in result["failed"][0]


def test_a_missing_output_is_rejected(recorded, tmp_path):
    changed = copy.deepcopy(recorded)
    changed["cells"][3]["outputs"] = []
    assert len(compare(changed, tmp_path)["failed"]) == 1


def test_where_only_tagged_cells_are_compared_the_others_must_still_run(recorded, tmp_path):
    changed = copy.deepcopy(recorded)
    changed["cells"][2]["outputs"][0]["text"] = ["other\n"]
    assert compare(changed, tmp_path, strict=False)["failed"] == []
    changed["cells"][2]["metadata"]["tags"] = ["nbval-check-output"]
    assert len(compare(changed, tmp_path, strict=False)["failed"]) == 1
    changed["cells"][2]["source"] = ["print(undefined)"]
    assert len(compare(changed, tmp_path, strict=False)["failed"]) == 1
