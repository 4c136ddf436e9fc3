/* Page: list, open detail, and keyboard. */
"use strict";

(() => {
  const find = (id) => document.getElementById(id);
  const isFile = Boolean(find("lines"));
  const pods = new Kubeloop.Pods();
  const source = isFile ? new Kubeloop.FileSource() : new Kubeloop.LiveSource();
  const state = { ...Kubeloop.parseFragment(""), paused: false, connectionError: "", shown: [], selected: [], stale: true, computedAt: 0, nodes: null, nodesAt: -1e9 };
  const list = find("list"), search = find("search"), order = find("sort"), namespace = find("namespace"), live = find("live"), help = find("help");

  /* --- rows ------------------------------------------------------------------------------------------------- */

  const cell = (name, ...children) => Kubeloop.element("span", { class: `cell ${name}`, role: "gridcell" }, ...children);
  /* Column headings; the one of the bars has the time axis. */
  const headOf = (kind, headings) => {
    const axis = Kubeloop.element("span", { class: "axis", "aria-hidden": "true" });
    const row = Kubeloop.element("div", { class: `headings ${kind}`, role: "row" }, headings.map(([name, text]) =>
      Kubeloop.element("span", { class: `cell ${name}`, role: "columnheader" }, name === "bar" ? [Kubeloop.element("span", { class: "unseen" }, text), axis] : text)));
    row.axis = axis;
    return row;
  };
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
    Kubeloop.drawSegments(parts.fill, line, durationUs, state.scaleUs);
    parts.duration.textContent = line.segments.length ? Kubeloop.shortUncertainDuration(durationUs, uncertainty) : "not traced";
    row.classList.toggle("untraced", !line.segments.length);
  };
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
    showShares(parts.bar, rollout.sums);
    const { p99, isLeastP99, totals: { uncertainty } } = rollout;
    row.title = ["time of its pods by phase", p99 && `created to bound: p99 ${isLeastP99 ? "at least " : ""}${Kubeloop.uncertainDuration(p99, isLeastP99 ? 0 : uncertainty)}`,
      rollout.open && `${Kubeloop.plural(rollout.open, "pod")} not bound for up to ${Kubeloop.duration(rollout.openUs)}`].filter(Boolean).join("; ");
    parts.duration.textContent = !p99 || pods.loading ? "" : isLeastP99 ? `p99 >${Kubeloop.shortDuration(p99)}` : `p99 ${Kubeloop.shortUncertainDuration(p99, uncertainty)}`;
  };

  const showShares = (bar, sums) => {
    const all = sums.reduce((sum, durationUs) => sum + durationUs, 0);
    Kubeloop.PHASES.forEach((phase, index) => {
      const share = bar.children[index] || bar.appendChild(Kubeloop.element("i", { "data-phase": phase.key, class: "share" }));
      share.style.width = `${all ? (100 * sums[index]) / all : 0}%`;
    });
  };

  const makeNode = () => {
    const row = Kubeloop.element("div", { class: "row rollout", role: "row" });
    row.parts = { name: Kubeloop.element("b"), zone: Kubeloop.element("small"), count: cell("count"), stage: cell("node"), bar: Kubeloop.element("span", { class: "fill" }), duration: cell("duration") };
    const parts = row.parts;
    row.append(cell("pod", parts.name, parts.zone), parts.count, parts.stage, cell("bar", parts.bar), parts.duration);
    return row;
  };
  const showNode = (row, node) => {
    const parts = row.parts;
    parts.name.textContent = node.key;
    parts.zone.textContent = node.zone;
    parts.count.textContent = pods.loading ? "…" : Kubeloop.plural(node.pods, "pod");
    parts.stage.textContent = node.stage;
    parts.duration.textContent = node.slowestUs ? Kubeloop.shortDuration(node.slowestUs) : "";
    row.title = node.reason;
    row.dataset.phase = node.stage && node.stage !== "ready" ? "waiting" : "";
    showShares(parts.bar, node.sums);
  };

  const heads = {
    pods: headOf("", [["pod", "pod, namespace"], ["stage-name", "stage"], ["node", "node"], ["attempts", Kubeloop.element("span", { class: "unseen" }, "attempts")], ["bar", "time since creation, by phase"], ["duration", "time"]]),
    rollouts: headOf("rollout", [["pod", "owner, namespace"], ["count", "bound"], ["node", "rate"], ["bar", "share of time by phase"], ["duration", "p99"]]),
    nodes: headOf("rollout", [["pod", "node, zone"], ["count", "pods"], ["node", "status"], ["bar", "share of time by phase"], ["duration", "slowest"]]),
  };
  const views = {
    pods: () => new Kubeloop.VirtualList(list, { head: heads.pods, make: makePod, show: showPod, keyOf: (line) => line.key, open: (line) => go({ pod: pods.refOf(line) }) }),
    rollouts: () => new Kubeloop.VirtualList(list, { head: heads.rollouts, make: makeRollout, show: showRollout, keyOf: (rollout) => rollout.key, open: (rollout) => go({ rollout: rollout.key }) }),
    nodes: () => new Kubeloop.VirtualList(list, { head: heads.nodes, make: makeNode, show: showNode, keyOf: (node) => node.key, open: (node) => go({ node: node.key }) }),
  };
  let shown = views.pods();
  const stages = new Kubeloop.StageButtons(find("stages"), find("stage-bar"), state.stages, () => filtered());
  const phases = new Kubeloop.PhaseRows(find("phases"));
  const detail = new Kubeloop.Detail(find("detail"), { pods, source, shown: state.show, onchange: () => writeUrl(), close: () => go(null), open: (line) => go({ pod: pods.refOf(line) }), compare: (name) => go({ ...state.what, with: name }) });

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
    const filterKey = `${state.query}|${[...state.stages]}|${state.order}|${state.tab}|${state.namespace}`;
    const now = performance.now();
    if (pods.loading && filterKey === state.filterKey && now - state.computedAt < 1000) { /* most of it would be computed again at once */
      find("pods-total").textContent = `loading ${pods.progress}`;
    } else if (state.stale || filterKey !== state.filterKey || now - state.computedAt > 5000) {
      Object.assign(state, { stale: false, filterKey, computedAt: now });
      compute();
    } else {
      drawRate(state.selected);
      shown.draw();
    }
    detail.draw();
    shown.openKey = detail.key;
  };

  const compute = () => {
    const all = [...pods.byKey.values()], matches = Kubeloop.search(state.query, pods);
    showNamespaces(all);
    const matching = all.filter((line) => (!state.namespace || line.namespace === state.namespace) && matches(line));
    const loading = pods.loading, counted = (number) => (loading ? "…" : Kubeloop.count(number));
    const counts = new Map();
    for (const line of matching) counts.set(line.stage, (counts.get(line.stage) || 0) + 1);
    stages.draw(counts, matching.length, loading);
    const selected = state.stages.size ? matching.filter((line) => state.stages.has(line.stage)) : matching;
    state.selected = selected;
    const owners = new Set(), nodes = new Set(), done = [], open = [];
    for (const line of selected) {
      line.shownUs = pods.duration(line);
      if (line.segments.length) (line.isOpen ? open : done).push(line.shownUs);
      for (const key of line.rollouts) owners.add(key);
      if (line.node) nodes.add(line.node);
    }
    state.scaleUs = Kubeloop.scaleOf(done, open);
    const skew = Object.entries(pods.clockSkew).map(([clock, bounds]) => Kubeloop.skew(clock, bounds));
    find("skew").hidden = !skew.length;
    find("skew").textContent = `Clocks differ: ${skew.slice(0, 3).join(", ")}${skew.length > 3 ? ` and ${skew.length - 3} more` : ""}`;
    find("skew").title = skew.join("\n");
    find("pods-total").textContent = loading ? `loading ${pods.progress}` : Kubeloop.count(matching.length);
    drawRate(selected);
    phases.draw(loading ? [] : Kubeloop.phaseTimes(selected, pods), loading ? "loading" : "no traces");
    find("shown-pods").textContent = counted(selected.length);
    find("shown-rollouts").textContent = counted(owners.size);
    const isFiltered = Boolean(state.query || state.stages.size || state.namespace);
    const objects = state.nodes && !isFiltered ? state.nodes : null;
    find("shown-nodes").textContent = counted(objects ? Math.max(nodes.size, objects.length) : nodes.size);
    state.shown = state.tab === "pods" ? [...selected].sort(Kubeloop.ORDERS[state.order])
      : state.tab === "rollouts" ? Kubeloop.rollouts(selected, pods).sort(Kubeloop.ROLLOUT_ORDERS[state.order])
        : Kubeloop.nodes(selected, pods, objects).sort(Kubeloop.NODE_ORDERS[state.order]);
    shown.set(state.shown);
    Kubeloop.drawAxis(heads.pods.axis, state.scaleUs);
    find("empty").hidden = state.shown.length > 0;
    if (!state.shown.length) find("empty").replaceChildren(...nothing(all.length > 0, isFiltered));
  };

  /* What to show instead of an empty list: why it is empty, and what to do next. */
  const nothing = (hasPods, isFiltered) => {
    const text = (value) => Kubeloop.element("p", {}, value), code = (value) => Kubeloop.element("p", {}, Kubeloop.element("code", {}, value));
    if (state.connectionError && !hasPods) return [text(state.connectionError), text("Start the process again, or open the address that it prints.")];
    if (pods.loading) return [text("Loading")];
    if (!hasPods && isFile) return [text("This file has no pod traces."), text("Save one with:"), code("kubeloop trace --html traces.html")];
    if (!hasPods) return [text("No pods yet. Create some, for example:"), code("kubectl create deployment web --image=nginx --replicas=3")];
    if (isFiltered) return [text(`No ${state.tab === "pods" ? "pod" : state.tab === "rollouts" ? "rollout" : "node"} matches.`),
      Kubeloop.element("button", { type: "button", class: "plain", onclick: () => { Object.assign(state, { query: "", namespace: "" }); state.stages.clear(); showState(); filtered(); } }, "Show all")];
    return state.tab === "nodes" ? [text("No node: none of these pods is bound. The list of pods shows what they wait for.")]
      : [text("No rollout: none of these pods has an owner. The list of pods shows them.")];
  };

  const showNamespaces = (lines) => {
    const names = [...new Set(lines.map((line) => line.namespace))].sort();
    if (state.namespace && !names.includes(state.namespace)) names.push(state.namespace);
    if (names.join() === state.namespaces) return;
    state.namespaces = names.join();
    namespace.replaceChildren(Kubeloop.element("option", { value: "" }, "all namespaces"), ...names.map((name) => Kubeloop.element("option", { value: name }, name)));
    namespace.value = state.namespace;
  };

  /* The nodes of the cluster, while they are shown: those without pods, and whether they are ready. */
  const readNodes = async () => {
    if (state.tab !== "nodes" || isFile || performance.now() - state.nodesAt < 5000) return;
    state.nodesAt = performance.now();
    try { state.nodes = await source.nodes(); } catch { state.nodes = null; } /* those of the pods are shown */
    state.stale = true;
    changed();
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

  /* Opens a detail, or none for null. */
  const go = (what) => {
    state.what = what;
    writeUrl(true);
    openDetail();
  };
  /* Writes the state to the URL, as a new entry of the history or instead of the current one. */
  const writeUrl = (isNew = false) => {
    const fragment = Kubeloop.fragment(state);
    if (fragment === location.hash) return;
    history[isNew ? "pushState" : "replaceState"](null, "", fragment || location.pathname + location.search);
  };
  let urlTimer = 0;
  const filtered = () => { /* browsers limit the rate of changes */
    list.scrollTop = 0;
    clearTimeout(urlTimer);
    urlTimer = setTimeout(writeUrl, 200);
    changed(true);
  };
  /* Takes the state from the URL: at the start, for Back, and for an edited address. */
  const readUrl = () => {
    clearTimeout(urlTimer);
    const { show, stages: selected, ...others } = Kubeloop.parseFragment(location.hash);
    for (const [own, values] of [[state.show, show], [state.stages, selected]]) { own.clear(); for (const value of values) own.add(value); }
    Object.assign(state, others, { tab: state.tab });
    selectTab(others.tab);
    showState();
    openDetail();
  };
  const showState = () => {
    search.value = state.query;
    order.value = state.order;
    state.namespaces = null; /* the options may lack it */
  };
  const openDetail = () => {
    let what = state.what;
    if (what?.trace) {
      const line = [...pods.byKey.values()].find((candidate) => candidate.traceId === what.trace);
      if (line) what = { pod: line.key };
    }
    const previous = detail.what;
    const line = what?.pod ? pods.find(what.pod) : null;
    if (line && state.tab === "pods") shown.activeKey = line.key;
    detail.show(what);
    if (!what && previous) list.focus({ preventScroll: true });
    changed(true);
  };

  const selectTab = (tab) => {
    if (state.tab === tab) return;
    state.tab = tab;
    shown.stop();
    list.scrollTop = 0;
    list.setAttribute("aria-label", { pods: "Pods", rollouts: "Rollouts", nodes: "Nodes" }[tab]);
    shown = views[tab]();
    for (const name of Kubeloop.TABS) {
      const button = find(`tab-${name}`);
      button.setAttribute("aria-selected", String(name === tab));
      button.tabIndex = name === tab ? 0 : -1;
    }
    state.nodesAt = -1e9;
    readNodes();
    draw();
  };
  const chooseTab = (tab) => { selectTab(tab); writeUrl(); };
  const announce = (text) => { find("announcement").textContent = text; };
  const sortBy = (value) => {
    state.order = order.value = value;
    filtered();
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
    filtered();
    clearTimeout(announceTimer);
    announceTimer = setTimeout(() => announce(`${Kubeloop.plural(state.shown.length, state.tab.slice(0, -1))} found`), 500);
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
  namespace.addEventListener("change", () => { state.namespace = namespace.value; filtered(); });
  document.addEventListener("click", (event) => { /* a link to a detail leaves search, tab and order as they are */
    const link = event.target.closest('a[href^="#"]');
    const what = link && !event.ctrlKey && !event.metaKey && !event.shiftKey ? Kubeloop.parseFragment(link.hash).what : null;
    if (what) { event.preventDefault(); go(what); }
  });
  live.addEventListener("click", () => pause(!state.paused));
  find("help-button").addEventListener("click", () => help.showModal());
  for (const tab of Kubeloop.TABS) {
    const button = find(`tab-${tab}`), at = Kubeloop.TABS.indexOf(tab), last = Kubeloop.TABS.length;
    button.addEventListener("click", () => chooseTab(tab));
    button.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      chooseTab(Kubeloop.TABS[(at + (event.key === "ArrowRight" ? 1 : last - 1)) % last]);
      find(`tab-${state.tab}`).focus();
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || help.open) return;
    if (event.key === "Escape") { if (detail.what) { event.preventDefault(); go(null); } return; }
    if (event.target.closest("input, select, textarea")) return;
    const orders = Object.keys(Kubeloop.ORDERS);
    const action = {
      "/": () => { search.focus(); search.select(); },
      "?": () => help.showModal(),
      p: () => chooseTab("pods"),
      r: () => chooseTab("rollouts"),
      n: () => chooseTab("nodes"),
      s: () => { sortBy(orders[(orders.indexOf(state.order) + 1) % orders.length]); announce(`Sorted by ${state.order}`); },
      " ": event.target.closest("button, a, summary, [role=treeitem]") || isFile ? null : () => pause(!state.paused),
      j: event.target === document.body ? () => { list.focus(); } : null,
      ArrowDown: event.target === document.body ? () => { list.focus(); } : null,
    }[event.key];
    if (action) { event.preventDefault(); action(); }
  });
  window.addEventListener("hashchange", readUrl);

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
      if (isFile && !location.hash && source.first) go({ [source.first.kind]: source.first.key });
      else if (state.what) openDetail();
    }
    changed();
  }, (problem) => {
    state.stale = true;
    state.connectionError = isFile ? problem : `No connection to the process (${problem}). Retrying.`;
    status();
    changed();
  });
  if (!isFile) setInterval(() => { if (!state.paused && !document.hidden) { readNodes(); changed(); } }, 1000);
  new ResizeObserver(() => Kubeloop.drawAxis(heads.pods.axis, state.scaleUs || 1)).observe(heads.pods.axis);
  readUrl();
})();
