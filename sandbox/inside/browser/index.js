// Lists what a person could use in this frame. An element keeps its number for as long as it lives: `register` (held
// by the server alone, out of the page's reach) knows which element has which. What has no number yet is `fresh`.
(register, most) => {
  register.fresh = [];
  const width = innerWidth, height = innerHeight;
  const roles = new Set(['button', 'link', 'textbox', 'checkbox', 'radio', 'combobox', 'listbox', 'option', 'menuitem',
    'menuitemcheckbox', 'menuitemradio', 'tab', 'switch', 'slider', 'spinbutton', 'searchbox', 'treeitem', 'gridcell']);
  const controls = new Set(['BUTTON', 'INPUT', 'SELECT', 'TEXTAREA', 'SUMMARY', 'AUDIO', 'VIDEO']);
  const skipped = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'OPTION', 'HEAD', 'LINK', 'META', 'BR']);
  const short = (text, most = 100) => String(text ?? '').slice(0, 2000).replace(/\s+/g, ' ').trim().slice(0, most);

  const named = (element) => (element.getAttribute('aria-labelledby') || '').split(/\s+/).filter(Boolean).slice(0, 5)
    .map((id) => element.getRootNode().getElementById?.(id)?.textContent).join(' ');
  const pictured = (element) => element.querySelector?.('img[alt], svg title');
  const textOf = (element) => {
    // innerText lays out; on a large container its beginning is enough
    let text = '';
    const walk = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(), n = 0; node && n < 40 && text.length < 200; node = walk.nextNode(), n += 1) {
      const parent = node.parentElement?.tagName;
      if (parent !== 'STYLE' && parent !== 'SCRIPT') text += node.data + ' ';
    }
    return text;
  };
  const labelled = (element) => [...(element.labels || [])].slice(0, 3).map(textOf).join(' ');
  const nameOf = (element) => {
    const isField = /^(INPUT|SELECT|TEXTAREA)$/.test(element.tagName);
    const isPress = element.tagName === 'INPUT' && /^(submit|button|reset)$/.test(element.type);
    const picture = () => pictured(element);
    for (const source of [
      () => element.getAttribute('aria-label'), () => named(element), () => labelled(element),
      () => (isPress ? element.value : ''), () => element.getAttribute('placeholder'), () => element.getAttribute('alt'),
      () => (isField ? '' : textOf(element)), () => element.getAttribute('title'),
      () => picture()?.getAttribute?.('alt') || picture()?.textContent, () => element.getAttribute('name'),
    ]) {
      const name = short(source());
      if (name) return name;
    }
    return '';
  };

  const isUsable = (element, style, insidePointer) => {
    const tag = element.tagName;
    if (tag === 'INPUT' && element.type === 'hidden') return false;
    if (tag === 'AUDIO' || tag === 'VIDEO') return element.controls;
    if (controls.has(tag)) return true;
    if (tag === 'A' || tag === 'AREA') return element.hasAttribute('href') || style.cursor === 'pointer';
    if (roles.has(element.getAttribute('role'))) return true;
    if (element.isContentEditable && !element.parentElement?.isContentEditable) return true;
    if (element.hasAttribute('onclick') || element.getAttribute('draggable') === 'true') return true;
    if (element.hasAttribute('tabindex') && element.tabIndex >= 0) return true;
    return style.cursor === 'pointer' && !insidePointer && tag !== 'LABEL' && tag !== 'BODY' && tag !== 'HTML';
  };
  const belongs = (element, top) => {
    for (let at = top; at; at = at.parentNode || at.host) if (at === element) return true;
    return top.contains(element);
  };
  const isCovered = (element, box) => {
    const left = Math.max(box.left, 0), right = Math.min(box.right, width);
    const top = Math.max(box.top, 0), bottom = Math.min(box.bottom, height);
    const points = [[(left + right) / 2, (top + bottom) / 2], [left + 3, top + 3], [right - 3, bottom - 3]];
    for (const [x, y] of points) {
      const found = element.getRootNode().elementFromPoint?.(x, y);
      if (!found || belongs(element, found)) return false;
    }
    return true;
  };
  const factsOf = (element) => {
    const facts = { tag: element.tagName.toLowerCase(), name: nameOf(element) };
    for (const name of ['type', 'role', 'aria-expanded', 'aria-checked', 'aria-selected', 'aria-disabled']) {
      const value = element.getAttribute(name);
      if (value) facts[name] = short(value, 30);
    }
    if (element.hasAttribute('href')) facts.href = short(element.getAttribute('href'), 120);
    if (/^(INPUT|TEXTAREA)$/.test(element.tagName)) {
      const value = short(element.value);
      if (value) facts.value = element.type === 'password' ? '(hidden)' : value;
    }
    if (element.tagName === 'SELECT') {
      facts.value = short(element.selectedOptions[0]?.text);
      facts.options = element.options.length;
    }
    if (element.checked) facts.checked = true;
    if (element.disabled) facts.disabled = true;
    return facts;
  };

  const lines = [];
  let left_out = 0, steps = 0;
  const listed = new Set();
  // pages draw these themselves, and hide the real field behind its label or under the drawing
  const isDrawn = (element) => element?.tagName === 'INPUT' && /^(radio|checkbox|file)$/.test(element.type);
  const isShown = (element, style) => {
    if (style.visibility === 'hidden' || (+style.opacity < 0.02 && !isDrawn(element))) return false;
    const box = element.getBoundingClientRect();
    if (box.width < 1 || box.height < 1) return false;
    const isInView = box.bottom > 0 && box.top < height && box.right > 0 && box.left < width;
    return isInView && !isCovered(element, box);
  };
  const consider = (element, style, insidePointer) => {
    const field = element.tagName === 'LABEL' && isDrawn(element.control) ? element.control : element;
    if (listed.has(field) || (field === element && !isUsable(element, style, insidePointer))) return;
    if (!isShown(element, style)) return;
    listed.add(field);
    if (lines.length >= most) { left_out += 1; return; }
    const number = register.numbers.get(field) ?? null;
    if (number === null) register.fresh.push(field);
    lines.push({ number, ...factsOf(field) });
  };
  const isFarAway = (element) => {
    if (element.shadowRoot || element.childElementCount > 0) return false;
    const box = element.getBoundingClientRect();
    return box.height > 0 && (box.bottom < 0 || box.top > height);
  };
  // a loop, not a recursion: pages nest deeper than stacks
  const waiting = document.body ? [[document.body, false]] : [];
  const until = performance.now() + 1500;
  while (waiting.length) {
    const [element, insidePointer] = waiting.pop();
    if ((steps += 1) % 500 === 0 && performance.now() > until) { left_out += 1; break; }
    if (skipped.has(element.tagName) || isFarAway(element)) continue;
    const style = getComputedStyle(element);
    if (style.display === 'none') continue;
    consider(element, style, insidePointer);
    if (element.tagName === 'SELECT') continue;
    const pointer = insidePointer || style.cursor === 'pointer';
    const children = [...element.children, ...(element.shadowRoot?.children || [])];
    for (let n = children.length - 1; n >= 0; n -= 1) waiting.push([children[n], pointer]);
  }
  const page = document.scrollingElement || document.documentElement;
  const above = Math.round(scrollY), whole = page ? page.scrollHeight : 0;
  return { lines, left_out, above, below: Math.max(0, Math.round(whole - scrollY - height)) };
}
