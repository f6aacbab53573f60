// Lands where a link points, although what is laid out late on the way moves it.
(() => {
  const ACTS = ["wheel", "touchstart", "pointerdown", "keydown"];

  let landing = new AbortController();

  /** Scroll to what the address names until it keeps its place, or the reader takes over. */
  function land() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    landing.abort();
    const mine = (landing = new AbortController());
    const { signal } = mine;
    for (const act of ACTS) addEventListener(act, () => mine.abort(), { signal, passive: true });
    const top = () => target.getBoundingClientRect().top;
    let place = NaN;
    let calm = 0;
    let frames = 0;
    (function again() {
      if (signal.aborted) return;
      if (top() === place) {
        calm += 1;
      } else {
        target.scrollIntoView({ behavior: "instant" });
        place = top();
        calm = 0;
      }
      frames += 1;
      if (calm < 10 && frames < 120) requestAnimationFrame(again);
      else mine.abort();
    })();
  }

  // Back and forward lead to where the reader was, which the browser knows.
  let asked = false;
  const follow = () => {
    if (asked) land();
    asked = false;
  };
  addEventListener("click", (event) => {
    asked = Boolean(event.target.closest?.("a[href*='#']"));
  });
  addEventListener("hashchange", follow);
  window.document$?.subscribe(follow);
  const [loaded] = performance.getEntriesByType("navigation");
  if (loaded?.type === "navigate") addEventListener("load", land);
})();
