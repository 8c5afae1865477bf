// One message as DOM nodes; what is pressed in it is told to `act`.

import { draw } from "./markdown.js";

const MARKS = { pending: "○", in_progress: "◐", complete: "✓", error: "✗" };
const EMOJI = { eyes: "👀", hourglass_flowing_sand: "⏳", hourglass: "⏳", white_check_mark: "✅", x: "❌", question: "❓", no_entry: "⛔", thumbsup: "👍" };
const COLOURS = ["#7a4bb5", "#2f7f8f", "#b0582d", "#3f6f3a", "#a03565", "#4a5fb0"];

export function drawMessage(message, act, mine) {
  const root = make("article", "message");
  root.dataset.id = message.message_id;
  const face = make("div", "face", message.author.slice(0, 1));
  face.style.background = message.is_bot ? "#2b2340" : COLOURS[[...message.author].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % COLOURS.length];
  const body = make("div", "body");
  body.append(who(message, act, mine));
  if (message.visible_to) body.append(make("div", "private", `Only ${message.visible_to} can see this`));
  let controls = null;
  for (const element of message.elements) {
    const isControl = element.kind === "button" || element.kind === "select";
    if (isControl && !controls) body.append((controls = make("div", "controls")));
    if (!isControl) controls = null;
    (controls ?? body).append(drawElement(element, message, act));
  }
  for (const file of message.files) body.append(drawFile(file));
  if (message.reactions.length) body.append(reactions(message));
  root.append(face, body);
  return root;
}

function who(message, act, mine) {
  const line = make("div", "who", message.author);
  if (message.is_bot) line.append(make("span", "tag", "APP"));
  const time = new Date(message.sent_at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  line.append(make("small", "", message.edits ? `${time} (edited)` : time));
  if (message.visible_to) return line;
  const deeds = make("span", "deeds");
  const deed = (label, what) => {
    const button = make("button", "", label);
    button.type = "button";
    button.addEventListener("click", () => act({ message_id: message.message_id, ...what() }));
    deeds.append(button);
  };
  deed("Reply", () => ({ kind: "reply" }));
  deed("❌", () => ({ kind: "cross" }));
  if (message.author === mine) {
    deed("Edit", () => ({ kind: "edit", text: prompt("The new text", plain(message)) }));
    deed("Delete", () => ({ kind: "delete" }));
  }
  line.append(deeds);
  return line;
}

function plain(message) {
  return message.elements.filter((one) => one.kind === "markdown").map((one) => one.text).join("\n");
}

function drawElement(element, message, act) {
  switch (element.kind) {
    case "markdown": {
      const text = draw(element.text, element.flavour);
      text.className = `size-${element.size}`;
      return text;
    }
    case "task_card": {
      const card = make("div", `task ${element.status}`);
      card.append(make("span", "mark", MARKS[element.status]), make("span", "", element.title));
      if (element.detail) card.append(make("span", "detail", element.detail));
      return card;
    }
    case "divider":
      return document.createElement("hr");
    case "picture": {
      const picture = document.createElement("img");
      picture.src = element.url;
      picture.alt = element.alt;
      return picture;
    }
    case "button":
      return drawButton(element, message, act);
    case "select": {
      const select = make("select", "control");
      select.setAttribute("aria-label", element.placeholder);
      select.append(new Option(element.placeholder || "Choose", ""));
      for (const option of element.options) select.append(new Option(option.label, option.value));
      select.addEventListener("change", () => {
        if (select.value) act({ kind: "press", message_id: message.message_id, control_id: element.control_id, value: select.value });
      });
      return select;
    }
  }
  return document.createTextNode("");
}

function drawButton(element, message, act) {
  if (element.url) {
    const link = make("a", "file", element.label);
    link.href = element.url;
    link.target = "_blank";
    link.rel = "noreferrer noopener";
    return link;
  }
  const button = make("button", `control ${element.style}`, element.label);
  button.type = "button";
  button.disabled = element.is_disabled;
  button.addEventListener("click", () => act({ kind: "press", message_id: message.message_id, control_id: element.control_id }));
  return button;
}

function drawFile(file) {
  const link = make("a", "file");
  link.href = file.url;
  link.download = file.name;
  link.target = "_blank";
  if (/^image\/(png|jpeg|gif|webp)$/.test(file.mime_type)) {
    const picture = document.createElement("img");
    picture.src = file.url;
    picture.alt = file.name;
    link.append(picture);
  }
  link.append(`📄 ${file.name} `, make("small", "", size(file.size_bytes)));
  return link;
}

function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

function reactions(message) {
  const row = make("div", "reactions");
  for (const one of message.reactions) {
    const chip = make("span", "", `${EMOJI[one.emoji] ?? one.emoji} ${one.people.length}`);
    chip.title = one.people.join(", ");
    row.append(chip);
  }
  return row;
}

export function make(kind, className = "", text = "") {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}
