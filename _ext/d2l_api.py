"""The directive `api`: a name's signature and docstring, read from the source of d2l_gpu by griffe, without importing it.

The argument is the path within the package, such as `devices.try_gpu`. What `d2l_gpu.__all__` has is listed as
`d2l_gpu.try_gpu`, everything else under its module. Docstrings are Markdown: text, `code`, and indented examples.
"""

import functools
import re

import griffe
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

PACKAGE = "d2l_gpu"


@functools.lru_cache(maxsize=1)
def load(root):
    """The package as griffe reads it, once a build."""
    return griffe.load(PACKAGE, search_paths=[root], allow_inspection=False)


def home(package, found):
    """The module that a name is listed under."""
    return PACKAGE if found.name in package.exports else found.parent.path


def annotation(package, expression):
    """An annotation as text, in which the package's own names are those they are listed under."""
    text = str(expression)
    for part in getattr(expression, "iterate", lambda flat: ())(flat=True):
        path = getattr(part, "canonical_path", "")
        if path.startswith(f"{PACKAGE}."):
            text = re.sub(rf"\b{part.name}\b", f"{home(package, package[path.removeprefix(PACKAGE + '.')])}.{part.name}", text)
    return text


def signature(package, found):
    """The parameters and what is returned, as in the source; `self` is left out."""
    star, slash, parts = griffe.ParameterKind.keyword_only, griffe.ParameterKind.positional_only, []
    marks = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
    parameters = [p for p in found.parameters if p.name not in ("self", "cls")]
    for k, p in enumerate(parameters):
        if p.kind is star and "*" not in parts and not any(part.startswith("*") for part in parts):
            parts.append("*")
        text = marks.get(p.kind, "") + p.name + (f": {annotation(package, p.annotation)}" if p.annotation else "")
        if p.default is not None and p.kind not in marks:
            text += f" = {p.default}" if p.annotation else f"={p.default}"
        parts.append(text)
        if p.kind is slash and not any(q.kind is slash for q in parameters[k + 1:]):
            parts.append("/")
    returns = getattr(found, "returns", None)
    return f"({', '.join(parts)})" + (f" -> {annotation(package, returns)}" if returns else "")


def text(package, found):
    """The lines of the docstring, in which the package's names between backticks are links."""
    own = {p.name for p in getattr(found, "parameters", ())} | {found.name}
    module = found if found.is_module else found.module

    def link(match):
        prefix, name, call = match.groups()
        if name in own or (name == "to" and not prefix):
            return match[0]
        if name in package.exports:
            return f"{{py:obj}}`{prefix or ''}{name}{call or ''} <{PACKAGE}.{name}>`"
        if name in module.classes and not name.startswith("_"):
            return f"{{py:obj}}`{name} <{module.classes[name].canonical_path}>`"
        return match[0]

    lines = found.docstring.value.split("\n") if found.docstring else []
    return [line if line.startswith("    ") else re.sub(r"(?<!`)`(d2l\.)?(\w+)(\(\))?`(?!`)", link, line) for line in lines]


def described(package, found, fence="::::"):
    """The lines of Markdown that describe an object, and for a class its documented methods."""
    kind = {"attribute": "data"}.get(found.kind.value, found.kind.value)
    name, options = found.name, [f":module: {home(package, found)}"]
    if found.parent.is_class:
        name, options = f"{found.parent.name}.{name}", [f":module: {home(package, found.parent)}"]
        kind = "property" if "property" in found.labels else "method"
    if kind == "module":
        name, options = found.path, []
    elif kind in ("function", "method") or (kind == "class" and name in package.exports):
        name += signature(package, found)  # objects that functions return are not made by hand: no signature
    lines = [f"{fence}{{py:{kind}}} {name}", *options, "", *text(package, found), ""]
    if kind == "data":
        lines += ["```python", *f"{found.name} = {found.value}".split("\n"), "```", ""]
    if kind == "class":
        bases = [f"{{py:class}}`{base} <{PACKAGE}.{base}>`" if base in package.exports else f"`{base}`"
                 for base in map(str, found.bases) if base not in ("NamedTuple", "HyperParameters")]
        lines += [f"A subclass of {' and '.join(bases)}.", ""] if bases else []
        for member in found.members.values():
            if not member.name.startswith("_") and not member.is_alias and member.docstring:
                lines += described(package, member, ":::")
    return [*lines, fence, ""]


class Api(SphinxDirective):
    required_arguments = 1

    def run(self):
        package = load(self.env.srcdir)
        try:
            found = package[self.arguments[0]]
        except KeyError:
            raise self.error(f"{PACKAGE} has no {self.arguments[0]}") from None
        self.env.note_dependency(str(found.filepath))
        node = nodes.container()
        self.state.nested_parse(StringList(described(package, found), str(found.filepath)), 0, node)
        return node.children


def setup(app):
    app.add_directive("api", Api)
    app.connect("builder-inited", lambda app: load.cache_clear())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
