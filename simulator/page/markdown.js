// Draws the platforms' dialects of Markdown as DOM nodes. Text only ever becomes text nodes: nothing here makes HTML out of it.

import { appendText, spelled } from "./emoji.js";

const QUOTE = /^(?:>|&gt;)\s?/;
const ITEM = /^(\s*)([-*•]|(\d+)\.)\s+/;
const FENCE = /^\s*(```|~~~)\s*([\w+-]*)\s*$/;

// Discord messages of the bot end in invisible characters that tell it its own again.
const FOOTPRINT = /\u2060[\u200b\u200c]+\u2060/g;

export function draw(text, flavour) {
  const root = document.createElement("div");
  root.dir = "auto";
  const lines = text.replace(FOOTPRINT, "").split("\n");
  let at = 0;
  while (at < lines.length) at = drawBlock(root, lines, at, flavour);
  return root;
}

function drawBlock(root, lines, at, flavour) {
  const line = lines[at];
  const fence = flavour === "plain" ? null : FENCE.exec(line);
  if (fence) return drawFence(root, lines, at + 1, fence[1], flavour);
  if (!line.trim()) return at + 1;
  const heading = flavour === "markdown" || flavour === "discord" ? /^(#{1,6})\s+(.*)$/.exec(line) : null;
  if (heading) {
    const level = document.createElement(`h${Math.min(6, heading[1].length + 2)}`);
    inline(level, heading[2], flavour);
    root.append(level);
    return at + 1;
  }
  if (flavour === "discord" && line.startsWith("-# ")) {
    const small = document.createElement("div");
    small.className = "size-small";
    inline(small, line.slice(3), flavour);
    root.append(small);
    return at + 1;
  }
  if (flavour === "markdown" && line.includes("|") && /^\s*\|?[\s:|-]+\|[\s:|-]*$/.test(lines[at + 1] ?? "")) {
    return drawTable(root, lines, at, flavour);
  }
  if (flavour !== "plain" && ITEM.test(line)) return drawList(root, lines, at, flavour);
  if (flavour !== "plain" && QUOTE.test(line)) return drawQuote(root, lines, at, flavour);
  return drawParagraph(root, lines, at, flavour);
}

function drawFence(root, lines, at, mark, flavour) {
  const inside = [];
  while (at < lines.length && lines[at].trim() !== mark) inside.push(lines[at++]);
  const code = document.createElement("code");
  code.textContent = flavour === "mrkdwn" ? unescaped(inside.join("\n")) : inside.join("\n");
  const pre = document.createElement("pre");
  pre.tabIndex = 0; // long lines scroll, also by keyboard
  pre.append(code);
  root.append(pre);
  return at + 1;
}

function drawTable(root, lines, at, flavour) {
  const table = document.createElement("table");
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const row = (line, kind) => {
    const tr = table.insertRow();
    for (const cell of cells(line)) {
      const box = document.createElement(kind);
      inline(box, cell, flavour);
      tr.append(box);
    }
  };
  row(lines[at], "th");
  at += 2;
  while (at < lines.length && lines[at].includes("|")) row(lines[at++], "td");
  root.append(table);
  return at;
}

// An item keeps the number that it has, and a deeper item belongs to the one above it.
function drawList(root, lines, at, flavour) {
  const [, { length: depth }, , first] = ITEM.exec(lines[at]);
  const list = document.createElement(first ? "ol" : "ul");
  for (let found; (found = ITEM.exec(lines[at] ?? "")) && found[1].length >= depth; ) {
    const [whole, indent, , number] = found;
    if (indent.length > depth) {
      at = drawList(list.lastChild, lines, at, flavour);
      continue;
    }
    if (Boolean(number) !== Boolean(first)) break;
    const item = document.createElement("li");
    if (number) item.value = Number(number);
    inline(item, lines[at++].slice(whole.length), flavour);
    list.append(item);
  }
  root.append(list);
  return at;
}

function drawQuote(root, lines, at, flavour) {
  const quote = document.createElement("blockquote");
  while (at < lines.length && QUOTE.test(lines[at])) {
    inline(quote, lines[at++].replace(QUOTE, ""), flavour);
    quote.append(document.createElement("br"));
  }
  root.append(quote);
  return at;
}

function drawParagraph(root, lines, at, flavour) {
  const paragraph = document.createElement("p");
  let isFirst = true;
  while (at < lines.length && lines[at].trim() && (isFirst || !FENCE.test(lines[at]))) {
    if (!isFirst) {
      if (/^\s*([-*•]|\d+\.)\s+|^(?:>|&gt;)|^#{1,6}\s|^-# /.test(lines[at])) break;
      paragraph.append(document.createElement("br"));
    }
    inline(paragraph, lines[at++], flavour);
    isFirst = false;
  }
  root.append(paragraph);
  return at;
}

const MARKS = {
  mrkdwn:
    /(`[^`]+`)|(\*[^*\s](?:[^*]*[^*\s])?\*)|(\b_[^_]+_\b)|(~[^~]+~)|<((?:https?:|mailto:|[#!])[^|>\n]+)(?:\|([^>]*))?>|((?<![\w.])@\w[\w-]*)/,
  markdown:
    /(`[^`]+`)|(\*\*[^*]+\*\*)|(\b_[^_]+_\b|\*[^*\s][^*]*\*)|(~~[^~]+~~)|\[([^\]]+)\]\((https?:[^)\s]+)\)|((?<![\w.])@\w[\w-]*)|(https?:\/\/[^\s<>)]+)/,
};

function inline(root, text, flavour) {
  const marks = flavour === "plain" ? null : flavour === "mrkdwn" ? MARKS.mrkdwn : MARKS.markdown;
  let rest = text;
  for (let found = marks?.exec(rest); found; found = marks.exec(rest)) {
    write(root, rest.slice(0, found.index), flavour);
    root.append(drawMark(found, flavour));
    rest = rest.slice(found.index + found[0].length);
  }
  write(root, rest, flavour);
}

// Slack escapes three characters in mrkdwn, and knows emoji by name; Discord's API does neither.
function write(root, text, flavour) {
  const named = flavour === "discord" ? text : spelled(text);
  appendText(root, flavour === "mrkdwn" ? unescaped(named) : named);
}

function unescaped(text) {
  return text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
}

function drawMark(found, flavour) {
  const whole = found[0];
  const isSlack = flavour === "mrkdwn";
  if (found[1]) return element("code", isSlack ? unescaped(whole.slice(1, -1)) : whole.slice(1, -1));
  if (found[2]) return nested("strong", isSlack ? whole.slice(1, -1) : whole.slice(2, -2), flavour);
  if (found[3]) return nested("em", whole.slice(1, -1), flavour);
  if (found[4]) return nested("s", whole.replace(/^~+|~+$/g, ""), flavour);
  if (found[7]) return mention(whole);
  if (isSlack && found[5].startsWith("!date^")) return element("time", localTime(found[5].split("^")[1]));
  if (isSlack) return /^[#!]/.test(found[5]) ? mention(found[5][0].replace("!", "@") + (found[6] ?? found[5].slice(1))) : link(found[5], found[6]);
  return link(found[6] ?? whole, found[5]);
}

function localTime(seconds) {
  return new Date(1000 * Number(seconds)).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

function mention(text) {
  return Object.assign(element("span", text), { className: "mention" });
}

function link(url, label) {
  const made = element("a", unescaped(label || url.replace(/^mailto:/, "")));
  made.href = unescaped(url);
  made.target = "_blank";
  made.rel = "noreferrer noopener";
  return made;
}

function element(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}

function nested(kind, text, flavour) {
  const made = document.createElement(kind);
  inline(made, text, flavour);
  return made;
}
