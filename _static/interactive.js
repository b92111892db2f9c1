/* Two pictures that the reader moves: roofline.svg and timeline.svg become figures with sliders.

Without this script the still pictures stay. The models are those of d2l_gpu/limits.py and d2l_gpu/pipeline.py, and
tests/test_interactive.py compares them number by number. No dependency, no build step, no request. */
(function () {
  "use strict";

  /* ---- The models, as in Python. */

  const MACHINES = {
    "T4": {peak: 8.1e12, bandwidth: 320e9, bus: 16e9, overhead: 10e-6},
    "RTX 4090": {peak: 82.6e12, bandwidth: 1008e9, bus: 32e9, overhead: 10e-6},
    "H200": {peak: 67e12, bandwidth: 4800e9, bus: 64e9, overhead: 10e-6},
  };

  function product(n, copies = false) {
    return {flops: 2 * n ** 3, bytes: 12 * n ** 2, copied: copies ? 12 * n ** 2 : 0, launches: copies ? 4 : 1};
  }

  const OPERATIONS = {
    product: n => product(n),
    copied: n => product(n, true),
    addition: n => ({flops: n ** 2, bytes: 12 * n ** 2, copied: 0, launches: 1}),
    mlp: batch => ({
      flops: 2 * batch * (3 * 109184 - 784 * 128) + 12 * 109386,
      bytes: 4 * (9 * 109386 + (109184 - 784 * 128) + batch * (2 * 784 + 12 * 202)), copied: 0, launches: 22,
    }),
  };

  function leastTime(work, machine) {
    const parts = {
      compute: work.flops / machine.peak, memory: work.bytes / machine.bandwidth,
      overhead: work.launches * machine.overhead, bus: work.copied / machine.bus,
    };
    const bound = Object.keys(parts).reduce((a, b) => parts[b] > parts[a] ? b : a);
    return {seconds: parts[bound], bound, intensity: work.flops / work.bytes, rate: work.flops / parts[bound], parts};
  }

  function timeline(load, compute, {workers = 0, prefetch = 2, batches = 12, copy = 0, cores = workers, sync = true} = {}) {
    const seconds = typeof load === "function" ? load : () => load;
    const lanes = Array.from({length: Math.max(1, workers)}, () => []), copies = [], computes = [];
    const coreFree = Array(Math.min(workers, cores)).fill(0), asked = Array(prefetch * workers).fill(0);
    let host = 0, gpu = 0;
    for (let k = 0; k < batches; k++) {
      const lane = lanes[k % lanes.length];
      let start = host;
      if (workers) {
        start = Math.max(asked[k], lane.length ? lane[lane.length - 1].end : 0);
        const free = coreFree.filter(c => c <= start), core = free.length ? Math.max(...free) : Math.min(...coreFree);
        start = Math.max(start, core);
        coreFree[coreFree.indexOf(core)] = start + seconds(k);
      }
      lane.push({batch: k, start, end: start + seconds(k)});
      const taken = Math.max(host, start + seconds(k)), begin = Math.max(taken, gpu);
      asked.push(taken);
      copies.push({batch: k, start: begin, end: begin + copy});
      computes.push({batch: k, start: begin + copy, end: begin + copy + compute});
      gpu = begin + copy + compute;
      host = sync ? gpu : begin + copy;
    }
    return {lanes, copies, computes};
  }

  /* Seconds per batch, and the shares of copying and of idling, from batch `after` on. */
  function longRun(found, after) {
    const window = found.computes[found.computes.length - 1].end - found.computes[after - 1].end;
    const sum = spans => spans.slice(after).reduce((total, span) => total + span.end - span.start, 0);
    const [computing, copying] = [sum(found.computes), sum(found.copies)];
    return {
      perBatch: window / (found.computes.length - after), copying: window ? copying / window : 0,
      idle: window ? Math.max(0, 1 - (computing + copying) / window) : 0,
    };
  }

  /* ---- A figure: a picture, a sentence that says what it shows, controls. */

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function shape(name, attributes, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.setAttribute("class", (attributes.class || "").replace(/\w+/g, "d2l-$&")); // the theme has a .card of its own
    made.textContent = text;
    return made;
  }

  const label = (x, y, text, kind = "", anchor = "start") => shape("text", {x, y, class: kind, "text-anchor": anchor}, text);

  /* A control for one entry of the state: a slider over a list of values, a choice, or a box to tick. */
  function control(id, spec, state, changed) {
    if (spec.choices) {
      const select = element("select", {id});
      for (const [value, text] of Object.entries(spec.choices)) select.append(element("option", {value}, text));
      select.addEventListener("change", () => changed(spec.key, select.value));
      return {
        node: element("div", {class: "d2l-control"}, element("label", {for: id}, spec.label), select),
        show: () => { select.value = state[spec.key]; },
      };
    }
    if (!spec.values) {
      const box = element("input", {id, type: "checkbox"});
      box.addEventListener("change", () => changed(spec.key, box.checked));
      return {
        node: element("div", {class: "d2l-control d2l-tick"}, box, element("label", {for: id}, spec.label)),
        show: () => { box.checked = state[spec.key]; },
      };
    }
    const slider = element("input", {id, type: "range", min: 0, max: spec.values.length - 1, step: 1});
    const shown = element("output", {for: id, "aria-live": "off"}), name = element("label", {for: id});
    slider.addEventListener("input", () => changed(spec.key, spec.values[slider.value]));
    return {
      node: element("div", {class: "d2l-control"}, name, shown, slider),
      show: () => {
        slider.value = spec.values.indexOf(state[spec.key]);
        slider.disabled = spec.off ? spec.off(state) : false;
        name.textContent = typeof spec.label === "function" ? spec.label(state) : spec.label;
        shown.textContent = spec.text(state[spec.key]);
        slider.setAttribute("aria-valuetext", shown.textContent);
      },
    };
  }

  /* `draw(state)` gives {shapes, text}; `follow(state, key)` mends the rest of the state after a change of one entry. */
  function figure({name, title, height, note, start, controls, draw, follow = () => {}}) {
    const state = {...start}, said = element("p", {class: "d2l-said", "aria-live": "polite", id: `d2l-${name}-said`});
    const picture = shape("svg", {viewBox: `0 0 480 ${height}`, role: "img", "aria-label": title, "aria-describedby": said.id});
    const made = controls.map(spec => control(`d2l-${name}-${spec.key}`, spec, state, (key, value) => {
      state[key] = value;
      follow(state, key);
      show();
    }));
    const reset = element("button", {type: "button"}, "Reset");
    reset.addEventListener("click", () => { Object.assign(state, start); show(); });
    function show() {
      const {shapes, text} = draw(state);
      picture.replaceChildren(...shapes);
      said.textContent = text;
      made.forEach(one => one.show());
    }
    show();
    return element("figure", {class: "d2l-figure", role: "group", "aria-label": title}, picture, said,
      element("div", {class: "d2l-controls"}, ...made.map(one => one.node), reset), element("figcaption", {}, note));
  }

  const digits = x => x === 0 ? "0" : x >= 1000 ? Math.round(x).toLocaleString("en-US") : String(+x.toPrecision(3));

  /* 1.2e-5 with the units of a second is "12 µs". */
  function withUnit(value, units) {
    const [scale, unit] = units.find(([least]) => value >= 0.9995 * least) || units[units.length - 1];
    return value === 0 ? "0" : `${digits(value / scale)} ${unit}`;
  }
  const time = t => withUnit(t, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"], [1e-12, "ps"]]);
  const rate = r => withUnit(r, [[1e15, "PFLOP/s"], [1e12, "TFLOP/s"], [1e9, "GFLOP/s"], [1e6, "MFLOP/s"]]);
  const giga = b => `${digits(b / 1e9)} GB/s`;
  const percent = share => `${Math.round(100 * share)} %`;

  /* ---- The roofline. */

  const SIZES = [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192];
  const OWN = "your own";

  function drawRoofline(state) {
    const operation = OPERATIONS[state.operation], found = leastTime(operation(state.n), state);
    const at = (intensity, flops) => [70 + 66 * (Math.log10(intensity) + 2), 312 - 30 * Math.max(0, Math.log10(flops) - 7)];
    const points = list => list.map(point => point.map(v => v.toFixed(1)).join(",")).join(" ");
    const ridge = state.peak / state.bandwidth, corner = at(ridge, state.peak);
    const shapes = [shape("rect", {class: "paper", width: 480, height: 370, rx: 10}),
      label(14, 34, `${state.machine === OWN ? OWN : `${state.machine} (published)`}: ${rate(state.peak)}, ${giga(state.bandwidth)}`, "title"),
      label(14, 54, "FLOP/s", "soft"), label(268, 354, "FLOP for each byte of memory traffic", "soft", "middle")];
    for (const [flops, text] of [[1e9, "1 G"], [1e12, "1 T"], [1e15, "1 P"]]) {
      const y = at(1, flops)[1];
      shapes.push(shape("line", {class: "grid", x1: 70, y1: y, x2: 466, y2: y}), label(62, y + 5, text, "soft", "end"));
    }
    for (const [intensity, text] of [[0.01, "0.01"], [1, "1"], [100, "100"], [10000, "10,000"]]) {
      const x = at(intensity, 1)[0];
      shapes.push(shape("line", {class: "grid", x1: x, y1: 72, x2: x, y2: 312}), label(Math.min(x, 442), 332, text, "soft", "middle"));
    }
    const trail = SIZES.map(n => leastTime(operation(n), state)).map(one => at(one.intensity, one.rate));
    const [x, y] = at(found.intensity, found.rate);
    const roof = at(found.intensity, Math.min(state.peak, found.intensity * state.bandwidth))[1];
    shapes.push(shape("polyline", {class: "roof", points: points([at(0.01, 0.01 * state.bandwidth), corner, at(1e4, state.peak)])}),
      shape("polyline", {class: "trail", points: points(trail)}), shape("line", {class: "drop", x1: x, y1: roof, x2: x, y2: y}),
      shape("circle", {class: "dot", cx: x, cy: y, r: 7}),
      label(Math.min(corner[0], 440), corner[1] - 12, "ridge", "gpu", "middle"),
      label(Math.min(x + 12, 350), y + (x > 338 ? 44 : 24), rate(found.rate))); // clear of the thin line
    const why = {
      memory: `Memory-bound: ${digits(found.intensity)} FLOP per byte is left of the ridge, ${digits(ridge)}.`,
      compute: `Compute-bound: ${digits(found.intensity)} FLOP per byte is right of the ridge, ${digits(ridge)}.`,
      overhead: "Overhead dominates: launching takes longer than the work on the device.",
      bus: "The bus dominates: the copies take longer than the work on the device.",
    }[found.bound];
    const {compute, memory, overhead, bus} = found.parts;
    return {
      shapes, text: `${why} At most ${rate(found.rate)}, at least ${time(found.seconds)}. Each limit alone: arithmetic ` +
        `${time(compute)}, memory ${time(memory)}, launching ${time(overhead)}, bus ${time(bus)}.`,
    };
  }

  function rooflineFigure() {
    return figure({
      name: "roofline", title: "The roofline of a machine, with an operation that you choose", height: 370,
      start: {operation: "product", n: 64, machine: "T4", ...MACHINES.T4}, draw: drawRoofline,
      follow(state, key) {
        if (key === "machine" && state.machine in MACHINES) Object.assign(state, MACHINES[state.machine]);
        if (key in MACHINES.T4) state.machine = OWN;
        if (key === "operation" && state.operation === "mlp") state.n = 64;
      },
      controls: [
        {key: "operation", label: "Operation", choices: {
          product: "matrix product", copied: "product with its copies", addition: "element-wise addition",
          mlp: "training step of the MLP"}},
        {key: "n", label: s => s.operation === "mlp" ? "Batch" : "Matrices of n × n", values: SIZES, text: digits},
        {key: "machine", label: "Machine", choices: Object.fromEntries(
          [...Object.keys(MACHINES).map(name => [name, `${name} (published)`]), [OWN, OWN]])},
        {key: "peak", label: "Peak", text: rate, values: [
          5e10, 1e11, 2e11, 5e11, 1e12, 2e12, 5e12, 8.1e12, 1e13, 2e13, 5e13, 67e12, 82.6e12, 1e14, 2e14, 5e14, 1e15]},
        {key: "bandwidth", label: "Memory bandwidth", text: giga, values: [
          10e9, 20e9, 50e9, 100e9, 200e9, 320e9, 500e9, 1008e9, 2000e9, 3350e9, 4800e9, 8000e9]},
        {key: "overhead", label: "Overhead of a launch", text: time, values: [0, 1e-6, 2e-6, 5e-6, 10e-6, 20e-6, 50e-6]},
        {key: "bus", label: "Bus", text: giga, off: s => s.operation !== "copied", values: [
          1e9, 2e9, 4e9, 8e9, 16e9, 32e9, 64e9, 128e9]},
      ],
      note: "Bounds from data sheets, not measurements: a real operation takes longer. Peak in float32 without tensor cores; bus: PCI " +
        "Express with 16 lanes, one direction; launching: usually 5 to 20 µs. Thin line: the same operation from 16 to 8192.",
    });
  }

  /* ---- The time line. */

  const SLOW = k => k % 7 === 6 ? 4 : 1; // with `uneven`

  function drawTimeline(state) {
    const load = k => state.load * (state.uneven ? SLOW(k) : 1), first = timeline(load, state.compute, state);
    const {perBatch, copying, idle} = longRun(timeline(load, state.compute, {...state, batches: 1080}), 240);
    const end = Math.max(first.computes[11].end, 1e-9), scale = 356 / end, lane = Math.min(42, 212 / (first.lanes.length + 1));
    const shapes = [shape("rect", {class: "paper", width: 480, height: 310, rx: 10}),
      label(14, 32, "The first twelve batches", "title")];
    function row(k, name, kind, ...groups) {
      const y = 46 + k * lane, height = lane - 5;
      shapes.push(label(14, y + height / 2 + 5, name, kind));
      if (!k) shapes.push(shape("rect", {class: "idle", x: 104, y, width: 356, height}));
      for (const [spans, colored] of groups) {
        for (const {batch, start, end: stop} of spans) {
          const width = (stop - start) * scale, x = 104 + start * scale;
          if (width > 0) shapes.push(shape("rect", {class: `span ${colored}`, x, y, width, height}));
          if (width > 19) shapes.push(label(x + width / 2, y + height / 2 + 5, batch + 1, "number", "middle"));
        }
      }
    }
    row(0, "GPU", "gpu", [first.copies, "copy"], [first.computes, "gpu"]);
    first.lanes.forEach((spans, k) => row(k + 1, state.workers ? `worker ${k + 1}` : "main", "host", [spans, "host"]));
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000].find(s => end / s <= 5) || 5000;
    shapes.push(shape("line", {class: "axis", x1: 104, y1: 266, x2: 460, y2: 266}));
    for (let t = 0; t <= end; t += step) {
      const x = 104 + t * scale;
      shapes.push(shape("line", {class: "axis", x1: x, y1: 262, x2: x, y2: 270}), label(x, 290, digits(t), "soft", "middle"));
    }
    shapes.push(label(14, 290, "ms", "soft"));
    return {
      shapes, text: `${digits(perBatch)} ms per batch in the long run: the GPU computes ${percent(1 - idle - copying)} of the ` +
        `time, copies ${percent(copying)}, is idle ${percent(idle)}. ${whatLimits(state, perBatch)}`,
    };
  }

  function whatLimits({load, compute, copy, workers, cores, prefetch, uneven, sync}, perBatch) {
    const busy = copy + compute, mean = load * (uneven ? 10 / 7 : 1), loading = Math.min(workers, cores), ms = x => `${digits(x)} ms`;
    const evenly = uneven ? " on average" : "";
    if (!workers) {
      return sync ? `One after another: load ${ms(mean)}${evenly}, copy and compute ${ms(busy)}.`
        : `The main process loads for ${ms(mean)}${evenly} while the GPU computes for ${ms(compute)}: the longer counts, and the copy.`;
    }
    const ahead = `At most ${prefetch * workers} batches are ahead.`;
    const share = `${digits(mean)} / ${loading} = ${ms(mean / loading)}${evenly}`;
    const waiting = workers > cores ? ` Only ${cores} of them have a core at a time.` : "";
    if (perBatch > 1.01 * Math.max(mean / loading, busy)) {
      return `${ahead} The slow batches hold up the others, ` +
        (workers === 7 ? "and all fall to the same worker." : "which a larger prefetch factor evens out.");
    }
    return ahead + (mean / loading > 1.001 * busy ? ` The workers set the pace with ${share}; the GPU needs ${ms(busy)}.${waiting}`
      : ` The GPU sets the pace with ${ms(busy)}; the workers need ${share}, and another one changes nothing.`);
  }

  function timelineFigure() {
    const times = [0, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20, 25, 30, 40, 50], ms = x => `${digits(x)} ms`;
    return figure({
      name: "timeline", title: "Time line of a training loop and the workers that load for it", height: 310, draw: drawTimeline,
      start: {load: 18, compute: 6, copy: 0, workers: 0, prefetch: 2, cores: 8, uneven: false, sync: true},
      controls: [
        {key: "workers", label: "Workers (num_workers)", values: [0, 1, 2, 3, 4, 5, 6, 7, 8], text: String},
        {key: "load", label: "Load a batch", values: times.slice(1), text: ms},
        {key: "compute", label: "Compute a batch", values: times.slice(1), text: ms},
        {key: "copy", label: "Copy a batch", values: times, text: ms},
        {key: "prefetch", label: "Prefetch factor", off: s => !s.workers, values: [1, 2, 3, 4, 6, 8], text: String},
        {key: "cores", label: "CPU cores for workers", off: s => !s.workers, values: [1, 2, 3, 4, 6, 8], text: String},
        {key: "uneven", label: "every seventh batch loads four times as long"},
        {key: "sync", label: "the loop waits for the GPU in every step (.item())"},
      ],
      note: "In the GPU's row: outlined, it computes; filled, it copies; dashed, it is idle. A model, not a measurement: a plain " +
        ".to(device), batches handed out in turn and taken in order, as the DataLoader does. Left out: starting the workers, passing " +
        "batches between processes, and that the main process needs a core too.",
    });
  }

  /* ---- Put the figures in the place of the still pictures, which stay for printing. */

  const FIGURES = {"roofline.svg": rooflineFigure, "timeline.svg": timelineFigure};

  function replaceStills() {
    for (const still of document.querySelectorAll("img")) {
      const make = FIGURES[(still.getAttribute("src") || "").split("/").pop()];
      if (!make || still.closest(".d2l-still")) continue;
      let old = still.closest("a") || still; // a link to the picture, where there is one
      if (old.parentElement.tagName === "P" && old.parentElement.children.length === 1) old = old.parentElement;
      old.before(make());
      old.classList.add("d2l-still");
    }
  }

  window.d2lInteractive = {MACHINES, OPERATIONS, SLOW, leastTime, timeline, longRun}; // for the tests
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", replaceStills);
  else replaceStills();
})();
