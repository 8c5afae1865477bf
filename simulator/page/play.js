// Stories that play by themselves: the page types a sample, sends it, and presses the choice when the bot asks.

const TYPING_MS = 1500;
const TYPING_STEPS = 40;
const PRESS_MS = 2500;
const LOOK_MS = 250;
// buttons that stay below finished work
const LASTING = new Set(["Details", "Good answer", "Bad answer", "Run now", "Pause", "Edit", "Delete"]);

const YOUR_TURN = "Your turn: attach a table of your own, deny a card, or type / for a command. For your own workspace, run threadhand setup.";

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Player {
  constructor(platforms, samples, bar, show) {
    this.platforms = platforms;
    this.show = show;
    this.stories = samples.filter((one) => one.plays_on);
    this.label = bar.querySelector("span");
    this.button = bar.querySelector("button");
    this.isPaused = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.button.addEventListener("click", () => this.pause(!this.isPaused));
    // whoever begins to use the page is not disturbed
    document.querySelector("main").addEventListener("pointerdown", (event) => event.isTrusted && this.pause(true));
    document.querySelector("main").addEventListener("keydown", (event) => event.isTrusted && event.key !== "Tab" && this.pause(true));
    this.bar = bar;
  }

  async play() {
    if (!this.stories.length) return;
    this.bar.hidden = false;
    this.pause(this.isPaused);
    const used = new Map();
    for (const story of this.stories) {
      const platform = this.platforms[story.plays_on];
      await this.until(() => platform.view?.is_bot_connected && platform.isReady);
      if (!used.has(platform)) used.set(platform, platform.channel.messages.length > 0);
      if (used.get(platform)) continue;
      this.show(story.plays_on);
      await this.tell(platform, story);
    }
    this.button.hidden = true;
    this.bar.classList.add("is-over");
    this.label.textContent = YOUR_TURN;
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    this.label.textContent = isPaused ? "The story waits." : "A story plays by itself.";
    this.button.textContent = isPaused ? "Play" : "Pause";
  }

  async until(holds) {
    for (;;) {
      const found = !this.isPaused && holds();
      if (found) return found;
      await wait(LOOK_MS);
    }
  }

  async tell(platform, story) {
    const { compose } = platform;
    compose.fillIn(story, { hasFocus: false });
    const whole = compose.text.value;
    for (let step = 1; step <= TYPING_STEPS && !this.isPaused; step++) {
      compose.text.value = whole.slice(0, Math.ceil((whole.length * step) / TYPING_STEPS));
      compose.text.scrollTop = compose.text.scrollHeight;
      await wait(TYPING_MS / TYPING_STEPS);
    }
    await this.until(() => true);
    compose.text.value = whole;
    const before = new Set(platform.channel.threads.map((one) => one.thread_id));
    if (!(await compose.send({ hasFocus: false }))) return;
    const thread = await this.until(() => platform.channel.threads.find((one) => !before.has(one.thread_id)));
    const messages = () => platform.channel.threads.find((one) => one.thread_id === thread.thread_id)?.messages ?? [];
    const controls = () => messages().flatMap((one) => one.elements.map((element) => [one, element]));
    if (!story.choice) {
      // the status of a finished run has this button
      await this.until(() => controls().some(([, one]) => one.label === "Details"));
      return wait(PRESS_MS);
    }
    const [message, button] = await this.until(() => controls().find(([, one]) => one.kind === "button" && one.label === story.choice && !one.is_disabled));
    await wait(PRESS_MS);
    await this.until(() => true);
    await platform.act({ kind: "press", message_id: message.message_id, control_id: button.control_id }, platform.placeOf(message));
    const isAsked = ([, one]) => one.kind === "button" && !one.is_disabled && !one.url && !LASTING.has(one.label);
    await this.until(() => !controls().some(isAsked));
    await wait(PRESS_MS);
  }
}
