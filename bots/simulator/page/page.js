// The page: draws each view that comes in, and posts what a person does.

import { drawMessage, make } from "./message.js";

const CROSS = { slack: "x", discord: "❌" };
const told = document.getElementById("told");

class Platform {
  constructor(name) {
    this.name = name;
    this.root = document.getElementById(name);
    this.root.append(document.getElementById("platform").content.cloneNode(true));
    this.find = (selector) => this.root.querySelector(selector);
    this.view = null;
    this.channelId = null;
    this.threadId = null;
    this.drawn = new Map();
    this.find(".compose").addEventListener("submit", (event) => this.send(event));
    this.find(".leave").addEventListener("click", () => this.enter(null));
    this.find(".person").addEventListener("change", () => this.draw());
    this.find(".command").addEventListener("change", () => this.drawCompose());
    this.find("[type=file]").addEventListener("change", () => this.drawCompose());
    this.find("textarea").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.find(".compose").requestSubmit();
      }
    });
  }

  show(view) {
    this.view = view;
    this.channelId ??= view.channels[0]?.channel_id;
    this.draw();
  }

  get person() {
    return this.find(".person").value;
  }

  get channel() {
    return this.view.channels.find((one) => one.channel_id === this.channelId) ?? this.view.channels[0];
  }

  enter(threadId) {
    this.threadId = threadId;
    this.draw();
    if (threadId) this.find("textarea").focus();
  }

  draw() {
    if (!this.view) return;
    this.find("h2").textContent = this.view.workspace;
    const link = this.find(".link");
    link.textContent = `${this.view.bot_name} is ${this.view.is_bot_connected ? "connected" : "away"}`;
    link.classList.toggle("is-on", this.view.is_bot_connected);
    this.fill(this.find(".person"), this.view.people.map((one) => [one, one]));
    this.drawTabs();
    this.drawMessages();
    this.drawCompose();
    this.drawForms();
  }

  fill(select, entries) {
    const wanted = JSON.stringify(entries);
    if (select.dataset.entries === wanted) return;
    const before = select.value;
    select.replaceChildren(...entries.map(([value, label]) => new Option(label, value)));
    if (entries.some(([value]) => value === before)) select.value = before;
    select.dataset.entries = wanted;
  }

  drawTabs() {
    const mine = this.view.channels.filter((one) => !one.is_direct || one.name.includes(this.person) || this.name === "slack");
    const tabs = mine.map((channel) => {
      const tab = make("button", "", channel.is_direct ? channel.name : `# ${channel.name}`);
      tab.type = "button";
      tab.role = "tab";
      tab.setAttribute("aria-selected", String(channel === this.channel));
      tab.addEventListener("click", () => {
        this.channelId = channel.channel_id;
        this.enter(null);
      });
      return tab;
    });
    this.find(".tabs").replaceChildren(...tabs);
  }

  drawMessages() {
    const box = this.find(".messages");
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
    const threads = new Map(this.channel.threads.map((one) => [one.thread_id, one]));
    const parts = [];
    for (const message of this.channel.messages) {
      if (!this.sees(message)) continue;
      parts.push(this.messageNode(message));
      if (threads.has(message.message_id)) parts.push(this.threadNode(threads.get(message.message_id)));
      threads.delete(message.message_id);
    }
    for (const thread of threads.values()) parts.push(this.threadNode(thread));
    if (this.channel.typing.length) parts.push(make("div", "typing", `${this.channel.typing.join(", ")} is working…`));
    if (!parts.length) parts.push(make("p", "nothing", `Nobody has written here yet. Mention @${this.view.bot_name} and say what you need.`));
    box.replaceChildren(...parts);
    if (isAtEnd) box.scrollTop = box.scrollHeight;
  }

  sees(message) {
    return !message.visible_to || message.visible_to === this.person;
  }

  messageNode(message) {
    const state = JSON.stringify(message) + this.person;
    const before = this.drawn.get(message.message_id);
    if (before?.state === state) return before.node;
    const node = drawMessage(message, (deed) => this.deed(message, deed), this.person);
    this.drawn.set(message.message_id, { state, node });
    return node;
  }

  threadNode(thread) {
    const root = make("div", thread.thread_id === this.threadId ? "thread is-here" : "thread");
    const inside = thread.messages.filter((one) => one.message_id !== thread.thread_id && this.sees(one));
    const title = make("button", "title", `${thread.title || "Thread"} · ${inside.length} ${inside.length === 1 ? "reply" : "replies"} · write here`);
    title.type = "button";
    title.addEventListener("click", () => this.enter(thread.thread_id));
    root.append(title, ...inside.map((one) => this.messageNode(one)));
    return root;
  }

  drawCompose() {
    const thread = this.channel.threads.find((one) => one.thread_id === this.threadId);
    const where = thread ? `in the thread ${thread.title}` : this.threadId ? "in a thread" : `in ${this.channel.name}`;
    this.find(".place span").textContent = `You write ${where}`;
    this.find(".leave").hidden = !this.threadId;
    const commands = this.view.commands.map((one) => [one.name, `/${one.name}`]);
    this.fill(this.find(".command"), [["", "Message"], ...commands]);
    const command = this.view.commands.find((one) => one.name === this.find(".command").value);
    const option = command?.options.find((one) => one.kind !== "file");
    this.find("textarea").disabled = Boolean(command) && !option;
    this.find("textarea").placeholder = command ? option?.description || command.description : this.threadId ? "Reply" : `@${this.view.bot_name} …`;
    const chosen = [...this.find("[type=file]").files].map((one) => one.name);
    this.find(".chosen").textContent = chosen.join(", ");
  }

  drawForms() {
    const form = this.view.forms.find((one) => one.person === this.person);
    const box = this.find(".forms");
    if (box.dataset.form === (form?.form_id ?? "")) return;
    box.dataset.form = form?.form_id ?? "";
    box.replaceChildren(...(form ? [this.formNode(form)] : []));
    box.querySelector("input, textarea, select")?.focus();
  }

  formNode(form) {
    const root = make("form");
    root.append(make("h3", "", form.title));
    for (const field of form.fields) {
      const label = make("label", "", field.label);
      const input = document.createElement(field.options.length ? "select" : field.is_long ? "textarea" : "input");
      for (const option of field.options) input.append(new Option(option.label, option.value));
      input.name = field.field_id;
      input.required = field.is_required;
      label.append(input);
      root.append(label);
    }
    const submit = make("button", "", form.submit_label);
    submit.type = "submit";
    root.append(submit);
    root.addEventListener("submit", (event) => {
      event.preventDefault();
      const values = Object.fromEntries(new FormData(root));
      this.act({ kind: "submit", form_id: form.form_id, values });
    });
    return root;
  }

  deed(message, deed) {
    if (deed.kind === "reply") return this.enter(message.thread_id ?? message.message_id);
    if (deed.kind === "cross") return this.act({ kind: "react", message_id: deed.message_id, emoji: CROSS[this.name] });
    if (deed.kind === "edit" && deed.text === null) return undefined;
    return this.act(deed, this.placeOf(message));
  }

  placeOf(message) {
    const thread = this.name === "discord" ? message.thread_id : null;
    return thread ?? this.channel.channel_id;
  }

  async send(event) {
    event.preventDefault();
    const text = this.find("textarea").value.trim();
    const files = [...this.find("[type=file]").files];
    const name = this.find(".command").value;
    if (!text && !files.length && !name) return;
    const thread_id = this.threadId;
    const command = this.view.commands.find((one) => one.name === name);
    const option = command?.options.find((one) => one.kind !== "file");
    const file_option = command?.options.find((one) => one.kind === "file")?.name ?? "";
    const values = option && text ? { [option.name]: text } : {};
    const action = command ? { kind: "command", name, values, thread_id, file_option } : { kind: "say", text, thread_id };
    if (await this.act(action, this.channel.channel_id, files)) {
      this.find(".compose").reset();
      this.drawCompose();
    }
  }

  async act(action, channelId = this.channel.channel_id, files = []) {
    const form = new FormData();
    form.append("action", JSON.stringify({ person: this.person, channel_id: channelId, ...action }));
    for (const file of files) form.append("file", file, file.name);
    const answer = await fetch(`act/${this.name}`, { method: "POST", body: form });
    const problem = answer.ok ? "" : ((await answer.json().catch(() => ({}))).message ?? "That did not work.");
    told.textContent = problem;
    if (problem) setTimeout(() => (told.textContent = ""), 5000);
    return answer.ok;
  }
}

const platforms = { slack: new Platform("slack"), discord: new Platform("discord") };
const feed = new EventSource("feed");
feed.addEventListener("view", (event) => {
  const view = JSON.parse(event.data);
  platforms[view.platform]?.show(view);
});
feed.addEventListener("error", () => (told.textContent = "The demo has ended, or is away for a moment."));
feed.addEventListener("open", () => (told.textContent = ""));

for (const button of document.querySelectorAll("#switch button")) {
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll("#switch button")) {
      const isShown = other === button;
      other.setAttribute("aria-selected", String(isShown));
      document.getElementById(other.dataset.show).classList.toggle("is-shown", isShown);
    }
  });
}
