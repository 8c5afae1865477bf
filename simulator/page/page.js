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
for (const button of tabs) {
  button.addEventListener("click", () => {
    for (const other of tabs) {
      other.setAttribute("aria-pressed", String(other === button));
      document.getElementById(other.dataset.show).classList.toggle("is-shown", other === button);
    }
    platforms[button.dataset.show].toEnd();
  });
}

listen();
new Player(platforms, samples, document.getElementById("story")).play();
