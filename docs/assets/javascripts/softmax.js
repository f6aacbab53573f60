// One row of weights whose width and scale the reader drags. The scores are those of the page's table.
(() => {
  const WIDTHS = Array.from({ length: 11 }, (_, power) => 2 ** power);
  const SCALES = {
    none: ["none", () => 1],
    root: ["1/√d", (d) => 1 / Math.sqrt(d)],
    width: ["1/d", (d) => 1 / d],
    own: ["own", null],
  };

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };

  // draws[draw][power of two] is a row of scores.
  const readScores = (table) => {
    const draws = [];
    for (const row of table.tBodies[0].rows) {
      const [draw, , scores] = [...row.cells].map((cell) => cell.textContent.trim().replaceAll("−", "-"));
      (draws[draw] ??= []).push(scores.split(", ").map(Number));
    }
    return draws;
  };

  const softmax = (logits) => {
    const highest = Math.max(...logits);
    const exponentials = logits.map((logit) => Math.exp(logit - highest));
    const sum = exponentials.reduce((a, b) => a + b);
    return exponentials.map((e) => e / sum);
  };

  const describe = (weights) => {
    const first = weights.indexOf(Math.max(...weights));
    const others = weights.filter((_, key) => key !== first);
    const entropy = -weights.reduce((sum, w) => sum + (w > 0 ? w * Math.log(w) : 0), 0);
    // Of the largest weight by the logits: p (1 - p) for its own, -p p_j for the others. As a sum, 1 - p keeps its digits.
    const gradient = weights[first] * Math.hypot(others.reduce((a, b) => a + b), ...others);
    return { first, peak: weights[first], entropy, keys: Math.exp(entropy), gradient };
  };

  // As Python prints it: an exponent has two digits or more.
  const scientific = (x) => x.toExponential(3).replace(/([+-])(?=\d$)/, "$&0");

  let count = 0;
  const build = (place) => {
    if (place.dataset.built) return;
    place.dataset.built = "";
    const id = `softmax-${(count += 1)}`;
    const draws = readScores(place.querySelector("table"));

    const width = make("input", { type: "range", id: `${id}-d`, min: 0, max: WIDTHS.length - 1, step: 1, value: 6 });
    const factor = make("input", { type: "range", id: `${id}-s`, min: -10, max: 2, step: 0.25, value: 0 });
    const widthText = make("span", { class: "attn-value" });
    const factorText = make("span", { class: "attn-value" });
    const choices = Object.entries(SCALES).map(([value, [name]]) => {
      const input = make("input", { type: "radio", name: id, value });
      input.checked = value === "none";
      return make("label", {}, input, ` ${name}`);
    });
    const draw = make("select", { id: `${id}-draw` }, ...draws.map((_, n) => make("option", { value: n }, `${n}`)));
    const bars = make("div", { class: "attn-bars", role: "img" });
    const facts = make("dl", { class: "attn-facts" });
    const status = make("p", { role: "status", class: "attn-hidden" });

    const fact = (name) => {
      const value = make("dd");
      facts.append(make("div", {}, make("dt", {}, name), value));
      return value;
    };
    const shown = {
      peak: fact("largest weight"),
      entropy: fact("entropy in nats"),
      keys: fact("effective keys"),
      gradient: fact("gradient of the largest weight"),
    };
    const columns = draws[0][0].map((_, key) => {
      const bar = make("i");
      bars.append(make("span", {}, bar, make("b", {}, `${key}`)));
      return bar;
    });

    let later;
    const update = () => {
      const d = WIDTHS[width.value];
      const chosen = choices.map((label) => label.control).find((input) => input.checked).value;
      const named = SCALES[chosen][1];
      const scale = named ? named(d) : 2 ** Number(factor.value);
      if (named) factor.value = Math.log2(scale);
      const weights = softmax(draws[draw.value][width.value].map((score) => score * scale));
      const found = describe(weights);
      weights.forEach((weight, key) => {
        columns[key].style.blockSize = `${100 * weight}%`;
        columns[key].dataset.weight = weight;
        columns[key].classList.toggle("attn-first", key === found.first);
      });
      const scaleText = String(Number(scale.toPrecision(7)));
      widthText.textContent = `d = ${d}`;
      width.setAttribute("aria-valuetext", `d = ${d}`);
      factorText.textContent = scaleText;
      factor.setAttribute("aria-valuetext", scaleText);
      shown.peak.textContent = found.peak.toFixed(4);
      shown.entropy.textContent = found.entropy.toFixed(3);
      shown.keys.textContent = found.keys.toFixed(1);
      shown.gradient.textContent = scientific(found.gradient);
      bars.setAttribute("aria-label", `Bars: weights of ${weights.length} keys. Key ${found.first} has most, ${found.peak.toFixed(4)}.`);
      // Said once the reader rests, not at every step of a drag.
      clearTimeout(later);
      later = setTimeout(() => {
        status.textContent = `Width ${d}, scale ${scaleText}: largest weight ${found.peak.toFixed(4)}, like ${found.keys.toFixed(1)} equal keys.`;
      }, 800);
    };
    factor.addEventListener("input", () => {
      choices.at(-1).control.checked = true;
    });

    const panel = make(
      "form",
      { class: "attn-widget", "aria-label": "Softmax explorer" },
      make("div", { class: "attn-row" }, make("label", { for: width.id }, "width d"), width, widthText),
      make("fieldset", { class: "attn-row" }, make("legend", {}, "scale"), ...choices),
      make("div", { class: "attn-row" }, make("label", { for: factor.id }, "its value"), factor, factorText),
      make("div", { class: "attn-row" }, make("label", { for: draw.id }, "draw"), draw),
      bars,
      make("p", { class: "attn-note" }, `The weights of the ${columns.length} keys; the lines are at ½ and 1.`),
      facts,
      status,
    );
    panel.addEventListener("input", update);
    panel.addEventListener("submit", (event) => event.preventDefault());
    const still = place.querySelector("[data-still]");
    still.hidden = true;
    still.after(panel);
    update();
    clearTimeout(later);
  };

  const start = () => document.querySelectorAll('[data-widget="softmax"]').forEach(build);
  if (window.document$) window.document$.subscribe(start);
  else start();
})();
