// A list of messages: it stays at its end as it grows, unless somebody reads older ones.

import { reconcile } from "./nodes.js";

const END_PIXELS = 60;

export class Log {
  constructor(box, news) {
    this.box = box;
    this.news = news;
    this.wasAtEnd = true;
    news.addEventListener("click", () => this.toEnd());
    box.addEventListener("scroll", () => this.isAtEnd && (news.hidden = true), { passive: true });
    box.addEventListener("load", (event) => event.target.tagName === "IMG" && this.wasAtEnd && this.toEnd(), true);
  }

  // `shown` are called when the nodes of all items are in the document.
  draw(items, shown) {
    this.wasAtEnd = this.isAtEnd;
    const height = this.box.scrollHeight;
    reconcile(this.box, items);
    shown.forEach((show) => show());
    if (this.wasAtEnd) this.toEnd();
    else if (this.box.scrollHeight > height) this.news.hidden = false;
  }

  get isAtEnd() {
    return this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < END_PIXELS;
  }

  toEnd() {
    this.box.scrollTop = this.box.scrollHeight;
    this.news.hidden = true;
  }
}
