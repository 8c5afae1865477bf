"""A previewed page in a real browser: it has its neighbours, and nothing else."""

import json

from playwright.async_api import expect

from bots.web import health
from bots.web.links import SignedLinks
from tests.support.page_browser import window
from tests.support.web_stage import Stage

PAGE = b"""<!doctype html><title>Report</title><link rel="stylesheet" href="style.css">
<h1>Report</h1><script type="module" src="js/app.js"></script>"""
SCRIPT = b"""
import { word } from './part.js';
const tried = {};
async function attempt(name, work) {
  try { tried[name] = String(await work()); } catch (error) { tried[name] = 'refused'; }
}
const api = new URL('/api/thread', document.baseURI);
await attempt('module', () => word);
await attempt('data', async () => (await (await fetch('data.json')).json()).answer);
await attempt('origin', () => self.origin);
await attempt('storage', () => localStorage.length);
await attempt('cookie', () => document.cookie);
await attempt('read', () => fetch(api.href + '/x'));
await attempt('write', async () => (await fetch(api, { method: 'POST' })).status);
await attempt('blind', () => fetch(api, { method: 'POST', mode: 'no-cors' }).then(() => 'sent'));
document.body.dataset.tried = JSON.stringify(tried);
document.body.append('ready');
"""


def answers(stage: Stage, status: int) -> float:
    """How many requests for a new thread were answered so."""
    labels = {"method": "POST", "route": "/api/thread", "status": str(status)}
    registry = stage.app[health.MONITORING].metrics.registry
    return registry.get_sample_value("threadhand_http_requests_total", labels) or 0


async def test_a_page_has_its_neighbours_and_nothing_else(stage: Stage) -> None:
    lease = await stage.claimed(await stage.send(await stage.thread()))
    await stage.give_sandbox(lease)
    stage.sandboxes.contents[lease.thread_id] = {
        "site/index.html": PAGE,
        "site/style.css": b"h1 { color: rgb(1, 2, 3) }",
        "site/js/app.js": SCRIPT,
        "site/js/part.js": b"export const word = 'imported';",
        "site/data.json": b'{"answer": 42}',
    }
    made_before = answers(stage, 201)
    base = str(stage.http._base_url).rstrip("/")
    url = str(SignedLinks(stage.ports.links.secret, base).page_preview_url(lease.thread_id, "site"))
    async with window(url) as reader:
        await expect(reader.page.get_by_text("ready")).to_be_visible()
        heading = reader.page.get_by_role("heading", name="Report")
        await expect(heading).to_have_css("color", "rgb(1, 2, 3)")
        tried = json.loads(str(await reader.page.locator("body").get_attribute("data-tried")))
    assert tried.pop("blind") in ("sent", "refused")
    assert tried == {
        "module": "imported",
        "data": "42",
        "origin": "null",
        "storage": "refused",
        "cookie": "refused",
        "read": "refused",
        "write": "refused",
    }
    assert answers(stage, 201) == made_before
    assert answers(stage, 403) >= 1
