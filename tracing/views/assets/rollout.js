/* Rollout: its pods as lines over time, and percentiles per phase. */
"use strict";

Kubeloop.RolloutPicture = class {
  static HEIGHT = 300;

  /* open(line): the user opens this pod. */
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
    this.canvas.addEventListener("keydown", (event) => this.keyPressed(event));
    this.observer = new ResizeObserver(() => { this.paint(); Kubeloop.drawAxis(this.axis, this.totalUs || 0); });
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
    Kubeloop.drawAxis(this.axis, this.totalUs);
    this.paint();
    this.describe();
  }

  /* Position of the line with this index, in CSS pixels from the top. */
  top(index) {
    return (index * this.height) / this.lines.length;
  }

  paint() {
    const canvasWidth = this.canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    if (!canvasWidth) return;
    this.height = Math.min(Kubeloop.RolloutPicture.HEIGHT, Math.max(60, this.lines.length * 14));
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(canvasWidth * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    const context = this.canvas.getContext("2d"), styles = getComputedStyle(this.canvas);
    context.scale(ratio, ratio);
    const colors = Kubeloop.PHASES.map((phase) => styles.getPropertyValue(`--${phase.key}`));
    const lineHeight = this.height / Math.max(1, this.lines.length), gap = lineHeight > 4 ? Math.min(3, lineHeight * 0.25) : 0;
    /* whole device pixels: of lines that share a pixel, the last one is drawn */
    const pixel = (css) => Math.round(css * ratio) / ratio;
    for (let index = 0; index < this.lines.length; index++) {
      const top = pixel(this.top(index)), height = pixel(this.top(index + 1)) - top;
      if (height <= 0) continue;
      const line = this.lines[index], offset = line.startUs - this.startUs, segments = line.segments;
      for (let at = 0; at < segments.length; at += 3) {
        const last = at + 3 >= segments.length;
        const durationUs = last ? this.pods.duration(line) - segments[at + 1] : segments[at + 2];
        context.fillStyle = colors[segments[at]];
        context.fillRect(((offset + segments[at + 1]) / this.totalUs) * canvasWidth, top, Math.max(0.6, (durationUs / this.totalUs) * canvasWidth), height - gap);
      }
    }
    if (this.active >= 0) {
      context.strokeStyle = styles.getPropertyValue("--text");
      context.lineWidth = 1.5;
      const line = this.lines[this.active];
      const left = ((line.startUs - this.startUs) / this.totalUs) * canvasWidth, width = (this.pods.duration(line) / this.totalUs) * canvasWidth;
      context.strokeRect(Math.max(1, left - 2), this.top(this.active) - 2, Math.max(6, Math.min(width + 4, canvasWidth - left)), Math.max(lineHeight - gap, 1) + 4);
    }
  }

  point(event) {
    if (!this.lines.length) return;
    const y = event.clientY - this.canvas.getBoundingClientRect().top;
    this.select(Math.floor((y / this.height) * this.lines.length));
  }

  select(index) {
    const to = Math.max(0, Math.min(this.lines.length - 1, index));
    if (to === this.active) return;
    this.active = to;
    this.paint();
    this.describe();
  }

  describe() {
    const line = this.lines[this.active];
    this.at.textContent = line
      ? `${line.name || "(never created)"}: ${line.stage}, ${Kubeloop.uncertainDuration(this.pods.duration(line), Kubeloop.uncertaintyOf(line))}, from ${Kubeloop.duration(line.startUs - this.startUs)} on`
      : this.lines.length ? "A line is a pod, by creation. Point at one, or use the arrow keys; Enter opens it." : "None of its pods has a trace.";
  }

  enter() {
    if (this.active >= 0) this.open(this.lines[this.active]);
  }

  keyPressed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.round(this.lines.length / 10));
    const to = { ArrowDown: this.active + 1, j: this.active + 1, ArrowUp: this.active - 1, k: this.active - 1, PageDown: this.active + page,
      PageUp: this.active - page, Home: 0, End: this.lines.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      this.select(to);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.enter();
    }
  }
};

/* Percentiles per phase as a table. */
Kubeloop.phaseTable = (times, totals) => {
  const isUncertain = [...times, totals].some((time) => time.uncertainty);
  const cells = (values) => values.map((value) => Kubeloop.element("td", {}, value));
  const row = (mark, name, time, share) => Kubeloop.element("tr", {},
    Kubeloop.element("th", { scope: "row" }, mark, name),
    cells([Kubeloop.count(time.pods), Kubeloop.duration(time.p50), Kubeloop.duration(time.p90), Kubeloop.duration(time.p99), Kubeloop.duration(time.max),
      ...(isUncertain ? [time.uncertainty ? `±${Kubeloop.duration(time.uncertainty)}` : ""] : []), share]));
  return Kubeloop.element("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Time per phase" }, Kubeloop.element("table", {},
    Kubeloop.element("thead", {}, Kubeloop.element("tr", {}, ["phase", "pods", "p50", "p90", "p99", "max", ...(isUncertain ? ["exact to"] : []), "of all time"].map((name) =>
      Kubeloop.element("th", { scope: "col" }, name)))),
    Kubeloop.element("tbody", {},
      times.map((time) => row(Kubeloop.element("i", { class: "swatch", "data-phase": Kubeloop.PHASES[time.index].key }),
        Kubeloop.PHASES[time.index].title, time, `${Math.round(time.share * 100)}%`)),
      totals.pods ? row(Kubeloop.element("i", { class: "swatch none" }), "created to bound", totals, "") : null)));
};
