/* A rollout: its pods as lines over time, percentiles per phase, the slowest. */
"use strict";

Kubeloop.RolloutPicture = class {
  static HEIGHT = 300;

  /* open(line): somebody wants to see this pod. */
  constructor(pods, open) {
    this.pods = pods;
    this.open = open;
    this.lines = [];
    this.active = -1;
    this.canvas = Kubeloop.element("canvas", { class: "lines", tabindex: "0", role: "img", "aria-describedby": "rollout-at" });
    this.at = Kubeloop.element("p", { class: "note at", id: "rollout-at", "aria-live": "polite" });
    this.axis = Kubeloop.element("div", { class: "axis", "aria-hidden": "true" });
    this.node = Kubeloop.element("div", { class: "picture" }, this.axis, this.canvas, this.at);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("click", (event) => { this.point(event); this.enter(); });
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.canvas);
  }

  stop() {
    this.observer.disconnect();
  }

  draw(rollout) {
    const key = this.lines[this.active]?.key;
    this.lines = [...rollout.traced].sort((a, b) => a.startUs - b.startUs || (a.name < b.name ? -1 : 1));
    this.active = key ? this.lines.findIndex((line) => line.key === key) : -1;
    this.startUs = rollout.startUs;
    this.totalUs = Math.max(1, rollout.endUs - rollout.startUs);
    this.canvas.setAttribute("aria-label", `${Kubeloop.plural(this.lines.length, "pod")} over ${Kubeloop.duration(this.totalUs)}, a line each; arrow keys choose one`);
    this.axis.replaceChildren(...[0, 0.25, 0.5, 0.75, 1].map((share) =>
      Kubeloop.element("i", { style: { left: `${share * 100}%` } }, share ? Kubeloop.duration(this.totalUs * share) : "0")));
    this.paint();
    this.tell();
  }

  /* Where the line with this index is drawn, in CSS pixels from the top. */
  top(index) {
    return (index * this.high) / this.lines.length;
  }

  paint() {
    const wide = this.canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    if (!wide) return;
    this.high = Math.min(Kubeloop.RolloutPicture.HEIGHT, Math.max(60, this.lines.length * 14));
    this.canvas.style.height = `${this.high}px`;
    this.canvas.width = Math.round(wide * ratio);
    this.canvas.height = Math.round(this.high * ratio);
    const context = this.canvas.getContext("2d"), styles = getComputedStyle(this.canvas);
    context.scale(ratio, ratio);
    const colors = Kubeloop.PHASES.map((phase) => styles.getPropertyValue(`--${phase.key}`));
    const each = this.high / Math.max(1, this.lines.length), gap = each > 4 ? Math.min(3, each * 0.25) : 0;
    /* whole device pixels: lines that share one would only blur it, the last of them is drawn */
    const pixel = (css) => Math.round(css * ratio) / ratio;
    for (let index = 0; index < this.lines.length; index++) {
      const top = pixel(this.top(index)), high = pixel(this.top(index + 1)) - top;
      if (high <= 0) continue;
      const line = this.lines[index], offset = line.startUs - this.startUs, segments = line.segments;
      for (let at = 0; at < segments.length; at += 3) {
        const last = at + 3 >= segments.length;
        const took = last ? this.pods.duration(line) - segments[at + 1] : segments[at + 2];
        context.fillStyle = colors[segments[at]];
        context.fillRect(((offset + segments[at + 1]) / this.totalUs) * wide, top, Math.max(0.6, (took / this.totalUs) * wide), high - gap);
      }
    }
    if (this.active >= 0) {
      context.strokeStyle = styles.getPropertyValue("--text");
      context.lineWidth = 1.5;
      const line = this.lines[this.active];
      const left = ((line.startUs - this.startUs) / this.totalUs) * wide, width = (this.pods.duration(line) / this.totalUs) * wide;
      context.strokeRect(Math.max(1, left - 2), this.top(this.active) - 2, Math.max(6, Math.min(width + 4, wide - left)), Math.max(each - gap, 1) + 4);
    }
  }

  point(event) {
    if (!this.lines.length) return;
    const y = event.clientY - this.canvas.getBoundingClientRect().top;
    this.choose(Math.floor((y / this.high) * this.lines.length));
  }

  choose(index) {
    const to = Math.max(0, Math.min(this.lines.length - 1, index));
    if (to === this.active) return;
    this.active = to;
    this.paint();
    this.tell();
  }

  tell() {
    const line = this.lines[this.active];
    this.at.textContent = line
      ? `${line.name || "(never created)"}: ${line.stage}, ${Kubeloop.duration(this.pods.duration(line))}, from ${Kubeloop.duration(line.startUs - this.startUs)} on`
      : this.lines.length ? "A line is a pod, by creation. Point at one, or use the arrow keys; Enter opens it." : "No pod of it has a trace.";
  }

  enter() {
    if (this.active >= 0) this.open(this.lines[this.active]);
  }

  pressed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.round(this.lines.length / 10));
    const to = { ArrowDown: this.active + 1, j: this.active + 1, ArrowUp: this.active - 1, k: this.active - 1, PageDown: this.active + page,
      PageUp: this.active - page, Home: 0, End: this.lines.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      this.choose(to);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.enter();
    }
  }
};

/* Percentiles per phase as a table. */
Kubeloop.phaseTable = (times, totals) => {
  const cells = (values) => values.map((value) => Kubeloop.element("td", {}, value));
  const row = (mark, name, time, share) => Kubeloop.element("tr", {},
    Kubeloop.element("th", { scope: "row" }, mark, name),
    cells([Kubeloop.count(time.pods), Kubeloop.duration(time.p50), Kubeloop.duration(time.p90), Kubeloop.duration(time.p99), Kubeloop.duration(time.max), share]));
  return Kubeloop.element("div", { class: "table" }, Kubeloop.element("table", {},
    Kubeloop.element("thead", {}, Kubeloop.element("tr", {}, ["phase", "pods", "p50", "p90", "p99", "max", "of all time"].map((name) =>
      Kubeloop.element("th", { scope: "col" }, name)))),
    Kubeloop.element("tbody", {},
      times.map((time) => row(Kubeloop.element("i", { class: "swatch", "data-phase": Kubeloop.PHASES[time.index].key }),
        Kubeloop.PHASES[time.index].title, time, `${Math.round(time.share * 100)}%`)),
      totals.pods ? row(Kubeloop.element("i", { class: "swatch none" }), "created to bound", totals, "") : null)));
};
