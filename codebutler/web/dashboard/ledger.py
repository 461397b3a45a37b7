"""The page of costs: sums and charts by day, repository, person and agent, and the newest runs.

All of it is rendered here, as HTML and SVG, so that the page needs no library and never builds markup from text. This
module imports no web server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from html import escape

from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.refs import MessageRef, PersonRef
from codebutler.observe.ledger import KEYS, Period, by_day, sums, together, total
from codebutler.protocol.capabilities import LedgerRow
from codebutler.protocol.messages import DayUse
from codebutler.text.markup import Addresses
from codebutler.text.wording import Unit, amount, thousands

SPANS = (7, 30, 90, 365)
MAX_BARS = 12
MAX_RUNS = 100
WIDTH, HEIGHT = 1000, 100
"""The size of a chart by day, which the page stretches."""
GAP = 0.25
"""The gap between two bars, as a part of their width."""
OTHERS = "all others"
VOID_ELEMENTS = frozenset({"rect", "line", "br"})
"""Elements without an end tag."""


class LedgerFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page shows: the last ``days``; "" = all."""

    days: int = 30
    repository: str = ""
    person: str = ""
    agent: str = ""

    @property
    def selected(self) -> Mapping[str, str]:
        """The filters, by the keys of ``KEYS``."""
        return {"repository": self.repository, "person": self.person, "agent": self.agent}


class LedgerPage(Struct, frozen=True, kw_only=True):
    """Every view is rendered anew: nothing is cached. ``names``: the served repositories; ``days``: a period up to
    today; ``rows``: their runs in it. ``person_name`` returns a person's name, ``redact`` removes secrets,
    ``addresses`` finds where people see messages."""

    names: Callable[[], Sequence[str]]
    days: Callable[[int], Period]
    rows: Callable[[Period, Iterable[str]], Awaitable[list[LedgerRow]]]
    person_name: Callable[[PersonRef], str]
    redact: Callable[[str], str]
    addresses: Callable[[], Awaitable[Addresses]]

    async def html(self, filters: LedgerFilter) -> str:
        """A whole document, of which the page takes what is in its body."""
        during = self.days(filters.days if filters.days in SPANS else LedgerFilter().days)
        rows = [self._redacted(row) for row in await self.rows(during, self.names())]
        page = _Page(filters, during, rows, self.person_name, await self.addresses())
        return f"<!doctype html>\n{tag('body', page.filters(), page.contents())}"

    def _redacted(self, row: LedgerRow) -> LedgerRow:
        """Redact the row: agents and repositories choose these texts."""
        return replace(
            row, agent=self.redact(row.agent), model=self.redact(row.model), job=self.redact(row.job)
        )


class _Page(Struct, frozen=True):
    filter: LedgerFilter
    during: Period
    rows: list[LedgerRow]
    person_name: Callable[[PersonRef], str]
    address: Addresses

    def filters(self) -> Html:
        """The form with all choices."""
        spans = [(str(days), f"{days} days") for days in SPANS]
        fields = [_field("days", "Time", spans, str(len(self.during.days)))]
        for key, of in KEYS.items():
            names = sorted({of(row) for row in self.rows} | {self.filter.selected[key]} - {""})
            options = [("", "all"), *((name, self._name(key, name)) for name in names)]
            fields.append(_field(key, key.capitalize(), options, self.filter.selected[key]))
        return tag("form", *fields, id="filters", aria_label="Filter")

    def contents(self) -> Html:
        """The sums, the charts and the runs."""
        selected = self.filter.selected
        rows = [row for row in self.rows if all(selected[key] in ("", of(row)) for key, of in KEYS.items())]
        if not rows:
            return tag("div", tag("p", "No runs in this period.", class_="empty"), id="costs")
        groups = [self._group(key, sums(rows, of)) for key, of in KEYS.items()]
        return tag(
            "div",
            _sums(total(rows)),
            self._by_day(by_day(rows, self.during)),
            tag("div", *groups, class_="groups"),
            self._runs(rows),
            id="costs",
        )

    def _by_day(self, used: Mapping[date, DayUse]) -> Html:
        figures = [
            (f"{day:%a %d %b %Y}", amount("usd", use.usd), str(use.runs), thousands(use.tokens))
            for day, use in used.items()
            if use.runs or use.usd
        ]
        table = _table(
            ("Day", "Cost", "Runs", "Tokens"), [tuple(map(_cell, row)) for row in figures], "by day"
        )
        return _section(
            "By day",
            tag(
                "div",
                _chart("Cost by day", "usd", used),
                _chart("Runs by day", "turns", used),
                class_="charts",
            ),
            tag("details", tag("summary", "Figures"), table),
        )

    def _group(self, key: str, used: Mapping[str, DayUse]) -> Html:
        shown = [(self._name(key, name), use) for name, use in used.items()]
        if len(shown) > MAX_BARS:
            largest, rest = shown[: MAX_BARS - 1], shown[MAX_BARS - 1 :]
            shown = [*largest, (f"{OTHERS} ({len(rest)})", together(use for _, use in rest))]
        by: Unit = "usd" if any(use.usd for _, use in shown) else "turns"
        highest = max(_number(by, use) for _, use in shown) or 1
        rows = [
            (
                tag("th", tag("span", name, class_="text"), _bar(_number(by, use) / highest), scope="row"),
                _cell(amount("usd", use.usd)),
                _cell(str(use.runs)),
            )
            for name, use in shown
        ]
        title = f"By {key}"
        return _section(title, _table((key.capitalize(), "Cost", "Runs"), rows, title.lower()))

    def _runs(self, rows: Sequence[LedgerRow]) -> Html:
        newest = [row for row in reversed(rows) if row.run][:MAX_RUNS]
        header = ("Started", "Repository", "Who", "Agent", "Outcome", "Cost", "Tokens", "Time", "Result")
        title = "Runs" if len(newest) < MAX_RUNS else f"The newest {MAX_RUNS} runs"
        return _section(title, _table(header, [self._run(row) for row in newest], "runs", "runs"))

    def _run(self, row: LedgerRow) -> tuple[Html, ...]:
        began = f"{datetime.fromisoformat(row.at).astimezone(self.during.zone):%d %b %H:%M}"
        url = self.address(row.channel, MessageRef(row.thread)) if row.thread else ""
        where: str = began
        if url.startswith(("https://", "http://")):
            where = tag("a", began, href=url, target="_blank", rel="noopener noreferrer")
        return (
            tag("th", where, scope="row"),
            _text(row.repo, "Repository"),
            _text(self._name("person", KEYS["person"](row)), "Who"),
            _text(f"{row.agent} ({row.model})" if row.model else row.agent, "Agent"),
            tag("td", tag("span", row.outcome, class_="state", data_state=row.outcome), data_label="Outcome"),
            _cell("–" if row.cost_usd is None else amount("usd", row.cost_usd), "Cost"),
            _cell(thousands(row.input_tokens + row.output_tokens), "Tokens"),
            _cell(amount("minutes", row.duration_s / 60), "Time"),
            _text(_result_text(row), "Result"),
        )

    def _name(self, key: str, name: str) -> str:
        return self.person_name(PersonRef(name)) if key == "person" else name


def _result_text(row: LedgerRow) -> str:
    """``2 files, 1 commit, checks passed``."""
    parts = [
        f"{row.files} file{'' if row.files == 1 else 's'}" if row.files else "",
        f"{len(row.commits)} commit{'' if len(row.commits) == 1 else 's'}" if row.commits else "",
        f"checks {row.checks}" if row.checks else "",
    ]
    return ", ".join(filter(None, parts))


def _field(name: str, label: str, options: Iterable[tuple[str, str]], selected: str) -> Html:
    shown = [tag("option", words, value=value, selected=value == selected) for value, words in options]
    field = tag("select", *shown, id=f"by-{name}", name=name)
    return tag("span", tag("label", label, for_=f"by-{name}"), field, class_="field")


def _sums(used: DayUse) -> Html:
    figures: tuple[tuple[str, str], ...] = (
        ("Cost", amount("usd", used.usd)),
        ("Runs", str(used.runs)),
        ("Tokens", thousands(used.tokens)),
        ("Working time", amount("minutes", used.minutes)),
    )
    parts = [tag("div", tag("dt", name), tag("dd", value)) for name, value in figures]
    return _section("Total", tag("dl", *parts, class_="sums"))


def _section(title: str, *children: Html) -> Html:
    name = f"{title.lower().replace(' ', '-')}-title"
    return tag("section", tag("h2", title, id=name), *children, aria_labelledby=name)


def _table(header: Sequence[str], rows: Iterable[Sequence[Html]], what: str, kind: str = "figures") -> Html:
    """A table. A wide one scrolls separately, with the keyboard too; other kinds become a list of cards on a phone."""
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in header)))
    body = tag("tbody", *(tag("tr", *row) for row in rows))
    return tag(
        "div",
        tag("table", head, body, class_=kind),
        class_="roll",
        tabindex=0,
        role="group",
        aria_label=f"Figures, {what}",
    )


def _cell(text: str, label: str = "") -> Html:
    return tag("td", text, class_="number", data_label=label or None)


def _text(text: str, label: str) -> Html:
    return tag("td", text, class_="text" if text else "none", data_label=label)


def _bar(share: float) -> Html:
    """A bar next to its figure, so it is hidden from screen readers."""
    rect = tag("rect", width=f"{share * 100:.2f}", height=6, class_="bar")
    return tag(
        "svg", rect, viewBox="0 0 100 6", preserveAspectRatio="none", aria_hidden="true", class_="share"
    )


def _chart(title: str, by: Unit, used: Mapping[date, DayUse]) -> Html:
    """A bar for each day; the page stretches the chart, so its text is outside."""
    numbers = [_number(by, use) for use in used.values()]
    highest, step = max(numbers, default=0) or 1, WIDTH / max(len(numbers), 1)
    bars = []
    for place, (day, use) in enumerate(used.items()):
        number = _number(by, use)
        if not number:
            continue
        high = max(number / highest * HEIGHT, 1.0)
        tooltip = f"{day:%a %d %b}: {amount('usd', use.usd)}, {amount('turns', use.runs)}"
        bars.append(
            tag(
                "rect",
                tag("title", tooltip),
                x=f"{(place + GAP / 2) * step:.2f}",
                y=f"{HEIGHT - high:.2f}",
                width=f"{step * (1 - GAP):.2f}",
                height=f"{high:.2f}",
                class_="bar",
            )
        )
    days = [*used]
    label = f"{title}, {days[0]:%d %B} to {days[-1]:%d %B}: at most {amount(by, max(numbers))} on a day"
    svg = tag(
        "svg",
        *bars,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_="days",
    )
    ends = tag("p", tag("span", f"{days[0]:%d %b}"), tag("span", f"{days[-1]:%d %b}"), class_="ends")
    caption = tag("span", f"at most {amount(by, max(numbers))}", class_="quiet")
    return tag("figure", tag("figcaption", title, " ", caption), svg, ends)


def _number(by: Unit, use: DayUse) -> float:
    return use.usd if by == "usd" else use.runs


class Html(str):
    """A piece of HTML: text never becomes markup."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: object) -> Html:
    """An element. Attributes: ``class_`` is class, ``aria_label`` is aria-label; False and None leave one out, True is
    one without a value."""
    shown = "".join(_attribute(key, value) for key, value in attributes.items())
    content = "".join(child if isinstance(child, Html) else escape(child, quote=False) for child in children)
    return Html(
        f"<{name}{shown}>{content}</{name}>" if content or name not in VOID_ELEMENTS else f"<{name}{shown}/>"
    )


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
