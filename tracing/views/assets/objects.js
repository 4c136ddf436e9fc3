/* Sections beside a waterfall: why the pod is pending or on its node, its Events, conditions and log. They are read when opened. */
"use strict";

Kubeloop.SECTIONS = ["why", "events", "conditions", "log"];

/* The sections of one pod. shown: Set of names of the open ones, which the user changes; onchange is then called. */
Kubeloop.Sections = class {
  static REFRESH_MS = 5000; /* of those that are open; not of explanations, which compute */

  constructor(source, line, shown, onchange) {
    Object.assign(this, { source, line });
    const titles = { why: line.node ? "Why on this node?" : "Why is it pending?", events: "Events", conditions: "Conditions and containers", log: "Log" };
    this.loads = {
      why: async () => Kubeloop.explanation(await source.explain(line)),
      events: async () => Kubeloop.events(await this.state()),
      conditions: async () => Kubeloop.conditions(await this.state()),
      log: async () => this.log(await this.state()),
    };
    this.sections = Kubeloop.SECTIONS.map((name) => {
      const content = Kubeloop.element("div", { class: name === "why" ? "explanation" : "section" }, Kubeloop.element("p", { class: "note" }, "…"));
      const section = { name, content, loadedAt: 0 };
      section.node = Kubeloop.element("details", {
        class: `why ${name}`, open: shown.has(name),
        ontoggle: () => {
          if (section.node.open === shown.has(name) && section.loadedAt) return;
          if (section.node.open) { shown.add(name); this.load(section); } else shown.delete(name);
          onchange();
        },
      }, Kubeloop.element("summary", {}, titles[name]), content);
      return section;
    });
    this.node = Kubeloop.element("div", { class: "sections" }, this.sections.map((section) => section.node));
  }

  /* Reads what is open again, if it may have changed. */
  refresh() {
    for (const section of this.sections)
      if (section.node.open && section.name !== "why" && section.loadedAt && performance.now() - section.loadedAt > Kubeloop.Sections.REFRESH_MS) this.load(section);
  }

  async load(section) {
    section.loadedAt = performance.now();
    try {
      section.content.replaceChildren(...await this.loads[section.name]());
    } catch (error) {
      section.content.replaceChildren(Kubeloop.element("p", { class: "note" }, `${section.name === "why" ? "No explanation" : "Not available"}: ${error.message}.`));
    }
  }

  /* Conditions, containers and Events: one request serves the sections that need it at the same time. */
  state() {
    if (!this.reading) this.reading = this.source.podState(this.line).finally(() => { this.reading = null; });
    return this.reading;
  }

  /* The log of one container, the first that is not ready or else the first, with buttons for the others. */
  async log({ containers }) {
    if (!containers.some((container) => container.name === this.container)) this.container = (containers.find((container) => !container.ready) || containers[0])?.name;
    if (!this.container) return [Kubeloop.element("p", { class: "note" }, "The pod has no containers.")];
    const text = await this.source.log(this.line, this.container);
    const section = this.sections.find(({ name }) => name === "log");
    const buttons = containers.length > 1 && Kubeloop.element("p", { class: "choice", role: "group", "aria-label": "Container" }, containers.map(({ name }) =>
      Kubeloop.element("button", { type: "button", "aria-pressed": String(name === this.container), onclick: () => { this.container = name; this.load(section); } }, name)));
    return [buttons, text ? Kubeloop.element("pre", { tabindex: "0", role: "region", "aria-label": `Log of ${this.container}` }, text)
      : Kubeloop.element("p", { class: "note" }, `${this.container} has written nothing.`)].filter(Boolean);
  }
};

/* "2026-01-01T12:00:00Z" as "12:00:00" and the age. */
Kubeloop.clockTime = (text) => (text ? Kubeloop.moment(Date.parse(text) * 1e3).slice(11, 19) : "");

Kubeloop.events = ({ events, eventsProblem }) => {
  if (eventsProblem) return [Kubeloop.element("p", { class: "note" }, `Not available: ${eventsProblem}.`)];
  if (!events.length) return [Kubeloop.element("p", { class: "note" }, "No Events: the API server stores them for an hour.")];
  const rows = events.map((event) => [Kubeloop.clockTime(event.time) || "unknown", event.reason, event.count > 1 ? `${event.message} (${Kubeloop.count(event.count)} times)` : event.message, event.from]);
  return [Kubeloop.dataTable("Events", ["time", "reason", "message", "from"], rows, "words")];
};

Kubeloop.conditions = ({ conditions, containers }) => [
  conditions.length ? Kubeloop.dataTable("Conditions", ["condition", "status", "since", "reason"], conditions.map((entry) =>
    [entry.type, entry.status, Kubeloop.clockTime(entry.lastTransitionTime), [entry.reason, entry.message].filter(Boolean).join(": ")]), "words")
    : Kubeloop.element("p", { class: "note" }, "No conditions yet."),
  Kubeloop.dataTable("Containers", ["container", "state", "ready", "restarts", "image"], containers.map((entry) =>
    [entry.name, entry.reason ? `${entry.state}: ${entry.reason}` : entry.state, entry.ready ? "yes" : "no", String(entry.restarts), entry.image]), "words"),
];

/* What a rollout waits for now: a sentence per stage and reason of its pods that are not done. lines: its pods. */
Kubeloop.waitsFor = (lines, pods) => {
  const groups = new Map();
  for (const line of lines) {
    if (Kubeloop.DONE_STAGES.has(line.stage)) continue;
    const key = JSON.stringify([line.stage, line.reason]);
    const own = groups.get(key);
    if (own) own.push(line); else groups.set(key, [line]);
  }
  const longest = (own) => own.reduce((a, b) => (pods.inStage(b) > pods.inStage(a) ? b : a));
  return [...groups.values()].sort((a, b) => b.length - a.length).slice(0, 6).map((own) => {
    const first = longest(own);
    return Kubeloop.element("li", { "data-phase": Kubeloop.STAGE_PHASE.get(first.stage) || "other" },
      `${Kubeloop.plural(own.length, "pod")} ${first.stage}, for up to ${Kubeloop.duration(pods.inStage(first))}`, first.reason ? `: ${first.reason}` : "", " ",
      Kubeloop.link("pod", pods.refOf(first), `(${first.name || "the first one"})`));
  });
};

/* Room left on a node: a bar per resource. node: of /debug/objects/nodes. */
Kubeloop.room = (node) => {
  const units = { cpu: (amount) => String(Number((amount / 1000).toPrecision(3))) };
  const bytes = (amount) => { let at = 0; while (amount >= 1024 && at < 4) { amount /= 1024; at++; } return `${Number(amount.toPrecision(3))}${["", "Ki", "Mi", "Gi", "Ti"][at]}`; };
  const text = (name, amount) => (units[name] || (name === "memory" || name.endsWith("storage") || name.startsWith("hugepages-") ? bytes : Kubeloop.count))(amount);
  const rows = Object.entries(node.allocatable).filter(([, amount]) => amount > 0).map(([name, amount]) => {
    const used = node.requested[name] || 0, share = Math.min(100, (100 * used) / amount);
    const bar = Kubeloop.element("span", { class: "fill room" }, Kubeloop.element("i", { class: share > 90 ? "full" : "", style: { width: `${share}%` } }));
    return [name, bar, text(name, used), text(name, amount), text(name, Math.max(0, amount - used))];
  });
  return Kubeloop.dataTable("Room left", ["resource", "share", "requested", "allocatable", "left"], rows);
};
