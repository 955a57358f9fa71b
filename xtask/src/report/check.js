// Runs inside a copy of the report, in a frame, and sends its complaints to the page around it. The Content-Security-Policy
// before it refuses every request. Each refusal is an event.
const complaints = [];
addEventListener("securitypolicyviolation", event =>
  complaints.push(`asks for ${event.blockedURI || event.violatedDirective}`));
addEventListener("error", event => complaints.push(`error: ${event.message || event.target.outerHTML}`), true);
addEventListener("unhandledrejection", event => complaints.push(`error: ${event.reason}`));
console.error = (...words) => complaints.push(`error: ${words.join(" ")}`);

// Returns the relative luminance of an opaque colour such as rgb(1, 2, 3), as WCAG 2 defines it.
function luminance(colour) {
  const [r, g, b] = colour.match(/[\d.]+/g).map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// Returns the contrast of two colours, as WCAG 2 defines it.
function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

// Returns the first of a node and its ancestors with a style that passes, or null.
function nearest(node, passes) {
  while (node && !passes(getComputedStyle(node))) node = node.parentElement;
  return node;
}

const opaque = style => !/^(transparent|rgba\(.*, 0\))$/.test(style.backgroundColor);
const scrolls = style => style.overflowX === "auto" || style.overflowX === "scroll";

function ground(node) {
  const painted = nearest(node, opaque);
  return painted ? getComputedStyle(painted).backgroundColor : "rgb(255, 255, 255)";
}

function check() {
  const name = node => `${node.tagName}.${node.getAttribute("class") || ""} "${node.textContent.trim().slice(0, 40)}"`;
  // A report may have a chart once for each width, and show one of them.
  const shown = node => node.getClientRects().length > 0;
  const charts = [...document.querySelectorAll("svg")].filter(shown);
  if (charts.length === 0) complaints.push("has no chart");
  for (const chart of charts) {
    const lines = [...chart.querySelectorAll("path.line")];
    if (lines.length === 0) complaints.push(`the chart ${name(chart)} has no line`);
    for (const line of lines) {
      const box = line.getBBox();
      if (!(box.width > 0)) complaints.push(`a line of the chart ${name(chart)} is empty`);
    }
  }
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width)
    complaints.push(`is ${document.documentElement.scrollWidth} wide`);
  for (const node of document.body.querySelectorAll("*")) {
    // A wide node has to be in a box that scrolls.
    const box = node.getBoundingClientRect();
    if (!nearest(node.parentElement, scrolls) && (box.right > width + 0.5 || box.left < -0.5))
      complaints.push(`${name(node)} reaches from ${box.left} to ${box.right}`);
    const texts = [...node.childNodes].filter(child => child.nodeType === Node.TEXT_NODE);
    const text = texts.map(child => child.data).join(" ").trim();
    if (!text || !shown(node)) continue;
    if (/\b(NaN|undefined|null|inf|Infinity)\b/.test(text)) complaints.push(`says "${text.slice(0, 80)}"`);
    const style = getComputedStyle(node);
    const colour = node instanceof SVGElement ? style.fill : style.color;
    const under = ground(node instanceof SVGElement ? node.closest("svg") : node);
    if (contrast(colour, under) < 4.5) complaints.push(`${name(node)} is hard to read: ${colour} on ${under}`);
  }
  const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  parent.postMessage({ complaints, width: innerWidth, scheme, charts: charts.length, ground: luminance(ground(document.body)) }, "*");
}
// Chromium reports refusals a little later.
addEventListener("load", () => setTimeout(check, 200));
