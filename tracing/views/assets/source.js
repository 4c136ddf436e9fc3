/* Sources of pods and traces: the process that serves the page, or the data embedded in the file. */
"use strict";

/* Polls for changes, a second after the last response, or at once if there are more. Pauses while the page is hidden. */
Kubeloop.LiveSource = class {
  static POLL_MS = 1000;
  static RETRY_MS = 4000;

  constructor() {
    this.cursor = "";
    this.running = true;
    this.timer = 0;
    this.polling = false;
    document.addEventListener("visibilitychange", () => this.schedule(0));
  }

  /* onResponse(response) is called for every response, onError(text) if a poll fails. */
  start(onResponse, onError) {
    this.onResponse = onResponse;
    this.onError = onError;
    this.poll();
  }

  pause(paused) {
    this.running = !paused;
    this.schedule(0);
  }

  schedule(milliseconds) {
    clearTimeout(this.timer);
    if (this.running && !document.hidden) this.timer = setTimeout(() => this.poll(), milliseconds);
  }

  async poll() {
    if (this.polling) return;
    this.polling = true;
    let next = Kubeloop.LiveSource.POLL_MS;
    try {
      const response = await this.get("debug/traces/lines", { cursor: this.cursor });
      if (!this.running) return; /* paused since the request: the same changes are polled again */
      this.cursor = response.cursor;
      this.onResponse(response);
      if (response.more) next = 0;
    } catch (error) {
      next = Kubeloop.LiveSource.RETRY_MS;
      this.onError(error.message);
    } finally {
      this.polling = false;
      this.schedule(next);
    }
  }

  async get(path, query) {
    const response = await fetch(`${path}?${new URLSearchParams(query)}`, { cache: "no-store" });
    const value = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(value.error || `HTTP status ${response.status}`);
    return value;
  }

  pod(line) {
    return this.get("debug/traces", { key: line.key });
  }

  trace(traceId) {
    return this.get("debug/traces", { trace: traceId });
  }

  explain(line) {
    return this.get("debug/explain", { namespace: line.namespace, pod: line.name, scores: "true" });
  }

  podState(line) {
    return this.get("debug/objects/pod", { namespace: line.namespace, pod: line.name });
  }

  async log(line, container) {
    return (await this.get("debug/objects/logs", { namespace: line.namespace, pod: line.name, container })).log;
  }

  ownerState(namespace, owner) {
    return this.get("debug/objects/owner", { namespace, owner });
  }

  nodes() {
    return this.get("debug/objects/nodes", {});
  }

  async node(name) {
    return (await this.get("debug/objects/nodes", { node: name }))[0];
  }
};

/* The JSON value of a gzip stream in base64. */
Kubeloop.unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text.trim()), (character) => character.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
};

/* Data embedded in the page, compressed: lines are unpacked at once, traces on demand. */
Kubeloop.FileSource = class {
  constructor() {
    this.chunks = new Map();
  }

  async start(onResponse, onError) {
    try {
      const content = await Kubeloop.unpack(document.getElementById("lines").textContent);
      this.chunkByKey = new Map(content.where);
      this.first = content.first;
      onResponse({ reset: true, removed: [], lines: content.lines, nowUs: 0, pods: content.lines.length, more: false, title: content.title });
    } catch (error) {
      onError(`this file cannot be read: ${error.message}`);
    }
  }

  async find(key) {
    const number = this.chunkByKey.get(key);
    if (number === undefined) throw new Error("not in this file");
    if (!this.chunks.has(number)) this.chunks.set(number, Kubeloop.unpack(document.getElementById(`traces-${number}`).textContent));
    return (await this.chunks.get(number))[key];
  }

  pod(line) {
    return this.find(line.key);
  }

  trace(traceId) {
    return this.find(traceId);
  }
};
