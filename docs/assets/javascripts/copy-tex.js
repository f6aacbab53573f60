// A copied formula is its TeX, in dollars; text around it is copied as it stands.
document.addEventListener("copy", (event) => {
  const selection = getSelection();
  if (selection.isCollapsed) return;
  const range = selection.getRangeAt(0).cloneRange();
  const around = (node) => {
    const element = node instanceof Element ? node : node.parentElement;
    return element?.closest(".katex-display") ?? element?.closest(".katex");
  };
  const [first, last] = [around(range.startContainer), around(range.endContainer)];
  if (first) range.setStartBefore(first);
  if (last) range.setEndAfter(last);
  const copied = document.createElement("div");
  copied.append(range.cloneContents());
  const formulas = copied.querySelectorAll(".katex");
  if (!formulas.length) return;
  for (const formula of formulas) {
    const fence = formula.closest(".katex-display") ? "$$" : "$";
    formula.replaceWith(fence + formula.querySelector("annotation").textContent + fence);
  }
  copied.querySelectorAll(".headerlink").forEach((link) => link.remove());
  // Line breaks are known only of text that is laid out.
  copied.style.cssText = "position: fixed; left: -999em; width: 60em";
  document.body.append(copied);
  event.clipboardData.setData("text/plain", copied.innerText.trim());
  copied.remove();
  copied.removeAttribute("style");
  event.clipboardData.setData("text/html", copied.innerHTML);
  event.preventDefault();
});
