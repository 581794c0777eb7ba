"""A report shows what a model wrote as text, whatever it is."""

from html.parser import HTMLParser

from skyrl_nat.evaluation import plots
from skyrl_nat.evaluation.pages import Details, Figure, Heading, Page, Table, Text, to_html, to_markdown, write_page

HOSTILE = "<script>alert(1)</script> | `x` **b** \ud800 $\\frac$\nnext"


def page() -> Page:
    figure = Figure(plots.bars({"all": {"success": 0.5}}, y_label="success"), "half succeed")
    table = Table(("task", "reward"), [(HOSTILE, 0.123456), ("b", None)], "rewards")
    return Page("A & B", [Heading("Part"), Text(HOSTILE), table, figure, Details("a rollout", f"````\n{HOSTILE}")])


class Tags(HTMLParser):
    """Counts tags."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)


def test_nothing_that_a_model_wrote_is_markup(tmp_path):
    markdown, html = (path.read_text(encoding="utf-8") for path in write_page(page(), tmp_path, "report"))
    tags = Tags()
    tags.feed(html)
    assert "script" not in tags.seen
    assert {"h1", "h2", "p", "table", "svg", "details"} <= set(tags.seen)
    assert "<script>" not in markdown.split("`````text")[0]


def test_html_needs_no_other_file_and_markdown_names_its_figures(tmp_path):
    markdown, html = (path.read_text(encoding="utf-8") for path in write_page(page(), tmp_path, "report"))
    assert "http" not in html.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    assert "![half succeed](figures/report_1.svg)" in markdown
    assert (tmp_path / "figures" / "report_1.svg").read_text().rstrip().endswith("</svg>")


def test_a_table_shows_four_digits_and_a_dash_for_what_is_not_known():
    table = Page("t", [Table(("a|b", "n"), [("x|y", 0.123456), ("z", None)])])
    assert to_markdown(table, "t").splitlines()[2:] == [
        "| a\\|b | n |",
        "|---|---|",
        "| x\\|y | 0.1235 |",
        "| z | — |",
    ]
    assert '<td class="number">0.1235</td>' in to_html(table)


def test_a_fence_is_longer_than_any_in_its_text():
    shown = to_markdown(Page("t", [Details("code", "a ```` b")]), "t")
    assert shown.endswith("`````text\na ```` b\n`````\n")
