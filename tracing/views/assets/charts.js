/* Summary: number of pods by stage, pods bound per second, time per phase. */
"use strict";

/* Buttons that filter by stage. selected: Set of keys, which the buttons change; onchange: called afterwards. */
Kubeloop.StageButtons = class {
  constructor(container, bar, selected, onchange) {
    this.bar = bar;
    this.buttons = new Map();
    this.parts = new Map();
    const group = (stages, name) => Kubeloop.element("div", { class: name }, stages.map((stage) => {
      const number = Kubeloop.element("b", {}, "0");
      const button = Kubeloop.element("button", {
        type: "button", class: "stage", "data-phase": stage.phase, "aria-pressed": "false",
        onclick: () => {
          if (!selected.delete(stage.key)) selected.add(stage.key);
          button.setAttribute("aria-pressed", String(selected.has(stage.key)));
          onchange();
        },
      }, number, Kubeloop.element("span", {}, stage.key));
      this.buttons.set(stage.key, { button, number, rare: !["creating", "queued", "scheduling", "binding", "starting", "ready", "unschedulable", "backoff", "gone"].includes(stage.key) });
      return button;
    }));
    container.append(
      group(Kubeloop.STAGES.filter((stage) => stage.regular), "regular"),
      group(Kubeloop.STAGES.filter((stage) => !stage.regular), "irregular"),
    );
    this.selected = selected;
  }

  /* loading: the counts are not those of all pods yet. */
  draw(counts, total, loading) {
    const parts = [];
    for (const stage of Kubeloop.STAGES) {
      const count = counts.get(stage.key) || 0, { button, number, rare } = this.buttons.get(stage.key);
      number.textContent = loading ? "…" : Kubeloop.count(count);
      button.hidden = rare && !count && !this.selected.has(stage.key);
      button.classList.toggle("none", !count);
      button.setAttribute("aria-pressed", String(this.selected.has(stage.key)));
      let part = this.parts.get(stage.key);
      if (!part) {
        part = Kubeloop.element("i", { "data-phase": stage.phase });
        this.parts.set(stage.key, part);
      }
      part.style.width = `${total ? (100 * count) / total : 0}%`;
      if (count && !loading) parts.push(part);
    }
    if (parts.length !== this.bar.children.length || parts.some((part, index) => this.bar.children[index] !== part)) {
      this.bar.replaceChildren(...parts);
    }
  }
};

/* Draws bars over time. counts: pods per bucket; seconds: width of a bucket. Returns the peak rate. */
Kubeloop.drawRate = (container, counts, seconds, label) => {
  const width = 300, height = 100, maximum = Math.max(1, ...counts), step = width / counts.length;
  let path = "";
  counts.forEach((count, index) => {
    if (!count) return;
    const barHeight = Math.max(2, (height - 4) * (count / maximum)), left = index * step;
    path += `M${left.toFixed(2)} ${height}v${(-barHeight).toFixed(2)}h${Math.max(0.5, step - 0.8).toFixed(2)}v${barHeight.toFixed(2)}z`;
  });
  const chart = Kubeloop.svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    Kubeloop.svg("path", { class: "base", d: `M0 ${height - 0.5}H${width}` }),
    Kubeloop.svg("path", { class: "bars", d: path || "M0 0" }));
  container.replaceChildren(chart);
  return maximum / seconds;
};

/* A row per phase: colour, name, distribution on a logarithmic scale, p50 and p99. Rows are reused. */
Kubeloop.PhaseRows = class {
  constructor(container) {
    this.container = container;
    this.rows = new Map();
    this.axis = Kubeloop.element("div", { class: "phase axis", "aria-hidden": "true" },
      Kubeloop.element("span", {}), Kubeloop.element("span", { class: "ticks" },
        ["10 µs", "1 ms", "100 ms", "10 s"].map((text, index) => Kubeloop.element("i", { style: { left: `${index * 25}%` } }, text))),
      Kubeloop.element("span", {}), Kubeloop.element("span", {}));
    this.none = Kubeloop.element("p", { class: "note" }, "no traces");
    container.append(this.axis, this.none);
  }

  /* none: text if there are no times. */
  draw(times, none = "no traces") {
    const present = new Set(times.map((time) => time.index));
    for (const [index, row] of this.rows) if (!present.has(index)) { row.node.remove(); this.rows.delete(index); }
    const tops = times.map((time) => Math.max(...time.bins));
    times.forEach((time, number) => {
      const phase = Kubeloop.PHASES[time.index];
      let row = this.rows.get(time.index);
      if (!row) {
        const path = Kubeloop.svg("path", {});
        const p50 = Kubeloop.element("span", { class: "p50" }), p99 = Kubeloop.element("span", { class: "p99" });
        row = {
          path, p50, p99,
          node: Kubeloop.element("div", { class: "phase", "data-phase": phase.key, title: phase.description },
            Kubeloop.element("span", { class: "name" }, phase.title),
            Kubeloop.svg("svg", { viewBox: `0 0 ${Kubeloop.BINS} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, path),
            p50, p99),
        };
        this.rows.set(time.index, row);
      }
      let path = `M0 10`;
      time.bins.forEach((count, bin) => {
        const barHeight = count ? Math.max(0.8, 9.5 * Math.sqrt(count / tops[number])) : 0;
        path += `V${(10 - barHeight).toFixed(2)}H${bin + 1}`;
      });
      row.path.setAttribute("d", `${path}V10z`);
      row.p50.textContent = Kubeloop.shortUncertainDuration(time.p50, time.uncertainty);
      row.p99.textContent = Kubeloop.shortUncertainDuration(time.p99, time.uncertainty);
      const exact = time.uncertainty ? `, exact to ${Kubeloop.duration(time.uncertainty)}` : "";
      row.node.title = phase.description + exact;
      row.node.setAttribute("aria-label", `${phase.title}: ${Kubeloop.plural(time.pods, "pod")}, p50 ${Kubeloop.duration(time.p50)}, p90 ${Kubeloop.duration(time.p90)}, p99 ${Kubeloop.duration(time.p99)}, longest ${Kubeloop.duration(time.max)}, ${Math.round(time.share * 100)}% of all time${exact}`);
      row.node.setAttribute("role", "img");
      if (this.container.children[number] !== row.node) this.container.insertBefore(row.node, this.container.children[number]);
    });
    this.axis.hidden = !times.length;
    this.none.hidden = times.length > 0;
    this.none.textContent = none;
    this.container.append(this.axis, this.none);
  }
};

/* Draws the segments of a line as parts of a bar, which is scaleUs wide and cut there; parts are reused. */
Kubeloop.drawSegments = (bar, line, totalUs, scaleUs) => {
  const segments = line.segments, count = segments.length / 3, scale = 100 / Math.max(1, scaleUs);
  bar.classList.toggle("cut", count > 0 && totalUs > scaleUs);
  while (bar.children.length < count) bar.append(document.createElement("i"));
  while (bar.children.length > count) bar.lastChild.remove();
  for (let index = 0; index < count; index++) {
    const part = bar.children[index], last = index === count - 1;
    const durationUs = last ? totalUs - segments[3 * index + 1] : segments[3 * index + 2];
    part.dataset.phase = Kubeloop.PHASES[segments[3 * index]]?.key ?? "other";
    part.style.left = `${segments[3 * index + 1] * scale}%`;
    part.style.width = `${Math.max(0, durationUs) * scale}%`;
  }
};
