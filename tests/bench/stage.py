"""The KV stage on 30 layers and some 512 positions: frames a second streamed, replayed, scrubbed."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.bench.page import app_and_browser, fresh_tab
from tests.browser.visitor import Visitor

PROMPT, MOST_NEW, SPEED = "one two three four five " * 78, 120, 32
SCRUBBED = 500

# Counts frames of the screen and steps shown until the stage stands still; says frames and steps a second, and the
# pause between two frames that only one in twenty exceeds.
WATCH = """async () => {
  const stage = document.querySelector('.tbt-stage');
  const [began, first] = [performance.now(), Number(stage.dataset.steps)];
  const gaps = [];
  let last = began;
  while (document.querySelector('[data-act=play]').dataset.drawn.startsWith('pause')) {
    await new Promise(requestAnimationFrame);
    gaps.push(performance.now() - last);
    last = performance.now();
  }
  const seconds = (last - began) / 1000;
  gaps.sort((a, b) => a - b);
  const steps = Number(stage.dataset.steps) - first;
  return { frames: gaps.length / seconds, steps, seconds, gap: gaps[Math.floor(gaps.length * 0.95)] };
}"""
SCRUB = """async (moments) => {
  const files = performance.getEntriesByType('resource').map((entry) => entry.name);
  const stage = (await import(files.find((name) => name.endsWith('/stage/main.js')))).all()[0];
  const began = performance.now();
  for (let index = 0; index < moments; index += 1) {
    stage.lookAt(1 + ((stage.timeline.total - 1) * index) / moments);
    await new Promise(requestAnimationFrame);
  }
  return moments / ((performance.now() - began) / 1000);
}"""


def report_stage() -> None:
    """Measures and prints; a prototype with less on the screen reached 48 streamed and 60 replayed steps a second."""
    with app_and_browser() as (address, browser), fresh_tab(browser) as (page, _):
        measure(page, address)


def measure(page: Page, address: str) -> None:
    """One run: streamed to its end, replayed, and scrubbed."""
    asked: list[str] = []
    visitor = Visitor(page, address).open_stage(model="smollm2", lang="en", chat=0, max=MOST_NEW, speed=SPEED)
    visitor.write_prompt(PROMPT).press("prefill", 1)
    n_tokens = int(visitor.screen()["ledger"][-1][4].replace(",", ""))
    print(f"\nstage, smollm2 (30 layers, {n_tokens} to {n_tokens + MOST_NEW} positions), play at {SPEED} steps/s")
    page.wait_for_timeout(1500)
    for name in ("streamed", "replayed"):
        visitor.click("play")
        page.wait_for_selector("[data-act=play][data-drawn^=pause]")
        seen = page.evaluate(WATCH)
        steps = seen["steps"] or MOST_NEW
        print(
            f"  {name}: {seen['frames']:.0f} frames/s, {steps / seen['seconds']:.0f} steps/s, "
            f"95% of the pauses between frames below {seen['gap']:.0f} ms"
        )
        visitor.settled()
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    frames = page.evaluate(SCRUB, SCRUBBED)
    print(f"  scrubbed through {SCRUBBED} moments: {frames:.0f} a second, {len(asked)} requests (goal 0)")
