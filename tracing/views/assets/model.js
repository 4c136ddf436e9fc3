/* Model of the page: pods, search, rollouts and statistics. */
"use strict";

Kubeloop.BOUND_STAGES = new Set(["bound", "starting", "running", "ready", "completed", "crash back-off", "gone"]);
/* Whether the pod was bound to a node (PodLine.is_bound); it may have ended since. */
Kubeloop.isBound = (line) => Kubeloop.BOUND_STAGES.has(line.stage) || Boolean(line.node);
Kubeloop.DONE_STAGES = new Set(["bound", "ready", "completed", "gone", "deleted"]); /* bound: of a saved page */
Kubeloop.ABSENT_STAGES = new Set(["gone", "deleted", "completed", "failed"]); /* not on a node any more */
Kubeloop.GROUP = "podgroup/"; /* pod groups come after the owners of a pod */
Kubeloop.BINS = 48; /* of a distribution: 6 per decade, from 10 µs to 1000 s */

Kubeloop.Pods = class {
  constructor() {
    this.byKey = new Map();
    this.byName = new Map(); /* key of the newest pod by "namespace/name" */
    this.loading = true; /* until the last part of the first response: what is there are no totals */
    this.expected = 0; /* pods when it is loaded */
    this.nowUs = 0;
    this.clockSkew = {}; /* clocks that differ for certain: { lowestMs, highestMs } by name */
    this.respondedAt = 0; /* performance.now() of the last response */
  }

  /* Applies a FeedResponse (tracing/views/feed_response.py). Returns true if anything changed. */
  apply(response) {
    if (response.reset) { this.byKey.clear(); this.byName.clear(); }
    for (const key of response.removed) this.byKey.delete(key);
    for (const line of response.lines) {
      this.byKey.set(line.key, Kubeloop.line(line));
      const name = `${line.namespace}/${line.name}`, other = this.byKey.get(this.byName.get(name));
      if (line.name && (!other || other.startUs <= line.startUs)) this.byName.set(name, line.key);
    }
    if (response.reset) this.loading = true;
    if (!response.more) this.loading = false;
    this.expected = this.byKey.size + (response.remaining || 0);
    this.clockSkew = response.clockSkew || {};
    this.nowUs = response.nowUs;
    this.respondedAt = performance.now();
    return response.reset || response.lines.length > 0 || response.removed.length > 0;
  }

  /* The pod of a key or of "namespace/name", the newest of this name; null if there is none. */
  find(reference) {
    return this.byKey.get(reference) || this.byKey.get(this.byName.get(reference)) || null;
  }

  /* "namespace/name" if find() returns this pod for it, else its key. */
  refOf(line) {
    const name = `${line.namespace}/${line.name}`;
    return this.byName.get(name) === line.key ? name : line.key;
  }

  /* Microseconds since its stage began. */
  inStage(line) {
    return Math.max(0, this.nowUs ? this.now() - line.startUs - line.stageAfterUs : line.durationUs - line.stageAfterUs);
  }

  /* Microseconds since the epoch, by the clock of the process. */
  now() {
    return this.nowUs + (performance.now() - this.respondedAt) * 1e3;
  }

  /* "4,525 of 9,500" while it is loading. */
  get progress() {
    return this.expected > this.byKey.size ? `${Kubeloop.count(this.byKey.size)} of ${Kubeloop.count(this.expected)}` : "…";
  }

  duration(line) {
    return line.isOpen && this.nowUs ? Math.max(line.durationUs, this.now() - line.startUs) : line.durationUs;
  }
};

/* Adds the fields that JSON omits because of their default, and the text for the search. */
Kubeloop.line = (line) => {
  const complete = { segments: [], edgeUncertainties: [], owner: "", lowerOwners: [], groupTraceId: "", node: "", attempts: 0, stageAfterUs: 0, reason: "", isOpen: false, isReconstructed: false, traceId: "", ...line };
  complete.owners = complete.owner ? [complete.owner, ...complete.lowerOwners] : [];
  complete.group = complete.owners.find((owner) => owner.startsWith(Kubeloop.GROUP)) || "";
  /* keys of the rollouts that it belongs to: of its topmost owner and of its group */
  complete.rollouts = [...new Set([complete.owner, complete.group])].filter(Boolean).map((owner) => `${complete.namespace}/${owner}`);
  complete.text = `${complete.namespace}/${complete.name} ${complete.owners.join(" ")} ${complete.node} ${complete.stage} ${complete.reason} ${complete.traceId}`.toLowerCase();
  return complete;
};

/* Converts the text of the search field to a function that tests a line. An invalid term is searched as text. */
Kubeloop.search = (text, pods) => {
  const units = { us: 1, "µs": 1, ms: 1e3, s: 1e6, m: 6e7, min: 6e7, h: 3.6e9 };
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map((term) => {
    const time = /^([<>])(\d+(?:\.\d+)?)(us|µs|ms|s|m|min|h)?$/.exec(term);
    if (time) {
      const limit = Number(time[2]) * units[time[3] || "ms"];
      return time[1] === ">" ? (line) => pods.duration(line) > limit : (line) => pods.duration(line) < limit;
    }
    const [, key, value] = /^(ns|namespace|node|owner|podgroup|stage|attempts):(.+)$/.exec(term) || [];
    if (key === "attempts") return (line) => line.attempts >= Number(value);
    if (key === "owner") return (line) => line.owners.some((owner) => owner.toLowerCase().includes(value));
    if (key === "podgroup") return (line) => line.group.slice(Kubeloop.GROUP.length).toLowerCase().includes(value);
    if (key) {
      const field = key === "ns" ? "namespace" : key;
      return (line) => line[field].toLowerCase().includes(value);
    }
    return (line) => line.text.includes(term);
  });
  return (line) => tests.every((test) => test(line));
};

/* Length of the time axis of a list in microseconds: pods that wait, or take far longer than others, are cut off.
 * done, open: durations of finished and of open traces. */
Kubeloop.scaleOf = (done, open) => {
  const longest = [done, open].flat().reduce((a, b) => Math.max(a, b), 1);
  const usual = 1.25 * Kubeloop.percentile(Float64Array.from(done.length ? done : open).sort(), 0.9);
  return longest <= 2 * usual ? longest : Math.max(1, usual);
};

Kubeloop.ORDERS = {
  newest: (a, b) => b.startUs - a.startUs || (a.name < b.name ? 1 : -1),
  slowest: (a, b) => b.shownUs - a.shownUs || (a.name < b.name ? -1 : 1),
  attempts: (a, b) => b.attempts - a.attempts || b.shownUs - a.shownUs,
  name: (a, b) => (a.namespace + "/" + a.name < b.namespace + "/" + b.name ? -1 : 1),
};

/* Microseconds from creation to binding of a bound pod; its trace may continue until it is ready. */
Kubeloop.ON_NODE = new Set(["sandbox", "init", "pull", "start", "probes", "crash"].map((key) => Kubeloop.PHASES.findIndex((phase) => phase.key === key)));
Kubeloop.boundAfter = (line) => {
  for (let at = 0; at < line.segments.length; at += 3) if (Kubeloop.ON_NODE.has(line.segments[at])) return line.segments[at + 1];
  return line.durationUs;
};

/* Microseconds by which the time between two edges of a line, by default all of it, may differ from the true one. */
Kubeloop.uncertaintyOf = (line, first = 0, last = line.edgeUncertainties.length - 1) =>
  line.edgeUncertainties.length ? Math.max(line.edgeUncertainties[first], line.edgeUncertainties[last]) : 0;

Kubeloop.boundUncertainty = (line) => {
  const at = line.segments.findIndex((phase, index) => index % 3 === 0 && Kubeloop.ON_NODE.has(phase));
  return at < 0 ? Kubeloop.uncertaintyOf(line) : Kubeloop.uncertaintyOf(line, 0, at / 3);
};

/* Percentiles of values that are uncertain by `uncertainties`: { p50, p90, p99, max, uncertainty }; none of them differs
 * from that of the true values by more than `uncertainty`. */
Kubeloop.percentiles = (values, uncertainties) => {
  const shares = [0.5, 0.9, 0.99, 1];
  const of = (sign) => {
    const ordered = Float64Array.from(values, (value, index) => value + sign * uncertainties[index]).sort();
    return shares.map((share) => Kubeloop.percentile(ordered, share));
  };
  const shown = of(0);
  let uncertainty = 0;
  if (uncertainties.some(Boolean)) {
    const lowest = of(-1), highest = of(1);
    shown.forEach((value, index) => { uncertainty = Math.max(uncertainty, highest[index] - value, value - lowest[index]); });
  }
  return { p50: shown[0], p90: shown[1], p99: shown[2], max: shown[3], uncertainty };
};

/* Groups pods by topmost owner, and by pod group: { key, namespace, owner, lines, finished, waiting, open, startUs, endUs, totals, p99, rate }. */
Kubeloop.rollouts = (lines, pods) => {
  const byOwner = new Map();
  for (const line of lines) {
    for (const key of line.rollouts) {
      const own = byOwner.get(key);
      if (own) own.push(line); else byOwner.set(key, [line]);
    }
  }
  return [...byOwner].map(([key, own]) => Kubeloop.rollout(key, own, pods));
};

/* The nodes of the pods, and of `objects` (/debug/objects/nodes, if it is known): { key, lines, stage, zone, reason, pods, waiting, startUs, sums }. */
Kubeloop.nodes = (lines, pods, objects) => {
  const byNode = new Map((objects || []).map((node) => [node.name, []]));
  for (const line of lines) {
    if (!line.node) continue;
    const own = byNode.get(line.node);
    if (own) own.push(line); else byNode.set(line.node, [line]);
  }
  const states = new Map((objects || []).map((node) => [node.name, node]));
  return [...byNode].map(([key, own]) => {
    const sums = new Float64Array(Kubeloop.PHASES.length), state = states.get(key) || {};
    for (const line of own) Kubeloop.addPhases(sums, line, pods);
    return { key, lines: own, sums, stage: state.stage || "", zone: state.zone || "", reason: state.reason || "", pods: own.filter((line) => !Kubeloop.ABSENT_STAGES.has(line.stage)).length,
      startUs: own.reduce((newest, line) => Math.max(newest, line.startUs), 0), slowestUs: own.reduce((longest, line) => Math.max(longest, pods.duration(line)), 0) };
  });
};

Kubeloop.NODE_ORDERS = {
  newest: (a, b) => b.startUs - a.startUs || (a.key < b.key ? -1 : 1),
  slowest: (a, b) => b.slowestUs - a.slowestUs,
  attempts: (a, b) => b.pods - a.pods,
  name: (a, b) => a.key.localeCompare(b.key, "en", { numeric: true }),
};

Kubeloop.rollout = (key, lines, pods) => {
  const slash = key.indexOf("/");
  const traced = lines.filter((line) => line.segments.length);
  const finished = traced.filter(Kubeloop.isBound), open = traced.filter((line) => line.isOpen && !Kubeloop.isBound(line));
  let startUs = Infinity, endUs = 0, boundUs = 0;
  for (const line of traced.length ? traced : lines) {
    startUs = Math.min(startUs, line.startUs);
    endUs = Math.max(endUs, line.startUs + pods.duration(line));
  }
  for (const line of finished) boundUs = Math.max(boundUs, line.startUs + Kubeloop.boundAfter(line));
  const totals = Kubeloop.percentiles(finished.map(Kubeloop.boundAfter), finished.map(Kubeloop.boundUncertainty));
  const openUs = open.map((line) => pods.duration(line));
  /* of all pods: those that are not bound yet take at least their time so far */
  const ordered = Float64Array.from([...finished.map(Kubeloop.boundAfter), ...openUs]).sort();
  const p99 = Kubeloop.percentile(ordered, 0.99);
  const sums = new Float64Array(Kubeloop.PHASES.length);
  for (const line of traced) Kubeloop.addPhases(sums, line, pods);
  return {
    key, lines, traced, startUs, endUs, sums,
    namespace: key.slice(0, slash),
    owner: key.slice(slash + 1),
    finished: lines.filter(Kubeloop.isBound).length,
    waiting: lines.filter((line) => Kubeloop.STAGE_PHASE.get(line.stage) === "waiting").length,
    totals: { pods: finished.length, ...totals },
    open: open.length, openUs: Math.max(0, ...openUs),
    p99, isLeastP99: openUs.some((us) => us <= p99),
    rate: finished.length > 1 && boundUs > startUs ? finished.length / ((boundUs - startUs) / 1e6) : 0,
  };
};

Kubeloop.ROLLOUT_ORDERS = {
  newest: (a, b) => b.startUs - a.startUs,
  slowest: (a, b) => b.p99 - a.p99 || b.endUs - b.startUs - (a.endUs - a.startUs),
  attempts: (a, b) => b.waiting - a.waiting,
  name: (a, b) => (a.key < b.key ? -1 : 1),
};

/* Nearest-rank percentile; 0 for an empty list. ordered: ascending. */
Kubeloop.percentile = (ordered, share) =>
  ordered.length ? ordered[Math.max(0, Math.ceil(ordered.length * share) - 1)] : 0;

/* Adds the microseconds of a line in each phase, and their uncertainties; the last phase of an open trace lasts until now. */
Kubeloop.addPhases = (sums, line, pods, uncertainties = null) => {
  const segments = line.segments;
  for (let at = 0; at < segments.length; at += 3) {
    sums[segments[at]] += segments[at + 2];
    if (uncertainties) uncertainties[segments[at]] += Kubeloop.uncertaintyOf(line, at / 3, at / 3 + 1);
  }
  if (line.isOpen && segments.length) sums[segments.at(-3)] += Math.max(0, pods.duration(line) - line.durationUs);
};

/* Times of each phase that any line has: { index, pods, p50, p90, p99, max, uncertainty, share, bins }, in microseconds. */
Kubeloop.phaseTimes = (lines, pods) => {
  const count = Kubeloop.PHASES.length;
  const sums = Array.from({ length: count }, () => []);
  const uncertainties = sums.map(() => []);
  const own = new Float64Array(count), ownUncertainties = new Float64Array(count);
  let allUs = 0;
  for (const line of lines) {
    own.fill(0);
    ownUncertainties.fill(0);
    Kubeloop.addPhases(own, line, pods, ownUncertainties);
    for (let index = 0; index < count; index++) {
      if (!own[index]) continue;
      sums[index].push(own[index]);
      uncertainties[index].push(ownUncertainties[index]);
      allUs += own[index];
    }
  }
  return sums.map((values, index) => {
    if (!values.length) return null;
    const bins = new Uint32Array(Kubeloop.BINS);
    let sum = 0;
    for (const value of values) {
      sum += value;
      const bin = Math.floor((Math.log10(Math.max(value, 1)) - 1) * 6);
      bins[Math.min(Kubeloop.BINS - 1, Math.max(0, bin))]++;
    }
    return {
      index, bins, pods: values.length, ...Kubeloop.percentiles(values, uncertainties[index]),
      share: allUs ? sum / allUs : 0,
    };
  }).filter(Boolean);
};

/* Number of pods bound in each of `buckets` parts of [fromUs, toUs). */
Kubeloop.boundPer = (lines, fromUs, toUs, buckets) => {
  const counts = new Uint32Array(buckets);
  const width = (toUs - fromUs) / buckets;
  for (const line of lines) {
    if (!line.segments.length || !Kubeloop.isBound(line)) continue;
    const at = Math.floor((line.startUs + Kubeloop.boundAfter(line) - fromUs) / width);
    if (at >= 0 && at < buckets) counts[at]++;
  }
  return counts;
};
