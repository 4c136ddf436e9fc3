/* Page: list, open detail, and keyboard. */
"use strict";

(() => {
  const find = (id) => document.getElementById(id);
  const isFile = Boolean(find("lines"));
  const pods = new Kubeloop.Pods();
  const source = isFile ? new Kubeloop.FileSource() : new Kubeloop.LiveSource();
  const state = { tab: "pods", order: "newest", query: "", stages: new Set(), paused: false, connectionError: "", shown: [], selected: [], stale: true, computedAt: 0 };
  const list = find("list"), search = find("search"), order = find("sort"), live = find("live"), help = find("help");

  /* --- rows ------------------------------------------------------------------------------------------------- */

  const cell = (name, ...children) => Kubeloop.element("span", { class: `cell ${name}`, role: "gridcell" }, ...children);
  const makePod = () => {
    const row = Kubeloop.element("div", { class: "row", role: "row" });
    row.parts = {
      dot: Kubeloop.element("i", { class: "dot", "aria-hidden": "true" }), name: Kubeloop.element("b", {}, Kubeloop.element("span"), Kubeloop.element("span")), namespace: Kubeloop.element("small"),
      stage: cell("stage-name"), node: cell("node"), attempts: cell("attempts"), fill: Kubeloop.element("span", { class: "fill" }), duration: cell("duration"),
    };
    const parts = row.parts;
    row.append(cell("pod", parts.dot, parts.name, parts.namespace), parts.stage, parts.node, parts.attempts, cell("bar", parts.fill), parts.duration);
    return row;
  };
  const showPod = (row, line) => {
    const parts = row.parts, durationUs = pods.duration(line), uncertainty = Kubeloop.uncertaintyOf(line);
    row.dataset.phase = Kubeloop.STAGE_PHASE.get(line.stage) || "other";
    /* the end of a name distinguishes pods of one owner: it stays visible when the name is cut */
    const name = line.name || "(being created)", dash = name.lastIndexOf("-"), tail = dash > 0 ? dash : name.length;
    parts.name.firstChild.textContent = name.slice(0, tail);
    parts.name.lastChild.textContent = name.slice(tail);
    parts.namespace.textContent = line.namespace;
    parts.stage.textContent = line.stage;
    row.classList.toggle("reconstructed", line.isReconstructed);
    row.title = [line.reason, line.isReconstructed ? "reconstructed: older than this process" : "", line.attempts > 1 ? `${line.attempts} scheduling attempts` : "",
      uncertainty ? Kubeloop.uncertainDuration(durationUs, uncertainty) : ""].filter(Boolean).join("\n");
    parts.node.textContent = line.node;
    parts.attempts.textContent = line.attempts > 1 ? `${line.attempts}×` : "";
    parts.fill.style.width = `${line.segments.length ? length(durationUs) : 0}%`;
    Kubeloop.drawSegments(parts.fill, line, durationUs);
    parts.duration.textContent = line.segments.length ? Kubeloop.shortUncertainDuration(durationUs, uncertainty) : "not traced";
    row.classList.toggle("untraced", !line.segments.length);
  };
  /* Logarithmic: the longest pod has the full width, a tenth of its time is 22 points less. */
  const length = (durationUs) => Math.max(6, Math.min(100, 100 + 22 * Math.log10(Math.max(1, durationUs) / Math.max(1, state.longestUs || 1))));

  const makeRollout = () => {
    const row = Kubeloop.element("div", { class: "row rollout", role: "row" });
    row.parts = { name: Kubeloop.element("b"), namespace: Kubeloop.element("small"), count: cell("count"), bar: Kubeloop.element("span", { class: "fill" }), rate: cell("node"), duration: cell("duration") };
    const parts = row.parts;
    row.append(cell("pod", parts.name, parts.namespace), parts.count, parts.rate, cell("bar", parts.bar), parts.duration);
    return row;
  };
  const showRollout = (row, rollout) => {
    const parts = row.parts, total = rollout.lines.length;
    parts.name.textContent = rollout.owner;
    parts.namespace.textContent = rollout.namespace;
    parts.count.textContent = pods.loading ? "…" : `${Kubeloop.count(rollout.finished)} of ${Kubeloop.count(total)}`;
    parts.count.classList.toggle("behind", !pods.loading && rollout.finished < total);
    parts.rate.textContent = rollout.rate ? `${Kubeloop.rate(rollout.rate)} pods/s` : "";
    const all = rollout.sums.reduce((sum, durationUs) => sum + durationUs, 0);
    Kubeloop.PHASES.forEach((phase, index) => {
      const share = parts.bar.children[index] || parts.bar.appendChild(Kubeloop.element("i", { "data-phase": phase.key, class: "share" }));
      share.style.width = `${all ? (100 * rollout.sums[index]) / all : 0}%`;
    });
    const { p99, isLeastP99, totals: { uncertainty } } = rollout;
    row.title = ["time of its pods by phase", p99 && `created to bound: p99 ${isLeastP99 ? "at least " : ""}${Kubeloop.uncertainDuration(p99, isLeastP99 ? 0 : uncertainty)}`,
      rollout.open && `${Kubeloop.plural(rollout.open, "pod")} not bound for up to ${Kubeloop.duration(rollout.openUs)}`].filter(Boolean).join("; ");
    parts.duration.textContent = !p99 || pods.loading ? "" : isLeastP99 ? `p99 >${Kubeloop.shortDuration(p99)}` : `p99 ${Kubeloop.shortUncertainDuration(p99, uncertainty)}`;
  };

  const views = {
    pods: () => new Kubeloop.VirtualList(list, { make: makePod, show: showPod, keyOf: (line) => line.key, open: (line) => go("pod", line.key) }),
    rollouts: () => new Kubeloop.VirtualList(list, { make: makeRollout, show: showRollout, keyOf: (rollout) => rollout.key, open: (rollout) => go("rollout", rollout.key) }),
  };
  let shown = views.pods();
  const stages = new Kubeloop.StageButtons(find("stages"), find("stage-bar"), state.stages, () => changed(true));
  const phases = new Kubeloop.PhaseRows(find("phases"));
  const detail = new Kubeloop.Detail(find("detail"), { pods, source, close: () => go() });

  /* --- drawing: at most once per frame and five times per second ---------------------------------------------------- */

  let due = 0, drawnAt = -1e9;
  const changed = (now = false) => {
    if (now) drawnAt = -1e9;
    if (!due) due = requestAnimationFrame(frame);
  };
  const frame = (time) => {
    due = 0;
    if (time - drawnAt < 200) { due = requestAnimationFrame(frame); return; }
    drawnAt = time;
    draw();
  };

  /* Computes everything when pods or the filter changed, else every 5 seconds. */
  const draw = () => {
    const filterKey = `${state.query}|${[...state.stages]}|${state.order}|${state.tab}`;
    const now = performance.now();
    if (state.stale || filterKey !== state.filterKey || now - state.computedAt > 5000) {
      Object.assign(state, { stale: false, filterKey, computedAt: now });
      compute();
    } else {
      drawRate(state.selected);
      shown.draw();
    }
    detail.draw();
  };

  const compute = () => {
    const all = [...pods.byKey.values()], matches = Kubeloop.search(state.query, pods);
    const matching = state.query ? all.filter(matches) : all;
    const loading = pods.loading, counted = (number) => (loading ? "…" : Kubeloop.count(number));
    const counts = new Map();
    for (const line of matching) counts.set(line.stage, (counts.get(line.stage) || 0) + 1);
    stages.draw(counts, matching.length, loading);
    const selected = state.stages.size ? matching.filter((line) => state.stages.has(line.stage)) : matching;
    state.selected = selected;
    state.longestUs = 0;
    const owners = new Set();
    for (const line of selected) {
      line.shownUs = pods.duration(line);
      if (line.segments.length && line.shownUs > state.longestUs) state.longestUs = line.shownUs;
      for (const key of line.rollouts) owners.add(key);
    }
    const skew = Object.entries(pods.clockSkew).map(([clock, bounds]) => Kubeloop.skew(clock, bounds));
    find("skew").hidden = !skew.length;
    find("skew").textContent = `Clocks differ: ${skew.slice(0, 3).join(", ")}${skew.length > 3 ? ` and ${skew.length - 3} more` : ""}`;
    find("skew").title = skew.join("\n");
    find("pods-total").textContent = loading ? `loading ${pods.progress}` : Kubeloop.count(matching.length);
    drawRate(selected);
    phases.draw(loading ? [] : Kubeloop.phaseTimes(selected, pods), loading ? "loading" : "no traces");
    find("shown-pods").textContent = counted(selected.length);
    find("shown-rollouts").textContent = counted(owners.size);
    state.shown = state.tab === "pods" ? [...selected].sort(Kubeloop.ORDERS[state.order])
      : Kubeloop.rollouts(selected, pods).sort(Kubeloop.ROLLOUT_ORDERS[state.order]);
    shown.set(state.shown);
    const emptyNote = find("empty");
    emptyNote.hidden = state.shown.length > 0;
    emptyNote.textContent = state.connectionError && !all.length ? state.connectionError
      : loading ? "Loading" : all.length ? (state.tab === "pods" ? "No pod matches." : "No rollout: none of these pods has an owner.")
        : isFile ? "This file has no pod traces." : "No pods yet.";
  };

  const drawRate = (lines) => {
    if (pods.loading) {
      find("rate").replaceChildren();
      find("rate-now").textContent = "…";
      find("rate-note").textContent = "loading";
      return;
    }
    let fromUs = Infinity, toUs = 0;
    if (isFile) {
      for (const line of lines) {
        if (!line.segments.length || line.isOpen) continue;
        fromUs = Math.min(fromUs, line.startUs);
        toUs = Math.max(toUs, line.startUs + line.durationUs + 1);
      }
    } else {
      toUs = Math.ceil(pods.now() / 1e6) * 1e6;
      fromUs = toUs - 60e6;
    }
    const seconds = isFile ? Math.max(0.001, (toUs - fromUs) / 60e6) : 1;
    const counts = toUs > fromUs ? Kubeloop.boundPer(lines, fromUs, toUs, 60) : new Uint32Array(60);
    const peak = Kubeloop.drawRate(find("rate"), counts, seconds, "Pods bound per second over time");
    let last = 0, bound = 0;
    for (const count of counts) bound += count;
    if (!isFile) last = counts[58];
    find("rate-now").textContent = isFile ? (bound ? Kubeloop.rate(bound / ((toUs - fromUs) / 1e6)) : "0") : Kubeloop.count(last);
    find("rate-note").textContent = !bound ? (isFile ? "none bound" : "none in the last minute")
      : isFile ? `${Kubeloop.count(bound)} over ${Kubeloop.duration(toUs - fromUs)}, peak ${Kubeloop.rate(peak)}/s`
        : `${Kubeloop.count(bound)} in the last minute, peak ${Kubeloop.count(Math.round(peak))}/s`;
  };

  /* --- user input --------------------------------------------------------------------------------------------------- */

  const go = (kind, key) => {
    const hash = kind ? `#${kind}=${encodeURIComponent(key)}` : "#";
    if (location.hash === hash || (!kind && !location.hash)) return;
    if (kind) location.hash = hash;
    else history.pushState(null, "", location.pathname + location.search);
    openFromHash();
  };
  const openFromHash = () => {
    const [, kind, key] = /^#(pod|rollout|trace)=(.+)$/.exec(location.hash) || [];
    let what = null;
    try { what = kind ? { [kind]: decodeURIComponent(key) } : null; } catch { what = null; }
    if (what?.trace) {
      const line = [...pods.byKey.values()].find((candidate) => candidate.traceId === what.trace);
      if (line) what = { pod: line.key };
    }
    const previous = detail.what;
    shown.openKey = what ? what.pod || what.rollout : null;
    if (what?.pod && state.tab === "pods") shown.activeKey = what.pod;
    detail.show(what);
    if (!what && previous) list.focus({ preventScroll: true });
    changed(true);
  };

  const selectTab = (tab) => {
    if (state.tab === tab) return;
    state.tab = tab;
    shown.stop();
    list.scrollTop = 0;
    list.setAttribute("aria-label", tab === "pods" ? "Pods" : "Rollouts");
    shown = views[tab]();
    for (const name of ["pods", "rollouts"]) {
      const button = find(`tab-${name}`);
      button.setAttribute("aria-selected", String(name === tab));
      button.tabIndex = name === tab ? 0 : -1;
    }
    draw();
  };
  const announce = (text) => { find("announcement").textContent = text; };
  const sortBy = (value) => {
    state.order = order.value = value;
    list.scrollTop = 0;
    changed(true);
  };
  const pause = (paused) => {
    state.paused = paused;
    source.pause(paused);
    status();
    announce(paused ? "Paused" : "Live");
  };
  const status = () => {
    live.dataset.state = state.connectionError ? "disconnected" : state.paused ? "paused" : "live";
    live.setAttribute("aria-pressed", String(!state.paused));
    find("live-text").textContent = state.connectionError ? "Not connected" : state.paused ? "Paused" : "Live";
    live.title = state.connectionError || (state.paused ? "Space: resume" : "Space: pause");
  };

  let announceTimer = 0;
  search.addEventListener("input", () => {
    state.query = search.value.trim();
    list.scrollTop = 0;
    changed(true);
    clearTimeout(announceTimer);
    announceTimer = setTimeout(() => announce(`${Kubeloop.plural(state.shown.length, state.tab === "pods" ? "pod" : "rollout")} found`), 500);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      if (search.value) { search.value = ""; search.dispatchEvent(new Event("input")); }
      list.focus();
      event.stopPropagation();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      draw(); /* the last input may not have been drawn yet */
      list.focus();
      shown.move(shown.first());
      if (event.key === "Enter" && state.shown.length === 1) shown.open(state.shown[0]);
    }
  });
  order.addEventListener("change", () => sortBy(order.value));
  live.addEventListener("click", () => pause(!state.paused));
  find("help-button").addEventListener("click", () => help.showModal());
  for (const tab of ["pods", "rollouts"]) {
    const button = find(`tab-${tab}`);
    button.addEventListener("click", () => selectTab(tab));
    button.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      selectTab(tab === "pods" ? "rollouts" : "pods");
      find(`tab-${state.tab}`).focus();
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || help.open) return;
    if (event.key === "Escape") { if (detail.what) { event.preventDefault(); go(); } return; }
    if (event.target.closest("input, select, textarea")) return;
    const orders = Object.keys(Kubeloop.ORDERS);
    const action = {
      "/": () => { search.focus(); search.select(); },
      "?": () => help.showModal(),
      p: () => selectTab("pods"),
      r: () => selectTab("rollouts"),
      s: () => { sortBy(orders[(orders.indexOf(state.order) + 1) % orders.length]); announce(`Sorted by ${state.order}`); },
      " ": event.target.closest("button, a, [role=treeitem]") || isFile ? null : () => pause(!state.paused),
      j: event.target === document.body ? () => { list.focus(); } : null,
      ArrowDown: event.target === document.body ? () => { list.focus(); } : null,
    }[event.key];
    if (action) { event.preventDefault(); action(); }
  });
  window.addEventListener("hashchange", openFromHash);

  /* --- start -------------------------------------------------------------------------------------------------------- */

  live.hidden = isFile;
  status();
  source.start((response) => {
    const first = !pods.byKey.size && response.lines.length > 0, wasLoading = pods.loading;
    if (state.connectionError) { state.connectionError = ""; status(); }
    if (pods.apply(response) || wasLoading) state.stale = true;
    if (response.title) {
      document.title = `${response.title} · kubeloop traces`;
      find("announcement").textContent = `${Kubeloop.plural(response.lines.length, "pod")} of ${response.title}`;
    }
    if (first) {
      if (isFile && !location.hash && source.first) go(source.first.kind, source.first.key);
      else if (location.hash) openFromHash();
    }
    changed();
  }, (problem) => {
    state.stale = true;
    state.connectionError = isFile ? problem : `No connection to the process (${problem}). Retrying.`;
    status();
    changed();
  });
  if (!isFile) setInterval(() => { if (!state.paused && !document.hidden) changed(); }, 1000);
  changed(true);
})();
