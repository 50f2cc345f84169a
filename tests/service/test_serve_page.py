"""The page of ``astray serve`` in a real browser: by keyboard alone, on a phone, in the dark, with a thousand agents.

``python tests/service/test_serve_page.py docs/images/review.png`` draws the picture of the documentation.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pytest

from astray import Detector, Trajectories
from astray.core.settings import ASPECTS
from astray.simulate import city
from serving import Running, fixes_of, serving

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no chromium is installed, so the page cannot be opened", allow_module_level=True)

DESK, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}
VIEWS = ("/live", "/review", "/health", "/settings", "/export")
HARMFUL = "<img src=x onerror=\"document.title='harmed'\"> & <b>bob</b>"
NAMES = ("ana", HARMFUL, "cem", "dora", "eli", "fatma", "van 7", "Oma Inge")
WEEK = 7 * 86_400
PATIENCE = 60_000  # milliseconds: others may use the machine, too
# A map without a graphics card, and nothing that a browser does on its own.
FLAGS = [
    *("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

GONE = ("Failed to load resource", "net::ERR")  # a service that was stopped
WATCH = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`))"""
ON_MAP = """async (name) => {
  const { map } = await import(document.querySelector("script[src]").src.replace("app.js", "map.js"));
  return map.data[name].length;
}"""
ON_TRACK = """async () => {
  const { map } = await import(document.querySelector("script[src]").src.replace("app.js", "map.js"));
  return map.data.track[0].geometry.coordinates.length;
}"""
OUTLINE = """() => {
  const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
  return [outlineStyle, parseFloat(outlineWidth)];
}"""


# -------------------------------------------------------------------- people, a service, a browser


class Days(NamedTuple):
    """A fleet that has learned, and what its agents do next."""

    model: Path
    fixes: list[dict[str, Any]]


def made_days(folder: Path) -> Days:
    """Eight people who were watched for some weeks, and then trips that they do not make, until about now."""
    simulation = city(people=8, days=28, seed=3)
    past, new = simulation.split(0.25)
    injected = simulation.inject(new, kinds=("agent-swap", "new-destination"), rate=0.3, seed=1)
    wrong = injected[injected.context["kind"] != ""]
    model = folder / "fleet.astray"
    Detector(seed=0).fit(named(past)).save(model)
    fixes = fixes_of(named(wrong))
    # Some weeks later: hours and days of the week stay.
    later = WEEK * ((time.time() - fixes[-1]["time"]) // WEEK)
    return Days(model, [{**fix, "time": fix["time"] + later} for fix in fixes])


def named(trips: Trajectories) -> Trajectories:
    """The same trips of people with names."""
    agents = [NAMES[int(agent[1:])] for agent in trips.agent_ids.tolist()]
    return Trajectories(trips.columns, trips.offsets, agents, trips.trajectory_ids, trips.context)


def feed(service: Running, fixes: list[dict[str, Any]], together: int = 500) -> None:
    for first in range(0, len(fixes), together):
        assert not service.post(fixes[first : first + together])["refused"]


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Days:
    return made_days(tmp_path_factory.mktemp("days"))


@pytest.fixture(scope="module")
def service(days: Days, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with a queue of some dozens."""
    with serving(tmp_path_factory.mktemp("served") / "data", "--model", str(days.model)) as running:
        feed(running, days.fixes)
        running.until("/api/review", lambda found: found["total"] > 25)
        yield running


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that nobody has sent anything to."""
    with serving(tmp_path_factory.mktemp("empty") / "data") as running:
        yield running


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


Open = Callable[..., Any]


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens a page of a service; at the end of a test, nothing must have gone wrong in it, and nothing from outside."""
    contexts, wrong = [], []

    def open_page(
        running: Running, path: str, size: dict[str, int] = DESK, allowed: tuple[str, ...] = (), **options: Any
    ) -> Any:
        context = browser.new_context(viewport=size, reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.add_init_script(WATCH)

        def noted(message: Any) -> None:
            if message.type in ("error", "warning") and not any(
                word in message.text for word in ("GPU stall", *allowed)
            ):
                wrong.append(f"{message.type}: {message.text}")

        def asked(request: Any) -> None:
            if not request.url.startswith((running.url, f"blob:{running.url}", "data:")):
                wrong.append(f"asked for {request.url}")

        page.on("console", noted)
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("request", asked)
        page.goto(running.url + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def drawn(page: Any) -> None:
    """Wait until the map shows what it was told to."""
    page.locator(".map[data-ready]").wait_for()


def until(page: Any, holds: Callable[[], Any]) -> Any:
    for _ in range(PATIENCE // 50):
        if found := holds():
            return found
        page.wait_for_timeout(50)
    raise AssertionError("it did not come about")


# -------------------------------------------------------------------- review


def test_twenty_reviews_work_by_keyboard_alone(service: Running, opened: Open) -> None:
    before = service.get("/api/review", limit=500)
    page = opened(service, "/live")
    page.locator(".agents button").first.wait_for()
    page.keyboard.press("g")
    page.keyboard.press("r")
    current = page.locator(".queue [aria-current=true]")
    given = []
    for i in range(20):
        current.wait_for()
        item = current.get_attribute("data-id")
        until(page, lambda: page.locator(".trip h1").count() and page.locator(".why li").count())
        verdict = ("normal", "anomaly", "unsure")[i % 3]
        page.keyboard.press(verdict[0])
        given.append((item, verdict))
        until(page, lambda item=item: current.get_attribute("data-id") != item)
    assert [item for item, _ in given] == [item["id"] for item in before["items"][:20]], "worst first"
    pending = service.until("/api/review?limit=500", lambda found: len(found["pending"]) == 20)
    assert [(entry["id"], entry["verdict"]) for entry in pending["pending"]] == given
    assert pending["total"] == before["total"] - 20
    page.locator(".pending .clock").first.wait_for()  # the page shows a verdict when the service has answered
    assert re.search(r"Can be undone for \d+:\d\d", page.locator(".pending").inner_text())
    # All of them are taken back, the last one first; also those of before the page was loaded.
    page.reload()
    page.locator(".pending .clock").first.wait_for()
    for n in range(19, -1, -1):
        page.keyboard.press("z")
        service.until("/api/review?limit=500", lambda found, n=n: len(found["pending"]) == n)
        until(page, lambda n=n: current.count() and current.get_attribute("data-id") == given[n][0])
    after = service.get("/api/review", limit=500)["items"]
    # Explanations are made meanwhile: an item may have got its words since.
    assert [{**item, "words": ""} for item in after] == [{**item, "words": ""} for item in before["items"]]


def test_keys_walk_through_the_queue_and_are_shown(service: Running, opened: Open) -> None:
    page = opened(service, "/review")
    items = [item["id"] for item in service.get("/api/review", limit=3)["items"]]  # however few are asked for
    current = page.locator(".queue [aria-current=true]")
    current.wait_for()
    walked = []
    for key in ("j", "ArrowDown", "k", "ArrowUp", "ArrowUp"):
        page.keyboard.press(key)
        walked.append(current.get_attribute("data-id"))
    assert walked == [items[i] for i in (1, 2, 1, 0, 0)]
    page.keyboard.press("?")
    page.locator("#keys").wait_for()
    assert "undo the last verdict" in page.locator("#keys").inner_text()
    page.keyboard.press("n")  # a dialog is open: not a verdict
    page.keyboard.press("Escape")
    page.locator("#keys").wait_for(state="hidden")
    assert service.get("/api/review")["pending"] == []


def test_an_item_shows_map_chart_and_reasons_without_a_click(service: Running, opened: Open) -> None:
    page = opened(service, "/review")
    drawn(page)
    item = service.get("/api/review", limit=500)["items"][0]
    trip = service.get(f"/api/trips/{quote(item['trips'][0], safe='')}")
    for reason in trip["words"]:
        assert reason[1:] in page.locator(".why").inner_text()
    assert trip["zone"].split(",")[0] in page.locator(".trip h1").inner_text()
    chart = page.locator(".chart canvas").bounding_box()
    assert chart["y"] + chart["height"] < DESK["height"]
    assert page.evaluate(ON_TRACK) == sum(not fault for fault in trip["track"]["fault"])
    assert page.evaluate(ON_MAP, "ways") > 0
    # The chart points at the map, and the map at the chart.
    page.locator(".chart").hover(position={"x": chart["width"] / 2, "y": 60})
    until(page, lambda: page.evaluate(ON_MAP, "pointed") == 1)
    assert "normality" in page.locator(".readout").inner_text()
    page.locator(".chart").focus()
    page.keyboard.press("Home")
    first = page.locator(".readout").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator(".readout").inner_text() != first
    assert page.locator(".chart").get_attribute("aria-valuenow") == "1"


def test_a_question_shows_all_its_trips(service: Running, opened: Open) -> None:
    question = next(item for item in service.get("/api/review", limit=500)["items"] if item["kind"] == "question")
    page = opened(service, "/review")
    row = (
        page.locator(f'.queue [data-id="{question["id"]}"]')
        if '"' not in question["id"]
        else page.locator(".queue button", has_text="New habit?").first
    )
    row.click()
    page.locator(".tabs button").nth(len(question["trips"]) - 1).wait_for()
    drawn(page)
    assert page.locator(".chip.question").inner_text() == "New habit?"
    page.keyboard.press("2")
    assert page.locator(".tabs [aria-pressed=true]").inner_text().startswith("2")


def test_trips_in_doubt_come_last_and_are_marked(service: Running, opened: Open) -> None:
    items = service.get("/api/review", limit=500)["items"]
    doubts = [item for item in items if item["kind"] == "doubt"]
    assert doubts
    page = opened(service, "/review")
    page.locator(".queue button").nth(len(items) - 1).click()
    page.locator(".chip", has_text="In doubt").wait_for()
    assert "did not flag this trip" in page.locator(".why").inner_text()
    assert page.locator(".queue button", has_text="in doubt").count() == len(doubts)
    assert f"{len(doubts)} in doubt, last" in page.locator(".side-head").inner_text()
    assert page.locator(".verdict-button").count() == 3


def test_a_trip_that_was_learned_can_be_called_an_anomaly_on_its_page(service: Running, opened: Open) -> None:
    agents = [agent["agent"] for agent in service.get("/api/agents")["agents"] if agent["agent"] != HARMFUL]
    listed = [trip for agent in agents for trip in service.get(f"/api/agents/{quote(agent)}/trips")["trips"]]
    learned = next(trip for trip in listed if trip["state"] == "learned")
    waiting = service.get("/api/review")["total"]
    page = opened(service, f"/live?agent={quote(learned['agent'])}")
    page.locator(f'.card a[href="/trip/{quote(learned["id"], safe="")}"]').click()  # from the live page, as people do
    page.get_by_text("so it learned it").wait_for()
    page.keyboard.press("n")  # it is learned already: no verdict
    page.keyboard.press("a")
    page.locator(".pending .clock").wait_for()
    found = service.get("/api/review")
    assert [(entry["id"], entry["verdict"]) for entry in found["pending"]] == [(learned["id"], "anomaly")]
    # Undone in the queue, where it was not before and is not afterwards.
    page.goto(f"{service.url}/review")
    page.locator(".pending .clock").wait_for()
    page.keyboard.press("z")
    found = service.until("/api/review", lambda found: not found["pending"])
    page.locator(".pending").wait_for(state="hidden")
    assert found["total"] == waiting
    until(page, lambda: page.locator("#waiting").inner_text() == str(waiting))


def test_alerts_of_an_agent_can_be_paused_and_resumed(service: Running, opened: Open) -> None:
    page = opened(service, "/live?agent=cem")
    page.get_by_role("button", name="No alerts for a day").click()
    page.get_by_role("button", name="Resume alerts").wait_for()
    assert "No alerts until" in page.locator(".card .facts").inner_text()
    page.reload()
    page.get_by_role("button", name="Resume alerts").click()
    page.get_by_role("button", name="No alerts for a day").wait_for()
    (cem,) = service.get("/api/agents", q="cem")["agents"]
    assert cem["paused_until"] is None


def test_new_items_appear_by_themselves(days: Days, tmp_path: Path, opened: Open) -> None:
    with serving(tmp_path / "data", "--model", str(days.model)) as running:
        page = opened(running, "/review", allowed=GONE)
        page.get_by_text("Nothing waits for you").wait_for()
        feed(running, days.fixes[: len(days.fixes) // 4])
        page.locator(".queue button").first.wait_for()
        until(page, lambda: page.locator("#waiting").inner_text() == str(running.get("/api/review")["total"]))
        page.locator(".trip h1").wait_for()


def test_the_page_reports_a_lost_service_and_reconnects(tmp_path: Path, opened: Open) -> None:
    with serving(tmp_path / "data") as running:
        page = opened(running, "/live", allowed=GONE)
        page.get_by_text("No agents yet").wait_for()
        running.kill()
        page.get_by_text("The service does not answer").wait_for()
        running.start()
        page.locator("#gone").wait_for(state="hidden")
        running.post([{"agent": "ana", "time": time.time(), "lat": 52.5, "lon": 13.4}])
        page.locator(".agents button", has_text="ana").wait_for()


# -------------------------------------------------------------------- names, widths, colours


def test_the_page_loads_nothing_from_other_hosts(service: Running, opened: Open) -> None:
    page = opened(service, "/live")  # which watches requests, the policy and the console
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    for path in VIEWS:
        answer = page.goto(service.url + path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        page.locator("#view > *").wait_for()
        page.wait_for_timeout(500)
    assert {url for url in asked if url.endswith("/shared/map.js")}, "the service serves the map itself"
    assert not {url for url in asked if "/vendor/" in url}, "libraries for tiles are loaded only if there are tiles"


@pytest.mark.parametrize("path", VIEWS)
def test_harmful_names_are_shown_as_text(service: Running, opened: Open, path: str) -> None:
    page = opened(service, path)
    if path in ("/live", "/review", "/health"):
        page.get_by_text(HARMFUL).first.wait_for()
    if path == "/live":
        page.locator(".agents button", has_text=HARMFUL).click()
        page.locator(".card h2", has_text=HARMFUL).wait_for()
    assert page.locator("#view img").count() == 0
    assert "harmed" not in page.title()


def test_the_page_of_a_trip_takes_a_verdict(service: Running, opened: Open) -> None:
    harmful = next(
        item
        for item in service.get("/api/review", limit=500)["items"]
        if item["agent"] == HARMFUL and item["kind"] == "trip"
    )
    page = opened(service, f"/trip/{quote(harmful['id'], safe='')}")
    page.locator(".trip h1", has_text=HARMFUL).wait_for()
    drawn(page)
    page.keyboard.press("u")
    page.locator(".pending .clock").wait_for()
    assert service.get("/api/review")["pending"][0]["id"] == harmful["id"]
    page.keyboard.press("z")
    service.until("/api/review", lambda found: not found["pending"])
    missing = opened(service, "/trip/nobody%2F1", allowed=("404",))
    missing.get_by_role("heading", name="Not found").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_has_contrast(service: Running, opened: Open, scheme: str) -> None:
    page = opened(service, "/live", PHONE, color_scheme=scheme)
    for path in VIEWS:
        page.goto(service.url + path)
        page.locator("#view > *").wait_for()
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
    style = "(name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()"
    colours = {
        name: page.evaluate(style, name) for name in ("paper", "ground", "ink", "soft", "odd", "normal", "review")
    }
    dark = luminance(colours["paper"]) < 0.05
    assert dark == (scheme == "dark")
    for name in ("ink", "soft"):
        assert min(contrast(colours[name], colours[under]) for under in ("paper", "ground")) >= 4.5, name
    for name in ("odd", "normal", "review"):  # marks and lines
        assert contrast(colours[name], colours["paper"]) >= 3.0, name


def luminance(colour: str) -> float:
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_light_and_dark_can_be_switched(service: Running, opened: Open) -> None:
    page = opened(service, "/health", color_scheme="light")
    shade = "document.documentElement.dataset.shade"
    shades = [page.evaluate(shade)]
    for _ in range(3):
        page.locator("#theme").click()
        shades.append(page.evaluate(shade))
    assert shades == ["light", "light", "dark", "light"]  # as the system, light, dark, as the system
    page.locator("#theme").click()
    page.locator("#theme").click()
    page.reload()
    assert page.evaluate(shade) == "dark", "a choice is remembered"


@pytest.mark.parametrize("path", VIEWS)
def test_the_focused_element_has_a_visible_outline(service: Running, opened: Open, path: str) -> None:
    page = opened(service, path)
    page.locator("#view > *").wait_for()
    if path in ("/live", "/review"):  # before its list is there, twelve steps lead out of the page
        page.locator("#view li button").first.wait_for()
    seen = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        style, width = page.evaluate(OUTLINE)
        seen.add(page.evaluate("document.activeElement.outerHTML.slice(0, 120)"))
        assert style != "none"
        assert width >= 2
    assert len(seen) > 6
    assert page.locator("main").count() == page.locator("header#top").count() == page.locator("#top nav").count() == 1


# -------------------------------------------------------------------- many agents, none, a token, settings, tiles


def test_the_live_page_stays_fast_with_a_thousand_agents(tmp_path: Path, opened: Open) -> None:
    rng = np.random.default_rng(0)
    now = time.time()
    with serving(tmp_path / "data") as running:
        places = rng.normal((52.5, 13.4), 0.05, (1000, 2)).tolist()
        feed(
            running,
            [{"agent": f"van {i:04}", "time": now - 60, "lat": lat, "lon": lon} for i, (lat, lon) in enumerate(places)],
        )
        page = opened(running, "/health", allowed=GONE)
        timer = page.context.new_cdp_session(page)
        timer.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(f"{running.url}/live")
        page.locator(".agents li").nth(999).wait_for(state="attached")
        drawn(page)
        spent = {entry["name"]: entry["value"] for entry in timer.send("Performance.getMetrics")["metrics"]}
        assert spent["TaskDuration"] < 2.0, "processor time of the page, with its map, in seconds"
        page.keyboard.press("/")
        page.keyboard.type("van 012")
        assert page.locator(".agents li:visible").count() == 10


def test_the_page_of_an_empty_service_says_how_to_begin(empty: Running, opened: Open) -> None:
    page = opened(empty, "/live")
    command = page.locator(".agents pre").inner_text()
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed, so what the page says cannot be tried")
    answer = subprocess.run(
        [*shlex.split(command.replace("\\\n", "")), "-sS"], capture_output=True, text=True, check=True
    )
    assert "error" not in answer.stdout
    page.locator(".agents button", has_text="ana").wait_for()


def test_a_token_logs_in_to_the_page(tmp_path: Path, opened: Open) -> None:
    (tmp_path / "data").mkdir()
    made = ["-m", "astray.cli", "serve", "token", "add", str(tmp_path / "data"), "operator", "--write"]
    token = subprocess.run([sys.executable, *made], capture_output=True, text=True, check=True).stdout.split()[-1]
    with serving(tmp_path / "data") as running:
        page = opened(running, "/settings", allowed=("401", *GONE))
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        page.locator("#login-error:visible").wait_for()
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Settings").wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Token").wait_for()


def test_the_page_checks_and_saves_settings(empty: Running, opened: Open) -> None:
    page = opened(empty, "/settings")
    before = empty.get("/api/settings")
    rate = page.get_by_label("False-alarm rate")
    rate.fill("99")
    page.get_by_role("button", name="Save").click()
    assert "from 0.01 to 50" in page.locator("[data-error=false_alarm_rate]").inner_text()
    assert rate.get_attribute("aria-invalid") == "true"
    assert empty.get("/api/settings") == before
    rate.fill("3.5")
    page.get_by_label("Quiet hours").check()
    page.get_by_label("From").fill("23:30")
    page.get_by_role("button", name="Add an outlet").click()
    page.get_by_label("Address").fill("https://127.0.0.1/hook")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Saved.").wait_for()
    found = empty.get("/api/settings")
    assert found["false_alarm_rate"] == pytest.approx(0.035)
    assert found["quiet_hours"] == {"from": "23:30", "to": "07:00"}
    assert [outlet["kind"] for outlet in found["outlets"]] == ["webhook"]
    assert "hook" not in found["outlets"][0]["to"], "what may be secret is not given back"


def test_a_rate_for_each_aspect_can_be_set_and_a_contradiction_is_explained(empty: Running, opened: Open) -> None:
    before = empty.get("/api/settings")
    page = opened(empty, "/settings", allowed=("422", *GONE))
    page.get_by_label("A rate for each aspect").check()
    page.get_by_role("button", name="Save").click()
    wrong = page.locator("[data-error=rates]")
    assert wrong.inner_text() == "Give a rate for at least one aspect."
    page.get_by_label("Place, %").fill("1.5")
    page.get_by_label("Manner, %").fill("0.1")
    page.get_by_role("button", name="Save").click()
    wrong.filter(has_text="for manner cannot be told from").wait_for()
    assert empty.get("/api/settings") == before
    page.get_by_label("Manner, %").fill("1")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Saved.").wait_for()
    assert empty.get("/api/settings")["false_alarm_rate"] == {"place": 0.015, "manner": 0.01}
    again = opened(empty, "/settings")
    assert again.get_by_label("Place, %").input_value() == "1.5"
    assert again.get_by_label("Route, %").input_value() == ""
    again.get_by_label("A rate for each aspect").uncheck()
    again.get_by_label("False-alarm rate").fill("2")
    again.get_by_role("button", name="Save").click()
    again.get_by_text("Saved.").wait_for()
    assert empty.get("/api/settings")["false_alarm_rate"] == pytest.approx(0.02)


def test_a_trip_has_a_bar_words_and_a_number_for_each_aspect(service: Running, opened: Open) -> None:
    item = next(item for item in service.get("/api/review")["items"] if item["kind"] == "trip")
    page = opened(service, f"/trip/{quote(item['id'], safe='')}")
    rows = page.locator(".aspects li")
    rows.first.wait_for()
    assert [row.split("\n")[0] for row in rows.all_inner_texts()] == ["Place", "Route", "Manner", "Time"]
    lengths = []
    for aspect, text, row in zip(ASPECTS, rows.all_inner_texts(), rows.all(), strict=True):
        p = item[f"p_{aspect}"]
        assert ("as usual" in text) == (p > 0.25)
        assert p > 0.25 or f"1 in {1 / p:.0f}" in text
        assert float(text.split("p ")[1]) == pytest.approx(p, rel=0.06)
        lengths.append((p, row.locator(".bar i").bounding_box()["width"]))
    assert sorted(lengths) == sorted(lengths, key=lambda pair: (-pair[1], pair[0])), "the rarer, the longer"


def test_exports_are_links_with_their_filters(service: Running, opened: Open) -> None:
    page = opened(service, "/export")
    page.get_by_label("Agent").fill("cem")
    link = page.get_by_role("link", name="Trips as CSV").get_attribute("href")
    table = service.client.get(link)
    assert table.status_code == 200
    assert "cem" in table.text
    assert "dora" not in table.text


def test_a_local_map_file_is_drawn_underneath(tmp_path: Path, opened: Open) -> None:
    with serving(tmp_path / "data") as running:
        (tmp_path / "data" / "world.pmtiles").write_bytes(map_file())
        settings = running.get("/api/settings") | {"tiles": "world.pmtiles"}
        assert running.client.put("/api/settings", json=settings).status_code == 200
        running.post([{"agent": "ana", "time": time.time(), "lat": 10.0, "lon": 10.0}])
        page = opened(running, "/live", allowed=GONE)
        page.locator(".agents button", has_text="ana").wait_for()
        asked = """async () => {
          const { map } = await import(document.querySelector("script[src]").src.replace("app.js", "map.js"));
          if (!map.map?.getSource("tiles")) return [];
          map.map.jumpTo({ center: [0, 0], zoom: 1 });
          return [...new Set(map.map.queryRenderedFeatures().map((feature) => feature.layer["source-layer"]))];
        }"""
        until(page, lambda: {"earth", "places"} <= set(page.evaluate(asked)))
        page.close()  # before the service stops: MapLibre throws if tiles vanish while it asks for them


def varint(n: int) -> bytes:
    low = n & 127
    return bytes([low]) if n < 128 else bytes([low | 128]) + varint(n >> 7)


def field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer: a number, or what has a length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def map_file() -> bytes:
    """The smallest PMTiles file: one tile of the world, all of it land, with a town in its middle."""

    def layer(called: str, feature: bytes, **tags: str | int) -> bytes:
        names = b"".join(field(3, key.encode()) for key in tags)
        said = [field(1, value.encode()) if isinstance(value, str) else field(5, value) for value in tags.values()]
        values = b"".join(field(4, value) for value in said)
        return field(3, field(15, 2) + field(1, called.encode()) + field(2, feature) + names + values + field(5, 4096))

    def zigzag(*numbers: int) -> bytes:
        return b"".join(varint(n << 1 if n >= 0 else (-n << 1) - 1) for n in numbers)

    square = varint(9) + zigzag(0, 0) + varint(26) + zigzag(4096, 0, 0, 4096, -4096, 0) + varint(15)
    town = field(2, bytes([0, 0, 1, 1, 2, 2, 3, 3])) + field(3, 1) + field(4, varint(9) + zigzag(2048, 2048))
    place = layer("places", town, kind="locality", name="Testhausen", population_rank=12, min_zoom=1)
    tile = layer("earth", field(3, 3) + field(4, square)) + place
    directory = b"".join(map(varint, (1, 0, 1, len(tile), 1)))
    notes = b"{}"
    starts = np.cumsum([127, len(directory), len(notes)]).tolist()
    parts = (starts[0], len(directory), starts[1], len(notes), starts[2], 0, starts[2], len(tile), 1, 1, 1)
    kinds = (1, 1, 1, 1, 0, 0)  # clustered; nothing packed; vector tiles; zooms from 0 to 0
    corners = (-1_800_000_000, -850_000_000, 1_800_000_000, 850_000_000)
    header = struct.pack("<7sB11Q6B4iBii", b"PMTiles", 3, *parts, *kinds, *corners, 0, 0, 0)
    return header + directory + notes + tile


# -------------------------------------------------------------------- the picture of the documentation


def picture(target: Path) -> None:
    """The review page with a flagged trip."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        days = made_days(Path(folder))
        quiet = [fix for fix in days.fixes if fix["agent"] != HARMFUL]
        with serving(Path(folder) / "data", "--model", str(days.model)) as running:
            feed(running, quiet)
            queue = running.until("/api/review", lambda found: found["total"] > 20)["items"]
            page = browser.new_page(viewport=DESK, device_scale_factor=1.5)
            page.goto(f"{running.url}/review")
            page.locator(".queue [aria-current=true]").wait_for()
            for _ in range([item["id"] for item in queue].index(leaves_the_way(running, queue))):
                page.keyboard.press("j")
            drawn(page)
            page.wait_for_timeout(1000)
            page.screenshot(path=target)


def leaves_the_way(running: Running, queue: list[dict[str, Any]]) -> str:
    """The trip that was most of all both: usual for a while, and very odd for a while."""

    def both(item: dict[str, Any]) -> float:
        track = running.get(f"/api/trips/{quote(item['trips'][0], safe='')}")["track"]
        n = np.array([value for value in track["n"] if value is not None])
        return float(min(np.mean(n > -1.0), np.mean(n < -2.5)))

    return str(max((item for item in queue if item["kind"] == "trip"), key=both)["id"])


if __name__ == "__main__":
    picture(Path(sys.argv[1]))
