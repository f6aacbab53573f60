// Lands where a link points, although what is laid out late on the way moves it.
(() => {
  const ACTS = ["wheel", "touchstart", "pointerdown", "keydown"];
  const KEYS = ["altKey", "ctrlKey", "metaKey", "shiftKey"];
  let landing = 0; // counts, so that a later one or an act ends the one before
  let asked = "";

  const place = ({ pathname, hash }) => pathname + hash;

  function named(hash) {
    try {
      return document.getElementById(hash.slice(1)) ?? document.getElementById(decodeURIComponent(hash.slice(1)));
    } catch {
      return null; // no address that this site has written
    }
  }

  /** Scroll to what the address names until it keeps its place, or the reader takes over. */
  function land() {
    const mine = ++landing;
    const target = named(location.hash);
    const top = () => target.getBoundingClientRect().top;
    let last = NaN;
    let calm = 0;
    let frames = 0;
    (function again() {
      if (!target || mine !== landing || calm === 10 || frames === 120) return;
      if (top() === last) {
        calm += 1;
      } else {
        target.scrollIntoView({ behavior: "instant" });
        last = top();
        calm = 0;
      }
      frames += 1;
      requestAnimationFrame(again);
    })();
  }

  // Only where a link has led: back and forward lead to where the reader was, which the theme knows.
  const follow = () => asked === place(location) && land();
  for (const act of ACTS)
    addEventListener(act, () => { asked = ""; landing += 1; }, { capture: true, passive: true });
  addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    asked = link && !KEYS.some((key) => event[key]) ? place(new URL(link.href)) : "";
    requestAnimationFrame(follow);
  });
  addEventListener("hashchange", follow);
  window.document$?.subscribe(follow);
  if (performance.getEntriesByType("navigation")[0]?.type === "navigate") asked = place(location);
  follow();
  addEventListener("load", follow);
})();
