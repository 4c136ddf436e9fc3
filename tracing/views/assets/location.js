/* State of the page in the URL, as its fragment: #pod=shop/web-1&show=events&tab=pods&q=error&stage=queued,failed&ns=shop&sort=slowest */
"use strict";

Kubeloop.DETAILS = ["pod", "rollout", "node", "trace"];
Kubeloop.TABS = ["pods", "rollouts", "nodes"];

/* The state of a fragment; unknown and broken parts are ignored.
 * { what: { pod | rollout | node | trace: name, with: name of what it is compared with } or null, show, tab, query, stages, namespace, order } */
Kubeloop.parseFragment = (fragment) => {
  const values = new Map();
  for (const part of fragment.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    try { if (at > 0) values.set(part.slice(0, at), decodeURIComponent(part.slice(at + 1))); } catch { /* not encoded */ }
  }
  const list = (name, known) => (values.get(name) || "").split(",").filter((value) => known.has(value));
  const kind = Kubeloop.DETAILS.find((name) => values.get(name));
  return {
    what: kind ? { [kind]: values.get(kind), with: values.get("with") || "" } : null,
    show: new Set(list("show", new Set(Kubeloop.SECTIONS))),
    tab: Kubeloop.TABS.includes(values.get("tab")) ? values.get("tab") : "pods",
    query: values.get("q") || "",
    stages: new Set(list("stage", Kubeloop.STAGE_PHASE)),
    namespace: values.get("ns") || "",
    order: values.get("sort") in Kubeloop.ORDERS ? values.get("sort") : "newest",
  };
};

/* The fragment of a state, "" for the default one. */
Kubeloop.fragment = ({ what, show, tab, query, stages, namespace, order }) => {
  const kind = what && Kubeloop.DETAILS.find((name) => what[name]);
  const parts = [
    ...(kind ? [[kind, what[kind]], ["with", what.with], ["show", [...show].join(",")]] : []),
    ["tab", tab === "pods" ? "" : tab], ["q", query], ["stage", [...stages].join(",")], ["ns", namespace], ["sort", order === "newest" ? "" : order],
  ];
  const text = parts.filter(([, value]) => value).map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2F", "/").replaceAll("%2C", ",")}`);
  return text.length ? `#${text.join("&")}` : "";
};

/* A link to a detail; the page adds its own search, tab and order when it is followed. */
Kubeloop.link = (kind, name, ...children) => Kubeloop.element("a", { href: Kubeloop.fragment({ what: { [kind]: name }, show: [], tab: "pods", query: "", stages: [], namespace: "", order: "newest" }) }, ...children);
