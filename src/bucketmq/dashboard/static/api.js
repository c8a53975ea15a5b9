// Speaking to the server: who is logged in, whether it can be reached, and what its answers say.

import { toast } from "/static/dom.js";

export class Refused extends Error {
  constructor(status, body) {
    super(body.hint ? `${body.error}; ${body.hint}` : body.error);
    this.status = status;
    this.body = body;
  }
}

export class Unreachable extends Error {}

let csrf = "login";
const listeners = { reach: () => {}, login: () => {} };

export function listen(name, listener) {
  listeners[name] = listener;
}

async function ask(path, options = {}) {
  let answer, body;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(30000) });
    body = answer.headers.get("content-type")?.startsWith("application/json") ? await answer.json() : null;
  } catch {
    listeners.reach(false, "The server cannot be reached. Trying again; nothing you do now is saved.");
    throw new Unreachable("the server cannot be reached");
  }
  if (answer.status === 503) {
    listeners.reach(false, `The bucket cannot be reached: ${body?.error ?? "no reason given"}. Trying again.`);
    throw new Unreachable(body?.error ?? "the bucket cannot be reached");
  }
  listeners.reach(true);
  if (answer.ok) return body;
  if (answer.status === 401 && path !== "/api/login") listeners.login();
  throw new Refused(answer.status, body ?? { error: `status ${answer.status}`, hint: null });
}

export function read(path, query = {}) {
  const text = new URLSearchParams(query).toString();
  return ask(text ? `${path}?${text}` : path);
}

export function write(path, body) {
  const headers = { "content-type": "application/json", "x-bucketmq-csrf": csrf };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body) });
}

export async function login(token) {
  csrf = "login";
  return begun(await write("/api/login", { token }));
}

export async function resume() {
  return begun(await read("/api/session"));
}

function begun(session) {
  csrf = session.csrf;
  return session;
}

// For what is tried again by itself: the banner says what is wrong.
export async function quietly(asked) {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Refused) {
      if (error.status !== 401) toast(error.message, { bad: true });
    } else if (!(error instanceof Unreachable)) throw error;
    return null;
  }
}

// Wait for a change and say what came of it; resolves to the answer, or to null.
export async function changed(what, asked, said) {
  try {
    const answer = await asked;
    toast(said(answer));
    return answer;
  } catch (error) {
    if (!(error instanceof Refused) && !(error instanceof Unreachable)) throw error;
    toast(error instanceof Refused ? `${what} did not work: ${error.message}` : `It is not sure that ${what} worked: ${error.message}. Look again when the server is back.`, { bad: true });
    return null;
  }
}
