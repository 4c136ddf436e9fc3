/* Formatting of numbers, and creation of elements. Text from pods is always set as text, never as markup. */
"use strict";

const Kubeloop = {};

/* Phases in the order of tracing/views/phases.py; segments refer to them by index. */
Kubeloop.PHASES = [
  { key: "create", title: "create", description: "create request, until its response" },
  { key: "delivery", title: "delivery", description: "from creation until the watch event" },
  { key: "queue", title: "queue", description: "waiting in the active queue" },
  { key: "waiting", title: "waiting", description: "unschedulable, in backoff or gated" },
  { key: "scheduling", title: "scheduling", description: "filtering, scoring, node selection; until the first decision of another scheduler" },
  { key: "preemption", title: "preemption", description: "waiting until preempted pods have ended" },
  { key: "permit", title: "permit", description: "reserve, permit and pre-bind" },
  { key: "bind", title: "bind", description: "bind request, until its response" },
  { key: "confirmation", title: "confirm", description: "from binding until the watch event" },
  { key: "sandbox", title: "sandbox", description: "acknowledgement by the kubelet, volumes, sandbox and network on the node" },
  { key: "init", title: "init", description: "init containers" },
  { key: "pull", title: "image pull", description: "pulling images on the node" },
  { key: "start", title: "start", description: "containers start on the node" },
  { key: "probes", title: "probes", description: "start-up and readiness probes, readiness gates" },
  { key: "crash", title: "crash loop", description: "failed runs of containers, and back-off after them" },
  { key: "loop", title: "event loop", description: "delayed while the event loop handled other pods" },
  { key: "unobserved", title: "not observed", description: "no events: a watch was interrupted" },
  { key: "other", title: "other", description: "not followed, other scheduler, or terminating" },
];

/* Stages of a pod in order; colour: that of `phase`. `regular`: a stage that every pod goes through. */
Kubeloop.STAGES = [
  { key: "creating", phase: "create", regular: true },
  { key: "delivery", phase: "delivery", regular: true },
  { key: "queued", phase: "queue", regular: true },
  { key: "scheduling", phase: "scheduling", regular: true },
  { key: "binding", phase: "bind", regular: true },
  { key: "bound", phase: "confirmation", regular: true },
  { key: "starting", phase: "confirmation", regular: true },
  { key: "running", phase: "start", regular: true },
  { key: "ready", phase: "ready", regular: true },
  { key: "unschedulable", phase: "waiting" },
  { key: "backoff", phase: "waiting" },
  { key: "gated", phase: "waiting" },
  { key: "crash back-off", phase: "crash" },
  { key: "other scheduler", phase: "other" },
  { key: "failed", phase: "failed" },
  { key: "terminating", phase: "other" },
  { key: "completed", phase: "other" },
  { key: "deleted", phase: "other" },
  { key: "gone", phase: "other" },
];
Kubeloop.STAGE_PHASE = new Map(Kubeloop.STAGES.map((stage) => [stage.key, stage.phase]));

/* Three significant digits: "850 µs", "12.3 ms", "3.42 s", "2 min 05 s". */
Kubeloop.duration = (microseconds) => {
  const digits = (number) => number.toFixed(number < 9.995 ? 2 : number < 99.95 ? 1 : 0);
  if (!(microseconds > 0)) return "0 µs";
  if (microseconds < 1) return "< 1 µs";
  if (microseconds < 1e3) return `${microseconds.toFixed(0)} µs`;
  if (microseconds < 999.5e3) return `${digits(microseconds / 1e3)} ms`;
  const seconds = microseconds / 1e6;
  if (seconds < 59.95) return `${digits(seconds)} s`;
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
};

/* "3.42 s ±560 ms"; in short "≈3.42 s", for narrow columns. */
Kubeloop.uncertainDuration = (microseconds, uncertainty) =>
  Kubeloop.duration(microseconds) + (uncertainty ? ` ±${Kubeloop.duration(uncertainty)}` : "");
Kubeloop.shortUncertainDuration = (microseconds, uncertainty) => (uncertainty ? "≈" : "") + Kubeloop.shortDuration(microseconds);

/* At most three digits and a unit, for narrow columns: "2.08 min" for "2 min 05 s". */
Kubeloop.shortDuration = (microseconds) => {
  const minutes = microseconds / 6e7, digits = (number) => number.toFixed(number < 9.995 ? 2 : number < 99.95 ? 1 : 0);
  if (minutes < 0.9992) return Kubeloop.duration(microseconds);
  return minutes < 59.95 ? `${digits(minutes)} min` : `${digits(minutes / 60)} h`;
};

/* Labels of a time axis at quarters of its width, where its lines are; fewer if they do not fit side by side. */
Kubeloop.drawAxis = (axis, totalUs, width = axis.clientWidth || 400) => {
  const parts = width >= 450 ? 4 : width >= 225 ? 2 : 1;
  axis.replaceChildren(...Array.from({ length: parts + 1 }, (_, index) =>
    Kubeloop.element("i", { style: { left: `${(100 * index) / parts}%` } }, index ? Kubeloop.duration((totalUs * index) / parts) : "0")));
};

/* "node-1: 1.20 s to 2.00 s ahead" of the process's clock (tracing/views/time_format.py). */
Kubeloop.skew = (clock, { lowestMs, highestMs }) => {
  const text = (milliseconds) => Kubeloop.duration(milliseconds * 1e3);
  return lowestMs > 0 ? `${clock}: ${text(lowestMs)} ${highestMs === null ? "or more" : `to ${text(highestMs)}`} ahead`
    : `${clock}: ${text(-highestMs)} to ${text(-lowestMs)} behind`;
};

/* Number per second: "1,234", "8.3", "0.019". */
Kubeloop.rate = (number) => (number >= 99.95 ? Kubeloop.count(Math.round(number)) : number >= 0.995 ? number.toFixed(1) : String(Number(number.toPrecision(2))));

Kubeloop.count = (number) => number.toLocaleString("en");

Kubeloop.moment = (microseconds) => {
  const date = new Date(microseconds / 1e3);
  if (Number.isNaN(date.getTime())) return "";
  const two = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
};

Kubeloop.plural = (number, word) => `${Kubeloop.count(number)} ${word}${number === 1 ? "" : "s"}`;

/* element("button", { class: "x", onclick: f, "aria-label": "y" }, "text", child): strings become text nodes. */
Kubeloop.element = (tag, properties = {}, ...children) => Kubeloop.fill(document.createElement(tag), properties, children);
Kubeloop.svg = (tag, properties = {}, ...children) =>
  Kubeloop.fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);

Kubeloop.fill = (node, properties, children) => {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [property, setting] of Object.entries(value)) node.style.setProperty(property, setting);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
};
