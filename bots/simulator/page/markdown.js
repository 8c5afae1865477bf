// Draws the platforms' dialects of Markdown as DOM nodes. Text only ever becomes text nodes: nothing here makes HTML out of it.

const FENCE = /^\s*(```|~~~)\s*([\w+-]*)\s*$/;

export function draw(text, flavour) {
  const root = document.createElement("div");
  const lines = text.split("\n");
  let at = 0;
  while (at < lines.length) at = drawBlock(root, lines, at, flavour);
  return root;
}

function drawBlock(root, lines, at, flavour) {
  const line = lines[at];
  const fence = flavour === "plain" ? null : FENCE.exec(line);
  if (fence) return drawFence(root, lines, at + 1, fence[1]);
  if (!line.trim()) return at + 1;
  const heading = flavour === "markdown" || flavour === "discord" ? /^(#{1,6})\s+(.*)$/.exec(line) : null;
  if (heading) {
    const level = document.createElement(`h${Math.min(6, heading[1].length + 2)}`);
    inline(level, heading[2], flavour);
    root.append(level);
    return at + 1;
  }
  if (flavour === "markdown" && line.includes("|") && /^\s*\|?[\s:|-]+\|[\s:|-]*$/.test(lines[at + 1] ?? "")) {
    return drawTable(root, lines, at, flavour);
  }
  if (flavour !== "plain" && /^\s*([-*•]|\d+\.)\s+/.test(line)) return drawList(root, lines, at, flavour);
  if (flavour !== "plain" && /^>\s?/.test(line)) return drawQuote(root, lines, at, flavour);
  return drawParagraph(root, lines, at, flavour);
}

function drawFence(root, lines, at, mark) {
  const inside = [];
  while (at < lines.length && lines[at].trim() !== mark) inside.push(lines[at++]);
  const code = document.createElement("code");
  code.textContent = inside.join("\n");
  const pre = document.createElement("pre");
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

function drawList(root, lines, at, flavour) {
  const isOrdered = /^\s*\d+\./.test(lines[at]);
  const list = document.createElement(isOrdered ? "ol" : "ul");
  while (at < lines.length && /^\s*([-*•]|\d+\.)\s+/.test(lines[at])) {
    const item = document.createElement("li");
    inline(item, lines[at++].replace(/^\s*([-*•]|\d+\.)\s+/, ""), flavour);
    list.append(item);
  }
  root.append(list);
  return at;
}

function drawQuote(root, lines, at, flavour) {
  const quote = document.createElement("blockquote");
  while (at < lines.length && /^>\s?/.test(lines[at])) {
    inline(quote, lines[at++].replace(/^>\s?/, ""), flavour);
    quote.append(document.createElement("br"));
  }
  root.append(quote);
  return at;
}

function drawParagraph(root, lines, at, flavour) {
  const paragraph = document.createElement("p");
  let isFirst = true;
  while (at < lines.length && lines[at].trim() && !FENCE.test(lines[at])) {
    if (!isFirst) {
      if (/^\s*([-*•]|\d+\.)\s+|^>\s?|^#{1,6}\s/.test(lines[at])) break;
      paragraph.append(document.createElement("br"));
    }
    inline(paragraph, lines[at++], flavour);
    isFirst = false;
  }
  root.append(paragraph);
  return at;
}

const MARKS = {
  mrkdwn: /(`[^`]+`)|(\*[^*\s](?:[^*]*[^*\s])?\*)|(\b_[^_]+_\b)|(~[^~]+~)|<(https?:[^|>\s]+)(?:\|([^>]*))?>|(@[\w.-]+)/,
  markdown: /(`[^`]+`)|(\*\*[^*]+\*\*)|(\b_[^_]+_\b|\*[^*\s][^*]*\*)|(~~[^~]+~~)|\[([^\]]+)\]\((https?:[^)\s]+)\)|(@[\w.-]+)|(https?:\/\/[^\s<>)]+)/,
};

function inline(root, text, flavour) {
  const marks = flavour === "plain" ? null : flavour === "mrkdwn" ? MARKS.mrkdwn : MARKS.markdown;
  let rest = text;
  for (let found = marks?.exec(rest); found; found = marks.exec(rest)) {
    root.append(rest.slice(0, found.index), drawMark(found, flavour));
    rest = rest.slice(found.index + found[0].length);
  }
  root.append(rest);
}

function drawMark(found, flavour) {
  const whole = found[0];
  if (found[1]) return element("code", whole.slice(1, -1));
  if (found[2]) return nested("strong", flavour === "mrkdwn" ? whole.slice(1, -1) : whole.slice(2, -2), flavour);
  if (found[3]) return nested("em", whole.slice(1, -1), flavour);
  if (found[4]) return nested("s", whole.replace(/^~+|~+$/g, ""), flavour);
  if (found[7] && whole.startsWith("@")) return Object.assign(element("span", whole), { className: "mention" });
  const [label, url] = flavour === "mrkdwn" ? [found[6] ?? found[5], found[5]] : [found[5] ?? whole, found[6] ?? whole];
  const link = element("a", label);
  link.href = url;
  link.target = "_blank";
  link.rel = "noreferrer noopener";
  return link;
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
