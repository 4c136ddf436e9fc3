/* Detail panel: a pod, a rollout, a node, another trace, or two that are compared. */
"use strict";

Kubeloop.Detail = class {
  static REFRESH_MS = 1000; /* an open trace is fetched again */

  static ALL = "*"; /* the rollout of all pods */

  /* source: of traces; shown: names of the open sections, onchange() after the user has changed it; close(): the user
   * closes the panel; compare(name): the user compares what is shown with another of its kind. */
  constructor(node, options) {
    Object.assign(this, { node, ...options });
    this.what = null;
    this.key = null; /* of the row in the list */
    this.saved = null; /* { pods, name } of a saved page that is compared with */
  }

  /* what: { pod: key or name } | { rollout: key } | { node: name } | { trace: id }, with another of its kind; null closes. */
  show(what) {
    this.stop();
    if (!what?.with) this.saved = null;
    this.what = what;
    this.key = null;
    this.node.hidden = !what;
    document.body.classList.toggle("has-detail", Boolean(what));
    if (!what) return;
    this.title = Kubeloop.element("h2", { tabindex: "-1" });
    this.pill = Kubeloop.element("span", { class: "pill" });
    this.meta = Kubeloop.element("dl", { class: "meta" });
    this.reason = Kubeloop.element("p", { class: "reason", hidden: true });
    this.body = Kubeloop.element("div", { class: "body" }, Kubeloop.element("p", { class: "note" }, "…"));
    this.node.replaceChildren(
      Kubeloop.element("header", {}, this.title, this.pill,
        Kubeloop.element("button", { type: "button", class: "round", "aria-label": "Close", "aria-keyshortcuts": "Escape", onclick: this.close }, "×")),
      this.meta, this.reason, this.body);
    this.node.scrollTop = 0;
    this.draw();
    this.title.focus({ preventScroll: true });
  }

  stop() {
    this.picture?.stop();
    Object.assign(this, { picture: null, waterfall: null, line: null, fetchedAt: 0, fetching: false, trace: null, table: null, group: null, sections: null, state: null, stateAt: -1e9, compared: "" });
  }

  /* Draws again; something may have changed. */
  draw() {
    if (!this.what) return;
    if (this.what.with) this.drawComparison();
    else if (this.what.rollout) this.drawRollout();
    else if (this.what.node) this.drawNode();
    else if (this.what.pod) this.drawPod();
    else if (!this.trace && !this.fetching) this.fetchTrace(() => this.source.trace(this.what.trace), () => this.drawTrace());
  }

  async fetchTrace(get, then, failed = (error) => this.body.replaceChildren(Kubeloop.element("p", { class: "note" }, `No trace: ${error.message}.`))) {
    const what = this.what;
    this.fetching = true;
    this.fetchedAt = performance.now();
    try {
      const trace = await get();
      if (what !== this.what) return;
      this.trace = trace;
      then();
    } catch (error) {
      if (what === this.what && !this.waterfall) failed(error);
    } finally {
      if (what === this.what) this.fetching = false;
    }
  }

  setMeta(pairs) {
    this.meta.replaceChildren(...pairs.filter(([, value]) => value).map(([name, value]) =>
      Kubeloop.element("div", {}, Kubeloop.element("dt", {}, name), Kubeloop.element("dd", {}, value))));
  }

  drawPod() {
    const line = this.pods.find(this.what.pod);
    this.key = line?.key ?? null;
    if (!line) {
      this.missing(this.what.pod.includes("/") ? this.what.pod : "Pod", this.line ? "This trace was dropped: the process stores only the newest traces."
        : "There is no such pod: it never existed, or its trace was dropped, as the process stores only the newest ones.");
      return;
    }
    this.title.textContent = line.name || "(never created)";
    this.pill.textContent = line.stage;
    this.pill.dataset.phase = Kubeloop.STAGE_PHASE.get(line.stage) || "other";
    this.setMeta([
      ["duration", `${Kubeloop.uncertainDuration(this.pods.duration(line), Kubeloop.uncertaintyOf(line))}${line.isOpen ? ", in progress" : ""}`],
      ["start", Kubeloop.moment(line.startUs)],
      ["node", line.node && Kubeloop.link("node", line.node, line.node)],
      ["attempts", line.attempts ? String(line.attempts) : ""],
      ["owner", line.owner && line.owner !== line.group && Kubeloop.element("span", {}, line.owners.filter((owner) => owner !== line.group).flatMap((owner, index) =>
        [index ? " › " : "", Kubeloop.link("rollout", `${line.namespace}/${owner}`, owner)]))],
      ["pod group", line.group && Kubeloop.link("rollout", `${line.namespace}/${line.group}`, line.group.slice(Kubeloop.GROUP.length))],
      ["namespace", line.namespace],
      ["trace", line.traceId && Kubeloop.element("code", {}, line.traceId)],
    ]);
    this.reason.hidden = !line.reason;
    this.reason.textContent = line.reason;
    const changed = line !== this.line || (line.isOpen && performance.now() - this.fetchedAt > Kubeloop.Detail.REFRESH_MS);
    this.sections?.refresh();
    if (changed && !this.fetching) {
      this.line = line;
      this.fetchTrace(() => this.source.pod(line), () => this.drawSpans());
    }
  }

  /* Explanation, Events, conditions and log of a pod, and the form to compare it. */
  besideTrace(line) {
    if (line.name && this.source.podState) this.sections = new Kubeloop.Sections(this.source, line, this.shown, this.onchange);
    const owner = line.rollouts[0];
    const names = () => [...this.pods.byKey.values()].filter((other) => other !== line && other.name && (!owner || other.rollouts.includes(owner))).slice(0, 200).map((other) => this.pods.refOf(other));
    return Kubeloop.element("div", {}, this.sections?.node, this.compareForm(names));
  }

  compareForm(names) {
    return new Kubeloop.CompareForm({ names, compare: this.compare, file: (pods, name) => { this.saved = { pods, name }; this.compare(`page ${name}`); } }).node;
  }

  drawComparison() {
    const { with: other } = this.what, kind = this.what.pod ? "pod" : this.what.node ? "node" : "rollout", first = this.what[kind];
    const isPage = other.startsWith("page ");
    const heading = (name) => (name === Kubeloop.Detail.ALL ? "all pods" : name);
    if (this.pods.loading) return this.missing(`${heading(first)} and ${other}`, "");
    if (isPage && !this.saved) return this.missing(`${heading(first)} and ${other}`, "Choose the saved page again: a URL cannot contain it.");
    const version = `${this.pods.respondedAt} ${other}`;
    if (this.compared === version) return null;
    this.compared = version;
    this.title.textContent = isPage ? `${heading(first)} here and in ${this.saved.name}` : `${heading(first)} and ${heading(other)}`;
    this.pill.textContent = "compared";
    this.setMeta([]);
    const clocks = [this.pods, isPage ? this.saved.pods : this.pods], names = isPage ? [first, first] : [first, other];
    let content, missing = null;
    if (kind === "pod") {
      const lines = names.map((name, side) => clocks[side].find(name));
      missing = names.find((_, side) => !lines[side]);
      if (!missing) content = Kubeloop.comparePods(...lines, this.pods);
    } else {
      const groups = names.map((name, side) => Kubeloop.rollout(name, this.linesOf(kind, name, clocks[side]), clocks[side]));
      missing = names.find((_, side) => !groups[side].lines.length);
      if (!missing) content = Kubeloop.compareGroups(groups, isPage ? ["here", this.saved.name] : names.map(heading), clocks);
    }
    this.body.replaceChildren(...(missing ? [Kubeloop.element("p", { class: "note" }, `No pod of ${heading(missing)} is known${isPage ? " in one of the pages" : ""}.`)] : content),
      Kubeloop.element("p", { class: "links" }, Kubeloop.link(kind, first, heading(first)), !isPage && Kubeloop.link(kind, other, heading(other))));
    return null;
  }

  /* The pods of a rollout or node. */
  linesOf(kind, name, pods) {
    const lines = [...pods.byKey.values()];
    if (name === Kubeloop.Detail.ALL) return lines;
    return kind === "node" ? lines.filter((line) => line.node === name) : lines.filter((line) => line.owners.some((owner) => `${line.namespace}/${owner}` === name));
  }

  /* The state of the object itself, read from the API server every few seconds; null before, or if it cannot be read. */
  readState(read) {
    if (!read || performance.now() - this.stateAt < Kubeloop.Sections.REFRESH_MS) return this.state;
    const what = this.what;
    this.stateAt = performance.now();
    read().then((state) => ({ state }), (error) => ({ problem: error.message })).then(({ state = null, problem = "" }) => {
      if (what !== this.what) return;
      Object.assign(this, { state, stateProblem: problem, drawnVersion: "" });
      this.draw();
    });
    return this.state;
  }

  drawNode() {
    const name = this.key = this.what.node, lines = this.linesOf("node", name, this.pods);
    const node = this.readState(this.source.node && (() => this.source.node(name)));
    if (!node && (this.pods.loading || !lines.length)) {
      this.missing(name, this.stateProblem || "No pod on this node is known: it never existed, or the traces of its pods were dropped.");
      return;
    }
    const group = Kubeloop.rollout(name, lines, this.pods);
    this.title.textContent = name;
    this.pill.textContent = node ? node.stage : "node";
    this.pill.dataset.phase = !node ? "other" : node.stage === "ready" ? "ready" : "waiting";
    this.setMeta([
      ["pods", this.pods.loading ? "…" : Kubeloop.count(node?.requested?.pods ?? lines.filter((line) => !Kubeloop.ABSENT_STAGES.has(line.stage)).length)],
      ["zone", node?.zone], ["created", node && Kubeloop.moment(Date.parse(node.created) * 1e3).slice(0, 19)],
    ]);
    this.reason.hidden = !node?.reason;
    this.reason.textContent = node?.reason || "";
    this.drawPicture(group, () => [Kubeloop.element("h3", {}, "Room left"), this.extra], () =>
      (node ? [Kubeloop.room(node)] : [Kubeloop.element("p", { class: "note" }, this.stateProblem || (this.source.node ? "…" : "This file does not have it."))]));
  }

  /* What to show instead of an object that the page does not have, or not yet. */
  missing(title, problem) {
    this.title.textContent = title;
    this.pill.textContent = this.pods.loading ? "loading" : "unknown";
    this.pill.dataset.phase = "other";
    this.meta.replaceChildren();
    this.reason.hidden = true;
    this.body.replaceChildren(Kubeloop.element("p", { class: "note" }, this.pods.loading ? `Loading ${this.pods.progress}` : problem));
  }

  drawSpans() {
    if (!this.waterfall) {
      this.waterfall = new Kubeloop.Waterfall();
      this.links = Kubeloop.element("p", { class: "links" });
      this.origin = Kubeloop.element("p", { class: "note origin", hidden: true });
      const trace = Kubeloop.element("div", {}, this.waterfall.node, this.origin, this.links);
      this.body.replaceChildren(this.line ? Kubeloop.element("div", { class: "columns" }, trace, this.besideTrace(this.line)) : trace);
    }
    this.waterfall.draw(this.trace);
    this.drawOrigin();
    const links = this.trace.spans.flatMap((span) => (span.links || []).map((link) => [link.attributes?.["kubeloop.link"] || "trace", link.traceId]));
    const seen = new Set();
    this.links.replaceChildren(...links.filter(([, id]) => !seen.has(id) && seen.add(id)).slice(0, 20).map(([relation, id]) =>
      Kubeloop.element("a", { href: `#trace=${encodeURIComponent(id)}` }, relation === "reconcile" ? "the reconcile that created it" : relation === "pod group" ? "the scheduling of its group" : `${relation} ${id.slice(0, 8)}`)));
  }

  /* How the times of an observed trace were obtained. */
  drawOrigin() {
    const root = this.trace.spans.find((span) => span.name !== Kubeloop.APPLY && "kubeloop.outcome" in span.attributes);
    const isUncertain = this.trace.spans.some((span) => Kubeloop.uncertainty(span, "start") || Kubeloop.uncertainty(span, "end"));
    const notes = [
      root?.attributes["kubeloop.reconstructed"] ? "Reconstructed from the object and its Events: the pod is older than this process."
        : root?.attributes["kubeloop.observed"] ? "Observed through watches: another control plane runs this pod." : "",
      isUncertain ? "Faded ends: the edge lies in there; ± is the uncertainty of a duration." : "",
      ...Object.entries(this.trace.clockSkew || {}).map(([clock, bounds]) => `Clock of ${Kubeloop.skew(clock, bounds)}; its times are corrected by the least difference.`),
    ].filter(Boolean);
    this.origin.hidden = !notes.length;
    this.origin.textContent = notes.join(" ");
  }

  drawTrace() {
    const root = this.trace.spans[0];
    this.title.textContent = Kubeloop.titleOf(root);
    this.pill.textContent = "trace";
    this.setMeta([
      ["duration", Kubeloop.duration((root.end - root.start) / 1e3)],
      ["start", Kubeloop.moment(root.start / 1e3)],
      ["reason", String(root.attributes["kubeloop.reason"] || "")],
      ["trace", Kubeloop.element("code", {}, this.trace.traceId)],
    ]);
    this.reason.hidden = root.status.code !== "ERROR";
    this.reason.textContent = root.status.message || "";
    this.drawSpans();
  }

  /* The trace of a pod group, the newest one of its pods, above them. */
  drawGroup(rollout) {
    const isRecent = this.fetchedAt && performance.now() - this.fetchedAt < Kubeloop.Detail.REFRESH_MS;
    if (!rollout.owner.startsWith(Kubeloop.GROUP) || this.fetching || isRecent) return;
    const newest = rollout.lines.filter((line) => line.groupTraceId).sort((a, b) => b.startUs - a.startUs)[0];
    const isSame = this.trace && this.trace.traceId === newest?.groupTraceId;
    if (!newest || (isSame && this.trace.spans[0].attributes["kubeloop.pod_group.outcome"] !== "open")) return;
    this.fetchTrace(() => this.source.trace(newest.groupTraceId), () => {
      if (!this.waterfall) {
        this.waterfall = new Kubeloop.Waterfall();
        this.group.replaceChildren(Kubeloop.element("h3", {}, "Scheduling of the group"), this.waterfall.node);
        this.group.hidden = false;
      }
      this.waterfall.draw(this.trace);
    }, () => { this.group.hidden = true; });
  }

  drawRollout() {
    const key = this.key = this.what.rollout, isAll = key === Kubeloop.Detail.ALL;
    const lines = this.linesOf("rollout", key, this.pods);
    if (this.pods.loading || !lines.length) { /* some of its pods may be missing */
      this.picture?.stop();
      this.picture = null;
      this.missing(isAll ? "all pods" : key.slice(key.indexOf("/") + 1), "No pod of it is known: it never existed, or the traces of its pods were dropped.");
      return;
    }
    const rollout = Kubeloop.rollout(key, lines, this.pods);
    this.title.textContent = isAll ? "all pods" : rollout.owner;
    const open = rollout.lines.some((line) => line.isOpen);
    this.pill.textContent = open ? "in progress" : "complete";
    this.pill.dataset.phase = open ? "queue" : "ready";
    this.setMeta([
      ["pods", `${Kubeloop.count(rollout.finished)} of ${Kubeloop.count(lines.length)} bound`],
      ["duration", rollout.traced.length ? Kubeloop.duration(rollout.endUs - rollout.startUs) : ""],
      ["not bound", rollout.open ? `${Kubeloop.plural(rollout.open, "pod")} for up to ${Kubeloop.duration(rollout.openUs)}` : ""],
      ["rate", rollout.rate ? `${Kubeloop.rate(rollout.rate)} pods/s` : ""],
      ["start", rollout.traced.length ? Kubeloop.moment(rollout.startUs) : ""],
      ["namespace", isAll ? "" : rollout.namespace],
    ]);
    this.reason.hidden = true;
    const state = this.readState(!isAll && this.source.ownerState && (() => this.source.ownerState(rollout.namespace, rollout.owner)));
    this.drawPicture(rollout, () => [Kubeloop.element("h3", {}, "Waits for"), this.extra, this.group], () => {
      const waits = Kubeloop.waitsFor(lines, this.pods);
      const about = [state?.state, ...(state?.problems || [])].filter(Boolean).map((text) => Kubeloop.element("li", {}, text));
      return [Kubeloop.element("ul", { class: "waits" }, about, waits.length ? waits
        : state?.complete === false ? Kubeloop.element("li", {}, "its controller: no pod of it waits") : Kubeloop.element("li", {}, "nothing: no pod of it waits"))];
    });
    this.drawGroup(rollout);
  }

  /* The pods of a rollout or node over time, with percentiles and the slowest; before() creates what is above them, and
   * fill() the content of `extra` in it, which is drawn again with them. */
  drawPicture(rollout, before, fill) {
    if (!this.picture) {
      this.picture = new Kubeloop.RolloutPicture(this.pods, (line) => this.open(line));
      this.table = Kubeloop.element("div", {});
      this.slowest = Kubeloop.element("div", { class: "slowest" });
      this.group = Kubeloop.element("div", { class: "group", hidden: true });
      this.extra = Kubeloop.element("div", {});
      this.drawnVersion = "";
      this.body.replaceChildren(
        ...before(),
        Kubeloop.element("h3", {}, "Pods over time"), this.picture.node,
        Kubeloop.element("h3", {}, "Time per phase"), this.table,
        Kubeloop.element("h3", {}, "Slowest"), this.slowest,
        this.compareForm(() => {
          const names = new Set([...this.pods.byKey.values()].flatMap((line) => (this.what.node ? [line.node] : line.rollouts)).filter(Boolean));
          names.delete(rollout.key);
          return [...names].sort().slice(0, 200);
        }));
    }
    const version = `${rollout.lines.length}:${this.pods.respondedAt}`;
    if (this.drawnVersion === version && !rollout.lines.some((line) => line.isOpen)) return;
    this.drawnVersion = version;
    this.extra.replaceChildren(...fill());
    this.picture.draw(rollout);
    this.table.replaceChildren(Kubeloop.phaseTable(Kubeloop.phaseTimes(rollout.traced, this.pods), rollout.totals));
    const slowest = [...rollout.traced].sort((a, b) => this.pods.duration(b) - this.pods.duration(a)).slice(0, 5);
    this.slowest.replaceChildren(...slowest.map((line) => Kubeloop.link("pod", this.pods.refOf(line),
      Kubeloop.element("b", {}, line.name || "(never created)"), Kubeloop.element("span", {}, Kubeloop.shortUncertainDuration(this.pods.duration(line), Kubeloop.uncertaintyOf(line))),
      Kubeloop.element("small", {}, line.reason || (line.attempts > 1 ? `${line.attempts} attempts` : line.node && `on ${line.node}`)))));
  }
};
