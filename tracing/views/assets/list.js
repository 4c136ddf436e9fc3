/* Virtual list: only visible rows are in the document; with keyboard navigation. */
"use strict";

Kubeloop.VirtualList = class {
  static OVERSCAN = 6;

  /* container: scrolls, has role grid. head: the row of column headings; make() creates a row; show(row, item) fills it;
   * open(item): the user opens it. */
  constructor(container, { head, make, show, open, keyOf }) {
    this.container = container;
    this.make = make;
    this.show = show;
    this.open = open;
    this.keyOf = keyOf;
    this.items = [];
    this.rows = [];
    this.activeKey = null;
    this.openKey = null;
    this.space = Kubeloop.element("div", { class: "space", role: "presentation" });
    this.head = head;
    head.setAttribute("aria-rowindex", "1");
    container.replaceChildren(head, this.space);
    this.abort = new AbortController();
    const signal = this.abort.signal;
    container.addEventListener("scroll", () => this.draw(), { passive: true, signal });
    container.addEventListener("keydown", (event) => this.keyPressed(event), { signal });
    container.addEventListener("click", (event) => this.clicked(event), { signal });
    container.addEventListener("focus", () => { if (this.active() < 0) this.move(this.first()); }, { signal });
    this.observer = new ResizeObserver(() => { this.measure(); this.draw(); });
    this.observer.observe(container);
    this.measure();
  }

  stop() {
    this.abort.abort();
    this.observer.disconnect();
  }

  measure() {
    this.height = parseFloat(getComputedStyle(this.container).getPropertyValue("--row")) || 36;
    this.visible = this.container.clientHeight - this.head.offsetHeight;
  }

  set(items) {
    this.items = items;
    this.index = null;
    this.container.setAttribute("aria-rowcount", String(items.length + 1));
    this.draw();
  }

  draw() {
    this.space.style.height = `${this.items.length * this.height}px`;
    const from = Math.max(0, Math.floor(this.container.scrollTop / this.height) - Kubeloop.VirtualList.OVERSCAN);
    const visible = Math.ceil(this.container.clientHeight / this.height) + 2 * Kubeloop.VirtualList.OVERSCAN;
    const shown = Math.min(this.items.length - from, visible);
    while (this.rows.length < shown) {
      const row = this.make();
      row.id = `${this.container.id}-row-${this.rows.length}`;
      this.rows.push(row);
      this.space.append(row);
    }
    let active = "";
    this.rows.forEach((row, number) => {
      const index = from + number;
      row.hidden = number >= shown;
      if (row.hidden) return;
      const item = this.items[index], key = this.keyOf(item);
      row.dataset.index = String(index);
      row.setAttribute("aria-rowindex", String(index + 2));
      row.style.transform = `translateY(${index * this.height}px)`;
      row.classList.toggle("active", key === this.activeKey);
      row.setAttribute("aria-selected", String(key === this.openKey));
      if (key === this.activeKey) active = row.id;
      this.show(row, item);
    });
    if (active) this.container.setAttribute("aria-activedescendant", active);
    else this.container.removeAttribute("aria-activedescendant");
  }

  /* Index of the active item, -1 if it is not in the list. */
  active() {
    if (this.activeKey === null) return -1;
    if (!this.index) this.index = new Map(this.items.map((item, index) => [this.keyOf(item), index]));
    return this.index.get(this.activeKey) ?? -1;
  }

  first() {
    return Math.ceil(this.container.scrollTop / this.height);
  }

  move(to) {
    if (!this.items.length) return;
    const index = Math.max(0, Math.min(this.items.length - 1, to));
    this.activeKey = this.keyOf(this.items[index]);
    const top = index * this.height, bottom = top + this.height;
    if (top < this.container.scrollTop) this.container.scrollTop = top;
    else if (bottom > this.container.scrollTop + this.visible) {
      this.container.scrollTop = bottom - this.visible;
    }
    this.draw();
  }

  keyPressed(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.visible / this.height) - 1);
    const at = this.active();
    const moves = { ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, PageDown: at + page, PageUp: at - page,
      Home: 0, End: this.items.length - 1 };
    if (event.key in moves) {
      event.preventDefault();
      this.move(moves[event.key]);
    } else if (event.key === "Enter" && at >= 0) {
      event.preventDefault();
      this.open(this.items[at]);
    }
  }

  clicked(event) {
    const row = event.target.closest("[data-index]"); /* not the headings */
    if (!row) return;
    const item = this.items[Number(row.dataset.index)];
    if (!item) return;
    this.activeKey = this.keyOf(item);
    this.draw();
    this.open(item);
  }
};
