// Completion in the composer: slash commands at the start of the text, and names after an "@".

import { make } from "./nodes.js";

const ENTRIES_MAX = 8;

export class Completion {
  // `entriesFor(word)` resolves to the [text, description] entries for the word at the caret.
  constructor(text, list, entriesFor) {
    this.text = text;
    this.list = list;
    this.entriesFor = entriesFor;
    this.entries = [];
    this.chosen = 0;
    text.addEventListener("input", () => this.update());
    text.addEventListener("click", () => this.update());
    text.addEventListener("blur", () => this.close());
    text.addEventListener("keydown", (event) => this.onKey(event));
    // the text keeps the focus while an entry is clicked
    list.addEventListener("pointerdown", (event) => event.preventDefault());
  }

  // The word that ends at the caret: the whole text if it begins with a slash, else from the last "@".
  get word() {
    const before = this.text.value.slice(0, this.text.selectionStart);
    return before.startsWith("/") ? before : (before.match(/(?:^|\s)(@[\w-]*)$/)?.[1] ?? "");
  }

  async update() {
    const word = this.word;
    const entries = word ? await this.entriesFor(word) : [];
    if (word !== this.word) return;
    this.entries = entries.filter(([text]) => text !== word.trimEnd()).slice(0, ENTRIES_MAX);
    this.choose(0);
  }

  choose(index) {
    this.chosen = index;
    this.list.replaceChildren(...this.entries.map((entry, at) => this.option(entry, at)));
    this.list.hidden = !this.entries.length;
    if (this.list.hidden) this.text.removeAttribute("aria-activedescendant");
    else this.text.setAttribute("aria-activedescendant", `${this.list.id}-${index}`);
  }

  option([text, description], at) {
    const option = make("div", "entry");
    option.id = `${this.list.id}-${at}`;
    option.setAttribute("role", "option");
    option.setAttribute("aria-selected", String(at === this.chosen));
    option.append(make("strong", "", text), make("span", "about", description));
    option.addEventListener("click", () => this.accept(text));
    return option;
  }

  accept(text) {
    const { selectionStart, value } = this.text;
    const before = `${value.slice(0, selectionStart - this.word.length)}${text} `;
    this.text.value = before + value.slice(selectionStart).trimStart();
    this.text.setSelectionRange(before.length, before.length);
    this.close();
    this.text.focus();
  }

  close() {
    this.entries = [];
    this.choose(0);
  }

  onKey(event) {
    if (this.list.hidden || event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) this.choose((this.chosen + step + this.entries.length) % this.entries.length);
    else if (event.key === "Enter" || event.key === "Tab") this.accept(this.entries[this.chosen][0]);
    else if (event.key === "Escape") this.close();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }
}
