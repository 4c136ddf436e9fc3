/* Two pods or two groups of pods, phase by phase. */
"use strict";

/* Two pods: their bars on one scale, and the time of each in every phase. */
Kubeloop.comparePods = (first, second, pods) => {
  const lines = [first, second], totals = lines.map((line) => pods.duration(line)), scale = Math.max(...totals, 1);
  const sums = lines.map((line) => { const sum = new Float64Array(Kubeloop.PHASES.length); Kubeloop.addPhases(sum, line, pods); return sum; });
  const bars = lines.map((line, index) => {
    const fill = Kubeloop.element("span", { class: "fill" });
    Kubeloop.drawSegments(fill, line, totals[index], scale);
    return Kubeloop.element("div", { class: "compared" }, Kubeloop.element("b", {}, Kubeloop.link("pod", pods.refOf(line), line.name || "(never created)")), fill);
  });
  const axis = Kubeloop.element("div", { class: "axis", "aria-hidden": "true" });
  Kubeloop.drawAxis(axis, scale, 400);
  const rows = Kubeloop.PHASES.map((phase, index) => [phase, sums[0][index], sums[1][index]]).filter(([, a, b]) => a || b)
    .map(([phase, a, b]) => [Kubeloop.phaseName(phase), ...Kubeloop.comparedCells(a, b)]);
  rows.push(["in all", ...Kubeloop.comparedCells(...totals)]);
  return [...bars, Kubeloop.element("div", { class: "compared" }, Kubeloop.element("span"), axis),
    Kubeloop.dataTable("Time per phase", ["phase", first.name, second.name, "difference"], rows),
    Kubeloop.dataTable("Facts", ["fact", first.name, second.name], [["stage", first.stage, second.stage], ["node", first.node, second.node], ["attempts", String(first.attempts), String(second.attempts)], ["reason", first.reason, second.reason]], "words")];
};

/* Two groups, such as rollouts: p50 and p99 of each phase. names: of the two. */
Kubeloop.compareGroups = (groups, names, clocks) => {
  const times = groups.map(({ traced }, side) => new Map(Kubeloop.phaseTimes(traced, clocks[side]).map((time) => [time.index, time])));
  const none = { p50: 0, p99: 0 };
  const shown = Kubeloop.PHASES.map((phase, index) => [phase, times[0].get(index) || none, times[1].get(index) || none]).filter(([, a, b]) => a !== none || b !== none);
  const table = (title, part) => Kubeloop.dataTable(title, [title, ...names, "difference"], [
    ...shown.map(([phase, a, b]) => [Kubeloop.phaseName(phase), ...Kubeloop.comparedCells(a[part], b[part])]),
    ["created to bound", ...Kubeloop.comparedCells(groups[0].totals[part], groups[1].totals[part])]]);
  const facts = ([a, b], text) => [text(a), text(b)];
  return [
    table("median per phase", "p50"),
    table("p99 per phase", "p99"),
    Kubeloop.dataTable("Facts", ["fact", ...names], [
      ["pods bound", ...facts(groups, (group) => `${Kubeloop.count(group.finished)} of ${Kubeloop.count(group.lines.length)}`)],
      ["duration", ...facts(groups, (group) => (group.traced.length ? Kubeloop.duration(group.endUs - group.startUs) : ""))],
      ["pods bound per second", ...facts(groups, (group) => (group.rate ? Kubeloop.rate(group.rate) : ""))],
      ["waiting", ...facts(groups, (group) => Kubeloop.count(group.waiting))]]),
  ];
};

Kubeloop.phaseName = (phase) => Kubeloop.element("span", {}, Kubeloop.element("i", { class: "swatch", "data-phase": phase.key }), phase.title);

Kubeloop.comparedCells = (a, b) => {
  const text = (us) => (us ? Kubeloop.duration(us) : "–"), by = b - a;
  const difference = Math.abs(by) < Math.max(1, 0.005 * Math.max(a, b)) ? "same" : `${by > 0 ? "+" : "−"}${Kubeloop.duration(Math.abs(by))}${a && b ? `, ×${Number((b / a).toPrecision(2))}` : ""}`;
  return [text(a), text(b), Kubeloop.element("span", { class: difference === "same" ? "" : by > 0 ? "more" : "less" }, difference)];
};

/* What the user chooses to compare with: a name of the same kind, or a page saved by `kubeloop trace --html`, such as of another replay. */
Kubeloop.CompareForm = class {
  /* compare(name): the user has chosen a name; file(pods, name): the pods of a saved page; names(): those to choose from. */
  constructor({ names, compare, file }) {
    const options = Kubeloop.element("datalist", { id: "compare-names" });
    const input = Kubeloop.element("input", { type: "text", list: "compare-names", placeholder: "another name", "aria-label": "Name to compare with", autocomplete: "off", spellcheck: "false",
      onfocus: () => options.replaceChildren(...names().map((name) => Kubeloop.element("option", { value: name }))),
      onchange: () => { if (input.value.trim()) compare(input.value.trim()); } });
    const chooser = Kubeloop.element("input", { type: "file", accept: ".html", "aria-label": "Saved page to compare with", onchange: () => chooser.files[0] && this.read(chooser.files[0], file) });
    this.note = Kubeloop.element("p", { class: "note", role: "status" });
    this.node = Kubeloop.element("details", { class: "why compare-form" }, Kubeloop.element("summary", {}, "Compare"),
      Kubeloop.element("div", { class: "choices" }, Kubeloop.element("label", {}, "with ", input), options,
        Kubeloop.element("label", {}, "or with a page that kubeloop trace --html has saved, such as of another replay: ", chooser)), this.note);
  }

  async read(file, use) {
    try {
      const packed = /<script type="text\/plain" id="lines">([^<]*)</.exec(await file.text());
      if (!packed) throw new Error("it is not a page of kubeloop trace --html");
      const content = await Kubeloop.unpack(packed[1]), pods = new Kubeloop.Pods();
      pods.apply({ reset: true, removed: [], lines: content.lines, nowUs: 0, more: false });
      use(pods, content.title || file.name);
    } catch (error) {
      this.note.textContent = `${file.name} cannot be compared: ${error.message}.`;
    }
  }
};
