// The box to write in: text or a slash command, files, and the sample to begin with.

import { appendText } from "./emoji.js";
import { make, makeButton, reconcile } from "./nodes.js";

export class Compose {
  constructor(platform, samples) {
    this.platform = platform;
    this.samples = samples;
    this.files = [];
    this.threadsBefore = null;
    this.sentId = "";
    this.find = platform.find;
    this.text = this.find("textarea");
    this.form = this.find(".compose");
    this.form.addEventListener("submit", (event) => this.send(event));
    this.find(".leave").addEventListener("click", () => platform.enter(null));
    this.find(".command").addEventListener("change", () => this.draw());
    this.find(".tries").append(...samples.map((one) => makeButton("try", one.label, () => this.fillIn(one))));
    this.find("[type=file]").addEventListener("change", (event) => {
      this.attach(event.target.files);
      event.target.value = "";
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.form.requestSubmit();
      }
    });
    this.text.addEventListener("paste", (event) => this.attach(event.clipboardData.files));
    const root = platform.root;
    root.addEventListener("dragover", (event) => event.dataTransfer.types.includes("Files") && event.preventDefault());
    root.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.attach(event.dataTransfer.files);
    });
  }

  focus() {
    (this.text.hidden ? this.find(".command") : this.text).focus();
  }

  attach(files) {
    this.files.push(...files);
    this.draw();
  }

  get command() {
    return this.platform.view.commands.find((one) => one.name === this.find(".command").value);
  }

  // What there is to try, where nothing has been written yet.
  welcome() {
    const root = make("div", "nothing");
    const name = this.platform.view.bot_name;
    root.append(make("p", "", `No messages yet. Mention @${name} and say what you need.`));
    const files = this.samples.map((one) => one.file_name);
    root.append(...this.samples.map((one) => makeButton("control primary", one.label, () => this.fillIn(one))));
    if (files.length) root.append(make("p", "size-small", `This writes a request and attaches ${files.join(" or ")}; you only press Send.`));
    return root;
  }

  // A sample is a new request: it stands in a channel, not in a thread.
  fillIn(sample) {
    const { platform } = this;
    const channel = platform.view.channels.find((one) => !one.is_direct);
    if (channel && (platform.threadId || platform.channel.is_direct)) platform.go(channel.channel_id);
    const withFile = platform.view.commands.find((one) => one.options.some((option) => option.kind === "file"));
    this.find(".command").value = withFile?.name ?? "";
    this.text.value = withFile ? sample.text : `@${platform.view.bot_name} ${sample.text}`;
    const content = Uint8Array.from(atob(sample.content), (one) => one.charCodeAt(0));
    this.files = [new File([content], sample.file_name, { type: sample.mime_type })];
    this.draw();
    this.find("[type=submit]").focus();
  }

  draw() {
    const { platform } = this;
    const thread = platform.channel.threads.find((one) => one.thread_id === platform.threadId);
    const place = platform.label(platform.channel);
    const name = platform.name === "discord" && thread?.title ? `the thread “${thread.title}”` : `a thread of ${place}`;
    this.find(".place span").textContent = platform.threadId ? `You write in ${name}` : `You write in ${place}`;
    this.find(".leave").hidden = !platform.threadId;
    this.find(".leave").textContent = `Write in ${place}`;
    platform.fill(this.find(".command"), [["", "Message"], ...platform.view.commands.map((one) => [one.name, `/${one.name}`])]);
    this.find(".call").hidden = !platform.view.commands.length;
    const command = this.command;
    const option = command?.options.find((one) => one.kind !== "file");
    this.text.hidden = Boolean(command) && !option;
    this.text.placeholder = command ? option?.description || command.description : platform.threadId ? "Reply" : `@${platform.view.bot_name} …`;
    this.find(".about").textContent = command?.description ?? "";
    this.find(".attach").hidden = Boolean(command) && !command.options.some((one) => one.kind === "file");
    this.find(".send [type=submit]").textContent = command ? `Call /${command.name}` : "Send";
    this.drawFiles();
  }

  drawFiles() {
    reconcile(this.find(".chosen"), this.files.map((file, at) => [`${at} ${file.name} ${file.size}`, () => this.chip(file)]));
  }

  chip(file) {
    const root = make("span", "chip");
    appendText(root, "📎 ");
    root.append(file.name);
    const drop = makeButton("", "×", () => {
      this.files = this.files.filter((one) => one !== file);
      this.draw();
    });
    drop.setAttribute("aria-label", `Do not attach ${file.name}`);
    root.append(drop);
    return root;
  }

  // A command may also be typed, as people do: `/agent run sum this up`.
  typed(text) {
    const calls = this.platform.view.commands.filter((one) => text === `/${one.name}` || text.startsWith(`/${one.name} `));
    const command = calls.sort((a, b) => b.name.length - a.name.length)[0];
    return command ? [command, text.slice(command.name.length + 1).trim()] : [this.command, text];
  }

  action(text, threadId) {
    const [command, rest] = this.typed(text);
    if (!command) return { kind: "say", text, thread_id: threadId };
    const option = command.options.find((one) => one.kind !== "file");
    const file_option = command.options.find((one) => one.kind === "file")?.name ?? "";
    const values = option && rest ? { [option.name]: rest } : {};
    return { kind: "command", name: command.name, values, thread_id: threadId, file_option };
  }

  async send(event) {
    event.preventDefault();
    const { platform } = this;
    const submit = this.find(".send [type=submit]");
    const written = this.text.value;
    const sent = this.files;
    if (submit.disabled || (!written.trim() && !sent.length && !this.command)) return;
    const action = this.action(written.trim(), platform.threadId);
    submit.disabled = true;
    this.threadsBefore = platform.threadId ? null : new Set(platform.channel.threads.map((one) => one.thread_id));
    const id = await platform.act(action, platform.channel.channel_id, sent);
    submit.disabled = false;
    if (id === null) return this.draw();
    this.sentId = id;
    // what was typed or attached meanwhile stays
    if (this.text.value === written) this.text.value = "";
    this.files = this.files.filter((file) => !sent.includes(file));
    this.find(".command").value = "";
    this.followThread();
    platform.draw();
    platform.toEnd();
    if (!platform.find(".messages").contains(document.activeElement)) this.focus();
  }

  // The thread that answers what was just sent becomes the place to write in, unless something else was begun there.
  followThread() {
    if (!this.threadsBefore || this.text.value) return;
    const isMine = (one) => this.platform.name === "discord" || one.thread_id === this.sentId;
    const opened = this.platform.channel.threads.find((one) => !this.threadsBefore.has(one.thread_id) && isMine(one));
    if (!opened) return;
    this.threadsBefore = null;
    this.platform.threadId = opened.thread_id;
  }
}
