// What records and logs call things, as people read it.

export const DONE = { approve: "Approved", uphold: "Upheld", escalate: "Escalated" };
export const OUTCOMES = { "flagged/": "flagged", "needs-review/": "needs review", "approved/": "approved" };

export function categoryName(name) {
  return name.replaceAll("_", " ");
}

// What the classifier and the router write names categories as records do: hate_speech.
export function spoken(text, categories) {
  return categories.reduce((found, name) => found.replaceAll(name, categoryName(name)), text);
}
