// The mask builder: settings from the reader, the grid they make, and the call that passes it.
(() => {
  const LARGEST = 24;
  const MOST_EXAMPLES = 6;
  const APIS = { sdpa: "F.scaled_dot_product_attention", mha: "nn.MultiheadAttention", flex: "FlexAttention" };
  const START = {
    tq: "6", tk: "6", heads: "2", kv: "", causal: "1", align: "end", window: "0", sinks: "0",
    padding: "right", lengths: "6, 4", prefix: "", documents: "", api: "sdpa",
  };

  // Only an address can leave these without a choice.
  const UNCHOSEN = {
    causal: "Causal is neither on nor off: check or clear it.",
    align: "No alignment is chosen: choose one.",
    padding: "No padding is chosen: choose none, right or left.",
    api: "No call is chosen: choose one.",
  };

  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const draw = (tag, attributes, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  };

  class Refusal extends Error {
    constructor(field, message) {
      super(message);
      this.field = field;
    }
  }

  // What the reader wrote, as numbers: B is the longest list, and a list of one serves every example.
  const read = (given) => {
    const whole = (field, name, text, least, most) => {
      const number = /^\s*\d+\s*$/.test(text) ? Number(text) : NaN;
      if (number >= least && number <= most) return number;
      throw new Refusal(field, `${name} is ${text.trim() || "empty"}: give a whole number from ${least} to ${most}.`);
    };
    const list = (field, name, text, least, most) =>
      text.split(/[\s,]+/).filter(Boolean).map((part) => whole(field, name, part, least, most));
    const tq = whole("tq", "Tq", given.tq, 1, LARGEST);
    const tk = whole("tk", "Tk", given.tk, 1, LARGEST);
    const heads = whole("heads", "The number of heads", given.heads, 1, 8);
    const kv = given.kv.trim() ? whole("kv", "The number of key/value heads", given.kv, 1, heads) : heads;
    if (heads % kv) {
      const fit = Array.from({ length: heads }, (_, n) => n + 1).filter((n) => heads % n === 0);
      throw new Refusal("kv", `${kv} key/value heads cannot serve ${heads} heads equally: give ${fit.slice(0, -1).join(", ")} or ${heads}.`);
    }
    for (const [field, message] of Object.entries(UNCHOSEN)) {
      if (!given[field]) throw new Refusal(field, message);
    }
    const causal = given.causal === "1";
    const window = whole("window", "The window", given.window, 0, LARGEST);
    const sinks = whole("sinks", "The number of sinks", given.sinks, 0, LARGEST);
    const padded = given.padding !== "none";
    const lengths = padded ? list("lengths", "A length", given.lengths, 0, tk) : [];
    if (padded && !lengths.length) throw new Refusal("lengths", "No length is given: write one for each example, such as 6, 4.");
    const prefix = list("prefix", "A prefix", given.prefix, 0, tk);
    const documents = given.documents.split(";").map((one) => list("documents", "A document", one, 1, tk)).filter((one) => one.length);
    if (documents.length && tq !== tk) {
      throw new Refusal("documents", `Documents need Tq = Tk, here ${tq} and ${tk}: queries and keys are the same tokens.`);
    }
    const ids = documents.map((sizes) => {
      const sum = sizes.reduce((a, b) => a + b);
      if (sum > tk) throw new Refusal("documents", `Documents of ${sizes.join(" + ")} = ${sum} tokens do not fit in ${tk}: shorten them.`);
      return [...sizes, tk - sum].flatMap((size, id) => Array(size).fill(id));
    });
    const lists = { lengths, prefix, documents };
    const examples = Math.max(1, ...Object.values(lists).map((one) => one.length));
    for (const [field, one] of Object.entries(lists)) {
      if (one.length > MOST_EXAMPLES) throw new Refusal(field, `${one.length} examples are given: give ${MOST_EXAMPLES} at most.`);
      if (one.length > 1 && one.length < examples) {
        throw new Refusal(field, `Here are ${one.length} examples, elsewhere ${examples}: give one for all, or one for each.`);
      }
    }
    const each = (one) => (one.length === 1 ? Array(examples).fill(one[0]) : one);
    const near = causal || window > 0;
    const idle = [];
    if (!near && prefix.length) idle.push("The prefix changes nothing: every query sees it already.");
    if (!window && sinks) idle.push("The sinks change nothing: without a window, no key is too far away.");
    const left = given.padding === "left";
    // Where the tokens of each example begin.
    const first = Array.from({ length: examples }, (_, b) => (left ? tk - each(lengths)[b] : 0));
    return {
      tq, tk, heads, kv, examples, window, near, causal, first, idle,
      offset: given.align === "end" ? tk - tq : 0,
      padding: given.padding,
      lengths: each(lengths),
      // Where every query sees every key, a prefix adds nothing.
      prefix: near ? each(prefix) : [],
      ids: each(ids),
      sinks: window && sinks,
      // Where each token's document begins, after the padding.
      starts: window && sinks ? each(ids).map((one, b) => one.map((id) => Math.max(one.indexOf(id), first[b]))) : [],
      prefixVaries: near && (prefix.length > 1 || (prefix.length === 1 && left)),
      idsVary: ids.length > 1,
      startsVary: ids.length > 1 || left,
    };
  };

  const allows = (s, b, i, j) => {
    const at = i + s.offset;
    const first = s.first[b];
    const end = s.padding === "right" ? s.lengths[b] : s.tk;
    const near = !s.window || (j > at - s.window && j < at + s.window);
    const sink = j < (s.starts.length ? s.starts[b][j] : first) + s.sinks;
    const leading = s.prefix.length > 0 && j < first + s.prefix[b];
    return (((near || sink) && (!s.causal || j <= at)) || leading) && j >= first && j < end && (!s.ids.length || s.ids[b][i] === s.ids[b][j]);
  };

  const grid = (s) =>
    Array.from({ length: s.examples }, (_, b) =>
      Array.from({ length: s.tq }, (_, i) => Array.from({ length: s.tk }, (_, j) => allows(s, b, i, j))));

  // The code. Each part of a mask is [how it joins, condition, whether it varies by example, a remark].
  const plus = (name, n) => (n === 0 ? name : `${name} ${n < 0 ? "-" : "+"} ${Math.abs(n)}`);

  // Causality limits the window and the sinks, so it comes after them. It does not limit the prefix.
  const parts = (s, names) => {
    const found = [];
    if (s.window) {
      const past = `${names.key} > ${plus(names.query, s.offset - s.window)}`;
      const future = `${names.key} < ${plus(names.query, s.offset + s.window)}`;
      found.push(["", s.causal ? past : `(${past}) & (${future})`, false, "the window"]);
    }
    if (s.sinks) {
      const [own, one] = s.startsVary ? [names.starts, names.leftSinks] : [names.start, (n) => n];
      const end = s.starts.length ? own : one;
      found.push(["|", `${names.key} < ${end(s.sinks)}`, s.startsVary, "the sinks"]);
    }
    if (s.causal) found.push(["&", `${names.key} <= ${plus(names.query, s.offset)}`, false, "causal"]);
    if (s.prefix.length) {
      // With left padding a prefix begins where the tokens do.
      const varied = s.padding === "left" ? names.leftPrefix : names.prefix;
      const end = s.prefixVaries ? varied : s.prefix[0];
      found.push(["|", `${names.key} < ${end}`, s.prefixVaries, "the prefix"]);
    }
    if (s.padding !== "none" && names.lengths) {
      const rule = s.padding === "right" ? `${names.key} < ${names.lengths}` : `${names.key} >= ${names.first}`;
      found.push(["&", rule, true, "no padding"]);
    }
    if (s.ids.length) found.push(["&", s.idsVary ? names.documents : names.document, s.idsVary, "one document"]);
    return found;
  };

  const table = (name, examples, varies) => {
    const rows = examples.map((one) => `[${one.join(", ")}]`);
    return varies ? [`${name} = torch.tensor([`, ...rows.map((row) => `    ${row},`), "])"] : [`${name} = torch.tensor(${rows[0]})`];
  };

  // The tensors that the conditions name.
  const data = (s) => {
    const lines = [];
    if (s.padding !== "none") lines.push(`lengths = torch.tensor([${s.lengths.join(", ")}])  # tokens in each example`);
    if (s.padding === "left") lines.push("first = Tk - lengths  # where the tokens begin");
    if (s.starts.length) lines.push("# Where each token's document begins.", ...table("start", s.starts, s.startsVary));
    if (s.prefixVaries) lines.push(`prefix = torch.tensor([${s.prefix.join(", ")}])  # keys in each prefix`);
    if (s.ids.length) lines.push("# The number of each token's document.", ...table("document", s.ids, s.idsVary));
    return lines;
  };

  const tensor = (s, names) => {
    const lines = [];
    let [varies, queries] = [false, false];
    for (const [join, condition, one, remark] of parts(s, names)) {
      varies ||= one;
      queries ||= remark !== "no padding";
      const shape = varies ? `(B, 1, ${queries ? "Tq" : "1"}, Tk)` : "(Tq, Tk)";
      lines.push(`mask = ${lines.length ? `mask ${join} (${condition})` : condition}  # ${shape}: ${remark}`);
    }
    const text = lines.join("\n");
    const indices = [];
    if (/\bi\b/.test(text.replace(/#.*/g, ""))) indices.push("i = torch.arange(Tq)[:, None]  # (Tq, 1)");
    if (/\bj\b/.test(text.replace(/#.*/g, ""))) indices.push("j = torch.arange(Tk)  # (Tk,)");
    return { lines, indices, varies };
  };

  const TENSORS = {
    query: "i", key: "j",
    prefix: "prefix[:, None, None, None]",
    leftPrefix: "(first + prefix)[:, None, None, None]",
    lengths: "lengths[:, None, None, None]",
    first: "first[:, None, None, None]",
    leftSinks: (n) => `(first + ${n})[:, None, None, None]`,
    start: (n) => `start + ${n}`,
    starts: (n) => `(start + ${n})[:, None, None]`,
    document: "document[:, None] == document",
    documents: "document[:, None, :, None] == document[:, None, None]",
  };

  const writeSdpa = (s) => {
    const { lines, indices } = tensor(s, TENSORS);
    const only = s.causal && !s.window && !s.prefix.length && s.padding === "none" && !s.ids.length;
    const flag = only && s.offset === 0;
    const call = (argument) => (s.kv < s.heads
      ? ["output = F.scaled_dot_product_attention(", `    q, k, v${argument}, enable_gqa=True`, ")  # (B, H, Tq, d)"]
      : [`output = F.scaled_dot_product_attention(q, k, v${argument})  # (B, H, Tq, d)`]);
    const head = ["import torch", "import torch.nn.functional as F", "", ...inputs(s)];
    if (flag) return [...head, "", ...call(", is_causal=True")];
    if (!lines.length) return [...head, "", ...call("")];
    const remark = only ? ["# is_causal=True would align at the top left: another mask."] : [];
    return [...head, "", ...indices, ...data(s), "# True = may attend.", ...lines, ...remark, ...call(", attn_mask=mask")];
  };

  const inputs = (s) => [
    s.kv < s.heads
      ? `B, H, Hkv, Tq, Tk, d = ${s.examples}, ${s.heads}, ${s.kv}, ${s.tq}, ${s.tk}, 16`
      : `B, H, Tq, Tk, d = ${s.examples}, ${s.heads}, ${s.tq}, ${s.tk}, 16`,
    "q = torch.randn(B, H, Tq, d)  # yours",
    `k, v = torch.randn(2, B, ${s.kv < s.heads ? "Hkv" : "H"}, Tk, d)  # yours`,
  ];

  const writeMha = (s) => {
    if (s.kv < s.heads) {
      return [
        "# nn.MultiheadAttention has no grouped-query attention: each of its heads",
        "# has keys and values of its own. Use F.scaled_dot_product_attention or",
        "# FlexAttention, or as many key/value heads as heads.",
      ];
    }
    const { lines, indices, varies } = tensor(s, { ...TENSORS, lengths: null });
    const padded = s.padding !== "none";
    if (padded && !indices.some((line) => line.startsWith("j"))) indices.push("j = torch.arange(Tk)  # (Tk,)");
    const masks = [];
    if (padded) masks.push("    key_padding_mask=~tokens,  # (B, Tk)");
    if (lines.length && varies) masks.push("    attn_mask=~mask[:, 0].repeat_interleave(H, 0),  # (B * H, Tq, Tk)");
    if (lines.length && !varies) masks.push("    attn_mask=~mask,  # (Tq, Tk)");
    const tokens = `tokens = j ${s.padding === "right" ? "< lengths" : ">= first"}[:, None]  # (B, Tk)`;
    return [
      "import torch", "from torch import nn", "",
      `B, H, Tq, Tk, C = ${s.examples}, ${s.heads}, ${s.tq}, ${s.tk}, ${16 * s.heads}`,
      "layer = nn.MultiheadAttention(C, H, batch_first=True)  # yours",
      "x = torch.randn(B, Tq, C)  # yours: the queries",
      "memory = torch.randn(B, Tk, C)  # yours: the keys and values",
      "",
      ...(masks.length ? [...indices, ...data(s), "# True = may attend.", ...lines, ...(padded ? [tokens] : [])] : []),
      ...(masks.length ? ["# In this layer True means hidden: ~ turns a mask round."] : []),
      "output, _ = layer(", "    x,", "    memory,", "    memory,", ...masks, "    need_weights=False,", ")  # (B, Tq, C)",
    ];
  };

  const writeFlex = (s) => {
    const names = {
      query: "q_idx", key: "kv_idx", prefix: "prefix[b]", leftPrefix: "first[b] + prefix[b]", lengths: "lengths[b]", first: "first[b]",
      leftSinks: (n) => `first[b] + ${n}`,
      start: (n) => `start[kv_idx] + ${n}`,
      starts: (n) => `start[b, kv_idx] + ${n}`,
      document: "document[q_idx] == document[kv_idx]",
      documents: "document[b, q_idx] == document[b, kv_idx]",
    };
    const found = parts(s, names);
    const grouped = s.kv < s.heads ? ", enable_gqa=True" : "";
    const head = ["import torch", "from torch.nn.attention.flex_attention import create_block_mask, flex_attention", "", ...inputs(s)];
    if (!found.length) {
      head[1] = "from torch.nn.attention.flex_attention import flex_attention";
      return [...head, "", `output = flex_attention(q, k, v${grouped})  # (B, H, Tq, d)`];
    }
    const body = found.map(([join, condition, , remark], n) =>
      `    allowed = ${n ? `allowed ${join} (${condition})` : condition}  # ${remark}`);
    const varies = found.some(([, , one]) => one);
    return [
      ...head, "", ...data(s), ...(data(s).length ? [""] : []),
      "def mask_mod(b, h, q_idx, kv_idx):  # True = may attend",
      ...body,
      "    return allowed",
      "",
      `block_mask = create_block_mask(mask_mod, ${varies ? "B" : "None"}, None, Tq, Tk, device=q.device)`,
      "# For speed, call torch.compile(flex_attention).",
      `output = flex_attention(q, k, v, block_mask=block_mask${grouped})  # (B, H, Tq, d)`,
    ];
  };

  const WRITE = { sdpa: writeSdpa, mha: writeMha, flex: writeFlex };

  // Pygments' classes, as in the site's other blocks: those whose colour differs from the text.
  const SYNTAX = new RegExp([
    /(?<c1>#.*)/,
    /(?<nn>(?<=^(?:from|import) | as )[\w.]+)/,
    /(?<kn>\b(?:from|import)\b)/,
    /(?<nf>(?<=^def )\w+)/,
    /(?<k>\b(?:as|def|return)\b)/,
    /(?<mi>\b\d+\b)/,
  ].map((one) => one.source).join("|"), "gm");
  const coloured = (text) => {
    const pieces = [];
    let end = 0;
    for (const found of text.matchAll(SYNTAX)) {
      const name = Object.keys(found.groups).find((one) => found.groups[one]);
      pieces.push(text.slice(end, found.index), make("span", { class: name }, found[0]));
      end = found.index + found[0].length;
    }
    return [...pieces, text.slice(end)];
  };

  // Numbers in order, as "0 to 2, 5".
  const ranges = (numbers) => {
    const found = [];
    for (const n of numbers) {
      if (found.length && found.at(-1)[1] === n - 1) found.at(-1)[1] = n;
      else found.push([n, n]);
    }
    return found.map(([a, b]) => (a === b ? `${a}` : `${a} to ${b}`)).join(", ");
  };
  const seen = (row) => row.flatMap((may, j) => (may ? [j] : []));
  const keys = (n) => `${n} key${n === 1 ? "" : "s"}`;

  const picture = (rows, b) => {
    const [cell, left, top] = [16, 20, 16];
    const [tq, tk] = [rows.length, rows[0].length];
    const [wide, high] = [left + cell * tk + 24, top + cell * tq + 2];
    const name = `Example ${b}, ${tq} queries by ${keys(tk)}`;
    const svg = draw("svg", { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": name });
    for (let j = 0; j < tk; j += 1) svg.append(draw("text", { x: left + cell * (j + 0.5), y: top - 4 }, `${j}`));
    rows.forEach((row, i) => {
      const y = top + cell * i;
      const total = seen(row).length;
      svg.append(draw("text", { x: left - 10, y: y + 12 }, `${i}`));
      row.forEach((may, j) => svg.append(draw("rect", { x: left + cell * j, y, width: cell, height: cell, ...(may ? { class: "attn-on" } : {}) })));
      svg.append(draw("text", { x: left + cell * tk + 12, y: y + 12, ...(total ? {} : { class: "attn-none" }) }, `${total}`));
    });
    const caption = make("figcaption", {}, `Example ${b}: ${rows.flat().filter(Boolean).length} of ${tq * tk} pairs may attend.`);
    return make("figure", {}, svg, caption);
  };
  const inWords = (rows, b) => {
    const lines = rows.map((row, i) => {
      const found = seen(row);
      return make("li", {}, `query ${i}: ${found.length ? `${keys(found.length)}, ${ranges(found)}` : "no key"}`);
    });
    return make("div", {}, make("p", {}, `Example ${b}`), make("ul", {}, ...lines));
  };

  const build = (place) => {
    if (place.dataset.built) return;
    place.dataset.built = "";
    const asked = new URLSearchParams(location.search);
    const fields = {};
    const marked = {}; // the element that shows that a field is refused
    const empties = place.querySelector('a[href*="empty-rows"]').href;
    const error = make("p", { class: "attn-error", id: "mask-error" });

    const field = (name, label, input, ...after) => {
      input.id = `mask-${name}`;
      fields[name] = input;
      marked[name] = input;
      return make("div", { class: "attn-row" }, make("label", { for: input.id }, label), input, ...after);
    };
    const number = (name, label, least, most, hint = "") =>
      field(name, label, make("input", { type: "number", min: least, max: most, value: START[name], required: "" }), ...(hint ? [make("small", {}, hint)] : []));
    const text = (name, label, hint, keyboard = "text") => {
      const note = make("small", { id: `mask-${name}-note` }, hint);
      const input = make("input", { type: "text", inputmode: keyboard, autocomplete: "off", spellcheck: "false", "aria-describedby": note.id });
      return field(name, label, input, note);
    };
    const choice = (name, legend, options) => {
      const labels = Object.entries(options).map(([value, label]) =>
        make("label", {}, make("input", { type: "radio", name: `mask-${name}`, value }), label));
      fields[name] = labels.map((label) => label.firstChild);
      marked[name] = make("fieldset", { class: "attn-row", role: "radiogroup" }, make("legend", {}, legend), ...labels);
      return marked[name];
    };
    const form = make(
      "form", { "aria-label": "Mask settings" },
      make("div", { class: "attn-sizes" }, number("tq", "queries Tq", 1, LARGEST), number("tk", "keys Tk", 1, LARGEST), number("heads", "heads H", 1, 8)),
      text("kv", "key/value heads", "fewer than H for grouped-query attention; empty for H", "numeric"),
      field("causal", "causal", make("input", { type: "checkbox" }), make("small", {}, "no key after the query's own")),
      choice("align", "alignment", { end: "bottom right: the last query is at the last key", start: "top left: query 0 is at key 0" }),
      number("window", "window", 0, LARGEST, "keys, the query's own among them; 0 for none"),
      number("sinks", "sinks", 0, LARGEST, "first tokens, which the window does not hide; never the future"),
      choice("padding", "padding", { none: "none", right: "right", left: "left" }),
      text("lengths", "lengths", "tokens of each example, such as 6, 4"),
      text("prefix", "prefix", "first keys that every query sees, the future too; one number, or one for each example"),
      text("documents", "documents", "packed lengths, such as 2, 3, 1; for several examples 2, 4; 3, 3"),
      choice("api", "write it for", APIS),
      error,
    );
    const grids = make("div", { class: "attn-grids" });
    const words = make("div", { class: "attn-grids" });
    const warning = make("p", { class: "attn-warning" });
    const code = make("code");
    const copy = make("button", { type: "button" }, "Copy");
    const link = make("a", {}, "Link to this mask");
    const status = make("p", { role: "status", class: "attn-hidden" });
    const results = make(
      "div", {},
      make("p", {}, "A row is a query, a column a key; filled is True, may attend. On the right, how many keys the query has."),
      grids, warning,
      make("details", {}, make("summary", {}, "The same, query by query"), words),
      make("div", { class: "attn-code highlight" }, make("pre", { tabindex: "0" }, code), copy),
      make("p", {}, link),
    );

    const values = () =>
      Object.fromEntries(Object.entries(fields).map(([name, input]) => {
        if (Array.isArray(input)) return [name, input.find((one) => one.checked)?.value ?? ""];
        if (input.type !== "checkbox") return [name, input.value];
        return [name, input.indeterminate ? "" : input.checked ? "1" : "0"];
      }));
    const fill = (name, value) => {
      const input = fields[name];
      if (Array.isArray(input)) input.forEach((one) => { one.checked = one.value === value; });
      else if (input.type === "checkbox") {
        input.checked = value === "1";
        input.indeterminate = value !== "1" && value !== "0";
      } else input.value = value;
    };

    // Only what differs from the start is in the address, so that it stays short, and nothing that is disabled.
    const short = (value) => value.trim().replace(/\s*;\s*/g, ";").replace(/[\s,]+/g, ",");
    const address = (given) => {
      const url = new URL(location.href);
      for (const [name, value] of Object.entries(given)) {
        if (short(value) === short(START[name]) || fields[name].disabled) url.searchParams.delete(name);
        else url.searchParams.set(name, short(value));
      }
      url.search = url.search.replaceAll("%2C", ",").replaceAll("%3B", ";");
      return url.href;
    };

    let later;
    const update = () => {
      const given = values();
      fields.lengths.disabled = given.padding === "none";
      Object.values(marked).forEach((one) => one.removeAttribute("aria-invalid"));
      let settings;
      clearTimeout(later);
      try {
        settings = read(given);
      } catch (refusal) {
        if (!(refusal instanceof Refusal)) throw refusal;
        error.textContent = refusal.message;
        marked[refusal.field].setAttribute("aria-invalid", "true");
        marked[refusal.field].setAttribute("aria-errormessage", error.id);
        results.inert = true;
        results.className = "attn-stale";
        later = setTimeout(() => { status.textContent = refusal.message; }, 800);
        return;
      }
      error.textContent = "";
      results.inert = false;
      results.className = "";
      const examples = grid(settings);
      grids.replaceChildren(...examples.map(picture));
      words.replaceChildren(...examples.map(inWords));
      const empty = examples.flatMap((rows, b) => {
        const none = rows.flatMap((row, i) => (row.some(Boolean) ? [] : [i]));
        return none.length ? [`example ${b}, ${none.length === 1 ? "query" : "queries"} ${ranges(none)}`] : [];
      });
      warning.replaceChildren();
      if (empty.length) {
        warning.append(`Without a key: ${empty.join("; ")}. `, make("a", { href: empties }, "What such a query gets"), ".");
      }
      warning.append(...settings.idle.map((one) => ` ${one}`));
      code.replaceChildren(...coloured(`${WRITE[given.api](settings).join("\n")}\n`));
      link.href = address(given);
      // Once the reader rests: said in one sentence, and kept in the address.
      later = setTimeout(() => {
        const may = examples.flat(2).filter(Boolean).length;
        status.textContent = `${may} of ${examples.flat(2).length} pairs may attend; ${empty.length ? `without a key: ${empty.join("; ")}` : "every query has a key"}.`;
        if (place.isConnected) history.replaceState(history.state, "", link.href);
      }, 800);
    };

    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        copy.textContent = "Copied";
      } catch {
        // A page from a disk may have no clipboard: the selection is one key away from it.
        getSelection().selectAllChildren(code);
        copy.textContent = "Selected";
      }
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    });
    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => event.preventDefault());

    const still = place.querySelector("[data-still]");
    still.hidden = true;
    still.after(make("div", { class: "attn-widget" }, form, results, status));
    // An address that is refused shows the first mask faded, as a refused field shows the last one.
    for (const [name, value] of Object.entries(START)) fill(name, value);
    update();
    for (const name of Object.keys(START)) fill(name, asked.get(name) ?? START[name]);
    if (!asked.has("lengths") && fields.tk.validity.valid) {
      fields.lengths.value = START.lengths.replace(/\d+/g, (n) => Math.min(n, fields.tk.value));
    }
    update();
    clearTimeout(later);
  };

  const start = () => document.querySelectorAll('[data-widget="masks"]').forEach(build);
  if (window.document$) window.document$.subscribe(start);
  else start();
})();
