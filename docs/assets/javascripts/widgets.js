// Loads the script of each interactive part that the page holds: <div data-widget="masks"> needs masks.js.
(() => {
  const here = document.currentScript.src;
  const loaded = new Set(); // instant navigation takes their elements away, not what they do
  const load = () => {
    for (const { dataset } of document.querySelectorAll("[data-widget]")) {
      const source = new URL(`${dataset.widget}.js`, here).href;
      if (loaded.has(source)) continue;
      loaded.add(source);
      document.head.append(Object.assign(document.createElement("script"), { src: source }));
    }
  };
  // With instant navigation a page comes without its scripts being run again.
  if (window.document$) window.document$.subscribe(load);
  else load();
})();
