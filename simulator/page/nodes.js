// Making DOM nodes, and keeping those that are still right: what is not touched keeps its focus, its scroll and its open menus.

const kept = new WeakMap();

export function make(kind, className = "", text = "") {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

export function makeButton(className, text, onClick) {
  const button = make("button", className, text);
  button.type = "button";
  button.addEventListener("click", onClick);
  return button;
}

// Makes the children of `parent` those of `items`, a list of [key, make]: a child whose key was there before stays.
// All children of a reconciled parent are made here.
export function reconcile(parent, items) {
  const before = kept.get(parent) ?? new Map();
  const now = new Map();
  for (const [wanted, build] of items) {
    let key = wanted;
    while (now.has(key)) key += "+";
    now.set(key, before.get(key) ?? build());
  }
  for (const [key, node] of before) if (!now.has(key)) node.remove();
  let next = parent.firstChild;
  for (const node of now.values()) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
  kept.set(parent, now);
}
