// What a person who does not see, or does not point, would stumble over in a page: contrasts, names, ids, roles.
(() => {
  const found = new Set();
  const numbers = (text) => text.match(/[\d.]+/g).map(Number);
  const colour = (text) => {
    const [r, g, b, a = 1] = numbers(text.replace("color(srgb", ""));
    return text.startsWith("color(") ? [r * 255, g * 255, b * 255, a] : [r, g, b, a];
  };
  const over = (top, ground) => ground.map((value, at) => top[at] * top[3] + value * (1 - top[3]));
  const ground = (element) => {
    const layers = [];
    for (let item = element; item; item = item.parentElement) {
      const layer = colour(getComputedStyle(item).backgroundColor);
      if (layer[3] > 0) layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const light = (rgb) => rgb.map((value) => value / 255).map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)).reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
  for (const element of document.querySelectorAll("body *")) {
    if (!element.checkVisibility()) continue;
    const said = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.textContent.trim()).join("");
    const style = getComputedStyle(element);
    if (said) {
      const below = ground(element);
      const [one, other] = [light(over(colour(style.color), below)), light(below)].sort((a, b) => b - a);
      const ratio = (one + 0.05) / (other + 0.05);
      const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 600);
      if (ratio < (isLarge ? 3 : 4.5)) found.add("contrast " + ratio.toFixed(2) + " of " + element.tagName + "." + element.className + " '" + said.slice(0, 30) + "'");
    }
    const isUsed = ["BUTTON", "INPUT", "SELECT", "A", "CANVAS"].includes(element.tagName) || element.tabIndex >= 0;
    const name = element.getAttribute("aria-label") || element.getAttribute("aria-labelledby") || element.title || element.textContent.trim() || (element.labels || [])[0]?.textContent || "";
    if (isUsed && !name && element.getAttribute("aria-hidden") !== "true") found.add("no name: " + element.outerHTML.slice(0, 100));
    if (element.tabIndex > 0) found.add("an order of its own: " + element.outerHTML.slice(0, 100));
    for (const [inner, outer] of [["option", "listbox"], ["tab", "tablist"], ["treeitem", "tree"]]) if (element.getAttribute("role") === inner && !element.closest(`[role=${outer}]`)) found.add(inner + " outside of a " + outer);
    for (const kind of ["aria-controls", "aria-labelledby", "aria-describedby"]) for (const id of (element.getAttribute(kind) || "").split(/\s+/).filter(Boolean)) if (!document.getElementById(id)) found.add(kind + " leads nowhere: " + id);
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.add("two of one id: " + id);
  if (document.querySelectorAll("h1").length !== 1) found.add("headings of the page: " + document.querySelectorAll("h1").length);
  return [...found];
})()
