"""The reports link to the page."""

import dataclasses
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tembed.lab.grid.records import Record, RunsRead
from tembed.lab.report.document import Heading, Link, to_html, to_markdown
from tembed.lab.report.grid_report import page_links
from tembed.lab.training.recipe import Recipe


class Links(HTMLParser):
    """The address and the text of the first link of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.address, self.text, self.inside = "", "", False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.inside, self.address = True, dict(attributes)["href"] or ""

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "a"

    def handle_data(self, data: str) -> None:
        self.text += data if self.inside else ""


@pytest.mark.parametrize("text", ["plain", "a [b] ](c) <i>d</i>", 'quote " & *star*'])
def test_a_link_survives_any_name(text: str) -> None:
    link = Link(text, 'a (b)/"c" #1/page/index.html')
    address = "a%20%28b%29/%22c%22%20%231/page/index.html"
    for page in (MarkdownIt("commonmark").render(to_markdown([link])), to_html("title", [link])):
        found = Links(page)
        assert (found.address, found.text) == (address, text)


def test_the_grid_report_links_to_the_pages_of_its_runs(tmp_path: Path) -> None:
    record = Record(Recipe.paper("rn26", "cifar10").complete(), "a" * 64, 90.0, 12000, (), 1.0, tmp_path / "one")
    other = dataclasses.replace(record, source=tmp_path / "two")
    page = tmp_path / "two" / "analysis" / "page" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("page")
    read = RunsRead(records=[record, other])
    heading, link = page_links(read, tmp_path / "report")
    assert isinstance(heading, Heading)
    assert isinstance(link, Link)
    assert (tmp_path / "report" / link.target).resolve() == page
    page.unlink()
    assert page_links(read, tmp_path / "report") == []


def test_the_page_is_small_and_plain_json(folder: Path) -> None:
    about = (folder / "data" / "about.js").read_text("utf-8")
    assert json.loads(about.removeprefix("tembed.about = ").removesuffix(";\n"))["perImage"] == 16
