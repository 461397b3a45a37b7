"""The page of costs in a real browser: its figures are the runs', at any size, and nothing in it is foreign markup."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, time, timedelta
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from codebutler.protocol.capabilities import LedgerRow
from codebutler.text.wording import amount
from tests.browser import PATIENCE_MS, chromium, clean
from tests.dashboards import TODAY, Watched, repo, watched
from tests.integration.dashboard.test_changes_page import SIZES, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
PEOPLE = ("U0ANA", "U0BEN", "operator")
AGENTS = (("claude", "sonnet-4"), ("kimi", ""), (HOSTILE, HOSTILE))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        expect.set_options(timeout=PATIENCE_MS)
        yield started


def run(number: int) -> LedgerRow:
    """One of many, over forty days."""
    began = datetime.combine(TODAY, time(9)) - timedelta(days=number * 7 % 40, minutes=number)
    agent, model = AGENTS[number % 3 if number % 5 else 0]
    return LedgerRow(
        repo=("shop", "blog", "a-repository-with-quite-a-long-name")[number % 3],
        run=f"t{number}",
        at=f"{began.isoformat()}.000000+00:00",
        ended="",
        user=PEOPLE[number % 2],
        job="nightly" if number % 7 == 3 else "",
        agent=agent,
        model=model,
        session="s1",
        outcome=("done", "failed", "interrupted", "parked")[number % 4 if number % 3 == 0 else 0],
        input_tokens=1000 * number,
        output_tokens=100,
        cost_usd=None if agent == "kimi" else round(0.07 * (number % 9), 2),
        duration_s=30.0 * number,
        files=number % 4,
        commits=("abc1234",) * (number % 3),
        checks=("", "passed", "failed")[number % 3],
        channel="C0123456",
        thread="1700000000.000100",
        link="",
    )


@asynccontextmanager
async def served(home: Path, count: int = 60) -> AsyncIterator[Watched]:
    async with watched(home) as built:
        built.known.repos = [repo("shop"), repo("blog"), repo("a-repository-with-quite-a-long-name")]
        built.runs = sorted(map(run, range(count)), key=lambda each: each.at)
        yield built


def address(built: Watched, query: str = "") -> str:
    url, _, ticket = built.front.link().partition("#")
    return f"{url}costs{query}#{ticket}"


def within(runs: list[LedgerRow], days: int) -> list[LedgerRow]:
    first = (TODAY - timedelta(days=days - 1)).isoformat()
    return [each for each in runs if each.at >= first]


def cost(runs: list[LedgerRow]) -> str:
    return amount("usd", sum(each.cost_usd or 0 for each in runs))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
async def test_its_figures_are_the_runs_at_any_size(
    browser: Browser, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    async with served(tmp_path) as built, opened(browser, address(built), size, color_scheme=scheme) as page:
        month = within(built.runs, 30)
        await expect(page.locator(".sums dd")).to_have_text(
            [cost(month), str(len(month)), page_tokens(month), page_minutes(month)]
        )
        await expect(page.locator("svg.days")).to_have_count(2)
        label = await page.locator("svg.days").first.get_attribute("aria-label")
        assert label is not None
        assert label.startswith("Cost by day, 16 January to 14 February: at most $")
        await expect(page.locator("table.runs tbody tr")).to_have_count(len(month))
        await expect(page.locator("table.runs tbody th a").first).to_have_attribute(
            "href", "https://acme.slack.com/archives/C0123456/p1700000000000100"
        )
        await expect(page.locator("#by-person-title")).to_be_visible()
        await expect(page.get_by_role("rowheader", name="Ana").first).to_be_visible()
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(wide) == 0
        assert await page.locator("main img, main script").count() == 0
        assert await page.title() == "Costs · CodeButler"
        await clean(page)
        await page.get_by_text("Figures", exact=True).click()
        await expect(page.get_by_role("cell", name="$").first).to_be_visible()
        await clean(page)


def page_tokens(runs: list[LedgerRow]) -> str:
    return amount("tokens", sum(each.input_tokens + each.output_tokens for each in runs)).partition(" ")[0]


def page_minutes(runs: list[LedgerRow]) -> str:
    return amount("minutes", sum(each.duration_s for each in runs) / 60)


async def test_it_is_narrowed_with_the_keyboard_and_stays_so(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as built, opened(browser, address(built)) as page:
        await expect(page.locator("#page")).to_be_visible()
        await page.get_by_label("Time", exact=True).focus()
        await page.keyboard.press("ArrowDown")
        whole = within(built.runs, 90)
        await expect(page.locator(".sums dd").nth(1)).to_have_text(str(len(whole)))
        await expect(page.get_by_label("Time", exact=True)).to_be_focused()
        await page.get_by_label("Person", exact=True).select_option(label="Ana")
        anas = [each for each in whole if each.user == "U0ANA" and not each.job]
        await expect(page.locator(".sums dd").nth(1)).to_have_text(str(len(anas)))
        await expect(page.locator(".sums dd").first).to_have_text(cost(anas))
        await expect(page.locator("#told")).to_have_text(f"{cost(anas)}, {len(anas)} runs")
        assert page.url.endswith("/costs?days=90&person=U0ANA")
        await page.reload()
        await expect(page.locator(".sums dd").nth(1)).to_have_text(str(len(anas)))
        await page.get_by_label("Repository", exact=True).select_option("shop")
        await page.get_by_label("Agent", exact=True).select_option("kimi")
        both = [each for each in anas if each.repo == "shop" and each.agent == "kimi"]
        if both:
            await expect(page.locator(".sums dd").nth(1)).to_have_text(str(len(both)))
        else:
            await expect(page.locator("#costs")).to_have_text("No runs in this period.")


async def test_without_runs_it_says_so(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path, 0) as built, opened(browser, address(built)) as page:
        await expect(page.locator("#costs")).to_have_text("No runs in this period.")
        await clean(page)


async def test_the_first_page_leads_to_it(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as built, opened(browser, built.front.link()) as page:
        await page.get_by_role("link", name="Costs").click()
        await expect(page.locator(".sums dd").first).to_be_visible()


async def test_a_tab_without_the_key_asks_for_a_link(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path) as built:
        url = built.front.link().partition("#")[0]
        async with opened(browser, f"{url}costs") as page:
            await page.get_by_label("Run codebutler dashboard").fill(built.front.link())
            await clean(page)
            await page.get_by_role("button", name="Open").click()
            await expect(page.locator(".sums dd").first).to_be_visible()


async def test_nobody_gets_a_figure_without_the_key(tmp_path: Path) -> None:
    async with served(tmp_path) as built, httpx.AsyncClient(base_url=built.front.url) as client:
        assert (await client.get("/dashboard/costs")).status_code == 401
        wrong = {"authorization": "Bearer guessed"}
        assert (await client.get("/dashboard/costs", headers=wrong)).status_code == 401
        ticket = built.front.link().partition("#")[2]
        key = (await client.post("/dashboard/key", json={"ticket": ticket})).json()["key"]
        right = {"authorization": f"Bearer {key}"}
        answer = await client.get("/dashboard/costs?days=7", headers=right)
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "<img" not in answer.text
        for wrong_filter in ("days=many", "colour=red"):
            assert (await client.get(f"/dashboard/costs?{wrong_filter}", headers=right)).status_code == 400
        foreign = right | {"host": "evil.example"}
        assert (await client.get("/dashboard/costs", headers=foreign)).status_code == 403
