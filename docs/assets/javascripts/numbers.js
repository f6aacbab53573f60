// Shows beside a number where it is from: what its link leads to at the end of the page.
// A pointer or the focus shows it; a click, a tap or Enter keeps it open and moves the focus in.
(() => {
  if (!("popover" in HTMLElement.prototype)) return; // the links do without

  const GAP = 6;
  let number = null; // the link that is explained
  let box = null;
  let kept = false;
  let timer = 0;

  const text = (tag, content) => {
    const element = document.createElement(tag);
    element.textContent = content;
    return element;
  };

  function explain(link) {
    const origin = document.getElementById(link.hash.slice(1));
    // By their property: instant navigation makes every address whole.
    const printed = [...(origin?.querySelectorAll(".printed a") ?? [])].find((each) => each.hash === `#${link.id}`);
    if (!printed) return null;
    const made = document.createElement("div");
    made.className = "origin";
    made.popover = "manual";
    made.tabIndex = -1;
    made.setAttribute("role", "dialog");
    made.setAttribute("aria-label", `Where ${link.textContent} is from`);
    const first = text("p", printed.parentNode.textContent.slice(link.textContent.length));
    first.prepend(text("strong", link.textContent));
    made.append(first, origin.querySelector("p").cloneNode(true));
    const run = origin.closest(".origins").querySelector(".run");
    if (origin.className === "measured" && run) made.append(run.cloneNode(true));
    return made;
  }

  // Under the number's line, or over it where there is more room; never on it, never off the screen.
  function place() {
    const line = number.getClientRects()[0];
    const width = document.documentElement.clientWidth;
    const below = innerHeight - line.bottom - 2 * GAP;
    const above = line.top - 2 * GAP;
    const under = box.offsetHeight <= below || below >= above;
    box.style.maxHeight = `${Math.max(under ? below : above, 80)}px`;
    const top = under ? line.bottom + GAP : line.top - GAP - box.offsetHeight;
    const left = Math.max(GAP, Math.min(line.left, width - box.offsetWidth - GAP));
    box.style.top = `${top + scrollY}px`;
    box.style.left = `${left + scrollX}px`;
  }

  function show(link) {
    clearTimeout(timer);
    if (link === number) return;
    hide();
    box = explain(link);
    if (!box) return;
    number = link;
    number.closest("data").after(box);
    for (const each of box.querySelectorAll("a")) each.tabIndex = -1;
    box.showPopover();
    place();
  }

  function keep() {
    kept = true;
    for (const each of box.querySelectorAll("a")) each.removeAttribute("tabindex");
    box.focus({ preventScroll: true });
  }

  function hide() {
    clearTimeout(timer);
    box?.remove();
    number = box = null;
    kept = false;
  }

  const linkOf = (event) => event.target.closest?.("a.number");
  const inside = (node) => node && (number?.contains(node) || box?.contains(node));

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "mouse" || kept) return;
    const link = linkOf(event);
    clearTimeout(timer);
    if (link && link !== number) timer = setTimeout(show, 150, link);
    else if (number && !inside(event.target) && number !== document.activeElement) {
      timer = setTimeout(hide, 300); // time to move into the box
    }
  });
  document.addEventListener("focusin", (event) => {
    const link = linkOf(event);
    if (link?.matches(":focus-visible")) show(link);
    else if (number && !inside(event.target)) hide();
  });
  // First, so that no other script follows the link.
  document.addEventListener(
    "click",
    (event) => {
      const link = linkOf(event);
      if (!link) {
        if (number && (!inside(event.target) || event.target.closest("a"))) hide();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      if (link === number && kept) hide();
      else {
        show(link);
        if (!box) return;
        keep();
      }
      event.preventDefault();
      event.stopPropagation();
    },
    true,
  );
  document.addEventListener(
    "keydown",
    (event) => {
      if (event.key !== "Escape" || !number) return;
      const back = box.contains(document.activeElement) && number;
      hide();
      if (back) {
        back.focus({ preventScroll: true });
        hide(); // the focus shows it again
      }
      event.stopPropagation();
    },
    true,
  );
  addEventListener("resize", () => number && place());
})();
