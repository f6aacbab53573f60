// What a page must hold to, asked in the page itself; each check returns a list of faults as texts.
window.checks = (() => {
  const FOCUSABLE =
    "a[href], area[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";

  /** Name an element so that a person finds it. */
  function name(element) {
    const id = element.id ? `#${element.id}` : "";
    const classes = [...element.classList].map((each) => `.${each}`).join("");
    const text = (element.getAttribute("aria-label") || element.textContent || "").trim();
    return `<${element.localName}${id}${classes}> ${text.replace(/\s+/g, " ").slice(0, 40)}`.trim();
  }

  function shown(element) {
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) return false;
    const box = element.getBoundingClientRect();
    return box.width > 1 && box.height > 1;
  }

  /** Whether the element can be brought into view: nothing that cuts it off lies in between. */
  function reachable(element) {
    const box = element.getBoundingClientRect();
    return (
      box.right > 0 && box.left < innerWidth && box.bottom > -scrollY &&
      box.top < document.documentElement.scrollHeight - scrollY
    );
  }

  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colours = new Map();

  function rgba(text) {
    if (!colours.has(text)) {
      const plain = text.match(/^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/);
      if (plain) {
        colours.set(text, [+plain[1], +plain[2], +plain[3], plain[4] === undefined ? 1 : +plain[4]]);
      } else {
        pen.clearRect(0, 0, 1, 1);
        pen.fillStyle = text;
        pen.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
        colours.set(text, [r, g, b, a / 255]);
      }
    }
    return colours.get(text);
  }

  function over([r, g, b, a], [R, G, B]) {
    return [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  }

  function luminance(colour) {
    const [r, g, b] = colour.slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function ratio(one, other) {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  }

  const canvas = () =>
    matchMedia("(prefers-color-scheme: dark)").matches &&
    getComputedStyle(document.documentElement).colorScheme.includes("dark")
      ? [18, 18, 18, 1]
      : [255, 255, 255, 1];

  /** The ground under an element, and how much of its own paint its ancestors let through. */
  function ground(element, known) {
    if (!element) return { colour: canvas(), opacity: 1 };
    if (!known.has(element)) {
      const style = getComputedStyle(element);
      const below = ground(element.parentElement, known);
      const opacity = below.opacity * style.opacity;
      const [r, g, b, a] = rgba(style.backgroundColor);
      known.set(element, { colour: over([r, g, b, a * opacity], below.colour), opacity });
    }
    return known.get(element);
  }

  /** Text that stands out too little from its ground. */
  function contrast() {
    const known = new Map();
    const faults = new Map();
    const judge = (element, style) => {
      const { colour, opacity } = ground(element, known);
      const [r, g, b, a] = rgba(style.color);
      const found = ratio(over([r, g, b, a * opacity], colour), colour);
      if (found < 4.5) {
        const key = `${style.color} on ${colour.slice(0, 3).map(Math.round)}: ${found.toFixed(2)}`;
        if (!faults.has(key)) faults.set(key, name(element));
      }
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const done = new Set();
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement;
      if (done.has(element) || !walker.currentNode.data.trim()) continue;
      done.add(element);
      if (shown(element)) judge(element, getComputedStyle(element));
    }
    for (const field of document.querySelectorAll("input[placeholder], textarea[placeholder]")) {
      if (shown(field)) judge(field, getComputedStyle(field, "::placeholder"));
    }
    return [...faults].map(([key, where]) => `contrast of ${key}, at ${where}`);
  }

  function scrolls(element, way) {
    const style = getComputedStyle(element);
    return way === "x"
      ? /auto|scroll/.test(style.overflowX) && element.scrollWidth > element.clientWidth + 1
      : /auto|scroll/.test(style.overflowY) && element.scrollHeight > element.clientHeight + 1;
  }

  /** A page that scrolls sideways, and what makes it. */
  function width() {
    const root = document.scrollingElement;
    if (root.scrollWidth <= root.clientWidth) return [];
    const cut = (element) => {
      for (let each = element.parentElement; each && each !== document.body; each = each.parentElement)
        if (getComputedStyle(each).overflowX !== "visible") return true;
      return false;
    };
    const wide = [...document.body.querySelectorAll("*")].filter(
      (each) => each.getBoundingClientRect().right > root.clientWidth + 0.5 && shown(each) && !cut(each),
    );
    return [`the page is ${root.scrollWidth} px wide: ${wide.slice(0, 3).map(name).join("; ")}`];
  }

  /** Tables that go on outside their box on a desk's screen. */
  function tables() {
    if (innerWidth < 1280) return [];
    return [...document.querySelectorAll("article table")]
      .map((table) => [table, table.closest(".md-typeset__scrollwrap") ?? table])
      .filter(([, box]) => shown(box) && box.scrollWidth > box.clientWidth + 1)
      .map(([table, box]) => `a table is ${box.scrollWidth} px wide in a box of ${box.clientWidth} px: ${name(table)}`);
  }

  /** Heads of tall tables that are not under the page's header when the reader is amid the rows. */
  function heads() {
    const faults = [];
    for (const table of document.querySelectorAll("article table")) {
      if (!table.tHead || !shown(table) || table.offsetHeight < innerHeight) continue;
      const box = table.getBoundingClientRect();
      scrollTo({ top: scrollY + box.top + box.height / 2, behavior: "instant" });
      const top = table.tHead.rows[0].cells[0].getBoundingClientRect().top;
      const bar = document.querySelector("header.md-header").getBoundingClientRect().bottom;
      if (Math.abs(top - bar) > 2) faults.push(`the head of a tall table is ${top - bar} px below the header: ${name(table)}`);
    }
    scrollTo({ top: 0, behavior: "instant" });
    return faults;
  }

  /** Images that say nothing, or that have not come. */
  function images() {
    const faults = [];
    for (const image of document.images) {
      if (!image.alt.trim()) faults.push(`an image without text: ${image.getAttribute("src")}`);
      if (shown(image) && image.complete && !image.naturalWidth)
        faults.push(`an image that does not load: ${image.getAttribute("src")}`);
    }
    return faults;
  }

  /** What a keyboard must reach now. */
  function stops() {
    return [...document.querySelectorAll(FOCUSABLE)].filter((element) => {
      if (element.tabIndex < 0 || element.disabled || !shown(element)) return false;
      if (element.type === "radio" && !element.checked) return false; // arrows reach it
      if (element.localName === "summary" && element.parentElement.localName !== "details") return false;
      return reachable(element);
    });
  }

  /** Boxes that scroll, and that a keyboard could not stop at in every browser. */
  function boxes() {
    return [...document.body.querySelectorAll("*")]
      .filter((box) => shown(box) && (scrolls(box, "x") || scrolls(box, "y")))
      .filter((box) => ![...box.querySelectorAll(FOCUSABLE)].some((each) => each.tabIndex >= 0))
      .filter((box) => box.tabIndex < 0 || !box.hasAttribute("tabindex") || !box.hasAttribute("aria-label"))
      .map((box) => `a box that scrolls without tabindex and name: ${name(box)}`);
  }

  /** Labels that are buttons to the mouse alone. */
  function labels() {
    return [...document.querySelectorAll("label[for]")]
      .filter((label) => {
        const field = document.getElementById(label.htmlFor);
        const works = shown(label) && getComputedStyle(label).pointerEvents !== "none";
        const keys = field?.tabIndex >= 0 && field.checkVisibility({ visibilityProperty: true });
        return works && reachable(label) && field && !keys && !label.closest("[role=dialog]"); // Escape
      })
      .map((label) => `a label that no key reaches: ${name(label)}`);
  }

  const seen = new Map();
  let round = false;

  /** Note where focus goes, and what is wrong there. */
  const notice = ({ target }) => {
    round ||= target === seen.keys().next().value;
    if (!seen.has(target)) seen.set(target, look(target));
  };

  function watch() {
    seen.clear();
    round = false;
    document.addEventListener("focusin", notice); // once, however often it is said
    return [];
  }

  function ringed(element) {
    const style = getComputedStyle(element);
    return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
  }

  function look(element) {
    if (element === document.body) return [];
    // A hidden checkbox or choice shows by a label.
    const labels = [...(element.labels ?? []), element.nextElementSibling].filter(
      (each) => each?.localName === "label" && shown(each),
    );
    if (labels.length && !shown(element)) return look(labels.find(ringed) ?? labels[0]);
    if (!shown(element)) return [`focus on something hidden: ${name(element)}`];
    const box = element.getBoundingClientRect();
    const faults = [];
    if (box.right <= 0 || box.left >= innerWidth || box.bottom <= 0 || box.top >= innerHeight)
      faults.push(`focus outside the window: ${name(element)}`);
    const writes = element.matches("input:not([type=checkbox], [type=radio], [type=range]), textarea");
    if (!ringed(element) && !writes) faults.push(`focus does not show: ${name(element)}`);
    return faults;
  }

  /** What focus has met since `watch`, and what it has not. */
  function walked() {
    const missed = stops().filter((element) => !seen.has(element));
    const trap = round ? [] : [`focus does not come round: it stays at ${name(document.activeElement)}`];
    return [...seen.values(), trap].flat().concat(missed.map((each) => `no Tab reaches ${name(each)}`));
  }

  /** Leave out what says nothing to axe but costs it minutes: the spans of coloured code and of
   *  drawn formulas (hidden from assistive technology). The layout stays. */
  function thin() {
    for (const span of document.querySelectorAll("pre code span"))
      if ([...span.attributes].every((each) => each.name === "class")) span.replaceWith(...span.childNodes);
    for (const code of document.querySelectorAll("pre code")) code.normalize();
    for (const drawn of document.querySelectorAll(".katex-html[aria-hidden=true]")) {
      const { width, height } = drawn.getBoundingClientRect();
      drawn.replaceChildren();
      Object.assign(drawn.style, { display: "inline-block", width: `${width}px`, height: `${height}px` });
    }
    return [];
  }

  /** What axe-core finds. */
  async function axe() {
    const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
    return violations.map((each) => {
      const places = each.nodes.slice(0, 3).map((node) => node.target.join(" "));
      return `${each.id} (${each.help}), ${each.nodes.length} times: ${places.join("; ")}`;
    });
  }

  /** Elements that move although the reader has asked for rest. */
  function motion() {
    const long = (times) => times.split(", ").some((time) => parseFloat(time) > 0.001);
    return [...document.querySelectorAll("*")].flatMap((element) =>
      [null, "::before", "::after"]
        .map((part) => [part, getComputedStyle(element, part)])
        .filter(([, style]) =>
          (long(style.transitionDuration) && style.transitionProperty !== "none") ||
          (long(style.animationDuration) && style.animationName !== "none") ||
          style.scrollBehavior === "smooth")
        .map(([part]) => `moves: ${name(element)}${part ?? ""}`),
    );
  }

  return { axe, boxes, contrast, heads, images, labels, luminance, motion, name, rgba, round: () => round, shown, stops, tables, thin, walked, watch, width };
})();
