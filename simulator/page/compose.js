// The box to write in: text or a slash command, files, and the sample to begin with.

import { Completion } from "./complete.js";
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
    this.text.id = `write-${platform.name}`;
    this.form = this.find(".compose");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.find(".leave").addEventListener("click", () => platform.enter(null));
    const tries = this.find(".tries");
    tries.append(...samples.map((one, at) => new Option(one.label.replace("Try: ", ""), at)));
    tries.hidden = !samples.length;
    tries.addEventListener("change", () => {
      this.fillIn(samples[tries.value]);
      tries.value = "";
    });
    this.find("[type=file]").addEventListener("change", (event) => {
      this.attach(event.target.files);
      event.target.value = "";
    });
    const list = this.find(".completion");
    list.id = `completion-${platform.name}`;
    this.text.setAttribute("aria-controls", list.id);
    this.completion = new Completion(this.text, list, (word) => this.entriesFor(word));
    this.text.addEventListener("input", () => this.draw());
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
    this.text.focus();
  }

  async entriesFor(word) {
    const { view } = this.platform;
    const [command, rest] = this.typed(word);
    const option = command?.options.find((one) => one.kind !== "file");
    if (option?.is_suggested && word.startsWith(`/${command.name} `)) {
      const asked = { kind: "suggest", name: command.name, values: { [option.name]: rest }, option: option.name };
      const values = (await this.platform.act({ ...asked, thread_id: this.platform.threadId })) ?? [];
      return values.map((one) => [`/${command.name} ${one.value}`, one.label]);
    }
    const commands = view.commands.map((one) => [`/${one.name}`, one.description]);
    const names = [[`@${view.bot_name}`, "the agent"], ...view.people.map((one) => [`@${one}`, one === this.platform.person ? "you" : ""])];
    return [...commands, ...names].filter(([text]) => text.toLowerCase().startsWith(word.toLowerCase()));
  }

  attach(files) {
    this.files.push(...files);
    this.draw();
  }

  // What there is to try, where nothing has been written yet.
  welcome() {
    const root = make("div", "nothing");
    const name = this.platform.view.bot_name;
    root.append(make("p", "about-us", document.querySelector(".intro p").textContent));
    root.append(make("p", "", `No messages yet. Mention @${name} and say what you need.`));
    const files = [...new Set(this.samples.map((one) => one.file_name).filter(Boolean))];
    root.append(...this.samples.map((one) => makeButton("control primary", one.label, () => this.fillIn(one))));
    if (files.length) root.append(make("p", "size-small", `This writes a request and attaches ${files.join(" or ")}; you only press Send.`));
    return root;
  }

  // A sample is a new request: it stands in a channel, not in a thread.
  fillIn(sample, { hasFocus = true } = {}) {
    const { platform } = this;
    const channel = platform.view.channels.find((one) => !one.is_direct);
    if (channel && (platform.threadId || platform.channel.is_direct)) platform.go(channel.channel_id);
    const withFile = platform.view.commands.find((one) => one.options.some((option) => option.kind === "file"));
    this.text.value = `${withFile ? `/${withFile.name}` : `@${platform.view.bot_name}`} ${sample.text}`;
    const content = Uint8Array.from(atob(sample.content), (one) => one.charCodeAt(0));
    this.files = sample.file_name ? [new File([content], sample.file_name, { type: sample.mime_type })] : [];
    this.draw();
    if (hasFocus) this.find("[type=submit]").focus();
  }

  draw() {
    const { platform } = this;
    const thread = platform.channel.threads.find((one) => one.thread_id === platform.threadId);
    const place = platform.placeName(platform.channel);
    const name = platform.name === "discord" && thread?.title ? `the thread “${thread.title}”` : `a thread of ${place}`;
    this.find(".place span").textContent = platform.threadId ? `You write in ${name}` : `You write in ${place}`;
    this.find(".leave").hidden = !platform.threadId;
    this.find(".leave").textContent = `Write in ${place}`;
    this.text.placeholder = platform.threadId ? "Reply" : `Mention @${platform.view.bot_name}, or type / for a command`;
    this.find(".compose .hint").textContent = this.typed(this.text.value.trim())[0]?.description ?? "";
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

  // The command that is typed, as in `/agent run sum this up`, and the text after it.
  typed(text) {
    const calls = this.platform.view.commands.filter((one) => text === `/${one.name}` || text.startsWith(`/${one.name} `));
    const command = calls.sort((a, b) => b.name.length - a.name.length)[0];
    return command ? [command, text.slice(command.name.length + 1).trim()] : [undefined, text];
  }

  action(text, threadId) {
    const [command, rest] = this.typed(text);
    if (!command) return { kind: "say", text, thread_id: threadId };
    const option = command.options.find((one) => one.kind !== "file");
    const file_options = command.options.filter((one) => one.kind === "file").map((one) => one.name);
    const values = option && rest ? { [option.name]: rest } : {};
    return { kind: "command", name: command.name, values, thread_id: threadId, file_options };
  }

  // Returns whether what was written has been sent.
  async send({ hasFocus = true } = {}) {
    const { platform } = this;
    const submit = this.find(".send [type=submit]");
    const written = this.text.value;
    const sent = this.files;
    if (submit.disabled || (!written.trim() && !sent.length)) return false;
    const action = this.action(written.trim(), platform.threadId);
    submit.disabled = true;
    this.threadsBefore = platform.threadId ? null : new Set(platform.channel.threads.map((one) => one.thread_id));
    const id = await platform.act(action, platform.channel.channel_id, sent);
    submit.disabled = false;
    this.draw();
    if (id === null) return false;
    this.sentId = id;
    // what was typed or attached meanwhile stays
    if (this.text.value === written) this.text.value = "";
    this.files = this.files.filter((file) => !sent.includes(file));
    this.followThread();
    platform.draw();
    platform.toEnd();
    if (hasFocus && !platform.find(".messages").contains(document.activeElement)) this.focus();
    return true;
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
