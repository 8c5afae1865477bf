// One platform's half of the page: where one is, who one is, and the messages there.

import { Compose } from "./compose.js";
import { showForm } from "./forms.js";
import { newMessage, showMessage } from "./message.js";
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
    this.find(".news").addEventListener("click", () => this.toEnd());
    this.find(".messages").addEventListener("scroll", () => this.isAtEnd() && (this.find(".news").hidden = true), { passive: true });
    this.find(".messages").addEventListener("load", (event) => event.target.tagName === "IMG" && this.wasAtEnd && this.toEnd(), true);
    this.find(".trouble form").addEventListener("submit", (event) => this.trouble(event));
  }

  show(view) {
    this.view = view;
    if (!view.channels.some((one) => one.channel_id === this.channelId)) this.channelId = null;
    this.channelId ??= (view.channels.find((one) => !one.is_direct) ?? view.channels[0])?.channel_id;
    if (this.threadId && !this.knows(this.threadId)) this.threadId = null;
    this.compose.followThread();
    this.draw();
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
  }

  enter(threadId, { focus = true } = {}) {
    this.threadId = threadId;
    this.folded.delete(threadId);
    this.draw();
    if (threadId && focus) this.compose.focus();
  }

  draw() {
    if (!this.view) return;
    reconcile(this.find("h2"), [[this.view.workspace, () => this.heading()]]);
    const link = this.find(".link");
    link.textContent = `${this.view.bot_name} is ${this.view.is_bot_connected ? "connected" : "away"}`;
    link.classList.toggle("is-on", this.view.is_bot_connected);
    this.fill(this.find(".person"), this.view.people.map((one) => [one, one]));
    this.drawChannels();
    this.drawMessages();
    this.compose.draw();
    showForm(this);
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
    return channel.is_direct ? "Direct message" : `# ${channel.name}`;
  }

  drawChannels() {
    const bar = this.find(".channels");
    reconcile(bar, this.channels.map((one) => [one.channel_id, () => makeButton("", this.label(one), () => this.go(one.channel_id))]));
    this.channels.forEach((one, at) => bar.children[at].setAttribute("aria-current", String(one === this.channel)));
  }

  drawMessages() {
    const box = this.find(".messages");
    this.wasAtEnd = this.isAtEnd();
    const height = box.scrollHeight;
    const threads = new Map(this.channel.threads.map((one) => [one.thread_id, one]));
    const items = [];
    const shown = [];
    for (const message of this.channel.messages.filter((one) => this.sees(one))) {
      items.push(this.messageItem(message, shown));
      const thread = threads.get(message.message_id);
      if (thread) items.push(this.threadItem(thread, shown));
      threads.delete(message.message_id);
    }
    for (const thread of threads.values()) items.push(this.threadItem(thread, shown));
    if (!items.length) items.push([`nothing ${this.channelId}`, () => this.compose.welcome()]);
    reconcile(box, items);
    shown.forEach((show) => show());
    box.setAttribute("aria-label", `Messages in ${this.label(this.channel)}`);
    this.find(".typing").textContent = this.channel.typing.length ? `${this.channel.typing.join(", ")} …` : "";
    if (this.wasAtEnd) this.toEnd();
    else if (box.scrollHeight > height) this.find(".news").hidden = false;
  }

  isAtEnd() {
    const box = this.find(".messages");
    return box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  }

  toEnd() {
    const box = this.find(".messages");
    box.scrollTop = box.scrollHeight;
    this.find(".news").hidden = true;
  }

  sees(message) {
    return !message.visible_to || message.visible_to === this.person;
  }

  messageItem(message, shown) {
    const act = (deed) => this.deed(message, deed);
    let node = null;
    shown.push(() => showMessage(node ?? this.find(`[data-id="${CSS.escape(message.message_id)}"]`), message, this.person, act));
    return [`message ${this.channelId} ${message.message_id}`, () => (node = newMessage(message, this.person, act))];
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
    const replies = thread.messages.filter((one) => one.message_id !== id && this.sees(one));
    const count = `${replies.length} ${replies.length === 1 ? "reply" : "replies"}`;
    const title = this.name === "discord" && thread.title ? `${thread.title} · ${count}` : count;
    const isFolded = this.folded.has(id);
    root.classList.toggle("is-here", id === this.threadId);
    root.setAttribute("aria-label", `Thread, ${title}`);
    const items = [[`title ${title} ${isFolded}`, () => this.threadTitle(id, title, isFolded)]];
    const shown = [];
    if (!isFolded) {
      const hidden = this.unfolded.has(id) ? 0 : Math.max(0, replies.length - REPLIES_SHOWN);
      if (hidden) items.push([`earlier ${hidden}`, () => makeButton("title", `Show ${hidden} earlier`, () => this.unfold(id))]);
      for (const reply of replies.slice(hidden)) items.push(this.messageItem(reply, shown));
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
