// Reads [{tex, display}, ...] as JSON and answers [{html} or {error}, ...] in the same order.
// Usage: node render.mjs FOLDER_THAT_HOLDS_NODE_MODULES < formulas.json > answers.json
import { join } from "node:path";
import { argv, stdin, stdout } from "node:process";
import { json } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const module = join(argv[2], "node_modules", "katex", "dist", "katex.mjs");
const { default: katex } = await import(pathToFileURL(module).href);

// A command that KaTeX refuses without throwing (\href, \includegraphics) is set in this colour.
const REFUSED = "#c0ffee";

function render({ tex, display }) {
  try {
    const html = katex.renderToString(tex, {
      displayMode: display,
      output: "htmlAndMathml",
      throwOnError: true,
      errorColor: REFUSED,
      strict: "error",
    });
    return html.includes(REFUSED) ? { error: "a command that is not allowed here" } : { html };
  } catch (error) {
    return { error: error.rawMessage ?? error.message };
  }
}

const formulas = await json(stdin);
stdout.write(JSON.stringify(formulas.map(render)));
