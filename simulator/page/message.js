// One message as DOM nodes, kept as far as they still hold when it is edited; what is done with it is told to `act`.

import { appendText, emojiOf, spelled } from "./emoji.js";
import { draw } from "./markdown.js";
import { make, makeButton, reconcile } from "./nodes.js";

const MARKS = { pending: "○", in_progress: "◐", complete: "✓", error: "✗" };
const STATES = { pending: "not begun", in_progress: "under way", complete: "done", error: "failed" };
const COLOURS = ["#7a4bb5", "#2f7f8f", "#b0582d", "#3f6f3a", "#a03565", "#4a5fb0"];
const PICTURES = /^image\/(png|jpeg|gif|webp|svg\+xml)$/;

export function newMessage(message, mine, act, shortcuts = []) {
  const root = make("article", "message");
  root.dataset.id = message.message_id;
  const body = make("div", "body");
  root.append(face(message), body);
  showMessage(root, message, mine, act, shortcuts);
  return root;
}

// Brings a message up to date; a part that did not change keeps its node.
export function showMessage(root, message, mine, act, shortcuts = []) {
  const state = JSON.stringify([message, mine]);
  if (root.dataset.state === state) return;
  root.dataset.state = state;
  root.setAttribute("aria-label", `${message.author}, ${timeOf(message)}`);
  const parts = [[`who ${message.author} ${message.author === mine}`, () => who(message, mine, act, shortcuts)]];
  parts.push([`when ${message.edits > 0}`, () => make("small", "when", message.edits ? `${timeOf(message)} (edited)` : timeOf(message))]);
  if (message.visible_to) parts.push(["private", () => make("div", "private", `Only ${message.visible_to} can see this`)]);
  parts.push(["elements", () => make("div", "elements")]);
  if (message.files.length) parts.push([JSON.stringify(message.files), () => files(message)]);
  if (message.reactions.length) parts.push([JSON.stringify(message.reactions), () => reactions(message)]);
  const body = root.querySelector(":scope > .body");
  reconcile(body, parts);
  showElements(body.querySelector(":scope > .elements"), message, act);
}

// Buttons that follow each other stand in a row. Discord's containers begin and end with a line: they are drawn as a frame.
export function showElements(root, message, act) {
  let elements = message.elements;
  const isFramed = elements.length > 2 && elements[0].kind === "divider" && elements.at(-1).kind === "divider";
  root.classList.toggle("frame", isFramed);
  if (isFramed) elements = elements.slice(1, -1);
  const items = [];
  for (let at = 0; at < elements.length; at++) {
    const row = [elements[at]];
    if (isControl(row[0])) while (elements[at + 1] && isControl(elements[at + 1])) row.push(elements[++at]);
    items.push([JSON.stringify(row), () => drawRow(row, message, act)]);
  }
  reconcile(root, items);
}

function isControl(element) {
  return element.kind === "button" || element.kind === "select";
}

function drawRow(row, message, act) {
  if (!isControl(row[0])) return drawElement(row[0]);
  const controls = make("div", "controls");
  for (const element of row) controls.append(element.kind === "select" ? drawSelect(element, message, act) : drawButton(element, message, act));
  return controls;
}

function face(message) {
  const root = make("div", message.is_bot ? "face bot" : "face", message.is_bot ? "" : message.author.slice(0, 1));
  root.setAttribute("aria-hidden", "true");
  if (!message.is_bot) root.style.background = COLOURS[[...message.author].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % COLOURS.length];
  return root;
}

function timeOf(message) {
  return new Date(message.sent_at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

function who(message, mine, act, shortcuts) {
  const line = make("div", "who");
  line.append(make("strong", "", message.author));
  if (message.is_bot) line.append(make("span", "tag", "APP"));
  if (message.visible_to) return line;
  const deeds = make("span", "deeds");
  const more = makeButton("more", "⋯", () => {
    deeds.hidden = !deeds.hidden;
    more.setAttribute("aria-expanded", String(!deeds.hidden));
  });
  more.setAttribute("aria-label", `More about this message of ${message.author}`);
  more.setAttribute("aria-expanded", "false");
  deeds.hidden = true;
  const id = message.message_id;
  deeds.append(makeButton("", "Reply in thread", () => act({ kind: "reply", message_id: id })));
  deeds.append(makeButton("", "React with a cross (stops the work)", () => act({ kind: "cross", message_id: id })));
  for (const name of shortcuts) deeds.append(makeButton("", name, () => act({ kind: "shortcut", message_id: id, name })));
  if (message.author === mine) {
    deeds.append(makeButton("", "Edit", () => edit(line, id, act)));
    deeds.append(makeButton("", "Delete", () => act({ kind: "delete", message_id: id })));
  }
  line.append(more, deeds);
  return line;
}

function edit(line, id, act) {
  const body = line.closest(".body");
  if (line.querySelector(".editor")) return;
  const editor = make("form", "editor");
  const input = make("textarea");
  input.setAttribute("aria-label", "The new text");
  input.value = [...body.querySelectorAll(":scope > .elements > [dir]")].map((one) => one.innerText).join("\n");
  const save = make("button", "control primary", "Save");
  editor.append(input, save, makeButton("control", "Cancel", () => editor.remove()));
  editor.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (await act({ kind: "edit", message_id: id, text: input.value })) editor.remove();
  });
  line.append(editor);
  input.focus();
}

function drawElement(element) {
  switch (element.kind) {
    case "markdown": {
      const text = draw(element.text, element.flavour);
      text.className = `size-${element.size}`;
      return text;
    }
    case "task_card": {
      const card = make("div", `task ${element.status}`);
      const mark = make("span", "mark", MARKS[element.status]);
      mark.role = "img";
      mark.setAttribute("aria-label", STATES[element.status]);
      const words = make("div", "words");
      words.append(make("div", "", element.title));
      if (element.detail) words.append(make("div", "detail", element.detail));
      card.append(mark, words);
      return card;
    }
    case "divider":
      return document.createElement("hr");
    case "picture":
      return isOurs(element.url) ? picture(element.url, element.alt) : linkTo(element.url, element.alt || element.url);
  }
  return document.createTextNode(`(unsupported block: ${element.kind})`);
}

// The page shows pictures of the simulators only: anything else would be fetched from the network.
function isOurs(url) {
  return /^http:\/\/(127\.0\.0\.1|localhost)(:\d+)?\//.test(url) || url.startsWith("data:image/");
}

function picture(url, alt) {
  const made = document.createElement("img");
  made.src = url;
  made.alt = alt;
  return made;
}

function linkTo(url, label) {
  if (!/^https?:\/\//.test(url)) return make("span", "", label);
  const link = make("a", "file", label);
  link.href = url;
  link.target = "_blank";
  link.rel = "noreferrer noopener";
  return link;
}

function drawSelect(element, message, act) {
  const select = make("select", "control");
  select.setAttribute("aria-label", element.placeholder || "Choose");
  select.append(new Option(element.placeholder || "Choose", ""));
  for (const option of element.options) select.append(new Option(option.label, option.value));
  select.addEventListener("change", () => {
    if (select.value) act({ kind: "press", message_id: message.message_id, control_id: element.control_id, value: select.value });
  });
  return select;
}

function drawButton(element, message, act) {
  if (element.url) return linkTo(element.url, element.label);
  const button = makeButton(`control ${element.style}`, "", async () => {
    button.disabled = true;
    await act({ kind: "press", message_id: message.message_id, control_id: element.control_id });
    button.disabled = element.is_disabled;
  });
  appendText(button, spelled(element.label));
  button.disabled = element.is_disabled;
  return button;
}

function files(message) {
  const root = make("div", "files");
  for (const file of message.files) {
    const link = make("a", "file");
    link.href = file.url;
    link.download = file.name;
    link.target = "_blank";
    link.rel = "noreferrer noopener";
    if (PICTURES.test(file.mime_type)) link.append(picture(file.url, file.name));
    const name = make("span", "name");
    appendText(name, "📄 ");
    name.append(file.name, " ", make("small", "", size(file.size_bytes)));
    link.append(name);
    root.append(link);
  }
  return root;
}

function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

function reactions(message) {
  const row = make("div", "reactions");
  for (const one of message.reactions) {
    const chip = make("span");
    appendText(chip, `${emojiOf(one.emoji)} ${one.people.length}`);
    chip.title = `${one.people.join(", ")}: ${one.emoji}`;
    row.append(chip);
  }
  return row;
}
