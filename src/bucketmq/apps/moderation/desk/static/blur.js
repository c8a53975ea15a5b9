// Text and pictures that may upset are blurred until somebody wants to see them. That can be switched off:
// it is kept in this browser, for this person.

import { percent } from "/static/words.js";
import { categoryName } from "./names.js";

const UPSETTING = new Set(["hate_speech", "nsfw", "harassment", "violence", "self_harm"]);
const LIKELY = 0.1; // what a model is not sure about can be as bad as what it flags

export default class Blur {
  constructor(person) {
    this.key = `bucketmq-blur-${person}`;
    this.revealed = new Set();
  }

  get on() {
    try {
      return localStorage.getItem(this.key) !== "off";
    } catch {
      return true; // a browser that keeps nothing
    }
  }

  set on(wanted) {
    try {
      localStorage.setItem(this.key, wanted ? "on" : "off");
    } catch { /* then it holds until the page is closed */ }
    this.revealed.clear();
  }

  covers(item) {
    return this.on && !this.revealed.has(mark(item)) && warning(item) !== null;
  }

  toggle(item) {
    const found = mark(item);
    if (!this.revealed.delete(found)) this.revealed.add(found);
  }
}

function mark(item) {
  return `${item.revision}:${item.id}`;
}

// What to expect, in a few words; null if nothing is to be feared.
export function warning(item) {
  const found = item.categories.filter((each) => UPSETTING.has(each.name) && (each.flagged || each.confidence >= LIKELY));
  if (found.length) return `May upset: ${found.map((each) => `${categoryName(each.name)} ${percent(each.confidence)}`).join(", ")}`;
  return item.categories.length ? null : "May upset: no model has judged it";
}
