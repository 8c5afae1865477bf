// Emoji: Slack's names as characters, and our own drawings of the few that the agent uses.

const NAMES = await fetch("emoji.json").then((answer) => answer.json()).catch(() => ({}));
const DRAWN = new Map(Object.entries({
  "👀": "eyes", "⏳": "hourglass", "⌛": "hourglass", "✅": "tick", "❌": "cross", "❓": "question", "⚙": "gear", "⚠": "warning",
  "🛑": "halt", "⏹": "square", "⛔": "entry", "📎": "clip", "📄": "page", "ℹ": "info", "👍": "thumb",
}));
const CHARACTERS = new RegExp(`(?:${[...DRAWN.keys()].join("|")})\\ufe0f?`, "gu");

// `:name:` as its character; names that are unknown stay as they are.
export function spelled(text) {
  return text.replace(/:([a-z0-9_+-]+):(?::skin-tone-[2-6]:)?/g, (whole, name) => NAMES[name] ?? whole);
}

export function emojiOf(name) {
  return NAMES[name.replace(/::skin-tone-[2-6]$/, "")] ?? name;
}

// Adds text to an element, with our drawings in the place of the emoji that have one.
export function appendText(root, text) {
  let at = 0;
  for (const found of text.matchAll(CHARACTERS)) {
    if (found.index > at) root.append(text.slice(at, found.index));
    const sign = document.createElement("span");
    sign.className = `emoji ${DRAWN.get([...found[0]][0])}`;
    sign.textContent = found[0];
    root.append(sign);
    at = found.index + found[0].length;
  }
  if (at < text.length) root.append(text.slice(at));
}
