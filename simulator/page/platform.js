// One platform's half of the page: where one is, who one is, and the messages there.

import { Compose } from "./compose.js";
import { showForm } from "./forms.js";
import { Log } from "./log.js";
import { newMessage, showElements, showMessage } from "./message.js";
import { make, makeButton, reconcile } from "./nodes.js";

const CROSS = { slack: "x", discord: "❌" };
const LABEL = { slack: "Slack", discord: "Discord" };
const REPLIES_SHOWN = 30;

export class Platform {
  constructor(name, samples, tell) {
    this.name = name;
    this.tell = tell;
    this.root = document.getElementById(name);
    this.root.append(document.getElementById("platform").content.cloneNode(true));
    this.find = (selector) => this.root.querySelector(selector);
    this.view = null;
    this.channelId = null;
    this.threadId = null;
    this.folded = new Set();
    this.unfolded = new Set();
    this.compose = new Compose(this, samples);
    this.find(".person").addEventListener("change", () => this.moved());
    this.log = new Log(this.find(".messages"), this.find(".news"));
    this.panel = this.find(".panel");
    this.replies = new Log(this.find(".replies"), this.find(".panel .news"));
    this.find(".close").addEventListener("click", () => this.closePanel());
    this.root.addEventListener("keydown", (event) => event.key === "Escape" && event.target.closest(".panel, .compose") && !event.target.closest(".editor") && this.closePanel());
    this.find(".trouble form").addEventListener("submit", (event) => this.trouble(event));
    this.find(".trouble").addEventListener("keydown", (event) => event.key === "Escape" && this.closeTrouble());
    this.root.addEventListener("pointerdown", (event) => !this.find(".trouble").contains(event.target) && (this.find(".trouble").open = false));
    this.find(".theme").addEventListener("click", () => this.chooseTheme(this.root.dataset.theme === "dark" ? "light" : "dark"));
    const isDark = name === "discord" || matchMedia("(prefers-color-scheme: dark)").matches;
    this.setTheme(localStorage.getItem(`theme of ${name}`) ?? (isDark ? "dark" : "light"));
  }

  show(view) {
    this.view = view;
    if (!view.channels.some((one) => one.channel_id === this.channelId)) this.channelId = null;
    this.channelId ??= (view.channels.find((one) => !one.is_direct) ?? view.channels[0])?.channel_id;
    if (this.threadId && !this.knows(this.threadId)) this.threadId = null;
    this.compose.followThread();
    this.draw();
  }

  chooseTheme(theme) {
    localStorage.setItem(`theme of ${this.name}`, theme);
    this.setTheme(theme);
  }

  setTheme(theme) {
    this.root.dataset.theme = theme;
    this.find(".theme").setAttribute("aria-label", `Show ${LABEL[this.name]} in ${theme === "dark" ? "light" : "dark"} colours`);
  }

  closeTrouble() {
    this.find(".trouble").open = false;
    this.find(".trouble summary").focus();
  }

  // Slack shows a thread in a panel at the side, Discord below the message that it began with.
  get hasPanel() {
    return this.name === "slack";
  }

  closePanel() {
    if (this.panel.hidden) return;
    const threadId = this.threadId;
    this.enter(null);
    this.log.toEnd();
    (this.find(`.messages [data-thread="${CSS.escape(threadId)}"]`) ?? this.compose).focus();
  }

  // A Discord bot registers its commands after it has connected.
  get isReady() {
    return this.name !== "discord" || this.view.commands.length > 0;
  }

  get person() {
    return this.find(".person").value;
  }

  get channel() {
    return this.view.channels.find((one) => one.channel_id === this.channelId) ?? this.view.channels[0];
  }

  // Channels, and one's own direct messages: they are named after the person.
  get channels() {
    const isMine = (one) => one.name === this.person || one.name.endsWith(`-${this.person}`);
    const [open, direct] = [this.view.channels.filter((one) => !one.is_direct), this.view.channels.filter((one) => one.is_direct && isMine(one))];
    return [...open, ...direct];
  }

  knows(threadId) {
    return this.channel.threads.some((one) => one.thread_id === threadId) || this.channel.messages.some((one) => one.message_id === threadId);
  }

  moved() {
    if (!this.channels.includes(this.channel)) this.go(this.channels[0].channel_id);
    else this.draw();
  }

  go(channelId) {
    this.channelId = channelId;
    this.enter(null);
    this.toEnd();
    if (this.view.has_home && this.channel.is_direct) this.act({ kind: "open_app", value: "messages" });
  }

  enter(threadId, { focus = true } = {}) {
    this.threadId = threadId;
    this.folded.delete(threadId);
    this.draw();
    if (threadId && focus) this.compose.focus();
    if (threadId) this.replies.toEnd();
  }

  draw() {
    if (!this.view) return;
    reconcile(this.find("h2"), [[this.view.workspace, () => this.heading()]]);
    const link = this.find(".link");
    link.textContent = `${this.view.bot_name} is ${this.view.is_bot_connected ? "connected" : "away"}`;
    link.title = link.textContent;
    link.classList.toggle("is-on", this.view.is_bot_connected);
    this.root.classList.toggle("is-ready", this.isReady);
    this.drawArmed();
    this.fill(this.find(".person"), this.view.people.map((one) => [one, one]));
    this.drawChannels();
    this.drawMessages();
    this.compose.draw();
    showForm(this);
  }

  // The faults that the platform will still show, and how often each.
  drawArmed() {
    const armed = this.find(".armed");
    const labelOf = (kind) => this.find(`option[value="${CSS.escape(kind)}"]`)?.textContent ?? kind;
    const texts = this.view.faults.map((one) => `${labelOf(one.kind)} (${one.times} ×)`);
    armed.textContent = texts.length ? `⚠ ${texts.join("; ")}` : "";
    armed.title = armed.textContent;
  }

  heading() {
    const title = make("span", "", LABEL[this.name]);
    title.append(make("small", "", this.view.workspace));
    return title;
  }

  fill(select, entries) {
    const wanted = JSON.stringify(entries);
    if (select.dataset.entries === wanted) return;
    const before = select.value;
    select.replaceChildren(...entries.map(([value, label]) => new Option(label, value)));
    if (entries.some(([value]) => value === before)) select.value = before;
    select.dataset.entries = wanted;
  }

  label(channel) {
    return channel.is_direct ? this.view.bot_name : `# ${channel.name}`;
  }

  placeName(channel) {
    return channel.is_direct ? `your direct messages with ${this.view.bot_name}` : `# ${channel.name}`;
  }

  drawChannels() {
    const bar = this.find(".channels");
    const items = [["channels", () => make("h3", "", "Channels")]];
    for (const one of this.channels) {
      if (one.is_direct) items.push(["direct", () => make("h3", "", "Direct messages")]);
      items.push([one.channel_id, () => this.channelButton(one)]);
    }
    for (const one of this.view.shortcuts.filter((shortcut) => !shortcut.is_for_messages)) {
      items.push([`shortcut ${one.name}`, () => makeButton("", `⚡ ${one.name}`, () => this.act({ kind: "shortcut", name: one.name }))]);
    }
    reconcile(bar, items);
    bar.setAttribute("aria-label", `Channels in ${LABEL[this.name]}`);
    for (const button of bar.querySelectorAll("button")) {
      button.setAttribute("aria-current", String(button.dataset.channel === this.channel.channel_id));
    }
  }

  channelButton(channel) {
    const button = makeButton(channel.is_direct ? "direct" : "", this.label(channel), () => this.go(channel.channel_id));
    button.dataset.channel = channel.channel_id;
    return button;
  }

  drawMessages() {
    const threads = new Map(this.channel.threads.map((one) => [one.thread_id, one]));
    const items = [];
    const shown = [];
    const addThread = (thread) => thread && items.push(this.hasPanel ? this.repliesItem(thread) : this.threadItem(thread, shown));
    for (const message of this.channel.messages.filter((one) => this.sees(one))) {
      items.push(this.messageItem(message, shown));
      addThread(threads.get(message.message_id));
      threads.delete(message.message_id);
    }
    threads.forEach(addThread);
    if (this.view.has_home && this.channel.is_direct) items.unshift(this.homeItem(shown));
    if (!items.length) items.push([`nothing ${this.channelId}`, () => this.compose.welcome()]);
    this.log.draw(items, shown);
    this.log.box.setAttribute("aria-label", `Messages in ${this.placeName(this.channel)}`);
    this.find(".typing").textContent = this.channel.typing.length ? `${this.channel.typing.join(", ")} …` : "";
    this.drawPanel();
  }

  drawPanel() {
    const isOpen = this.hasPanel && this.threadId !== null;
    this.panel.hidden = !isOpen;
    this.root.classList.toggle("has-thread", isOpen);
    if (!isOpen) return this.replies.draw([], []);
    const place = this.label(this.channel);
    this.panel.setAttribute("aria-label", `Thread in ${place}`);
    this.find(".panel small").textContent = place;
    const thread = this.channel.threads.find((one) => one.thread_id === this.threadId);
    const root = this.channel.messages.filter((one) => one.message_id === this.threadId && this.sees(one));
    const replies = this.repliesOf(thread);
    const items = [];
    const shown = [];
    for (const message of root) items.push(this.messageItem(message, shown, this.replies.box));
    if (replies.length) items.push([`count ${replies.length}`, () => make("div", "count", countOf(replies))]);
    this.addReplies(items, shown, replies, this.threadId, this.replies.box);
    this.replies.draw(items, shown);
  }

  toEnd() {
    this.log.toEnd();
    this.replies.toEnd();
  }

  sees(message) {
    return !message.visible_to || message.visible_to === this.person;
  }

  // The app's own page, which it draws when somebody opens it.
  homeItem(shown) {
    shown.push(() => {
      const home = this.view.homes.find((one) => one.person === this.person);
      const elements = home?.elements ?? [{ kind: "markdown", text: "Nothing is shown here yet.", flavour: "plain", size: "small" }];
      showElements(this.find(".home .elements"), { message_id: "home", elements }, () => null);
    });
    return [
      `home ${this.person}`,
      () => {
        const root = make("details", "home");
        root.append(make("summary", "", "Home"), make("div", "elements"));
        root.addEventListener("toggle", () => root.open && this.act({ kind: "open_app", value: "home" }));
        return root;
      },
    ];
  }

  get messageShortcuts() {
    return this.view.shortcuts.filter((one) => one.is_for_messages).map((one) => one.name);
  }

  messageItem(message, shown, box = this.log.box) {
    const act = (deed) => this.deed(message, deed);
    let node = null;
    shown.push(() => showMessage(node ?? box.querySelector(`[data-id="${CSS.escape(message.message_id)}"]`), message, this.person, act, this.messageShortcuts));
    return [`message ${this.channelId} ${message.message_id}`, () => (node = newMessage(message, this.person, act, this.messageShortcuts))];
  }

  // The number of replies below a message, which opens the thread in the panel.
  repliesItem(thread) {
    const replies = this.repliesOf(thread);
    const isOpen = thread.thread_id === this.threadId;
    return [
      `replies ${thread.thread_id} ${replies.length} ${isOpen}`,
      () => {
        const button = makeButton("title open", countOf(replies), () => this.enter(thread.thread_id));
        button.dataset.thread = thread.thread_id;
        button.setAttribute("aria-expanded", String(isOpen));
        return button;
      },
    ];
  }

  repliesOf(thread) {
    return (thread?.messages ?? []).filter((one) => one.message_id !== thread.thread_id && this.sees(one));
  }

  addReplies(items, shown, replies, id, box) {
    const hidden = this.unfolded.has(id) ? 0 : Math.max(0, replies.length - REPLIES_SHOWN);
    if (hidden) items.push([`earlier ${hidden}`, () => makeButton("title", `Show ${hidden} earlier`, () => this.unfold(id))]);
    for (const reply of replies.slice(hidden)) items.push(this.messageItem(reply, shown, box));
  }

  threadItem(thread, shown) {
    shown.push(() => this.showThread(this.find(`[data-thread="${CSS.escape(thread.thread_id)}"]`), thread));
    return [
      `thread ${thread.thread_id}`,
      () => {
        const root = make("section", "thread");
        root.dataset.thread = thread.thread_id;
        return root;
      },
    ];
  }

  showThread(root, thread) {
    const id = thread.thread_id;
    const replies = this.repliesOf(thread);
    const count = countOf(replies);
    const title = thread.title ? `${thread.title} · ${count}` : count;
    const isFolded = this.folded.has(id);
    root.classList.toggle("is-here", id === this.threadId);
    root.setAttribute("aria-label", `Thread, ${title}`);
    const items = [[`title ${title} ${isFolded}`, () => this.threadTitle(id, title, isFolded)]];
    const shown = [];
    if (!isFolded) {
      this.addReplies(items, shown, replies, id);
      if (id !== this.threadId) items.push(["reply", () => makeButton("title", "Reply in this thread", () => this.enter(id))]);
    }
    reconcile(root, items);
    shown.forEach((show) => show());
  }

  threadTitle(id, title, isFolded) {
    const button = makeButton("title fold", `${isFolded ? "▸" : "▾"} ${title}`, () => {
      if (!this.folded.delete(id)) this.folded.add(id);
      this.draw();
    });
    button.setAttribute("aria-expanded", String(!isFolded));
    return button;
  }

  unfold(id) {
    this.unfolded.add(id);
    this.draw();
  }

  async deed(message, deed) {
    if (deed.kind === "shortcut") return (await this.act(deed)) !== null;
    if (deed.kind === "reply") return this.enter(message.thread_id ?? message.message_id);
    const done = deed.kind === "cross" ? { kind: "react", message_id: deed.message_id, emoji: CROSS[this.name] } : deed;
    return (await this.act(done, this.placeOf(message))) !== null;
  }

  placeOf(message) {
    const thread = this.name === "discord" ? message.thread_id : null;
    return thread ?? this.channel.channel_id;
  }

  trouble(event) {
    event.preventDefault();
    const form = new FormData(event.target);
    const isNone = event.submitter?.value === "none";
    const values = isNone ? {} : { times: form.get("times") };
    this.act({ kind: "misbehave", name: isNone ? "none" : form.get("fault"), values });
    this.find(".trouble").open = false;
  }

  // What the platform answers: the id of what was made, if any; null where it did not work, which the person is told.
  async act(action, channelId = this.channel.channel_id, files = []) {
    const form = new FormData();
    form.append("action", JSON.stringify({ person: this.person, channel_id: channelId, ...action }));
    for (const file of files) form.append("file", file, file.name);
    try {
      const answer = await fetch(`act/${this.name}`, { method: "POST", body: form });
      const told = await answer.json().catch(() => ({}));
      if (!answer.ok) this.tell(told.message ?? "That did not work.");
      return answer.ok ? (told.id ?? "") : null;
    } catch {
      this.tell("The demo does not answer. What you wrote is still here.");
      return null;
    }
  }
}

function countOf(replies) {
  return `${replies.length} ${replies.length === 1 ? "reply" : "replies"}`;
}
