/* Waterfall: one trace as a tree of bars over time, with details of each span. */
"use strict";

/* Key of the phase of a span below the root (tracing/views/phases.py). */
Kubeloop.phaseOf = (name) => {
  const prefixes = [["create", "create"], ["watch delivery", "delivery"], ["queue active", "queue"], ["queue", "waiting"],
    ["unschedulable", "waiting"], ["gated", "waiting"], ["quorum wait", "waiting"], ["group wait", "waiting"], ["group attempt", "scheduling"], ["placement", "scheduling"], ["group binding", "bind"], ["scheduling attempt", "scheduling"], ["schedule", "scheduling"],
    ["preemption wait", "preemption"], ["reserve", "permit"], ["permit", "permit"], ["pre-bind", "permit"], ["bind", "bind"],
    ["confirmation", "confirmation"], ["start acknowledgement", "sandbox"], ["start volumes", "sandbox"], ["start sandbox", "sandbox"], ["start init", "init"], ["init container", "init"],
    ["image pull", "pull"], ["start containers", "start"], ["container start", "start"], ["startup probe", "probes"],
    ["readiness probe", "probes"], ["start readiness", "probes"], ["container run", "crash"], ["container restart", "crash"], ["crash back-off", "crash"], ["event loop", "loop"], ["not observed", "unobserved"]];
  const inAttempt = ["snapshot", "pre-filter", "filter", "post-filter", "pre-score", "score"];
  if (inAttempt.includes(name)) return "scheduling";
  return (prefixes.find(([start]) => name.startsWith(start)) || [null, "other"])[1];
};

Kubeloop.APPLY = "apply"; /* spans of `kubeloop up -f`: they have an outcome, as pods do */

/* Name of a span with its object (tracing/views/span_titles.py). */
Kubeloop.titleOf = (span) => {
  const attributes = span.attributes;
  if (span.name === "pod") return `pod ${attributes["k8s.namespace.name"] || ""}/${attributes["k8s.pod.name"] || "(never created)"}`;
  if (span.name === "pod group") return `pod group ${attributes["k8s.namespace.name"] || ""}/${attributes["kubeloop.pod_group.name"] || ""}`;
  if (span.name === "placement") return `placement ${attributes["kubeloop.placement"] || ""}`;
  if (span.name === "group attempt" && "kubeloop.attempt" in attributes) return `attempt ${attributes["kubeloop.attempt"]}`;
  if (span.name === "scheduling attempt" && "kubeloop.attempt" in attributes) return `attempt ${attributes["kubeloop.attempt"]}`;
  if (span.name === Kubeloop.APPLY) {
    const object = [attributes["k8s.namespace.name"], attributes["kubeloop.name"]].filter(Boolean).join("/");
    if (object) return `apply ${attributes["kubeloop.kind"]} ${object}`;
    return "kubeloop.objects" in attributes ? `apply of ${Kubeloop.plural(attributes["kubeloop.objects"], "object")}` : "apply";
  }
  if (span.name.startsWith("reconcile ") && "kubeloop.key" in attributes) return `${span.name} ${attributes["kubeloop.key"]}`;
  const object = span.name.startsWith("image pull") ? attributes["container.image.name"]
    : ["init container", "container start", "container run", "container restart", "startup probe", "readiness probe", "crash back-off"].includes(span.name) ? attributes["k8s.container.name"] : "";
  return object ? `${span.name} ${object}` : String(attributes["kubeloop.action"] || span.name);
};

/* Uncertainty of "start" or "end" in nanoseconds: the edge's true time lies in [time - uncertainty, time]. */
Kubeloop.uncertainty = (span, edge) => 1e6 * (Number(span.attributes[`kubeloop.${edge}.uncertainty_ms`]) || 0);

/* "start: Event, up to 1.00 s earlier": where the time of an edge comes from; "" for spans that kubeloop recorded itself. */
Kubeloop.edgeSource = (span, edge) => {
  const sources = { arrival: "arrival of a watch event", creation: "creationTimestamp", condition: "transition of a condition",
    container: "status of the container", event: "Event", deletion: "deletionTimestamp" };
  const source = span.attributes[`kubeloop.${edge}.source`], uncertain = Kubeloop.uncertainty(span, edge);
  return source ? `${edge}: ${sources[source] || source}${uncertain ? `, up to ${Kubeloop.duration(uncertain / 1e3)} earlier` : ""}` : "";
};

/* Short text of a span's attributes. */
Kubeloop.summaryOf = (span) => {
  const attributes = span.attributes, name = span.name;
  if (span.status.code === "ERROR" && name !== "pod") return attributes["kubeloop.message"] || span.status.message || "failed";
  if (name.startsWith("queue")) {
    const woken = attributes["kubeloop.woken_by"];
    return [attributes["kubeloop.reason"], woken && `woken by ${woken}`].filter(Boolean).join(", ");
  }
  if (name === "quorum wait") return `until ${attributes["kubeloop.pod_group.min_count"]} pods exist`;
  if (name === "group binding") return `${attributes["kubeloop.bound_pods"]} bound`;
  if (name === "filter") {
    const rejected = Object.entries(attributes).filter(([key]) => key.startsWith("kubeloop.rejected."))
      .map(([key, count]) => `${key.slice("kubeloop.rejected.".length)} rejected ${count}`);
    return [`${attributes["kubeloop.feasible_nodes"]} of ${attributes["kubeloop.nodes"]} nodes fit`, ...rejected].join("; ");
  }
  if (name === "score" && attributes["kubeloop.score.nodes"]?.length) {
    return attributes["kubeloop.score.nodes"].slice(0, 3).map((node, index) => `${node} ${attributes["kubeloop.score.totals"]?.[index]}`).join(", ");
  }
  if (name === "image pull" && attributes["kubeloop.image.already_present"]) return "already present on the node";
  if (name === "image pull" && attributes["kubeloop.image.size_bytes"]) {
    const waiting = attributes["kubeloop.image.waiting_ms"], size = `${(attributes["kubeloop.image.size_bytes"] / 1e6).toFixed(1)} MB`;
    return waiting ? `${size}, waited ${Kubeloop.duration(waiting * 1e3)} for other pulls` : size;
  }
  if (name === "bind" || name === "reserve") return attributes["k8s.node.name"] ? `on ${attributes["k8s.node.name"]}` : "";
  return name === "pod" || name === "pod group" ? "" : String(attributes["kubeloop.message"] || attributes["kubeloop.reason"] || attributes["kubeloop.gates"] || attributes["kubeloop.scheduler"] || "");
};

/* Spans in tree order, with their depth. A span without its parent is at the top level. */
Kubeloop.tree = (spans) => {
  const children = new Map(), ids = new Set(spans.map((span) => span.spanId)), rows = [], seen = new Set();
  for (const span of spans) {
    const parent = ids.has(span.parentSpanId) && span.parentSpanId !== span.spanId ? span.parentSpanId : "";
    if (children.has(parent)) children.get(parent).push(span); else children.set(parent, [span]);
  }
  const latestFirst = (list) => [...list].reverse().sort((a, b) => b.start - a.start || b.end - a.end);
  const pending = latestFirst(children.get("") || []).map((span) => [span, 0]);
  while (pending.length) {
    const [span, depth] = pending.pop();
    if (seen.has(span.spanId)) continue;
    seen.add(span.spanId);
    rows.push({ span, depth });
    for (const child of latestFirst(children.get(span.spanId) || [])) pending.push([child, depth + 1]);
  }
  return rows;
};

/* The tree as rows with bars. opened: Set of span IDs whose details are shown; it survives redraws. */
Kubeloop.Waterfall = class {
  static MAX_ROWS = 300; /* rows drawn; of a longer trace the first and last ones */

  constructor(opened = new Set()) {
    this.opened = opened;
    this.axis = Kubeloop.element("div", { class: "axis", "aria-hidden": "true" });
    this.body = Kubeloop.element("div", { class: "spans", role: "tree", "aria-label": "Spans" });
    this.node = Kubeloop.element("div", { class: "waterfall" }, this.axis, this.body);
    this.body.addEventListener("keydown", (event) => this.keyPressed(event));
    this.focused = null;
    this.totalUs = 0;
    new ResizeObserver(() => Kubeloop.drawAxis(this.axis, this.totalUs)).observe(this.axis);
  }

  draw(trace) {
    let rows = Kubeloop.tree(trace.spans), leftOut = 0;
    if (rows.length > Kubeloop.Waterfall.MAX_ROWS) {
      leftOut = rows.length - Kubeloop.Waterfall.MAX_ROWS;
      rows = [...rows.slice(0, 50), ...rows.slice(-(Kubeloop.Waterfall.MAX_ROWS - 50))];
    }
    const start = Math.min(...trace.spans.map((span) => span.start));
    const total = Math.max(1, Math.max(...trace.spans.map((span) => span.end)) - start);
    this.totalUs = total / 1e3;
    this.node.classList.toggle("uncertain", rows.some(({ span }) => Kubeloop.uncertainty(span, "start") || Kubeloop.uncertainty(span, "end")));
    Kubeloop.drawAxis(this.axis, this.totalUs); /* its width depends on the class */
    const hadFocus = this.body.contains(document.activeElement) ? this.focused : null;
    const nodes = rows.map(({ span, depth }, index) => this.row(span, depth, start, total, index));
    if (leftOut) nodes.splice(50, 0, Kubeloop.element("p", { class: "note" }, `${leftOut} spans in the middle are not drawn`));
    this.body.replaceChildren(...nodes);
    const items = this.items();
    if (!items.some((item) => item.tabIndex === 0) && items[0]) items[0].tabIndex = 0;
    if (hadFocus) items.find((item) => item.dataset.span === hadFocus)?.focus({ preventScroll: true });
  }

  row(span, depth, start, total, index) {
    const error = span.status.code === "ERROR", open = this.opened.has(span.spanId);
    const left = (100 * (span.start - start)) / total, width = (100 * (span.end - span.start)) / total;
    const uncertain = Math.max(Kubeloop.uncertainty(span, "start"), Kubeloop.uncertainty(span, "end"));
    const duration = Kubeloop.duration((span.end - span.start) / 1e3), within = uncertain ? ` ±${Kubeloop.duration(uncertain / 1e3)}` : "", summary = Kubeloop.summaryOf(span);
    /* next to its bar if there is room, else in a line of its own; on a phone always in a line of its own */
    const short = summary.length <= Math.min(60, (0.44 * (this.axis.clientWidth || 400)) / 7), after = left + width;
    const position = !depth || !summary || !short ? null : after <= 55 ? { left: `calc(${Math.max(after, left + 0.5)}% + 8px)` }
      : left >= 45 ? { right: `calc(${100 - left + (100 * Kubeloop.uncertainty(span, "start")) / total}% + 8px)` } : null;
    const head = Kubeloop.element("div", { class: "head" },
      Kubeloop.element("span", { class: "name", style: { "--depth": depth } }, span.name === "pod" ? "pod" : Kubeloop.titleOf(span),
        span.service ? Kubeloop.element("small", {}, span.service) : null),
      Kubeloop.element("span", { class: "track" },
        Kubeloop.element("i", { class: error ? "error" : "", "data-phase": depth ? Kubeloop.phaseOf(span.name) : "root", style: { left: `${Math.min(left, 99.6)}%`, width: `${width}%` } }),
        this.edge(span, "start", start, total), this.edge(span, "end", start, total),
        (span.events || []).map((event) => Kubeloop.element("u", { title: event.name, style: { left: `${(100 * (event.time - start)) / total}%` } })),
        position && Kubeloop.element("span", { style: position }, summary)),
      Kubeloop.element("span", { class: "duration" }, duration, within && Kubeloop.element("small", {}, within)));
    const item = Kubeloop.element("div", {
      class: `span${error ? " failed" : ""}`, role: "treeitem", "aria-level": depth + 1, "aria-expanded": String(open), "data-span": span.spanId,
      tabindex: (this.focused ? this.focused === span.spanId : index === 0) ? "0" : "-1",
      onfocus: () => { this.focused = span.spanId; for (const other of this.items()) other.tabIndex = other === item ? 0 : -1; },
    }, head, summary && (depth || error) ? Kubeloop.element("p", { class: position ? "span-summary inside" : "span-summary" }, summary) : null);
    head.addEventListener("click", () => { item.focus({ preventScroll: true }); this.toggle(item, span, start); });
    item.toggle = () => this.toggle(item, span, start);
    if (open) item.append(Kubeloop.spanDetails(span, start));
    return item;
  }

  /* The interval in which the true time of an uncertain edge lies, over the bar; null if the edge is certain. */
  edge(span, edge, start, total) {
    const before = Kubeloop.uncertainty(span, edge);
    if (!before) return null;
    const right = (100 * (span[edge] - start)) / total, left = Math.max(0, right - (100 * before) / total);
    return Kubeloop.element("b", { class: `edge ${edge}`, "data-phase": Kubeloop.phaseOf(span.name), title: Kubeloop.edgeSource(span, edge),
      style: { left: `${left}%`, width: `${right - left}%` } });
  }

  toggle(item, span, start) {
    if (this.opened.delete(span.spanId)) item.querySelector(".facts").remove();
    else {
      this.opened.add(span.spanId);
      item.append(Kubeloop.spanDetails(span, start));
    }
    item.setAttribute("aria-expanded", String(this.opened.has(span.spanId)));
  }

  items() {
    return [...this.body.querySelectorAll(".span")];
  }

  keyPressed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const items = this.items(), at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      items[Math.max(0, Math.min(items.length - 1, to))]?.focus();
    } else if ((event.key === "Enter" || event.key === "ArrowRight" || event.key === "ArrowLeft") && at >= 0) {
      const open = items[at].getAttribute("aria-expanded") === "true";
      if (event.key === "Enter" || (event.key === "ArrowRight") !== open) items[at].toggle();
      event.preventDefault();
    }
  }
};

/* All data of a span: times, attributes, events, links. */
Kubeloop.spanDetails = (span, start) => {
  const text = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));
  const rows = [
    ["starts after", Kubeloop.duration((span.start - start) / 1e3)],
    ["span", span.spanId],
    ...(span.kind ? [["kind", span.kind]] : []),
    ...(span.status.code === "ERROR" ? [["error", span.status.message || "failed"]] : []),
    ...Object.entries(span.attributes).map(([key, value]) => [key, text(value)]),
    ...(span.events || []).map((event) => [`${event.name} after ${Kubeloop.duration((event.time - start) / 1e3)}`,
      Object.entries(event.attributes || {}).map(([key, value]) => `${key}=${text(value)}`).join(", ")]),
  ];
  const facts = Kubeloop.element("dl", { class: "facts" }, rows.map(([key, value]) =>
    Kubeloop.element("div", {}, Kubeloop.element("dt", {}, key), Kubeloop.element("dd", {}, value))));
  for (const link of span.links || []) {
    const relation = link.attributes?.["kubeloop.link"] || "link";
    facts.append(Kubeloop.element("div", {}, Kubeloop.element("dt", {}, relation),
      Kubeloop.element("dd", {}, Kubeloop.element("a", { href: `#trace=${encodeURIComponent(link.traceId)}` }, `trace ${link.traceId}`))));
  }
  return facts;
};
