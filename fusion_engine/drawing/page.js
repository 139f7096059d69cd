"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const both = data.sides.length > 1;
  const FAR = 0.34, LEAST = 0.004, MOST = 4;

  /** An element with attributes and children; texts become text nodes, never markup. */
  function make(tag, attributes, ...children) {
    const found = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) found.setAttribute(name, value === true ? "" : value);
    }
    found.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return found;
  }
  const plural = (n, noun, nouns) => `${n} ${n === 1 ? noun : nouns || noun + "s"}`;
  const clamp = (value, least, most) => Math.min(most, Math.max(least, value));

  // Panes: one for each network

  class Pane {
    constructor(section, side, number) {
      this.side = side;
      this.number = number;
      this.canvas = section.querySelector(".canvas");
      this.world = section.querySelector(".world");
      this.map = section.querySelector(".map");
      this.layers = new Map(side.layers.map((layer) => [layer.key, layer]));
      this.boxes = side.layers.filter((layer) => layer.frame);
      this.elements = new Map();
      for (const element of this.world.querySelectorAll(".box")) this.elements.set(Number(element.dataset.layer), element);
      this.arrows = new Map();
      for (const arrow of this.world.querySelectorAll(".arrow")) {
        for (const end of [arrow.dataset.from, arrow.dataset.to]) {
          if (!this.arrows.has(Number(end))) this.arrows.set(Number(end), []);
          this.arrows.get(Number(end)).push(arrow);
        }
      }
      this.x = this.y = 0;
      this.scale = 1;
      this.queued = false;
      this.listen();
    }

    get size() { return [this.canvas.clientWidth, this.canvas.clientHeight]; }
    get shown() { return this.canvas.clientWidth > 0; }

    /** Where a layer is drawn: its own box, or that of the layer it is a line of. */
    home(key) {
      const layer = this.layers.get(key);
      return layer && (layer.frame ? layer : this.layers.get(layer.inside));
    }

    move(x, y, scale, leading = true) {
      this.scale = clamp(scale, LEAST, MOST);
      this.x = x;
      this.y = y;
      if (!this.queued) {
        this.queued = true;
        requestAnimationFrame(() => this.paint());
      }
      if (leading && both && root.dataset.view === "both" && byId("linked").checked) follow(this);
    }

    paint() {
      this.queued = false;
      this.world.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
      this.world.classList.toggle("far", this.scale < FAR);
      this.paintMap();
    }

    /** Readable at the top: as wide as the network where that can still be read. */
    start() {
      const [width] = this.size;
      const scale = clamp(width / (this.side.width + 4 * data.margin), 0.8, 1);
      const first = this.boxes.length ? this.boxes[0].frame : [0, 0, 0, 0];
      const fits = this.side.width * scale <= width;
      const centre = fits ? this.side.width / 2 : first[0] + first[2] / 2;
      this.move(width / 2 - centre * scale, 44 - (fits ? 0 : first[1] * scale), scale, false);
    }

    whole() {
      const [width, height] = this.size;
      const { width: w, height: h } = this.side;
      const scale = Math.min(1, (width - 2 * data.margin) / (w || 1), (height - 2 * data.margin) / (h || 1));
      this.move((width - w * scale) / 2, (height - h * scale) / 2, scale, false);
    }

    zoom(factor, cx = this.size[0] / 2, cy = this.size[1] / 2) {
      const scale = clamp(this.scale * factor, LEAST, MOST);
      const change = scale / this.scale;
      this.move(cx - (cx - this.x) * change, cy - (cy - this.y) * change, scale);
    }

    centre(frame, scale = this.scale, leading = true) {
      const [width, height] = this.size;
      const [x, y, w, h] = frame;
      this.move(width / 2 - (x + w / 2) * scale, height / 2 - (y + h / 2) * scale, scale, leading);
    }

    /** Bring a layer into view, at a size that can be read. */
    reveal(key, leading = true) {
      const home = this.home(key);
      if (!home || !this.shown) return;
      const scale = this.scale < 0.6 ? 0.8 : this.scale;
      const [width, height] = this.size;
      const [x, y, w, h] = home.frame;
      const left = this.x + x * scale, top = this.y + y * scale;
      const inside = left >= 0 && top >= 40 && left + w * scale <= width - 60 && top + h * scale <= height - 10;
      if (!inside || scale !== this.scale) this.centre(home.frame, scale, leading);
    }

    listen() {
      const { canvas } = this;
      const touches = new Map();
      let moved = 0;
      const spread = () => {
        const [a, b] = [...touches.values()];
        return b ? [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2, Math.hypot(a[0] - b[0], a[1] - b[1]) || 1] : [a[0], a[1], 1];
      };
      canvas.addEventListener("pointerdown", (event) => {
        if (event.button !== 0) return;
        if (!touches.size) moved = 0;
        touches.set(event.pointerId, [event.offsetX, event.offsetY]);
      });
      canvas.addEventListener("pointermove", (event) => {
        if (!touches.has(event.pointerId)) return;
        const before = spread();
        const bounds = canvas.getBoundingClientRect();
        touches.set(event.pointerId, [event.clientX - bounds.left, event.clientY - bounds.top]);
        const now = spread();
        moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
        if (moved < 4 && touches.size < 2) return;
        if (!canvas.hasPointerCapture(event.pointerId)) canvas.setPointerCapture(event.pointerId);
        canvas.classList.add("moving");
        this.move(this.x + now[0] - before[0], this.y + now[1] - before[1], this.scale);
        if (touches.size > 1) this.zoom(now[2] / before[2], now[0], now[1]);
      });
      const end = (event) => {
        touches.delete(event.pointerId);
        if (!touches.size) canvas.classList.remove("moving");
      };
      canvas.addEventListener("pointerup", end);
      canvas.addEventListener("pointercancel", end);
      canvas.addEventListener("click", (event) => {
        if (moved >= 4) return;
        canvas.focus({ preventScroll: true });
        const box = event.target.closest(".box"), area = event.target.closest(".area");
        if (box) select(this.number, Number(box.dataset.layer));
        else if (area) select(this.number, this.inGroup(Number(area.dataset.group))[0].key);
        else clear();
      });
      canvas.addEventListener("wheel", (event) => {
        event.preventDefault();
        const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? this.size[1] : 1;
        if (event.ctrlKey || event.metaKey) {
          const bounds = canvas.getBoundingClientRect();
          this.zoom(Math.exp(-event.deltaY * unit * 0.004), event.clientX - bounds.left, event.clientY - bounds.top);
        } else {
          const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
          this.move(this.steered(this.x - dx * unit, this.y - dy * unit, dx), this.y - dy * unit, this.scale);
        }
      }, { passive: false });
      canvas.addEventListener("keydown", (event) => this.key(event));
      const goto = (event) => {
        if (event.type === "pointermove" && !event.buttons) return;
        if (event.type === "pointerdown") this.map.setPointerCapture(event.pointerId);
        const ratio = this.mapScale;
        this.centre([event.offsetX / ratio, event.offsetY / ratio, 0, 0]);
      };
      this.map.addEventListener("pointerdown", goto);
      this.map.addEventListener("pointermove", goto);
    }

    /** The x to move to: where wheeling up or down would leave nothing to see, that of the nearest layer. */
    steered(x, y, dx) {
      const [width, height] = this.size;
      const [left, top] = [-x / this.scale, -y / this.scale];
      const [w, h] = [width / this.scale, height / this.scale];
      let nearest = null, least = Infinity;
      for (const layer of this.boxes) {
        const [bx, by, bw, bh] = layer.frame;
        if (bx + bw > left && bx < left + w && by + bh > top && by < top + h) return x;
        const away = Math.hypot(bx + bw / 2 - left - w / 2, 4 * (by + bh / 2 - top - h / 2));
        if (away < least) [nearest, least] = [layer, away];
      }
      if (dx || !nearest || y > height || y + this.side.height * this.scale < 0) return x;
      return width / 2 - (nearest.frame[0] + nearest.frame[2] / 2) * this.scale;
    }

    /** Boxes of a fused group; with all, Constants that are lines of boxes too. */
    inGroup(group, all = false) {
      return (all ? this.side.layers : this.boxes).filter((layer) => layer.group === group);
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const here = chosen && chosen.side === this.number ? this.home(chosen.key) : null;
      let next = null;
      if (["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"].includes(event.key)) {
        next = here ? this.neighbour(here, event.key) : this.boxes[0];
      } else if (event.key === "Home") next = this.boxes[0];
      else if (event.key === "End") next = this.boxes[this.boxes.length - 1];
      else if (event.key === "Enter" && here) byId("panel").focus();
      else return;
      event.preventDefault();
      if (next) select(this.number, next.key);
    }

    /** The layer that an arrow key leads to: along the dataflow, or to the nearest one beside. */
    neighbour(here, key) {
      const box = (of) => { const layer = this.layers.get(of); return layer && layer.frame ? layer : null; };
      if (key === "ArrowDown") return here.outputs.flatMap((out) => out[1]).map((use) => box(use[0])).find(Boolean);
      if (key === "ArrowUp") return here.inputs.map((input) => box(input[1])).find(Boolean);
      const way = key === "ArrowLeft" ? -1 : 1;
      const [x, y] = middle(here.frame);
      let best = null, least = Infinity;
      for (const layer of this.boxes) {
        const [ox, oy] = middle(layer.frame);
        const ahead = (ox - x) * way, aside = Math.abs(oy - y);
        if (ahead > 1 && aside < 200 && ahead + 3 * aside < least) [best, least] = [layer, ahead + 3 * aside];
      }
      return best;
    }

    paintMap() {
      const [width, height] = this.size;
      if (!width) return;
      const { width: w, height: h } = this.side;
      const ratio = (this.mapScale = Math.min(110 / (w || 1), (height - 18) / (h || 1), 0.12));
      const mw = Math.max(8, Math.ceil(w * ratio)), mh = Math.max(8, Math.ceil(h * ratio));
      const dense = window.devicePixelRatio || 1;
      const state = `${mw} ${mh} ${dense} ${chosen ? chosen.key : ""} ${searched}`;
      if (state !== this.mapState) {
        this.mapState = state;
        this.still = document.createElement("canvas");
        this.still.width = this.map.width = mw * dense;
        this.still.height = this.map.height = mh * dense;
        Object.assign(this.map.style, { width: `${mw}px`, height: `${mh}px` });
        const pen = this.still.getContext("2d");
        pen.scale(dense, dense);
        for (const area of this.side.areas) this.dab(pen, area.frame, data.rules[area.colour].colours[1], ratio, 1);
        for (const layer of this.boxes) {
          const lit = hits.has(`${this.number} ${layer.key}`);
          const plain = data.rules.length ? "#a9b4bf" : data.stripes[layer.family];
          const colour = layer.colour === null ? plain : data.rules[layer.colour].colours[2];
          this.dab(pen, layer.frame, lit ? "#e0a100" : colour, ratio, lit ? 3 : 1);
        }
        const home = chosen && chosen.side === this.number && this.home(chosen.key);
        if (home) this.dab(pen, home.frame, "#0b63ce", ratio, 5);
      }
      const pen = this.map.getContext("2d");
      pen.setTransform(1, 0, 0, 1, 0, 0);
      pen.clearRect(0, 0, this.map.width, this.map.height);
      pen.drawImage(this.still, 0, 0);
      pen.scale(dense, dense);
      const view = [-this.x / this.scale, -this.y / this.scale, width / this.scale, height / this.scale].map((v) => v * ratio);
      pen.fillStyle = "#0b63ce1f";
      pen.strokeStyle = "#0b63ce";
      pen.fillRect(...view);
      pen.strokeRect(...view);
    }

    dab(pen, [x, y, w, h], colour, ratio, least) {
      pen.fillStyle = colour;
      const dw = Math.max(least, w * ratio), dh = Math.max(least, h * ratio);
      pen.fillRect((x + w / 2) * ratio - dw / 2, (y + h / 2) * ratio - dh / 2, dw, dh);
    }
  }

  let chosen = null;
  let searched = "";
  const hits = new Set();
  const panes = data.sides.map((side, number) => new Pane(document.querySelector(`.pane[data-side="${number}"]`), side, number));

  // Moving together: layers that both networks have say how far apart a place is in one and in the other

  const middle = ([x, y, w, h]) => [x + w / 2, y + h / 2];
  const anchors = !both ? [] : panes[0].boxes
    .map((layer) => [layer, panes[1].layers.get(layer.key)])
    .filter(([, other]) => other && other.frame)
    .map(([layer, other]) => [middle(layer.frame), middle(other.frame)]);

  /** Let the other pane show what the leading one does: the nearer a common layer, the more its shift counts. */
  function follow(leader) {
    const from = leader.number, other = panes[1 - from];
    const [width, height] = leader.size;
    // What lies beside what is told at the top of the panes while the network's top is in view, at their foot
    // when its end is, and in between in between.
    const hidden = leader.side.height * leader.scale - height;
    const part = hidden > 0 ? clamp(-leader.y / hidden, 0, 1) : 0;
    const cx = (width / 2 - leader.x) / leader.scale, cy = (height * part - leader.y) / leader.scale;
    let dx = 0, dy = 0, sum = 0;
    for (const pair of anchors) {
      const [[ax, ay], [bx, by]] = [pair[from], pair[1 - from]];
      const weight = 1 / ((ax - cx) ** 2 + (ay - cy) ** 2 + 1) ** 3;
      dx += weight * (bx - ax);
      dy += weight * (by - ay);
      sum += weight;
    }
    if (!sum) return;
    const x = (cx + dx / sum) * leader.scale, y = (cy + dy / sum) * leader.scale;
    other.move(other.size[0] / 2 - x, other.size[1] * part - y, leader.scale, false);
  }

  // Choosing a layer

  function unmark(name) { for (const one of document.querySelectorAll(`.${name}`)) one.classList.remove(name); }

  /** Choose a layer: mark it, what it is connected to and what it was fused with, and tell all of it. */
  function select(side, key, look = true) {
    const pane = panes[side], layer = pane.layers.get(key);
    if (!layer) return;
    if (!pane.shown) show(String(side));
    chosen = { side, key };
    for (const name of ["on", "mate", "lit"]) unmark(name);
    const home = pane.home(key);
    const element = home && pane.elements.get(home.key);
    if (element) {
      element.classList.add("on");
      pane.canvas.setAttribute("aria-activedescendant", element.id);
      for (const arrow of pane.arrows.get(home.key) || []) arrow.classList.add("lit");
    }
    for (const each of panes) {
      const mates = typeof layer.group === "number" ? each.inGroup(layer.group) : [];
      for (const mate of mates) each.elements.get(mate.key).classList.add("mate");
    }
    if (look) {
      pane.reveal(key, false);
      const other = both ? panes[1 - side] : null;
      if (other && other.shown) {
        if (byId("linked").checked) follow(pane);
        const mates = typeof layer.group === "number" ? other.inGroup(layer.group) : [];
        if (other.home(key)) other.reveal(key, false);
        else if (mates.length) other.reveal(mates[0].key, false);
      }
    }
    const name = layer.name ? ` ${layer.name}` : "";
    byId("said").textContent = `layer ${key}, ${layer.title}${name}`;
    tell(side, layer);
    for (const each of panes) each.paint();
  }

  function clear() {
    chosen = null;
    for (const name of ["on", "mate", "lit"]) unmark(name);
    for (const pane of panes) {
      pane.canvas.removeAttribute("aria-activedescendant");
      pane.paint();
    }
    tellAll();
  }

  // The panel

  const link = (side, key, text) => {
    const layer = panes[side].layers.get(key);
    const label = text || (layer ? `${key} ${layer.name || layer.title}` : String(key));
    const choose = (event) => { event.preventDefault(); select(side, key); };
    return layer ? make("a", { href: `#s${side}-${key}`, class: "link", onclick: choose }, label) : label;
  };
  const section = (title, ...content) => (content.flat().length ? [make("h4", {}, title), ...content.flat()] : []);
  const row = (name, value, kind) => make("tr", { class: kind || false }, make("th", { scope: "row" }, name), make("td", {}, value));
  const table = (rows) => (rows.length ? [make("table", {}, make("tbody", {}, rows))] : []);

  function fill(...content) {
    const panel = byId("panel");
    panel.replaceChildren(...content.flat(9).filter((one) => one !== null));
    panel.scrollTop = 0;
  }

  /** All of a layer. */
  function tell(side, layer) {
    const head = layer.title.startsWith(layer.type) ? `layer ${layer.key}` : `layer ${layer.key}, ${layer.type}`;
    fill(
      make("div", { class: "top" }, make("h3", {}, layer.title),
        make("button", { type: "button", title: "Close ( Esc )", "aria-label": "Close", onclick: clear }, "✕")),
      make("p", { class: "name" }, layer.name || "(no name)"),
      make("p", { class: "name" }, head + ("binding" in layer ? `, binding id ${layer.binding}` : "")),
      fused(side, layer),
      side === 0 || !both ? section("Not fused", data.refusals.filter((one) => one[1] === layer.key)
        .map(([rule, , reason]) => make("p", { class: "why" }, make("b", {}, rule), `: ${reason}`))) : [],
      section("Inputs", table(layer.inputs.map(([slot, source, out, text]) =>
        row(slot, source === null ? text : [link(side, source), out ? ` output ${out}` : "", make("br"), text].filter((v) => v !== ""))))),
      section("Outputs", table(layer.outputs.map(([text, uses], slot) =>
        row(`output ${slot}`, [text, ...uses.flatMap(([user, input]) => [make("br"), "to ", link(side, user), `, ${input}`])])))),
      section("Parameters", table(layer.params.map(([name, value, usual]) => row(name, value === "" ? "–" : value, usual && "default"))),
        layer.params.some((one) => one[2]) ? [make("p", { class: "default" }, "Grey values are the schema's defaults.")] : []),
      section("Constants in the layer", table(layer.constants.map(([field, text, values]) =>
        row(field, values ? [text, make("br"), values] : text)))),
      recipe(layer.recipe),
    );
  }

  function fused(side, layer) {
    if (typeof layer.group !== "number") return [];
    const group = data.groups[layer.group];
    const steps = group.fusions.map(([rule, result, layers]) => make("div", { class: "story" },
      make("b", {}, rule), ` → ${result}`,
      layers.slice(0, 40).map(([key, type, name]) => make("div", {}, link(both ? 0 : side, key, `${key} ${type} ${name}`))),
      layers.length > 40 ? make("div", {}, `and ${layers.length - 40} more`) : null));
    const rest = both ? panes[1 - side].inGroup(layer.group, true) : [];
    const there = both ? make("p", {}, `${data.sides[1 - side].name}: `,
      rest.length ? rest.slice(0, 20).flatMap((one, n) => [n ? ", " : "", link(1 - side, one.key)]) : "nothing is left of it") : null;
    return section(plural(group.fusions.length, "fusion"), steps, there ? [there] : []);
  }

  function recipe(found) {
    if (!found) return [];
    return section("Made from", make("p", {}, `rule ${found.rule}, code ${found.code}`),
      found.layers.map(([type, name, params]) => make("details", {},
        make("summary", {}, make("b", {}, type), ` ${name}`), ...table(params.map(([key, value]) => row(key, value))))));
  }

  /** What there is to say while no layer is chosen. */
  function tellAll() {
    const counts = (name, field) => make("tr", {}, make("th", { scope: "row" }, name), data.sides.map((side) => make("td", {}, String(side[field]))));
    fill(
      make("h3", {}, both ? "What was fused" : "The network"),
      make("table", { class: "counts" }, make("tbody", {},
        both ? make("tr", {}, make("th", {}), data.sides.map((side) => make("td", {}, side.name))) : null,
        counts("Layers", "others"), counts("Constants", "constants"), counts("Dialect", "dialect"))),
      section(both ? "Rules that fired" : "Fused layers, by rule", data.rules.map((rule, number) => {
        const first = groupsInOrder.find((group) => rule.groups.includes(group));
        return make("div", { class: `rule rule${number}` }, make("i", { class: "swatch" }), make("span", {}, rule.name),
          make("small", {}, plural(rule.fusions, "fusion")),
          first === undefined ? null : make("button",
            { type: "button", "aria-label": `First of ${rule.name}`, title: "Show the first", onclick: () => toGroup(first) }, "›"));
      })),
      both && !data.rules.length ? make("p", {}, "No rule fired: both networks are the same.") : null,
      section("Not fused", refusals()),
      section("Stripes", make("div", { class: "families" }, Object.entries(data.stripes).map(([name, colour]) => {
        const stripe = make("i", { class: "swatch" });
        Object.assign(stripe.style, { background: colour, borderColor: colour, width: "4px", marginRight: "6px", verticalAlign: "-2px" });
        return make("span", {}, stripe, name);
      }))),
      section("Keys", table([
        ["/", "search; Enter goes to the next one found"], ["← ↑ ↓ →", "from layer to layer, down the dataflow"],
        ["n p", "next and previous fused group"], ["+ − 0", "zoom in, out, show all"],
        ...(both ? [["1 2 3", "before, after, both"]] : []), ["Esc", "let go"],
        ["wheel, drag", "move; with Ctrl the wheel zooms"],
      ].map(([keys, words]) => row(keys.split(" ").length > 1 && keys !== "wheel, drag"
        ? keys.split(" ").flatMap((key) => [make("kbd", {}, key), " "]) : make("kbd", {}, keys), words)))),
    );
  }

  function refusals() {
    const shown = data.refusals.slice(0, 200).map(([rule, key, reason]) =>
      make("p", { class: "why" }, make("b", {}, rule), " at ", link(0, key), `: ${reason}`));
    if (data.refusals.length > 200) shown.push(make("p", {}, `and ${data.refusals.length - 200} more`));
    return shown.length ? [make("details", { open: shown.length < 6 }, make("summary", {}, plural(data.refusals.length, "match", "matches")), shown)] : [];
  }

  /** Groups that are drawn, from the first layer of the network to the last. */
  const groupsInOrder = [...new Set(panes.flatMap((pane) => pane.boxes.map((layer) => layer.group)))]
    .filter((group) => typeof group === "number");

  function toGroup(group) {
    const sides = both ? [0, 1] : [0];
    const visible = sides.filter((side) => panes[side].shown && panes[side].inGroup(group).length);
    const side = visible.length ? visible[0] : sides.find((one) => panes[one].inGroup(group).length);
    if (side !== undefined) select(side, panes[side].inGroup(group)[0].key);
  }

  function stepGroup(by) {
    const usable = groupsInOrder;
    if (!usable.length) return;
    const group = chosen && panes[chosen.side].layers.get(chosen.key).group;
    const at = usable.indexOf(group);
    toGroup(usable[at < 0 ? (by > 0 ? 0 : usable.length - 1) : (at + by + usable.length) % usable.length]);
  }

  // Search

  const words = panes.map((pane) => pane.side.layers.map((layer) => {
    const group = typeof layer.group === "number" ? data.groups[layer.group] : null;
    const parts = [layer.name, layer.type, layer.title, ...(group ? group.fusions.flatMap((f) => [f[0], f[1]]) : []),
      ...(layer.recipe ? layer.recipe.layers.flatMap((one) => [one[0], one[1]]) : [])];
    return parts.join("\n").toLowerCase();
  }));
  let found = [], active = -1;

  function search() {
    const box = byId("search"), list = byId("hits");
    searched = box.value.trim().toLowerCase();
    unmark("hit");
    hits.clear();
    found = [];
    active = -1;
    const tokens = searched.split(/\s+/).filter(Boolean);
    if (tokens.length) {
      for (const pane of panes.filter((one) => one.shown)) {
        pane.side.layers.forEach((layer, n) => {
          const key = String(layer.key);
          if (tokens.every((token) => key === token.replace(/^#/, "") || words[pane.number][n].includes(token))) found.push([pane.number, layer]);
        });
      }
    }
    const exact = found.filter(([, layer]) => String(layer.key) === searched.replace(/^#/, ""));
    found = [...exact, ...found.filter((one) => !exact.includes(one))];
    for (const [side, layer] of found) {
      const home = panes[side].home(layer.key);
      hits.add(`${side} ${home.key}`);
      panes[side].elements.get(home.key).classList.add("hit");
    }
    document.body.classList.toggle("seeking", tokens.length > 0 && found.length > 0);
    list.replaceChildren(...found.slice(0, 200).map(([side, layer], n) => make("li",
      { role: "option", id: `hit${n}`, "aria-selected": "false", onpointerdown: (event) => { event.preventDefault(); go(n); } },
      make("b", {}, `${layer.key}`), layer.title, make("span", {}, layer.name), both ? make("em", {}, data.sides[side].name) : null)));
    unfold(tokens.length > 0 && found.length > 0);
    byId("count").textContent = tokens.length ? (found.length ? String(found.length) : "none") : "";
    for (const pane of panes) pane.paint();
  }

  function unfold(open) {
    byId("hits").hidden = !open;
    byId("search").setAttribute("aria-expanded", String(open));
  }

  function go(n) {
    if (!found.length) return;
    const options = byId("hits").children;
    if (options[active]) options[active].setAttribute("aria-selected", "false");
    active = (n + found.length) % found.length;
    const option = options[active];
    if (option) {
      option.setAttribute("aria-selected", "true");
      option.scrollIntoView({ block: "nearest" });
      byId("search").setAttribute("aria-activedescendant", option.id);
    }
    byId("count").textContent = `${active + 1} of ${found.length}`;
    select(found[active][0], found[active][1].key);
  }

  byId("search").addEventListener("input", search);
  byId("search").addEventListener("focus", () => unfold(found.length > 0));
  byId("search").addEventListener("blur", () => unfold(false));
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") { go(active + (event.shiftKey ? -1 : 1)); }
    else if (event.key === "ArrowDown") go(active + 1);
    else if (event.key === "ArrowUp") go(active - 1);
    else if (event.key === "Escape") {
      if (byId("search").value) { byId("search").value = ""; search(); }
      else panes.find((pane) => pane.shown).canvas.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });

  // What is shown

  function show(view) {
    root.dataset.view = view;
    for (const button of document.querySelectorAll(".view")) button.setAttribute("aria-pressed", String(button.dataset.view === view));
    for (const pane of panes) {
      if (pane.shown && !pane.started) { pane.started = true; pane.start(); }
      else pane.paint();
    }
    if (searched) search();
  }

  const zoomed = () => {
    const own = chosen && panes[chosen.side].shown ? panes[chosen.side] : panes.find((pane) => pane.shown);
    return own;
  };
  const whole = () => { for (const pane of panes) if (pane.shown) pane.whole(); };
  byId("in").addEventListener("click", () => zoomed().zoom(1.3));
  byId("out").addEventListener("click", () => zoomed().zoom(1 / 1.3));
  byId("whole").addEventListener("click", whole);
  for (const button of document.querySelectorAll(".view")) button.addEventListener("click", () => show(button.dataset.view));
  const linked = byId("linked");
  if (linked) linked.addEventListener("change", () => { if (linked.checked) follow(panes[0]); });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=search]")) return;
    const views = ["0", "1", "both"];
    if (event.key === "/") byId("search").select();
    else if (event.key === "+" || event.key === "=") zoomed().zoom(1.3);
    else if (event.key === "-") zoomed().zoom(1 / 1.3);
    else if (event.key === "0") whole();
    else if (event.key === "n") stepGroup(1);
    else if (event.key === "p") stepGroup(-1);
    else if (event.key === "Escape") clear();
    else if (both && ["1", "2", "3"].includes(event.key)) show(views[Number(event.key) - 1]);
    else return;
    event.preventDefault();
  });

  new ResizeObserver(() => { for (const pane of panes) pane.paint(); }).observe(document.querySelector("main"));
  tellAll();
  show(root.dataset.view);
})();
