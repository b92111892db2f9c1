"""The built book in Chromium: offline, on every width, in light and dark, by keyboard alone, and under axe-core.

All pages that the build makes are looked at. Without selenium, Chromium and its driver the tests are skipped.
"""

import functools
import http.server
import re
import threading
import time

import notebooks
import pytest
from browsing import axe_script, log, media, press, set_theme, set_width

WIDTHS, THEMES = (360, 768, 1280, 1600), ("light", "dark")
CHAPTER = "chapters/03-copying.html"

#: What is wrong with the layout of the page that is shown, as texts; nothing may stick out of the window but what a box of
#: its own scrolls, and nothing may be cut off.
LAYOUT = """
const wrong = [], name = e => `${e.tagName}.${e.className.baseVal ?? e.className} ${e.textContent.slice(0, 30)}`;
if (document.documentElement.scrollWidth > innerWidth) wrong.push(`the page is ${document.documentElement.scrollWidth} wide`);
function scrolled(e) {
    for (let p = e.parentElement; p; p = p.parentElement) {
        const way = getComputedStyle(p).overflowX;
        if (p !== document.body && way !== "visible") return way === "auto" || way === "scroll";
    }
}
for (const e of document.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height || !e.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
    if ((box.right > innerWidth + 1 || box.left < -1) && !scrolled(e)) wrong.push(`${name(e)} is at ${box.left} to ${box.right}`);
    const style = getComputedStyle(e);
    if (style.overflowX === "hidden" && e.scrollWidth > e.clientWidth + 1) wrong.push(`${name(e)} is cut off`);
    if (e.tagName === "text") {
        const matrix = e.getScreenCTM(), size = parseFloat(style.fontSize) * Math.hypot(matrix.a, matrix.b);
        if (size < 9) wrong.push(`${name(e)} is ${size} pixels high`);
    }
}
return wrong.slice(0, 9)"""

#: What else is read from a page on a phone.
CONTENT = """
const all = (selector, f) => [...document.querySelectorAll(selector)].map(f);
return {
    searches: all(".search-button__button, .bd-search input", e => e.checkVisibility({visibilityProperty: true})).filter(Boolean).length,
    unreachable: all("main *", e => e).filter(e => /auto|scroll/.test(getComputedStyle(e).overflowX) &&
        e.scrollWidth > e.clientWidth && e.checkVisibility() && e.tabIndex < 0).map(e => e.outerHTML.slice(0, 90)),
    open: all("article details[open] > summary", e => e.textContent),
    solutions: all(".tag_solution details", e => e.querySelector(".cell_input").checkVisibility()),
    images: all("article img", e => [e.getAttribute("src").split("/").pop(), e.complete && e.naturalWidth > 0, e.getBoundingClientRect().width]),
    framed: !!document.querySelector(".bd-sidebar-primary"),
}"""


@pytest.fixture(scope="module")
def names(html):
    """The addresses of all pages within the book, but the first, which only leads to the next."""
    found = sorted(path.relative_to(html).as_posix() for path in html.rglob("*.html") if "_static" not in path.parts)
    assert {"index.html", "intro.html", CHAPTER, "pages/results.html", "search.html"} <= set(found)
    return [name for name in found if name != "index.html"]


@pytest.fixture(scope="module")
def server(html):
    """The address of the book on a local web server."""
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=html)) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()


@pytest.fixture(scope="module")
def seen(chromium, html, names):
    """What every page, opened as a file, looks like and asked for: a dict by name."""
    media(chromium)
    found = {}
    for name in names:
        set_width(chromium, 360)
        log(chromium)
        chromium.get((html / name).as_uri())
        page = dict(zip(("errors", "asked", "failed"), log(chromium))) | chromium.execute_script(CONTENT) | {"layout": {}}
        for width in WIDTHS:
            set_width(chromium, width)
            for theme in THEMES:
                set_theme(chromium, theme)
                page["layout"][width, theme] = chromium.execute_script(LAYOUT)
            if width == 1280:
                page["wide searches"] = chromium.execute_script(CONTENT)["searches"]
        found[name] = page
    return found


@pytest.fixture
def visit(chromium, html):
    """A function that opens a page from its file, at a width and in a theme."""
    def open_page(name, width=1280, theme="light", base=html.as_uri()):
        media(chromium)
        set_width(chromium, width)
        chromium.get(f"{base}/{name}")
        set_theme(chromium, theme)
        return chromium
    return open_page


def every(seen, key):
    """Of each page, what `key` says, where it says something."""
    return {name: page[key] for name, page in seen.items() if page[key]}


def until(condition, seconds=5):
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


# ------------------------------------------------------------------------------------- offline
def test_opened_as_files_the_pages_are_complete_and_without_an_error(seen, html):
    assert not every(seen, "errors") and not every(seen, "failed")
    for name, page in seen.items():
        assert (html / name).as_uri() in page["asked"], name
        assert not page["framed"] or any("theme.css" in url for url in page["asked"]), name


def test_opened_as_files_the_pages_ask_no_host(seen, html):
    foreign = {(name, url) for name, page in seen.items() for url in page["asked"] if not url.startswith((html.as_uri(), "data:"))}
    assert not foreign


def test_from_a_server_the_pages_are_complete_and_ask_nobody_else(chromium, server, names):
    media(chromium)
    for name in names:
        log(chromium)
        chromium.get(f"{server}/{name}")
        errors, asked, failed = log(chromium)
        assert not errors and not failed, name
        assert f"{server}/{name}" in asked and all(url.startswith((server, "data:")) for url in asked), (name, asked)


def test_the_first_page_leads_to_the_book(chromium, html):
    chromium.get((html / "index.html").as_uri())
    assert until(lambda: chromium.current_url.endswith("/intro.html"))


@pytest.mark.parametrize("word, chapter", [("try_gpu", "01-devices"), ("count_transfers", "03-copying"),
                                           ("find_bottleneck", "09-dataloader"), ("pinned memory", "03-copying")])
def test_the_search_finds_what_is_typed_from_a_file_and_from_a_server(visit, html, server, word, chapter):
    for base in (html.as_uri(), server):
        browser = visit("intro.html", base=base)
        log(browser)
        browser.find_element("css selector", ".bd-sidebar-primary .search-button__button").click()
        until(lambda: browser.switch_to.active_element.get_attribute("id") == "search-input")
        press(browser, word, "ENTER")
        assert until(lambda: any("finished" in one.text for one in browser.find_elements("css selector", "#search-results .search-summary")))
        results = browser.find_elements("css selector", "#search-results li a")
        assert any(f"/chapters/{chapter}.html" in (one.get_attribute("href") or "") for one in results), (base, word)
        excerpts = until(lambda: browser.find_elements("css selector", "#search-results p.context"), 5 if base == server else 0)
        assert bool(excerpts) == (base == server)
        assert log(browser)[::2] == ([], []), base
        results[0].click()
        assert until(lambda: "/search.html" not in browser.current_url)


# ------------------------------------------------------------------------------------- layout
def test_nothing_sticks_out_of_the_window_or_is_cut_off(seen):
    wrong = {(name, *state): found for name, page in seen.items() for state, found in page["layout"].items() if found}
    assert not wrong


def test_there_is_one_search_box(seen):
    own = {"search.html": 1}  # the page of results has one of its own
    for name, page in seen.items():
        assert page["searches"] == page["wide searches"] == page["framed"] + own.get(name, 0), name  # a page may stand alone


def test_what_scrolls_can_be_scrolled_by_keyboard(seen):
    assert not every(seen, "unreachable")


def test_pictures_are_shown_and_their_words_are_legible_on_a_phone(seen, html):
    for name, page in seen.items():
        for file, shown, width in page["images"]:
            assert shown, (name, file)
            if file.endswith(".svg") and width:  # 0: an interactive figure stands in its place
                drawing = (html / "_images" / file).read_text(encoding="utf-8")
                smallest = min(map(float, re.findall(r'font-size="([\d.]+)', drawing)))
                assert smallest * width / float(re.search(r'viewBox="0 0 (\d+)', drawing)[1]) >= 9, (name, file)


def test_names_in_tables_are_not_cut_in_two(visit, names):
    for name in names:
        browser = visit(name, 360)
        cut = browser.execute_script(r"""
            const cut = [], range = document.createRange();
            for (const code of document.querySelectorAll(":is(td, th) code")) {
                const walk = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
                for (let node; node = walk.nextNode();) {
                    for (const {index, 0: word} of node.data.matchAll(/\w+/g)) {
                        range.setStart(node, index), range.setEnd(node, index + word.length);
                        if (new Set([...range.getClientRects()].map(box => box.top)).size > 1) cut.push(word);
                    }
                }
            }
            return cut""")
        assert not cut, (name, cut)


# ------------------------------------------------------------------------------------- answers and solutions
def test_answers_and_solutions_start_closed(seen):
    assert not every(seen, "open")
    for path in notebooks.chapters():
        expected = sum("solution" in notebooks.tags(cell) for cell in notebooks.read(path)["cells"] if cell["cell_type"] == "code")
        assert seen[f"chapters/{path.stem}.html"]["solutions"] == [False] * expected, path.stem


@pytest.mark.parametrize("key", ["ENTER", "SPACE"])
def test_a_key_opens_and_closes_solutions_and_answers(visit, key):
    browser = visit(CHAPTER)
    for summary, content in ((".tag_solution summary", ".tag_solution .cell_input"), ("details:not(.hide) > summary", "details:not(.hide) > p")):
        inside = browser.find_element("css selector", content)
        browser.execute_script("document.querySelector(arguments[0]).focus()", summary)
        for state in (True, False):
            press(browser, key)
            assert inside.is_displayed() is state, (summary, key)


def test_on_paper_stands_what_is_open_and_nothing_of_the_closed_solutions(visit):
    browser = visit(CHAPTER)
    solutions = browser.find_elements("css selector", ".tag_solution details")
    browser.execute_script("arguments[0].open = true", solutions[0])
    media(browser, "print")
    try:
        assert [one.is_displayed() for one in solutions] == [True] + [False] * (len(solutions) - 1)
        assert not any(one.is_displayed() for one in browser.find_elements("css selector", ".bd-sidebar-primary, .bd-header-article"))
    finally:
        media(browser)


# ------------------------------------------------------------------------------------- keyboard
FOCUS = """
const e = document.activeElement, box = e.getBoundingClientRect(), style = getComputedStyle(e);
const ring = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2) || /[1-9]\\d*px/.test(style.boxShadow);
const shown = box.width > 0 && box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight &&
    e.checkVisibility({visibilityProperty: true, opacityProperty: true});
return [e.tagName + "." + e.className + " " + (e.getAttribute("aria-label") || e.textContent).trim().slice(0, 30), ring && shown,
    ...arguments[0].map(selector => e.matches(selector))]"""


@pytest.mark.parametrize("name, width, reached", [
    (CHAPTER, 1280, [".skip-link a", ".bd-sidebar-primary .search-button__button", ".bd-links a", ".theme-switch-button",
                     ".primary-toggle", ".bd-article p a", ".copybtn", ".tag_solution summary", "details:not(.hide) > summary",
                     ".dropdown-download-buttons button", ".bd-toc a", ".prev-next-area a"]),
    (CHAPTER, 360, [".primary-toggle", ".search-button", ".secondary-toggle", ".theme-switch-button", "pre"]),
    ("pages/results.html", 360, [".pst-scrollable-table-container"]),
    ("chapters/08-data-pipeline.html", 360, ["input[type=range]", "input[type=checkbox]", ".d2l-figure button"])])
def test_tab_reaches_everything_and_shows_where_it_is(visit, name, width, reached):
    browser = visit(name, width)
    hits, hidden = [0] * len(reached), []
    for _ in range(400):
        press(browser, "TAB")
        text, visible, *matches = browser.execute_script(FOCUS, reached)
        if text.startswith("BODY"):
            break
        hits = [hit + match for hit, match in zip(hits, matches)]
        hidden += [text] * (not visible)
    assert not [selector for selector, hit in zip(reached, hits) if not hit]
    assert not hidden


def test_the_skip_link_leads_past_the_sidebar(visit):
    browser = visit(CHAPTER)
    press(browser, "TAB", "ENTER", "TAB")
    assert browser.execute_script("return document.querySelector('main').contains(document.activeElement)")


@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_the_menus_of_a_phone_open_and_close_by_keyboard(visit, side):
    browser = visit(CHAPTER, 360)
    menu, button = (browser.find_element("css selector", selector) for selector in (f".bd-sidebar-{side}", f".{side}-toggle"))
    assert not menu.is_displayed()
    browser.execute_script("arguments[0].focus()", button)
    press(browser, "ENTER")
    assert until(lambda: browser.execute_script("return arguments[0].contains(document.activeElement)", menu)) and menu.is_displayed()
    assert menu.rect["x"] >= 0 and menu.rect["x"] + menu.rect["width"] <= 360
    press(browser, "ESCAPE")
    assert until(lambda: not menu.is_displayed())


def test_the_theme_is_switched_by_keyboard_and_kept(visit, html):
    browser = visit(CHAPTER)
    theme = functools.partial(browser.execute_script, "return document.documentElement.dataset.theme")
    try:
        found = set()
        for _ in range(3):
            browser.execute_script("document.querySelector('.theme-switch-button').focus()")
            press(browser, "ENTER")
            found.add(theme())
            if theme() == "dark":
                browser.get((html / "intro.html").as_uri())
                assert theme() == "dark"
        assert found == {"light", "dark"}
    finally:
        browser.execute_script("localStorage.clear()")


def test_arrow_keys_move_sliders_and_scroll_code_and_stay_on_the_page(visit):
    browser = visit("chapters/08-data-pipeline.html", 360)
    address, slider = browser.current_url, browser.find_element("id", "d2l-timeline-workers")
    browser.execute_script("arguments[0].focus()", slider)
    press(browser, "ARROW_RIGHT")
    assert slider.get_attribute("value") == "1"
    code = browser.find_element("css selector", ".cell_input pre[tabindex='0']")
    browser.execute_script("arguments[0].focus()", code)
    press(browser, "ARROW_RIGHT")
    assert until(lambda: code.get_property("scrollLeft") > 0)
    assert browser.current_url == address


# ------------------------------------------------------------------------------------- copying code
def test_code_is_shown_and_selected_as_it_is_run(visit):
    for path in notebooks.chapters():
        browser = visit(f"chapters/{path.stem}.html")
        shown = browser.execute_script("""
            document.querySelectorAll("details").forEach(one => { one.open = true; });
            return [...document.querySelectorAll(".cell_input pre")].map(pre => {
                getSelection().selectAllChildren(pre);
                return getSelection().toString().trimEnd();
            })""")
        expected = ["".join(cell["source"]).rstrip() for cell in notebooks.code_cells(notebooks.read(path))
                    if not {"remove-cell", "remove-input"} & set(notebooks.tags(cell))]
        assert shown == expected, path.stem


def test_the_copy_button_copies_the_code(visit, server):
    browser = visit(CHAPTER, base=server)
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    cells = notebooks.code_cells(notebooks.read(notebooks.CHAPTERS / "03-copying.ipynb"))
    buttons = browser.find_elements("css selector", ".cell_input .copybtn")
    assert len(buttons) == len(cells) and not browser.find_elements("css selector", ".cell_output .output.stream .copybtn")
    browser.execute_script("arguments[0].focus()", buttons[1])
    press(browser, "ENTER")
    copied = functools.partial(browser.execute_async_script, "navigator.clipboard.readText().then(arguments[0], e => arguments[0](`${e}`))")
    assert until(lambda: copied().rstrip() == "".join(cells[1]["source"])), copied()


# ------------------------------------------------------------------------------------- axe-core
#: Chapters whose code is looked through too: the colors of code are the same in all, and this is what takes axe-core long.
WITH_CODE = re.compile("intro|pages/|03|06")


@pytest.mark.parametrize("width, theme", [(1280, "light"), (360, "dark")])
def test_axe_finds_nothing(visit, names, width, theme):
    axe = axe_script()
    if not axe:
        pytest.skip("no package with axe-core is installed")
    found = []
    for name in names:
        browser = visit(name, width, theme)
        browser.execute_script("document.querySelectorAll('.tag_solution details').forEach(one => { one.open = true; })")
        browser.execute_script(axe)
        violations = browser.execute_async_script(
            "axe.run(arguments[0], {resultTypes: ['violations']}).then(found => arguments[1](found.violations))",
            {"include": ["html"], "exclude": [] if WITH_CODE.search(name) else ["pre > span"]})
        found += [(name, one["id"], node["html"][:200], node["failureSummary"]) for one in violations for node in one["nodes"]]
    assert not found
