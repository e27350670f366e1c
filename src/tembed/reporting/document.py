"""A report as a list of blocks, written as Markdown and as one HTML page."""

import html
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Items:
    """A list of lines."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Cells are plain text; the first column is a row's name."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Figure:
    """An SVG picture; ``name`` is its file's beside the Markdown."""

    name: str
    svg: str
    caption: str


SHORT = 20

Block = Heading | Text | Items | Table | Figure

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff; max-width: 60rem; margin: 0 auto;
  padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 2px solid #d5dbe3; }
h3 { margin-top: 1.8rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #d5dbe3; text-align: left; overflow-wrap: normal; }
th { background: #f2f5f8; } th, .short { white-space: nowrap; }
td:first-child { font-weight: 600; } .missing { color: #6b7685; font-style: italic; }
@media (max-width: 30rem) { table { font-size: .82rem; } th, td { padding: .25rem .3rem; } }
figure { margin: 1rem 0; } figure svg { width: 100%; max-width: 40rem; height: auto; display: block; }
figcaption { font-size: .9rem; color: #4a5564; }
"""


def to_markdown(blocks: Sequence[Block]) -> str:
    """Figures are linked as ``figures/<name>.svg``."""
    parts = []
    for block in blocks:
        match block:
            case Heading(text, level):
                parts.append(f"{'#' * level} {_marked(text)}")
            case Text(text):
                parts.append(_marked(text))
            case Items(lines):
                parts.append("\n".join(f"- {_marked(line)}" for line in lines))
            case Table(header, rows):
                table = [header, ("---",) * len(header), *(tuple(map(_marked, row)) for row in rows)]
                parts.append("\n".join(f"| {' | '.join(line)} |" for line in table))
            case Figure(name, _, caption):
                parts.append(f"![{_marked(caption)}](figures/{name}.svg)\n\n{_marked(caption)}")
    return "\n\n".join(parts) + "\n"


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """One page that needs nothing else."""
    body = "\n".join(map(_html, blocks))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    safe = html.escape
    match block:
        case Heading(text, level):
            return f"<h{level}>{safe(text)}</h{level}>"
        case Text(text):
            return f"<p>{safe(text)}</p>"
        case Items(lines):
            return "<ul>" + "".join(f"<li>{safe(line)}</li>" for line in lines) + "</ul>"
        case Table(header, rows):
            head = "".join(f'<th scope="col">{safe(cell)}</th>' for cell in header)
            body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
            return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        case Figure(_, svg, caption):
            return f"<figure>{svg}<figcaption>{safe(caption)}</figcaption></figure>"


def _cell(text: str) -> str:
    """Short texts stay on one line; a table that is too wide for them scrolls."""
    marks = ["short"] if len(text) <= SHORT else []
    marks += ["missing"] if text == "missing" else []
    return f'<td class="{" ".join(marks)}">{html.escape(text)}</td>' if marks else f"<td>{html.escape(text)}</td>"


def _marked(text: str) -> str:
    """Text that Markdown leaves as it is."""
    for sign in "\\`*_<>|":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
