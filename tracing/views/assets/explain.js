/* Why a pod is pending, or on its node: the filters and scores of the nodes. */
"use strict";

/* The parts of an explanation: sentences, and tables of rejections and scores. */
Kubeloop.explanation = (answer) => {
  const text = (value) => Kubeloop.element("p", {}, value);
  const list = (values) => Kubeloop.element("ul", {}, values.map((value) => Kubeloop.element("li", {}, value)));
  const rejections = new Map();
  for (const node of answer.nodes)
    for (const { plugin, reasons } of node.obstacles) {
      const key = JSON.stringify([plugin, reasons.join(", ")]);
      rejections.set(key, [...(rejections.get(key) || []), node.node]);
    }
  const rows = [...rejections].sort((a, b) => b[1].length - a[1].length).map(([key, nodes]) =>
    [...JSON.parse(key), Kubeloop.count(nodes.length), nodes.slice(0, 6).join(", ") + (nodes.length > 6 ? ` and ${nodes.length - 6} more` : "")]);
  return [
    text(answer.summary),
    answer.message && answer.message !== answer.summary && text(answer.message),
    rows.length && Kubeloop.dataTable("Rejections", ["plugin", "reason", "nodes", "which"], rows, "words"),
    ...(answer.details.length ? [text("Details:"), list(answer.details)] : []),
    ...(answer.advice.length ? [text("What would help:"), list(answer.advice)] : []),
    answer.preemption && text(`Preemption: ${answer.preemption.replace(/^preemption /, "")}.`),
    ...Kubeloop.scores(answer.scores),
  ].filter(Boolean);
};

Kubeloop.scores = (scores) => {
  if (!scores || (scores.problem && !scores.node)) return [];
  const note = (value) => Kubeloop.element("p", { class: "note" }, value);
  if (scores.problem) return [note(`No scores: ${scores.problem}.`)];
  const fits = Kubeloop.plural(scores.feasible, "node");
  const rank = scores.rank === 1 ? "the highest score" : `rank ${scores.rank}`;
  const sentence = !scores.node ? `The pod fits ${fits}.`
    : scores.rank ? `Of ${fits} that the pod fits, ${scores.node} has ${rank}${scores.ties ? `, as ${Kubeloop.count(scores.ties)} more` : ""}.`
      : `The pod would not fit ${scores.node} now; it fits ${fits}.`;
  const nodes = [...scores.nodes].sort((a, b) => (b.node === scores.node) - (a.node === scores.node));
  const cell = ({ weighted, raw, normalized }) => Kubeloop.element("span", { title: `raw ${raw}, normalized ${normalized}, weighted ${weighted}` },
    String(weighted), Kubeloop.element("small", {}, ` ${raw} → ${normalized}`));
  return [
    Kubeloop.element("p", {}, sentence),
    Kubeloop.dataTable("Scores", ["plugin", ...nodes.map(({ node }) => node)], [
      ["total", ...nodes.map(({ total }) => String(total))],
      ...nodes[0].plugins.map(({ plugin }, index) => [plugin, ...nodes.map((node) => cell(node.plugins[index]))]),
    ]),
    note(`Weighted scores, with raw → normalized. They are those of now, without this pod${scores.boundLater ? ` and ${Kubeloop.count(scores.boundLater)} bound after it` : ""}.`),
    ...(scores.extenders.length ? [note(`Scores of extenders are not included: ${scores.extenders.join(", ")}.`)] : []),
  ];
};

/* A table whose first column names its rows. */
Kubeloop.dataTable = (title, headings, rows, kind = "numbers") => Kubeloop.element("div", { class: `table ${kind}`, tabindex: "0", role: "region", "aria-label": title },
  Kubeloop.element("table", {},
    Kubeloop.element("thead", {}, Kubeloop.element("tr", {}, headings.map((name) => Kubeloop.element("th", { scope: "col" }, name)))),
    Kubeloop.element("tbody", {}, rows.map(([first, ...cells]) =>
      Kubeloop.element("tr", {}, Kubeloop.element("th", { scope: "row" }, first), cells.map((value) => Kubeloop.element("td", {}, value)))))));
