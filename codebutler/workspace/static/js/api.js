// The workspace's Web API and the page's own few endpoints, called as the token's user.

const POST_MS = 20_000;

export class ApiError extends Error {}

export class Api {
  constructor(token) {
    this.token = token;
  }

  /** A Slack Web API method; throws ApiError with Slack's error code if the answer is not ok. */
  async call(method, params = {}) {
    const answer = await this.#request("POST", `/api/${method}`, params);
    if (!answer.ok) throw new ApiError(answer.error || "unknown_error");
    return answer;
  }

  /** Post a message; throws after a timeout, and the caller may post the same `client_msg_id` again. */
  async post(message) {
    const answer = await this.#request("POST", "/api/chat.postMessage", message, AbortSignal.timeout(POST_MS));
    if (!answer.ok) throw new ApiError(answer.error || "unknown_error");
    return answer;
  }

  boot() {
    return this.#request("GET", "/workspace/boot");
  }

  /** One of the page's own endpoints; throws ApiError with the workspace's error code. */
  page(what, body = undefined, verb = "POST") {
    return this.#request(verb, `/workspace/${what}`, body);
  }

  slash(channel, command, text) {
    return this.page("slash", { channel, command, text });
  }

  /** Markdown as safe HTML: the server escapes any markup in it. */
  async render(markdown) {
    return (await this.page("render", { markdown })).html;
  }

  /** Share files as Slack's clients do: an address for each, the bytes, then one message for all. */
  async upload(channel, files, text, thread) {
    const shared = [];
    for (const file of files) {
      const ticket = await this.call("files.getUploadURLExternal", { filename: file.name, length: file.size });
      const { pathname } = new URL(ticket.upload_url, location.href);
      const answer = await fetch(pathname, { method: "POST", body: file });
      if (!answer.ok) throw new ApiError(`HTTP ${answer.status}`);
      shared.push({ id: ticket.file_id, title: file.name });
    }
    const message = { channel_id: channel, files: shared, initial_comment: text, ...(thread && { thread_ts: thread }) };
    return this.call("files.completeUploadExternal", message);
  }

  /** The content of a file as a Blob. */
  async download(file) {
    const { pathname, search } = new URL(file.url_private_download || file.url_private, location.href);
    const answer = await fetch(pathname + search, { headers: { Authorization: `Bearer ${this.token}` } });
    if (!answer.ok) throw new ApiError(`HTTP ${answer.status}`);
    return answer.blob();
  }

  /** After the next load, the page acts as this token's user. */
  useToken(token) {
    sessionStorage.setItem("token", token);
  }

  /** The same workspace with another user's token. */
  as(token) {
    return new Api(token);
  }

  streamUrl() {
    return `/workspace/stream?token=${encodeURIComponent(this.token)}`;
  }

  async #request(verb, path, body, signal) {
    const headers = { Authorization: `Bearer ${this.token}` };
    if (body) headers["Content-Type"] = "application/json; charset=utf-8";
    const response = await fetch(path, { method: verb, headers, signal, body: body && JSON.stringify(body) });
    if (response.ok) return response.json();
    const refusal = response.status === 400 ? await response.json().catch(() => ({})) : {};
    throw new ApiError(refusal.error || `HTTP ${response.status}`);
  }
}
