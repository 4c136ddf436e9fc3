/* Detail panel: a pod, a rollout, or another trace. */
"use strict";

Kubeloop.Detail = class {
  static REFRESH_MS = 1000; /* an open trace is fetched again */

  /* source: of traces; close(): the user closes the panel. */
  constructor(node, { pods, source, close }) {
    Object.assign(this, { node, pods, source, close });
    this.what = null;
  }

  /* what: { pod: key } | { rollout: key } | { trace: id }; null closes. */
  show(what) {
    this.stop();
    this.what = what;
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
    Object.assign(this, { picture: null, waterfall: null, line: null, fetchedAt: 0, fetching: false, trace: null, table: null, group: null });
  }

  /* Draws again; something may have changed. */
  draw() {
    if (!this.what) return;
    if (this.what.rollout) this.drawRollout();
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
    const line = this.pods.byKey.get(this.what.pod);
    if (!line) {
      this.missing("Pod", this.line ? "This trace was dropped: the process stores only the newest traces."
        : "There is no such pod: it never existed, or its trace was dropped, as the process stores only the newest ones.");
      return;
    }
    this.title.textContent = line.name || "(never created)";
    this.pill.textContent = line.stage;
    this.pill.dataset.phase = Kubeloop.STAGE_PHASE.get(line.stage) || "other";
    const link = (href, text) => Kubeloop.element("a", { href }, text);
    this.setMeta([
      ["duration", `${Kubeloop.uncertainDuration(this.pods.duration(line), Kubeloop.uncertaintyOf(line))}${line.isOpen ? ", in progress" : ""}`],
      ["start", Kubeloop.moment(line.startUs)],
      ["node", line.node],
      ["attempts", line.attempts ? String(line.attempts) : ""],
      ["owner", line.owner && line.owner !== line.group && Kubeloop.element("span", {}, line.owners.filter((owner) => owner !== line.group).flatMap((owner, index) =>
        [index ? " › " : "", link(`#rollout=${encodeURIComponent(`${line.namespace}/${owner}`)}`, owner)]))],
      ["pod group", line.group && link(`#rollout=${encodeURIComponent(`${line.namespace}/${line.group}`)}`, line.group.slice(Kubeloop.GROUP.length))],
      ["namespace", line.namespace],
      ["trace", line.traceId && Kubeloop.element("code", {}, line.traceId)],
    ]);
    this.reason.hidden = !line.reason;
    this.reason.textContent = line.reason;
    const changed = line !== this.line || (line.isOpen && performance.now() - this.fetchedAt > Kubeloop.Detail.REFRESH_MS);
    if (changed && !this.fetching) {
      this.line = line;
      this.fetchTrace(() => this.source.pod(line), () => this.drawSpans());
    }
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
      this.body.replaceChildren(this.waterfall.node);
      this.links = Kubeloop.element("p", { class: "links" });
      this.origin = Kubeloop.element("p", { class: "note origin", hidden: true });
      this.body.append(this.origin, this.links);
      if (this.line?.name && this.source.explain) this.body.append(new Kubeloop.Explanation(this.source, this.line).node);
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
    const key = this.what.rollout;
    const lines = [...this.pods.byKey.values()].filter((line) => line.owners.some((owner) => `${line.namespace}/${owner}` === key));
    if (this.pods.loading || !lines.length) { /* some of its pods may be missing */
      this.picture?.stop();
      this.picture = null;
      this.missing(key.slice(key.indexOf("/") + 1), "No pod of it is known: it never existed, or the traces of its pods were dropped.");
      return;
    }
    const rollout = Kubeloop.rollout(key, lines, this.pods);
    this.title.textContent = rollout.owner;
    const open = rollout.lines.some((line) => line.isOpen);
    this.pill.textContent = open ? "in progress" : "complete";
    this.pill.dataset.phase = open ? "queue" : "ready";
    this.setMeta([
      ["pods", `${Kubeloop.count(rollout.finished)} of ${Kubeloop.count(lines.length)} bound`],
      ["duration", rollout.traced.length ? Kubeloop.duration(rollout.endUs - rollout.startUs) : ""],
      ["not bound", rollout.open ? `${Kubeloop.plural(rollout.open, "pod")} for up to ${Kubeloop.duration(rollout.openUs)}` : ""],
      ["rate", rollout.rate ? `${Kubeloop.rate(rollout.rate)} pods/s` : ""],
      ["start", rollout.traced.length ? Kubeloop.moment(rollout.startUs) : ""],
      ["namespace", rollout.namespace],
    ]);
    const reasons = new Set(lines.filter((line) => line.isOpen && line.reason).map((line) => line.reason));
    this.reason.hidden = !reasons.size;
    this.reason.textContent = [...reasons].slice(0, 3).join("\n");
    if (!this.picture) {
      this.picture = new Kubeloop.RolloutPicture(this.pods, (line) => { location.hash = `pod=${encodeURIComponent(line.key)}`; });
      this.table = Kubeloop.element("div", {});
      this.slowest = Kubeloop.element("div", { class: "slowest" });
      this.group = Kubeloop.element("div", { class: "group", hidden: true });
      this.body.replaceChildren(
        this.group,
        Kubeloop.element("h3", {}, "Pods over time"), this.picture.node,
        Kubeloop.element("h3", {}, "Time per phase"), this.table,
        Kubeloop.element("h3", {}, "Slowest"), this.slowest);
    }
    const changed = this.drawnVersion !== rollout.lines.length + ":" + this.pods.respondedAt || open;
    if (!changed && this.table.firstChild) return;
    this.drawnVersion = rollout.lines.length + ":" + this.pods.respondedAt;
    this.drawGroup(rollout);
    this.picture.draw(rollout);
    this.table.replaceChildren(Kubeloop.phaseTable(Kubeloop.phaseTimes(rollout.traced, this.pods), rollout.totals));
    const slowest = [...rollout.traced].sort((a, b) => this.pods.duration(b) - this.pods.duration(a)).slice(0, 5);
    this.slowest.replaceChildren(...slowest.map((line) => Kubeloop.element("a", { href: `#pod=${encodeURIComponent(line.key)}` },
      Kubeloop.element("b", {}, line.name || "(never created)"), Kubeloop.element("span", {}, Kubeloop.shortUncertainDuration(this.pods.duration(line), Kubeloop.uncertaintyOf(line))),
      Kubeloop.element("small", {}, line.reason || (line.attempts > 1 ? `${line.attempts} attempts` : line.node && `on ${line.node}`)))));
  }
};
