/* Where the page's pods come from: the process that serves it, or the file that it is. */
"use strict";

/* Asks for what changed, a second after the last answer; at once while there is more. Holds still while nobody looks. */
Kubeloop.LiveSource = class {
  static EVERY_MS = 1000;
  static LATER_MS = 4000;

  constructor() {
    this.cursor = "";
    this.live = true;
    this.timer = 0;
    this.asking = false;
    document.addEventListener("visibilitychange", () => this.again(0));
  }

  /* heard(answer), lost(text): called as it goes on. */
  start(heard, lost) {
    this.heard = heard;
    this.lost = lost;
    this.ask();
  }

  hold(still) {
    this.live = !still;
    this.again(0);
  }

  again(milliseconds) {
    clearTimeout(this.timer);
    if (this.live && !document.hidden) this.timer = setTimeout(() => this.ask(), milliseconds);
  }

  async ask() {
    if (this.asking) return;
    this.asking = true;
    let next = Kubeloop.LiveSource.EVERY_MS;
    try {
      const answer = await this.get("debug/traces/lines", { cursor: this.cursor });
      if (!this.live) return; /* held since it was asked: it will be asked again */
      this.cursor = answer.cursor;
      this.heard(answer);
      if (answer.more) next = 0;
    } catch (error) {
      next = Kubeloop.LiveSource.LATER_MS;
      this.lost(error.message);
    } finally {
      this.asking = false;
      this.again(next);
    }
  }

  async get(path, query) {
    const answer = await fetch(`${path}?${new URLSearchParams(query)}`, { cache: "no-store" });
    const value = await answer.json();
    if (!answer.ok) throw new Error(value.error || `the endpoint answers ${answer.status}`);
    return value;
  }

  pod(line) {
    return this.get("debug/traces", { key: line.key });
  }

  trace(traceId) {
    return this.get("debug/traces", { trace: traceId });
  }
};

/* Everything stands in the page, packed: lines at once, traces when one is looked at. */
Kubeloop.FileSource = class {
  constructor() {
    this.chunks = new Map();
  }

  async start(heard, lost) {
    try {
      const content = await this.unpack(document.getElementById("lines"));
      this.where = new Map(content.where);
      this.first = content.first;
      heard({ reset: true, removed: [], lines: content.lines, nowUs: 0, pods: content.lines.length, more: false, title: content.title });
    } catch (error) {
      lost(`this file cannot be read: ${error.message}`);
    }
  }

  async unpack(script) {
    const bytes = Uint8Array.from(atob(script.textContent.trim()), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  async find(key) {
    const number = this.where.get(key);
    if (number === undefined) throw new Error("it is not in this file");
    if (!this.chunks.has(number)) this.chunks.set(number, this.unpack(document.getElementById(`traces-${number}`)));
    return (await this.chunks.get(number))[key];
  }

  pod(line) {
    return this.find(line.key);
  }

  trace(traceId) {
    return this.find(traceId);
  }
};
