// Requests to the process that served this page.

/** What the service said in the place of an answer. */
export class Refusal extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.field = error.field ?? null;
  }
}

/** Ask for JSON; a refusal of the service, or no answer at all, is a `Refusal`. */
export async function ask(path, { method = "GET", body, signal, headers = {} } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      signal,
      headers: body === undefined ? headers : { "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, { code: "unreachable", message: "The service does not answer. Is skyrl-nat serve still running?" });
  }
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer;
  if (response.status === 401) {
    throw new Refusal(401, { code: "unauthorized", message: "The service wants its token. Open this page as /?token=TOKEN with the token of the service." });
  }
  throw new Refusal(response.status, answer?.error ?? { code: "failed", message: `The service answered with status ${response.status}.` });
}

/** An id that no other request has. */
export function freshId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Make a path of parts that may hold anything. */
export function path(...parts) {
  return parts.map((part) => encodeURIComponent(part)).join("/");
}

/** Make a query of what is set. */
export function query(values) {
  const known = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return known.length ? `?${new URLSearchParams(known)}` : "";
}
