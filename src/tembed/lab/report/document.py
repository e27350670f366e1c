"""A report as a list of elements, written as Markdown and as one HTML page with everything inside.

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

from PIL import Image

from tembed.common.files import explained, write_file
from tembed.lab.claims.claim import Verdict

SHORT = 20
"""Cells up to this many characters stay on one line."""
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
    """The first column has the names of the rows. ``verdicts``: one for each row, shown as its colour."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Figure:
    """An SVG picture; its file is ``figures/<name>.svg``."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True)
class Picture:
    """A PNG picture; its file is ``figures/<name>.png``."""

    name: str
    png: bytes
    caption: str


@dataclass(frozen=True)
class Details:
    """Elements that are hidden until the reader unfolds them."""

    summary: str
    elements: "tuple[Element, ...]"


Element = Heading | Text | Items | Link | Table | Figure | Picture | Details

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff; max-width: 60rem; margin: 0 auto;
  padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 2px solid #d5dbe3; }
h3 { margin-top: 1.8rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #d5dbe3; text-align: left; overflow-wrap: normal;
  vertical-align: top; }
th { background: #f2f5f8; } th, .short { white-space: nowrap; }
td:first-child { font-weight: 600; } .missing { color: #6b7685; font-style: italic; }
.holds { background: #e3f1e3; } .does-not-hold { background: #f9e1dc; }
.unclear { background: #fbf3d5; }
@media (max-width: 30rem) { table { font-size: .82rem; } th, td { padding: .25rem .3rem; } }
figure { margin: 1rem 0; } figure svg { width: 100%; max-width: 40rem; height: auto; display: block; }
figure img { max-width: 100%; height: auto; display: block; }
figcaption { font-size: .9rem; color: #4a5564; }
details { margin: 1rem 0; } summary { cursor: pointer; font-weight: 600; }
"""


def write_document(elements: Sequence[Element], out: Path, title: str) -> Path:
    """Write ``report.md``, ``report.html`` and ``figures/`` into ``out``; return the path of ``report.md``."""
    with explained(out):
        (out / "figures").mkdir(parents=True, exist_ok=True)
    for element in _flat(elements):
        if isinstance(element, Figure):
            write_file(out / "figures" / f"{element.name}.svg", element.svg.encode())
        elif isinstance(element, Picture):
            write_file(out / "figures" / f"{element.name}.png", element.png)
    write_file(out / "report.md", to_markdown(elements).encode())
    write_file(out / "report.html", to_html(title, elements).encode())
    return out / "report.md"


def to_markdown(elements: Sequence[Element]) -> str:
    """Markdown that links the pictures as ``figures/<name>.svg`` or ``.png``."""
    return "\n\n".join(map(_markdown, elements)) + "\n"


def to_html(title: str, elements: Sequence[Element]) -> str:
    """One page that needs no other file."""
    body = "\n".join(map(_html, elements))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _flat(elements: Sequence[Element]) -> Iterator[Element]:
    for element in elements:
        yield element
        if isinstance(element, Details):
            yield from _flat(element.elements)


def _address(path: str) -> str:
    """A relative path as an address that Markdown and HTML take as it is."""
    return urllib.parse.quote(path)


def _lines(cell: Cell) -> tuple[str, ...]:
    return (cell,) if isinstance(cell, str) else cell


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
            named = re.sub(r"(?<!\\)[\[\]]", r"\\\g<0>", _escaped(text))  # a bracket would end the text
            return f"[{named}]({_address(target)})"
        case Table(header, rows, _):
            cells = [tuple(map(_escaped, header)), ("---",) * len(header)]
            cells += [tuple("<br>".join(map(_escaped, _lines(cell))) for cell in row) for row in rows]
            return "\n".join(f"| {' | '.join(row)} |" for row in cells)
        case Figure(name, _, caption):
            return f"![{_escaped(caption)}](figures/{name}.svg)\n\n{_paragraph(caption)}"
        case Picture(name, _, caption):
            return f"![{_escaped(caption)}](figures/{name}.png)\n\n{_paragraph(caption)}"
        case Details(summary, elements):
            inside = "\n\n".join(map(_markdown, elements))
            title = html.escape(" ".join(summary.split()))
            return f"<details>\n<summary>{title}</summary>\n\n{inside}\n\n</details>"


def _escaped(text: str) -> str:
    """Text on one line that Markdown shows literally."""
    text = html.escape(" ".join(text.split()), quote=False)  # not even a reader that knows no escapes finds a tag
    text = re.sub(r"[\\`*_|~$]", r"\\\g<0>", text)
    return re.sub(r"\](?=[(\[:])", r"\\]", text)  # would make a link


def _paragraph(text: str) -> str:
    """The same at the start of a line, where some characters would begin a heading or a list."""
    text = re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", _escaped(text))
    return re.sub(r"^[-+#]", r"\\\g<0>", text)


# --- HTML


def _html(element: Element) -> str:
    safe = html.escape
    match element:
        case Heading(text, level):
            return f"<h{level}>{safe(text)}</h{level}>"
        case Text(text):
            return f"<p>{safe(text)}</p>"
        case Items(lines):
            return "<ul>" + "".join(f"<li>{safe(line)}</li>" for line in lines) + "</ul>"
        case Link(text, target):
            return f'<p><a href="{_address(target)}">{safe(text)}</a></p>'
        case Table(header, rows, verdicts):
            head = "".join(f'<th scope="col">{safe(cell)}</th>' for cell in header)
            starts = [f'<tr class="{verdict.replace(" ", "-")}">' for verdict in verdicts] or ["<tr>"] * len(rows)
            body = "".join(
                start + "".join(map(_html_cell, row)) + "</tr>" for start, row in zip(starts, rows, strict=True)
            )
            return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        case Figure(_, svg, caption):
            return f"<figure>{svg}<figcaption>{safe(caption)}</figcaption></figure>"
        case Picture(name, png, caption):
            image = f'<img alt="{safe(caption)}" src="{_data_uri(png)}">'
            return f'<figure><a href="figures/{name}.png">{image}</a><figcaption>{safe(caption)}</figcaption></figure>'
        case Details(summary, elements):
            inside = "\n".join(map(_html, elements))
            return f"<details><summary>{safe(summary)}</summary>\n{inside}\n</details>"


def _html_cell(cell: Cell) -> str:
    """Short texts stay on one line; a table that is too wide for them scrolls."""
    lines = _lines(cell)
    marks = ["short"] if all(len(line) <= SHORT for line in lines) else []
    marks += ["missing"] if lines == ("missing",) else []
    text = "<br>".join(map(html.escape, lines))
    return f'<td class="{" ".join(marks)}">{text}</td>' if marks else f"<td>{text}</td>"


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
