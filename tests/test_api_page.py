"""The pages of the package and of the words: what they list is what there is, and a search finds it."""

import dataclasses
import inspect
import re
import subprocess
import sys
import zlib
from html import unescape

import pytest

import d2l_gpu as d2l


class Objects(dict):
    """The objects of a built book that a search or another book finds, from its objects.inv: name to (role, address)."""

    def __init__(self, path):
        super().__init__()
        head, body = path.read_bytes().split(b"using zlib.\n", 1)
        for line in zlib.decompress(body).decode().splitlines():
            name, role, priority, address, shown = re.fullmatch(r"(.+?)\s+(\S+)\s+(-?\d+)\s+?(\S*)\s+(.*)", line).groups()
            self[name] = role, address.replace("$", name)


@pytest.fixture(scope="module")
def page(html):
    return (html / "pages" / "api.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def objects(html):
    return Objects(html / "objects.inv")


def entry(page, name):
    """The signature and the text of a name's entry on the page, without tags."""
    found = re.search(rf'<dt class="sig[^"]*" id="d2l_gpu\.{re.escape(name)}">(.*?)</dt>\s*<dd>(.*?)</dd>', page, re.S)
    assert found, name
    plain = (unescape(re.sub(r"<[^>]+>", "", part)) for part in found.groups())
    return [re.sub(r"\s+", " ", part).strip().removesuffix("#") for part in plain]  # the last is the link to the entry


@pytest.mark.parametrize("name", d2l.__all__)
def test_every_public_name_has_its_entry_and_is_found(page, objects, name):
    value = getattr(d2l, name)
    if inspect.ismodule(value):
        assert objects[f"d2l_gpu.{name}"] == ("py:module", f"pages/api.html#module-d2l_gpu.{name}")
        assert value.__doc__.splitlines()[0] in page
        return
    role = "py:class" if inspect.isclass(value) else "py:function" if callable(value) else "py:data"
    assert objects[f"d2l_gpu.{name}"] == (role, f"pages/api.html#d2l_gpu.{name}")
    text = entry(page, name)[1]
    assert len(text) > 20
    if callable(value):  # the page has the docstring of this very object
        letters = [re.sub(r"\W", "", words) for words in (text, value.__doc__)]
        assert letters[0].startswith(letters[1][:40])


def made_again(text, module):
    """The signature that a page shows, as Python reads it in the module that it comes from."""
    text = re.sub(r"^(class )?\w+", "", text).replace("→", "->")
    scope = dict(vars(module))
    exec(f"from __future__ import annotations\ndef shown{text or '()'}: pass", scope)
    return inspect.signature(scope["shown"])


@pytest.mark.parametrize("name", [name for name in d2l.__all__ if callable(getattr(d2l, name))])
def test_the_signature_on_the_page_is_that_of_the_function(page, name):
    value = getattr(d2l, name)
    shown = made_again(entry(page, name)[0], sys.modules[value.__module__]).parameters.values()
    real = inspect.signature(value).parameters.values()
    assert [(p.name, p.kind) for p in shown] == [(p.name, p.kind) for p in real]
    for ours, theirs in zip(shown, real):
        if dataclasses.is_dataclass(value) and repr(theirs.default) == "<factory>":
            assert ours.default == []
        else:
            assert ours.default == theirs.default, (ours, theirs)


@pytest.mark.parametrize("module", ["d2l_gpu", "d2l_gpu.record"])
def test_every_option_of_the_command_lines_is_on_the_page(objects, module):
    said = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True).stdout
    listed = {name for name, (role, _) in objects.items() if role == "std:cmdoption"}
    program = f"python--m-{module}."
    assert {name.removeprefix(program) for name in listed if name.startswith(f"{program}--")} == (
        set(re.findall(r"--[a-z]+", said)) - {"--help"})


def test_the_page_is_read_from_the_source_without_importing_it(root):
    code = (f"import sys; sys.path[:0] = [{str(root / '_ext')!r}]\nimport d2l_api\n"
            f"print(d2l_api.signature(d2l_api.load({str(root)!r}), d2l_api.load({str(root)!r})['devices.try_gpu']))\n"
            "print([name for name in sys.modules if name.split('.')[0] in ('torch', 'd2l_gpu')])")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "(i=0)\n[]\n"


def test_a_docstrings_backticks_become_links_and_its_examples_stay_as_they_are(root):
    import d2l_api
    package = d2l_api.load(str(root))
    lines = d2l_api.text(package, package["prefetch.Prefetcher"])
    assert "    for X, y in d2l.Prefetcher(loader, device): ..." in lines
    assert "{py:obj}`d2l.to <d2l_gpu.to>`" in "\n".join(lines)


# ------------------------------------------------------------------------------------------------- the glossary
def test_terms_are_found_by_name_and_say_where_they_are_explained(root, objects):
    text = (root / "pages" / "glossary.md").read_text(encoding="utf-8")
    definitions = re.findall(r"^  (.+)$", text, re.M)
    assert len(definitions) > 60 and all("](../chapters/" in definition for definition in definitions)
    assert objects["pinned memory"][0] == "std:term"
    assert objects["pinned memory"][1] == "pages/glossary.html#term-pinned-memory"
