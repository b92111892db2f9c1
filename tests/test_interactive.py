"""The interactive pictures in a browser: the same numbers as in Python, by keyboard, on a phone, offline, and without script.

They need selenium, Chromium and its driver (Debian: chromium and chromium-driver); without them the tests are skipped.
"""

import itertools
import json
import re
import shutil

import pytest

import d2l_gpu as d2l
from browsing import set_width
from d2l_book import drop_unused_script
from d2l_gpu import limits, palette

PAGE = """<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>Two pictures</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="book.css">
<script src="interactive.js"></script></head><body><article class="bd-article">
<p><a class="reference internal image-reference" href="roofline.svg"><img alt="A roofline" src="roofline.svg"></a></p>
<p><img alt="A time line" src="timeline.svg"></p><p><img alt="Another picture" src="queue.svg"></p></article></body></html>"""


@pytest.fixture(scope="session")
def page(tmp_path_factory, root):
    """The address of a page with both pictures, in a folder of its own."""
    folder = tmp_path_factory.mktemp("interactive")
    (folder / "page.html").write_text(PAGE, encoding="utf-8")
    for path in [root / "_static" / name for name in ("book.css", "interactive.js")] + [
            root / "chapters" / "img" / name for name in ("roofline.svg", "timeline.svg", "queue.svg")]:
        shutil.copy(path, folder)
    return (folder / "page.html").as_uri()


@pytest.fixture
def browser(chromium, page):
    """Chromium, 1000 pixels wide, with the page freshly loaded; afterwards the console must be without errors."""
    set_width(chromium, 1000)
    chromium.get(page)
    chromium.get_log("browser")
    yield chromium
    assert not [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"]


def at(browser, name):
    return browser.find_element("id", f"d2l-{name}")


def said(browser, name):
    return at(browser, f"{name}-said").text


def press(browser, name, *keys):
    from selenium.webdriver.common.keys import Keys
    at(browser, name).send_keys(*(getattr(Keys, key, key) for key in keys))


def set_slider(browser, name, position):
    browser.execute_script("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))",
                           at(browser, name), position)


def test_the_machines_are_those_of_python(browser):
    found = browser.execute_script("return d2lInteractive.MACHINES")
    assert found == {name: machine._asdict() for name, machine in limits.MACHINES.items()}


def test_the_roofline_gives_the_numbers_of_python(browser):
    operations = {"product": limits.product, "copied": lambda n: limits.product(n, copies=True),
                  "addition": limits.addition, "mlp": limits.mlp_step}
    machines = [*limits.MACHINES.values(), limits.Machine(5e10, 1e10, 1e9, 0), limits.Machine(1e15, 8e12, 128e9, 5e-5)]
    for machine, name, n in itertools.product(machines, operations, (16, 96, 1024, 8192)):
        found = browser.execute_script("const d = d2lInteractive; return d.leastTime(d.OPERATIONS[arguments[0]](arguments[1]), "
                                       "arguments[2])", name, n, machine._asdict())
        expected = limits.least_time(operations[name](n), machine)
        parts = found.pop("parts")
        assert parts == pytest.approx(expected.parts, rel=1e-12)
        assert found.pop("bound") == expected.bound
        assert found == pytest.approx({key: getattr(expected, key) for key in found}, rel=1e-12)


def test_the_timeline_gives_the_numbers_of_python(browser):
    for load, compute, copy, workers, prefetch, cores, sync, uneven in itertools.product(
            (1, 18), (6,), (0, 2), (0, 1, 3, 8), (1, 3), (1, 2, 8), (True, False), (True, False)):
        found = browser.execute_script(
            "const d = d2lInteractive, [load, compute, uneven, settings] = arguments;"
            "const make = batches => d.timeline(uneven ? k => load * d.SLOW(k) : load, compute, {...settings, batches});"
            "return [make(12), d.longRun(make(1080), 240)]", load, compute, uneven,
            dict(copy=copy, workers=workers, prefetch=prefetch, cores=cores, sync=sync))
        settings = dict(load=(lambda k: load * (4 if k % 7 == 6 else 1)) if uneven else load, compute=compute, copy=copy,
                        workers=workers, prefetch=prefetch, cores=cores, sync=sync)
        first, long = d2l.timeline(**settings), d2l.timeline(**settings, batches=1080)
        numbers = [[[span[key] for key in ("batch", "start", "end")] for span in lane]
                   for lane in (*found[0]["lanes"], found[0]["copies"], found[0]["computes"])]
        assert numbers == [[pytest.approx(list(span)) for span in lane] for lane in (*first.lanes, first.copies, first.computes)]
        assert found[1]["perBatch"] == pytest.approx(long.per_batch(after=240))
        assert found[1]["idle"] == pytest.approx(long.idle(after=240), abs=1e-9)
        assert found[1]["copying"] == pytest.approx(copy / long.per_batch(after=240))


def test_the_keyboard_moves_a_slider_and_the_sentence_follows(browser):
    before = said(browser, "timeline")
    assert before.startswith("24 ms per batch") and "idle 75 %" in before
    press(browser, "timeline-workers", "ARROW_RIGHT", "ARROW_RIGHT", "ARROW_RIGHT")
    assert at(browser, "timeline-workers").get_attribute("aria-valuetext") == "3"
    after = said(browser, "timeline")
    assert after.startswith("6 ms per batch") and "idle 0 %" in after and "The GPU sets the pace" in after
    assert at(browser, "timeline-prefetch").is_enabled()
    press(browser, "timeline-workers", "HOME")
    assert said(browser, "timeline") == before and not at(browser, "timeline-prefetch").is_enabled()  # as in PyTorch
    press(browser, "timeline-sync", "SPACE")
    assert said(browser, "timeline").startswith("18 ms per batch")
    browser.find_elements("css selector", ".d2l-figure button")[1].send_keys(" ")
    assert said(browser, "timeline") == before and at(browser, "timeline-sync").is_selected()


def test_the_sentence_says_what_limits_an_operation(browser):
    assert said(browser, "roofline").startswith("Overhead dominates")
    press(browser, "roofline-n", "END")
    assert said(browser, "roofline").startswith("Compute-bound") and "At most 8.1 TFLOP/s" in said(browser, "roofline")
    press(browser, "roofline-operation", "e")  # element-wise addition
    found = limits.least_time(limits.addition(8192), limits.MACHINES["T4"])
    assert said(browser, "roofline").startswith("Memory-bound: 0.0833 FLOP per byte is left of the ridge, 25.3.")
    assert f"at least {found.seconds * 1e3:.3g} ms" in said(browser, "roofline")


def test_a_moved_machine_is_no_longer_the_published_one(browser):
    from selenium.webdriver.support.ui import Select
    Select(at(browser, "roofline-machine")).select_by_value("H200")
    assert "67 TFLOP/s" in at(browser, "roofline-peak").get_attribute("aria-valuetext")
    press(browser, "roofline-peak", "ARROW_LEFT")
    assert at(browser, "roofline-machine").get_attribute("value") == "your own"
    assert "published" not in browser.find_element("css selector", ".d2l-figure svg").text
    Select(at(browser, "roofline-machine")).select_by_value("RTX 4090")
    assert "RTX 4090 (published): 82.6 TFLOP/s, 1,008 GB/s" in browser.find_element("css selector", ".d2l-figure svg").text


@pytest.mark.parametrize("machine", limits.MACHINES)
def test_a_published_figure_is_a_position_of_its_slider(browser, machine):
    from selenium.webdriver.support.ui import Select
    for name in ("peak", "bandwidth", "bus", "overhead"):
        Select(at(browser, "roofline-operation")).select_by_value("copied")  # the only one that uses the bus
        Select(at(browser, "roofline-machine")).select_by_value(machine)
        figure = at(browser, f"roofline-{name}").get_attribute("aria-valuetext")
        press(browser, f"roofline-{name}", "ARROW_RIGHT", "ARROW_LEFT")
        assert at(browser, f"roofline-{name}").get_attribute("aria-valuetext") == figure


def test_every_position_of_every_slider_can_be_drawn_inside_the_picture(browser):
    set_width(browser, 360)
    set_slider(browser, "timeline-workers", 2)
    sliders = browser.find_elements("css selector", ".d2l-figure input[type=range]")
    assert len(sliders) == 11
    for slider in sliders:
        name, last = slider.get_attribute("id").removeprefix("d2l-"), int(slider.get_attribute("max"))
        start = slider.get_attribute("value")
        for position in (*range(last + 1), start):
            set_slider(browser, name, position)
            figure = name.split("-")[0]
            assert not re.search("NaN|undefined|Infinity", said(browser, figure) + slider.get_attribute("aria-valuetext"))
            outside = browser.execute_script("""
                const svg = arguments[0].closest("figure").querySelector("svg"), box = svg.viewBox.baseVal;
                return [...svg.querySelectorAll("*")].filter(one => { const b = one.getBBox();
                    return b.x < -0.5 || b.y < -0.5 || b.x + b.width > box.width + 0.5 || b.y + b.height > box.height + 0.5 ||
                        /NaN|Infinity/.test(one.outerHTML); }).map(one => one.outerHTML)""", slider)
            assert not outside, (name, position, outside)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_shows_everything_without_scrolling_sideways(browser, theme):
    set_width(browser, 360)
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    for target in browser.find_elements("css selector", ".d2l-figure :is(input, select, button)"):
        assert target.size["height"] >= 24 and target.size["width"] >= 24, target.get_attribute("outerHTML")


def test_every_control_has_a_name_and_every_picture_a_description(browser):
    for control in browser.find_elements("css selector", ".d2l-figure :is(input, select, button)"):
        assert control.accessible_name, control.get_attribute("outerHTML")
    for figure in browser.find_elements("css selector", ".d2l-figure"):
        picture = figure.find_element("tag name", "svg")
        assert figure.accessible_name and picture.accessible_name
        assert browser.find_element("id", picture.get_attribute("aria-describedby")).get_attribute("aria-live") == "polite"


def test_other_pictures_stay_and_the_still_ones_are_printed(browser):
    figures, stills = (lambda: [one.is_displayed() for one in browser.find_elements("css selector", ".d2l-figure")],
                       lambda: [one.is_displayed() for one in browser.find_elements("tag name", "img")])
    assert figures() == [True, True] and stills() == [False, False, True]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert figures() == [False, False] and stills() == [True, True, True]
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_script_the_still_pictures_are_there(browser, page):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page)
        assert not browser.find_elements("css selector", ".d2l-figure")
        assert [image.rect["width"] > 300 for image in browser.find_elements("tag name", "img")] == [True, True, True]
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_nothing_is_fetched_but_the_page_s_own_files(browser, page):
    browser.get_log("performance")
    browser.get(page)
    for slider in ("roofline-n", "timeline-workers"):
        press(browser, slider, "ARROW_RIGHT")
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    fetched = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    folder = page.rsplit("/", 1)[0]
    assert {page, f"{folder}/interactive.js"} <= set(fetched) and all(url.startswith(folder) for url in fetched), fetched


def test_the_script_asks_for_nothing_and_evaluates_nothing(root):
    script = (root / "_static" / "interactive.js").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"']+", script)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"\b(fetch|XMLHttpRequest|eval|Function|import|innerHTML|localStorage)\b|[\"\s]on\w+=\"", script)


def test_colors_are_the_palette_and_legible_in_both_themes(root):
    sheet = (root / "_static" / "book.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--d2l-([\w-]+): (#\w{6})", block))
                   for block in re.findall(r"figure\.d2l-figure \{(.*?)\}", sheet, re.S))
    assert light == {name.lower().replace("_", "-"): value for name, value in vars(palette).items()
                     if name.isupper() and name != "COLORS"}

    def luminance(color):
        parts = [int(color[k:k + 2], 16) / 255 for k in (1, 3, 5)]
        return sum(w * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
                   for w, c in zip((0.2126, 0.7152, 0.0722), parts))

    for colors in (light, dark):
        for front, back in [("ink", "paper"), ("soft", "paper"), ("move", "paper"), ("host", "paper"), ("card", "paper"),
                            ("ink", "host-fill"), ("ink", "card-fill")]:
            pair = sorted((luminance(colors[front]), luminance(colors[back])))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (front, back)


@pytest.mark.parametrize("body, kept", [('<p><img alt="a" src="../_images/roofline.svg" /></p>', True),
                                        ('<img src="_images/timeline.svg">', True), ('<img src="../_images/queue.svg">', False),
                                        ("roofline.svg", False), (None, False)])
def test_only_pages_with_such_a_picture_get_the_script(body, kept):
    context = {"body": body, "script_files": ["_static/doctools.js", "_static/interactive.js"]}
    drop_unused_script(None, "page", "page.html", context, None)
    assert context["script_files"] == ["_static/doctools.js"] + ["_static/interactive.js"] * kept


def test_the_still_pictures_are_what_the_models_draw(root, tmp_path, monkeypatch):
    import pictures
    monkeypatch.setattr(pictures, "IMAGES", tmp_path)
    pictures.roofline()
    pictures.timeline()
    for name in ("roofline.svg", "timeline.svg"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (root / "chapters" / "img" / name).read_text(encoding="utf-8")
