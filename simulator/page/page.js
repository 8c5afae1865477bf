// The page: takes the views in as they come, and starts again when the demo was away.

import { Platform } from "./platform.js";
import { Player } from "./play.js";

const AGAIN_MS = 1000;
const TOLD_MS = 6000;
const told = document.getElementById("told");
const away = document.getElementById("away");
let tellingEnds = 0;

function tell(text) {
  told.textContent = text;
  clearTimeout(tellingEnds);
  tellingEnds = setTimeout(() => (told.textContent = ""), TOLD_MS);
}

const samples = await fetch("samples").then((answer) => answer.json()).catch(() => []);
const platforms = { slack: new Platform("slack", samples, tell), discord: new Platform("discord", samples, tell) };

function listen() {
  const feed = new EventSource("feed");
  feed.addEventListener("view", (event) => {
    const view = JSON.parse(event.data);
    platforms[view.platform]?.show(view);
  });
  feed.addEventListener("open", () => (away.hidden = true));
  feed.addEventListener("error", () => {
    away.hidden = false;
    if (feed.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN_MS);
  });
}

const tabs = [...document.querySelectorAll("#switch button")];

// On a narrow screen one platform is shown at a time.
function show(name) {
  for (const tab of tabs) {
    const isShown = tab.dataset.show === name;
    tab.setAttribute("aria-pressed", String(isShown));
    document.getElementById(tab.dataset.show).classList.toggle("is-shown", isShown);
  }
  platforms[name].toEnd();
}

for (const tab of tabs) tab.addEventListener("click", () => show(tab.dataset.show));

listen();
new Player(platforms, samples, document.getElementById("story"), show).play();
