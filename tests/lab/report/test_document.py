"""A report shows plain text as it is, whatever characters it has, in Markdown and in HTML.

Markdown is read back by markdown-it, HTML by the standard library's parser.
"""

import base64
import io
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from PIL import Image

from tembed.lab.report.document import (
    SHOWN,
    Details,
    Element,
    Heading,
    Items,
    Link,
    PageRenderer,
    Picture,
    Table,
    Text,
    to_html,
    to_markdown,
    write_document,
)

ODD = (
    "a|b",
    "two\nlines",
    "line\u2028separator and\x0btab",
    "<script>alert(1)</script>",
    "<script src=x> and <!-- comment",
    "`tick` *star* _under_ ~~gone~~ $x_1$",
    "[text](http://example.org) and [a][b] ![picture](x.png)",
    "[name]: http://example.org",
    "back\\slash \\| pipe",
    "&lt; and &amp;",
    "# heading",
    "- item",
    "+ item",
    "1. item",
    "2) item",
    "---",
    "===",
    "'single' and \"double\"",
    "](javascript:alert(1)) and [x](javascript:alert(1))",
    "<br> and <details><summary>x</summary>",
    "&#60;script&#62; &copy; & co",
    "C #",
    "] a \\] b [",
    "> quote",
    "```",
    "* * *",
    "    indented",
    "| a |",
)


class Page(HTMLParser):
    """The tags of a page in order, and the texts inside the tags of interest."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {tag: [] for tag in ("h2", "p", "li", "td", "th", "summary")}
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        if tag in self.texts:
            self.open.append(tag)
            self.texts[tag].append("")
        elif tag == "br" and self.open:
            self.texts[self.open[-1]][-1] += "\n"

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


def one_line(text: str) -> str:
    return " ".join(text.split())


def rendered(elements: list[Element]) -> Page:
    """Markdown as a renderer shows it."""
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return Page(reader.render(to_markdown(elements)))


@pytest.mark.parametrize("text", ODD)
def test_any_text_comes_back_from_every_element(text: str) -> None:
    elements: list[Element] = [
        Heading(text),
        Text(text),
        Items((text, "x")),
        Table((text, "plain"), ((text, "1"), ("2", (text, text)))),
        Link(text, f"{text}.html"),
        Picture("picture", "<svg></svg>", text),
        Details(text, (Text(text),)),
    ]
    for page in (rendered(elements), Page(to_html(text, elements))):
        for tag, expected in (
            ("h2", [text]),
            ("p", [text, text, "", text, text]),
            ("li", [text, "x"]),
            ("th", [text, "plain"]),
            ("td", [text, "1", "2", None]),
            ("summary", [text]),
        ):
            found = page.texts[tag]
            assert len(found) == len(expected), (tag, found)
            for shown, wanted in zip(found, expected, strict=True):
                if wanted is None:  # two lines
                    assert [one_line(line) for line in shown.split("\n") if line.strip()] in (
                        [one_line(text)] * 2,
                        [*map(one_line, text.splitlines())] * 2,
                    )
                else:
                    assert one_line(shown) == one_line(wanted), tag
        ours = Counter({"h2": 1, "p": 5, "ul": 1, "li": 2, "a": 1, "details": 1, "summary": 1})
        ours += Counter({"table": 1, "thead": 1, "tbody": 1, "tr": 3, "th": 2, "td": 4, "br": 1})
        frame = ("html", "head", "meta", "title", "style", "body", "img", "svg")
        assert Counter(tag for tag in page.tags if tag not in frame) == ours
        links = [at for tag, at in page.attributes if tag == "a"]
        assert [(unquote(str(at.pop("href"))), at) for at in links] == [(f"{text}.html", {})]
        assert [at["alt"] for tag, at in page.attributes if tag == "img"] in ([], ["picture"])


def png(width: int, height: int) -> bytes:
    content = io.BytesIO()
    Image.linear_gradient("L").resize((width, height)).convert("RGB").save(content, "PNG")
    return content.getvalue()


def test_all_files_are_written_and_linked(tmp_path: Path) -> None:
    small, large, svg = png(30, 20), png(2 * SHOWN, 40), '<svg xmlns="http://www.w3.org/2000/svg"></svg>'
    elements: list[Element] = [
        Picture("small", small, "a|b"),
        Details("more", (Picture("large", large, "large"), Picture("chart", svg, "chart"))),
    ]
    path = write_document(elements, tmp_path / "out", "a <title>")
    assert path == tmp_path / "out" / "report.md"
    folder = tmp_path / "out" / "figures"
    assert {file.name for file in folder.iterdir()} == {"small.png", "large.png", "chart.svg"}
    assert (folder / "large.png").read_bytes() == large
    assert (folder / "chart.svg").read_text() == svg
    links = [at["src"] for tag, at in rendered(elements).attributes if tag == "img"]
    assert links == ["figures/small.png", "figures/large.png", "figures/chart.svg"]
    text = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "<title>a &lt;title&gt;</title>" in text
    assert svg in text
    page = Page(text)
    inside = [str(at["src"]) for tag, at in page.attributes if tag == "img"]
    assert base64.b64decode(inside[0].removeprefix("data:image/png;base64,")) == small
    shrunk = base64.b64decode(inside[1].removeprefix("data:image/jpeg;base64,"))
    assert Image.open(io.BytesIO(shrunk)).size == (SHOWN, 20)
    assert page.texts["p"] == ["", "a|b", "", "large", "", "chart"]
    assert [at["href"] for tag, at in page.attributes if tag == "a"] == ["figures/small.png", "figures/large.png"]


def test_cells_are_marked_by_their_text() -> None:
    row = ("holds", "does not hold: 1 of 2", "holds so far", "holds water", "missing", ("a", "b"), 21 * "x")
    page = to_html("x", [Table(("holds",) * len(row), (row,))])
    assert [at.get("class") for tag, at in Page(page).attributes if tag == "td"] == [
        "holds short",
        "does-not-hold",
        "holds short",
        "short",
        "missing short",
        "short",
        "",
    ]
    assert not [at for tag, at in Page(page).attributes if tag == "th" and at]


@pytest.mark.parametrize("tag", ["<b>", "<script>", "<div onclick=x>", "<br onclick=x>", "<details>\n<summary><b>"])
def test_a_tag_that_is_not_ours_becomes_text(tag: str) -> None:
    """Even where an escape was forgotten."""
    reader = MarkdownIt("commonmark", renderer_cls=PageRenderer)
    for markdown in (tag, f"text {tag}"):
        assert Page(reader.render(markdown)).tags in ([], ["p"])
