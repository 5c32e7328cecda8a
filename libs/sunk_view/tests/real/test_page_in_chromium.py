# pyright: reportUnknownMemberType=false
"""The live page in a real Chromium, by `sunkctl ui`, through a real API server: what people see.

Chromium is Debian's. Each user has a browser window and a `sunkctl ui` of their own.
"""

import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, Page, expect, sync_playwright

from sunk_ctl.testing import (
    RIGHTS,
    ViewStage,
    bus_settings,
    have_syncer_lead,
    nats_with_users,
    view_stage,
)
from sunk_events import subjects
from sunk_events.base import Reply, State, event_id
from sunk_events.codec import encode
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState, KubeWatchState
from sunk_events.placements import Gang, PlacementState
from sunk_events.requests import ExplainKubeNode, ExplainSlurmNode, Explanation, Finding
from sunk_events.view import HIDDEN
from sunk_lab.kube.prerequisites import require
from sunk_lab.nats import NatsServer
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.requests import answering

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(1200)]

CHROMIUM = "/usr/bin/chromium"
AGO = datetime.now(UTC) - timedelta(minutes=5)
# After the tests, so that no answer looks old however long after this module's import they run.
FRESH = AGO + timedelta(days=1)
HOSTILE = "<img src=x onerror=\"document.title='taken'\"> \u202edrow"
PATIENCE_MS = 60_000
SHAPE = "one => { const look = getComputedStyle(one, '::before'); return look.clipPath + look.background; }"
UNNAMED = """[...document.querySelectorAll('button, input, select')].filter(
  (one) => !one.textContent.trim() && !one.labels?.length && !one.ariaLabel).length"""


def node(name: str, state: str = "IDLE", **fields: Any) -> SlurmNodeState:  # noqa: ANN401 - of the struct
    return SlurmNodeState(changed=AGO, node=name, state=state, partitions=("gpu",), **fields)


def placed(uid: str, namespace: str, pod: str, phase: Any, **fields: Any) -> PlacementState:  # noqa: ANN401 - of the struct
    return PlacementState(changed=AGO, uid=uid, namespace=namespace, pod=pod, phase=phase, **fields)


NODES = {
    "idle": node("n-idle"),
    "mixed": node("n-mixed", "MIXED", is_busy=True),
    "allocated": node("n-allocated", "ALLOCATED", is_busy=True),
    "draining": node("n-draining", "ALLOCATED", is_busy=True, is_drain=True, reason="k8s: cordon: bad fan"),
    "drained": node("n-drained", is_drain=True, reason=HOSTILE, reason_changed=AGO),
    "down": node("n-down", "DOWN", is_down=True, reason="k8s: cordon: bad fan"),
    "other": node("n-other", "FUTURE"),
}


def states() -> Iterable[tuple[str, State]]:
    yield from ((one.node, one) for one in NODES.values())
    pods: tuple[tuple[str, Any], ...] = (("n-unknown", "waiting"), ("n-idle", "running"))
    locks: tuple[tuple[str, Any], ...] = (
        ("n-mixed", "pending"),
        ("n-allocated", "locked"),
        ("n-idle", "locked_strict"),
    )
    for name, phase in pods:
        yield (
            name,
            KubePodState(
                changed=AGO, pod=name, namespace="slurm", nodeset="gpu", kube_node=f"kube-{name}", phase=phase
            ),
        )
    for name, lock in locks:
        yield name, LockState(changed=AGO, node=name, kube_node=f"kube-{name}", lock=lock)
    jobs = [
        SlurmJobState(
            changed=AGO, job=11, state="RUNNING", is_running=True, nodes="n-allocated,n-mixed", user="ada"
        ),
        SlurmJobState(
            changed=AGO, job=12, state="RUNNING", is_running=True, nodes="n-mixed", name="team-b/web"
        ),
        SlurmJobState(changed=AGO, job=13, state="PENDING", reason="Resources", priority=5, name=HOSTILE),
        SlurmJobState(changed=AGO, job=14, state="PENDING", reason="Priority", priority=9, user="bob"),
        SlurmJobState(changed=AGO, job=15, state="RUNNING", is_running=True, nodes="n-allocated"),
        SlurmJobState(changed=AGO, job=16, state="RUNNING", is_running=True, nodes="n-mixed"),
    ]
    yield from ((str(job.job), job) for job in jobs)
    placements = [
        placed("u1", "team-a", "train", "released", job=14, reason="waits for Resources"),
        placed("u2", "team-b", "web", "ending", job=12, node="n-mixed"),
        placed("g", "team-a", "ring", "bound", job=15, roster=Gang(kind="Job", members=())),
        placed("m1", "team-a", "ring-1", "bound", job=15, node="n-draining", gang="g", rank=1),
        placed("m0", "team-a", "ring-0", "bound", job=15, node="n-idle", gang="g", rank=0),
    ]
    yield from ((one.uid, one) for one in placements)
    yield (
        subjects.STATISTICS_KEY,
        SlurmStatisticsState(changed=AGO, nodes_answered=FRESH, jobs_answered=FRESH),
    )
    yield subjects.LEADER_KEY, KubeWatchState(changed=FRESH, seen=FRESH)


async def write(bus: Bus, found: Iterable[tuple[str, State]]) -> None:
    left = iter(found)

    async def work() -> None:
        for key, state in left:
            bucket = subjects.bucket("c1", type(state))
            await bus.publish(subjects.key_subject(bucket, key), encode(state))

    async with anyio.create_task_group() as tasks:
        for _ in range(64):
            tasks.start_soon(work)


async def tell(bus: Bus) -> None:
    event = NodeDrained(
        id=event_id("node_drained", "n-drained", 1),
        source="/c1/syncer",
        subject="n-drained",
        time=AGO,
        data=NodeSnapshot(node="n-drained", state="IDLE", flags=("DRAIN",), reason=HOSTILE),
    )
    await bus.publish(subjects.fact("c1", event), encode(event), msg_id=event.id)


async def explain_node(question: ExplainSlurmNode) -> Reply:
    found = Finding(what=f"{question.node}: {HOSTILE}", because="team-b/web: in the way")
    return Explanation(findings=(found,))


async def explain_kube_node(_: ExplainKubeNode) -> Reply:
    return Explanation(findings=())


@asynccontextmanager
async def services(server: NatsServer, folder: Path) -> AsyncGenerator[Bus]:
    async with (
        connect(bus_settings(server, folder, "admin"), "admin") as admin,
        connect(bus_settings(server, folder, "syncer-c1"), "syncer") as syncer,
        connect(bus_settings(server, folder, "nodeset-controller"), "controller") as controller,
    ):
        await admin.provision("c1", BusSettings())
        await write(admin, states())
        await tell(admin)
        await have_syncer_lead(admin)
        async with (
            answering(syncer, "c1", ExplainSlurmNode, explain_node),
            answering(controller, "c1", ExplainKubeNode, explain_kube_node),
        ):
            yield admin


@dataclass(frozen=True)
class Stage:
    """What stands behind the page."""

    view: ViewStage
    server: NatsServer
    bus: Bus
    portal: BlockingPortal
    browser: Browser

    def write(self, *found: tuple[str, State]) -> None:
        """Have states, as the services write them."""
        self.portal.call(write, self.bus, found)

    @contextmanager
    def page(self, user: str, **options: Any) -> Generator[Page]:  # noqa: ANN401 - Playwright's
        """Open the page as *user*; no script of it may fail, and the policy may stop nothing."""
        errors: list[str] = []
        with self.view.ui(user) as address, self.browser.new_context(**options) as context:
            page = context.new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on(
                "console", lambda said: errors.append(said.text) if "Content Security" in said.text else None
            )
            page.goto(address)
            page.wait_for_selector("#live:not(.wait)")
            yield page
            assert errors == []
            assert page.title() == "SUNK: Slurm on Kubernetes"
            assert page.locator("img").count() == 0


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    folder = tmp_path_factory.mktemp("page")
    require({"usr/bin/chromium": "chromium"}, report=print)
    expect.set_options(timeout=PATIENCE_MS)
    with (
        reserved_lab() as lab,
        nats_with_users(folder) as server,
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(services(server, folder)) as admin,
        view_stage(lab, server, folder, people=("alice", "carol"), objects=RIGHTS, settings={}) as view,
        sync_playwright() as playwright,
    ):
        wait_for("the APIService", lambda: view.get("carol", "/status")[0] == 200)
        # As root Chromium has no sandbox of its own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield Stage(view, server, admin, portal, browser)
        finally:
            browser.close()


def cell(page: Page, name: str) -> Any:  # noqa: ANN401 - a locator
    return page.locator(f'[data-node="{name}"]')


def take(page: Page, name: str) -> None:
    """Keep a picture of the page, if `./task pictures:page` asks for it."""
    if folder := os.environ.get("SUNK_PICTURES"):  # noqa: TID251 - no setting of a program
        page.screenshot(path=Path(folder) / f"page-{name}.png")


def test_each_state_lock_and_workload_has_its_own_look_and_words(stage: Stage) -> None:
    with stage.page("admin") as page:
        expect(page.locator("#live")).to_have_class("live")
        looks = {
            state: cell(page, f"n-{state}").get_attribute("class") or "" for state in (*NODES, "unknown")
        }
        shapes = {state: cell(page, f"n-{state}").evaluate(SHAPE) for state in looks}
        labels = {state: cell(page, f"n-{state}").get_attribute("aria-label") or "" for state in looks}
        letters = {state: cell(page, f"n-{state}").get_attribute("data-letter") for state in looks}
        take(page, "nodes")
        page.click('[data-state="draining"]')
        filtered = page.locator("[role=option]").count()

    assert all(f"s-{state} " in f"{look} " for state, look in looks.items())
    assert len(set(shapes.values())) == len(shapes)
    assert [
        ("l-pending" in looks["mixed"]),
        ("l-locked " in looks["allocated"] + " "),
        "l-locked_strict" in looks["idle"],
    ] == [True] * 3
    assert labels["mixed"] == "n-mixed: mixed, lock pending, a job and a Pod, leaving"
    assert labels["draining"].startswith("n-draining: draining, a Pod, k8s: cordon: bad fan")
    assert labels["unknown"] == "n-unknown: unknown"
    assert (letters["mixed"], letters["draining"], letters["allocated"], letters["drained"]) == (
        "B",
        "P",
        "J",
        "",
    )
    assert filtered == 1


def test_a_drain_is_shown_as_it_happens_and_its_end_too(stage: Stage) -> None:
    drained = node("n-idle", is_drain=True, reason="bad fan")
    with stage.page("carol") as page:
        one = cell(page, "n-idle")
        expect(one).to_have_attribute("class", "n s-idle l-locked_strict")
        stage.write(("n-idle", drained))
        expect(one).to_have_attribute("class", "n s-drained l-locked_strict")
        page.click("#tab-Drains")
        expect(page.locator("table")).to_contain_text("bad fan")
        page.click("#tab-Nodes")
        stage.write(("n-idle", NODES["idle"]))
        expect(one).to_have_attribute("class", "n s-idle l-locked_strict")


def test_a_node_tells_its_story_to_the_keyboard_and_what_users_wrote_is_text(stage: Stage) -> None:
    with stage.page("admin") as page:
        page.fill("#text", "n-drained")
        expect(page.locator("[role=option]")).to_have_count(1)
        page.locator("[role=listbox]").focus()
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        story = page.locator("#story")
        expect(story).to_be_focused()
        expect(story).to_contain_text("because: team-b/web: in the way")
        expect(story).to_contain_text("slurm.node n-drained drained")
        text = story.inner_text()
        take(page, "story")
        page.keyboard.press("Escape")
        expect(story).to_be_hidden()
        expect(page.locator("[role=listbox]")).to_be_focused()
        unnamed = page.evaluate(UNNAMED)

    assert "<img src=x onerror=" in text
    assert "\\u202edrow" in text
    assert unnamed == 0


def test_queue_gangs_and_pods_have_their_reasons(stage: Stage) -> None:
    with stage.page("admin") as page:
        page.click("#tab-Queue")
        waiting = page.locator("table").first
        expect(waiting).to_contain_text("Resources")
        order = waiting.locator("tbody tr td:first-child").all_inner_texts()
        page.click("#tab-Gangs")
        ranks = page.locator(".ranks li")
        expect(ranks).to_have_count(2)
        said = ranks.all_inner_texts()
        page.click("#tab-Pods")
        expect(page.locator("table")).to_contain_text("waits for Resources")
        page.click("#tab-Changes")
        expect(page.locator("table")).to_contain_text("n-drained drained")

    assert order == ["14", "13"]
    assert said == ["0 bound n-idle", "1 bound n-draining"]


def test_two_users_see_what_each_may_see(stage: Stage) -> None:
    with stage.page("alice") as own:
        expect(own.locator("#main")).to_contain_text("may not get nodes")
        own.click("#tab-Queue")
        expect(own.locator("#main .refused")).to_be_visible()
        own.click("#tab-Pods")
        expect(own.locator("#main .refused")).to_be_visible()
        own.fill("#namespace", "team-a")
        own.press("#namespace", "Enter")
        expect(own.locator("table")).to_contain_text("team-a/train")
        own_text = own.content()
        own.fill("#namespace", "team-b")
        own.press("#namespace", "Enter")
        expect(own.locator("#main .refused")).to_be_visible()
    with stage.page("carol") as wide:
        expect(wide.locator("[role=option]")).to_have_count(len(NODES) + 1)
        wide.click("#tab-Pods")
        expect(wide.locator("table")).to_contain_text(HIDDEN)
        wide_text = wide.content()

    assert "team-b/web" not in own_text
    assert "team-a" not in wide_text
    assert "team-b" not in wide_text


def lose_and_regain(page: Page, lose: Callable[[], object], regain: Callable[[], object]) -> str:
    """Return the label of a cell while the connection is lost."""
    expect(page.locator("#live")).to_have_class("live")
    lose()
    expect(page.locator("#live")).to_have_class("stale")
    expect(page.locator("#live")).to_contain_text("Stale since 20")
    expect(page.locator("body")).to_have_class("stale")
    expect(cell(page, "n-down")).to_have_attribute("aria-label", "n-down: was down, k8s: cordon: bad fan")
    label = cell(page, "n-idle").get_attribute("aria-label") or ""
    for tab, words in {
        "Drains": "was down",
        "Queue": "was RUNNING",
        "Pods": "was bound",
        "Gangs": "was bound",
    }.items():
        page.click(f"#tab-{tab}")
        expect(page.locator("#main")).to_contain_text(words)
        expect(page.locator("#main caption").last).to_contain_text("as it was at 20")
    page.click("#tab-Nodes")
    regain()
    expect(page.locator("#live")).to_have_class("live")
    expect(page.locator("body")).not_to_have_class("stale")
    return label


def test_a_silent_bus_makes_what_is_shown_old_until_it_is_back(stage: Stage) -> None:
    with stage.page("carol") as page:
        label = lose_and_regain(page, stage.server.kill, stage.server.start)
        stage.write(("n-idle", node("n-idle", "MIXED")))
        expect(cell(page, "n-idle")).to_have_class("n s-mixed l-locked_strict")
        stage.write(("n-idle", NODES["idle"]))

    assert label.startswith("n-idle: was idle")


def test_a_lost_connection_makes_what_is_shown_old_and_what_changed_meanwhile_is_read(stage: Stage) -> None:
    with stage.page("carol") as page:

        def lose() -> None:
            page.context.set_offline(True)

        def regain() -> None:
            stage.write(("n-other", node("n-other", "IDLE")))
            page.context.set_offline(False)

        lose_and_regain(page, lose, regain)
        expect(cell(page, "n-other")).to_have_class("n s-idle l-no")
        stage.write(("n-other", NODES["other"]))


def test_a_phone_in_the_dark_shows_all_without_a_sideways_scroll(stage: Stage) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    backs: list[str] = []
    for scheme in ("dark", "light"):
        with stage.page("admin", color_scheme=scheme, **phone) as page:
            cell(page, "n-drained").tap()
            expect(page.locator("#story")).to_be_visible()
            take(page, f"phone-{scheme}")
            backs.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            wide, inner = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
            assert wide <= inner

    assert backs[0] != backs[1]


def test_five_thousand_nodes_are_shown_and_followed(stage: Stage) -> None:
    many = [(f"gpu-{number:05}", node(f"gpu-{number:05}")) for number in range(5000)]
    stage.write(*many)
    with stage.page("carol") as page:
        expect(page.locator("[role=option]")).to_have_count(5000 + len(NODES) + 1)
        last = cell(page, "gpu-04999")
        stage.write(("gpu-04999", node("gpu-04999", "ALLOCATED")))
        expect(last).to_have_class("n s-allocated l-no")
        page.fill("#text", "gpu-0499")
        expect(page.locator("[role=option]")).to_have_count(10)
