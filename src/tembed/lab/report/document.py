"""A report as a list of elements, written as Markdown and, rendered from it, as one HTML page with everything inside.

All text is plain: special characters are escaped, so that Markdown and HTML show them literally.
"""

import base64
import html
import io
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from PIL import Image

from tembed.common.files import below, make_folder, write_file

SHORT = 20
"""Cells with lines up to this many characters keep them whole; a table that is too wide scrolls."""
MARKED = re.compile(r"(holds|does not hold|unclear)(?=:|$| so far)|missing$")
"""The cells with a style of their own."""
OWN_TAGS = re.compile(r"<br>|<details>\n<summary>[^<>]*</summary>\n|</details>\n?")
"""The HTML that is part of our Markdown."""
SPECIAL = r"[\\`*_|~$#]|\](?=[(\[:])"
"""Characters that mean something in Markdown. The last one would make a link."""
SHOWN = 1600
"""Longer side of the pictures inside the HTML page, in pixels; larger ones are shrunk."""


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list with bullets."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Link:
    """A paragraph that links to another file. ``target``: its path, relative to the report."""

    text: str
    target: str


Cell = str | tuple[str, ...]
"""The text of a cell, or its lines."""


@dataclass(frozen=True)
class Table:
    """The first column has the names of the rows. The page colours the cells that begin with a verdict."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Picture:
    """A picture with its caption below it. ``content``: the text of an SVG, or the bytes of a PNG."""

    name: str
    content: str | bytes
    caption: str

    @property
    def path(self) -> str:
        """Its file, relative to the report."""
        return f"figures/{self.name}.{'svg' if isinstance(self.content, str) else 'png'}"


@dataclass(frozen=True)
class Details:
    """Elements that are hidden until the reader unfolds them."""

    summary: str
    elements: "tuple[Element, ...]"


Element = Heading | Text | Items | Link | Table | Picture | Details

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff; max-width: 60rem; margin: 0 auto;
  padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 2px solid #d5dbe3; }
h3 { margin-top: 1.8rem; }
table { display: block; overflow-x: auto; margin: 1rem 0; border-collapse: collapse; font-size: .92rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #d5dbe3; text-align: left; overflow-wrap: normal;
  vertical-align: top; }
th { background: #f2f5f8; } th, .short { white-space: nowrap; }
td:first-child { font-weight: 600; } .missing { color: #6b7685; font-style: italic; }
.holds { background: #e3f1e3; } .does-not-hold { background: #f9e1dc; }
.unclear { background: #fbf3d5; }
@media (max-width: 30rem) { table { font-size: .82rem; } th, td { padding: .25rem .3rem; } }
svg { width: 100%; max-width: 40rem; height: auto; display: block; }
img { max-width: 100%; height: auto; display: block; }
p:has(> svg, > a > img) + p { margin-top: -.8rem; font-size: .9rem; color: #4a5564; }
details { margin: 1rem 0; } summary { cursor: pointer; font-weight: 600; }
"""


def write_document(elements: Sequence[Element], out: Path, title: str) -> Path:
    """Write ``report.md``, ``report.html`` and ``figures/`` into ``out``; return the path of ``report.md``."""
    make_folder(below(out, "figures"))
    for element in _flat(elements):
        if isinstance(element, Picture):
            content = element.content
            write_file(out / element.path, content.encode() if isinstance(content, str) else content)
    write_file(out / "report.md", to_markdown(elements).encode())
    write_file(out / "report.html", to_html(title, elements).encode())
    return out / "report.md"


def to_markdown(elements: Sequence[Element]) -> str:
    """Markdown that links the pictures as ``figures/<name>.svg`` or ``.png``."""
    return "\n\n".join(map(_markdown, elements)) + "\n"


def to_html(title: str, elements: Sequence[Element]) -> str:
    """One page that needs no other file: the Markdown, rendered with the pictures inside."""
    pictures = {element.path: element for element in _flat(elements) if isinstance(element, Picture)}
    reader = MarkdownIt("commonmark", renderer_cls=PageRenderer).enable("table")
    body = reader.render(to_markdown(elements), pictures)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


def _flat(elements: Sequence[Element]) -> Iterator[Element]:
    for element in elements:
        yield element
        if isinstance(element, Details):
            yield from _flat(element.elements)


# --- Markdown


def _markdown(element: Element) -> str:
    match element:
        case Heading(text, level):
            return f"{'#' * level} {_escaped(text)}"
        case Text(text):
            return _paragraph(text)
        case Items(lines):
            return "\n".join(f"- {_paragraph(line)}" for line in lines)
        case Link(text, target):
            return f"[{_inside(text)}]({urllib.parse.quote(target)})"
        case Table(header, rows):
            cells = [tuple(map(_escaped, header)), ("---",) * len(header)]
            cells += [tuple(map(_cell, row)) for row in rows]
            return "\n".join(f"| {' | '.join(row)} |" for row in cells)
        case Picture(name, _, caption):
            return f"![{_inside(name)}]({element.path})\n\n{_paragraph(caption)}"
        case Details(summary, elements):
            inside = "\n\n".join(map(_markdown, elements))
            title = html.escape(" ".join(summary.split()))
            return f"<details>\n<summary>{title}</summary>\n\n{inside}\n\n</details>"


def _cell(cell: Cell) -> str:
    return _escaped(cell) if isinstance(cell, str) else "<br>".join(map(_escaped, cell))


def _escaped(text: str, special: str = SPECIAL) -> str:
    """Text on one line that Markdown shows literally."""
    text = html.escape(" ".join(text.split()), quote=False)  # not even a reader that knows no escapes finds a tag
    return re.sub(special, r"\\\g<0>", text)


def _inside(text: str) -> str:
    """The same inside brackets, which a bracket would end."""
    return _escaped(text, SPECIAL + r"|[\[\]]")


def _paragraph(text: str) -> str:
    """The same at the start of a line, where some characters would begin a list."""
    text = re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", _escaped(text))
    return re.sub(r"^[-+]", r"\\\g<0>", text)


# --- HTML


class PageRenderer(RendererHTML):
    """Puts the pictures into the page and marks the cells of tables. HTML that is not `OWN_TAGS` becomes text."""

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        picture = env[tokens[idx].attrs["src"]]
        if isinstance(picture.content, str):
            return picture.content
        tokens[idx].attrSet("src", _data_uri(picture.content))
        return f'<a href="{picture.path}">{super().image(tokens, idx, options, env)}</a>'

    def td_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        text = tokens[idx + 1].content
        marks = [found[0].replace(" ", "-")] if (found := MARKED.match(text)) else []
        marks += ["short"] if all(len(line) <= SHORT for line in text.split("<br>")) else []
        return f'<td class="{" ".join(marks)}">'

    def html_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        found = tokens[idx].content
        return found if OWN_TAGS.fullmatch(found) else html.escape(found)

    html_inline = html_block


def _data_uri(png: bytes) -> str:
    """A picture as a data URI: the PNG itself, or a smaller JPEG of a large one."""
    with Image.open(io.BytesIO(png)) as picture:
        if max(picture.size) <= SHOWN:
            return "data:image/png;base64," + base64.b64encode(png).decode()
        small = picture.convert("RGB")
        small.thumbnail((SHOWN, SHOWN), Image.Resampling.LANCZOS)
        content = io.BytesIO()
        small.save(content, "JPEG", quality=88)
    return "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode()
