// Mends what the theme's script makes in the browser, on every page that it opens.
(() => {
  const BOXES = { "pre > code": "Code", ".md-typeset__scrollwrap": "Table", "div.arithmatex": "Formula" };
  const BUTTONS = { __drawer: "Navigation", __search: "Search" };
  const ALL = Object.keys(BOXES).join();

  /** A box that scrolls is a stop for the Tab key, with a name; one that does not is none. */
  function mark(box, scrolls) {
    const named = box.getAttribute("role") === "group";
    if (scrolls ? named && box.hasAttribute("tabindex") : !named) return;
    const kind = BOXES[Object.keys(BOXES).find((each) => box.matches(each))];
    const values = { role: "group", tabindex: "0", "aria-label": `${kind}, scrolls sideways` };
    for (const [key, value] of Object.entries(values)) {
      if (scrolls) box.setAttribute(key, value);
      else box.removeAttribute(key);
    }
  }

  /** A label that looks like a button becomes one: no key reaches a label. */
  function replace(label) {
    const field = document.getElementById(label.htmlFor);
    const button = document.createElement("button");
    const tell = () => button.setAttribute("aria-expanded", field.checked);
    // The theme's style sheet knows it by these two.
    button.setAttribute("for", field.id);
    button.className = label.className;
    button.type = "button";
    button.setAttribute("aria-label", BUTTONS[field.id]);
    button.append(...label.childNodes);
    button.addEventListener("click", () => field.click());
    field.addEventListener("change", tell);
    tell();
    label.replaceWith(button);
  }

  const sizes = new ResizeObserver((changes) => {
    // All are measured before one is changed: a change in between would lay the page out anew.
    const wide = changes.map(({ target }) => target.scrollWidth > target.clientWidth + 1);
    changes.forEach(({ target }, at) => mark(target, wide[at]));
  });

  function mend() {
    for (const id of Object.keys(BUTTONS))
      for (const label of document.querySelectorAll(`header label.md-header__button[for=${id}]`)) replace(label);
    for (const box of document.querySelectorAll(ALL)) sizes.observe(box);
  }

  new MutationObserver((changes) => {
    // On screens to be touched the theme's script takes the stop away again: look at the box anew.
    for (const { type, target } of changes)
      if (type === "attributes" && !target.hasAttribute("tabindex")) sizes.unobserve(target);
    mend();
  }).observe(document.documentElement, { childList: true, subtree: true, attributeFilter: ["tabindex"] });
  mend();

  document.addEventListener("keydown", (event) => {
    const drawer = document.getElementById("__drawer");
    if (event.key === "Escape" && drawer?.checked) drawer.click();
  });
})();
