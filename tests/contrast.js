// Every visible text whose contrast is below 4.5.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const rgba = (text) => {
    if (!known.has(text)) {
      canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
      known.set(text, [...canvas.getImageData(0, 0, 1, 1).data].map((part) => part / 255));
    }
    return known.get(text);
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const light = (colour) => colour.slice(0, 3).map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [1, 1, 1]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility({ visibilityProperty: true }) || node.closest("option, dialog:not([open])")) continue;
    const style = getComputedStyle(node);
    const under = ground(node);
    const colour = over(rgba(node instanceof SVGElement ? style.fill : style.color), under);
    const [a, b] = [light(colour), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${node.tagName}.${node.className?.baseVal ?? node.className} ${walker.currentNode.data.trim().slice(0, 30)}`);
  }
  return [...new Set(found)];
}
