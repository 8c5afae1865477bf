// What no picture shows: tabs, dialogs, lists, calendars, the clipboard. All texts come from pages: shown as text only.
const $ = (id) => document.getElementById(id);

function made(tag, facts = {}, ...children) {
  const node = Object.assign(document.createElement(tag), facts);
  node.append(...children);
  return node;
}

export function openPanels(send) {
  const dialog = $('ask'), body = $('ask-body');
  const waiting = [];
  let shown = null;
  let drawn = '', told = '';

  // one question at a time; each is answered once, also by Escape
  function ask(question) {
    waiting.push(question);
    if (!shown) nextQuestion();
  }
  function nextQuestion() {
    shown = waiting.shift() || null;
    if (!shown) return;
    $('ask-title').textContent = shown.title;
    $('ask-cancel').hidden = shown.hasNoCancel === true;
    $('ask-ok').textContent = shown.ok || 'OK';
    body.replaceChildren(...(shown.content ? [shown.content] : []));
    dialog.returnValue = 'cancel';
    dialog.showModal();
    (shown.content || $('ask-ok')).focus();
  }
  dialog.addEventListener('close', () => {
    const question = shown;
    question?.answer(dialog.returnValue === 'ok');
    nextQuestion();
    if (!shown) $('screen').focus();
  });

  function askDialog({ kind, message, value }) {
    const field = kind === 'prompt' ? made('input', { value: String(value || '') }) : null;
    field?.setAttribute('aria-label', 'Answer');
    ask({
      title: kind === 'beforeunload' ? 'Leave this page? What you have entered may be lost.' : `The page says:\n${message}`,
      content: field,
      hasNoCancel: kind === 'alert',
      answer: (accept) => send({ t: 'dialog', accept: accept || kind === 'alert', text: field?.value || '' }),
    });
  }

  function pick({ options, several }) {
    const list = made('select', { multiple: several === true, size: Math.min(12, Math.max(2, options.length)) });
    list.setAttribute('aria-label', 'Options');
    const groups = new Map();
    options.forEach((option, n) => {
      const line = made('option', { value: String(n), textContent: option.text || '\u00a0', selected: option.selected });
      line.disabled = option.disabled === true;
      if (!option.group) return list.append(line);
      if (!groups.has(option.group)) {
        groups.set(option.group, made('optgroup', { label: option.group }));
        list.append(groups.get(option.group));
      }
      groups.get(option.group).append(line);
    });
    list.addEventListener('dblclick', () => dialog.close('ok'));
    ask({
      title: several ? 'Choose' : 'Choose one',
      content: list,
      ok: 'Choose',
      answer: (ok) => send(ok
        ? { t: 'pick', places: [...list.selectedOptions].map((line) => Number(line.value)) } : { t: 'pick' }),
    });
  }

  function pickValue({ kind, value }) {
    const field = made('input', { type: kind, value: String(value || '') });
    field.setAttribute('aria-label', 'Value');
    ask({
      title: 'Choose a value',
      content: field,
      answer: (ok) => send(ok ? { t: 'pick', value: field.value } : { t: 'pick' }),
    });
  }

  async function copy(text) {
    if (!text) return;
    try {
      await navigator.clipboard.writeText(text);
      $('news').textContent = 'Copied.';
    } catch {
      const field = made('textarea', { value: text, readOnly: true });
      field.setAttribute('aria-label', 'Copied text');
      ask({ title: 'Copy it from here', content: field, hasNoCancel: true, ok: 'Close', answer: () => {} });
      field.select();
    }
  }

  function drawTabs(tabs) {
    const lines = tabs.map((tab) => {
      const title = made('button', { className: 'title', type: 'button', textContent: tab.title || 'New tab' });
      title.setAttribute('role', 'tab');
      title.setAttribute('aria-selected', String(tab.current === true));
      title.addEventListener('click', () => send({ t: 'tab', id: tab.id }));
      const close = made('button', { className: 'close', type: 'button', textContent: '×' });
      close.setAttribute('aria-label', `Close ${tab.title || 'tab'}`);
      close.addEventListener('click', () => send({ t: 'close', id: tab.id }));
      return made('div', { className: tab.current ? 'tab current' : 'tab' }, title, close);
    });
    const more = made('button', { type: 'button', textContent: '+' });
    more.setAttribute('aria-label', 'New tab');
    more.addEventListener('click', () => send({ t: 'new' }));
    $('tabs').replaceChildren(...lines, made('div', { className: 'tab new' }, more));
  }

  function showTabs({ tabs, url, notes, file }) {
    const wanted = JSON.stringify(tabs);
    if (wanted !== drawn) drawTabs(tabs); // a button that is made anew loses the press that is on it
    drawn = wanted;
    if (document.activeElement !== $('url')) $('url').value = url === 'about:blank' ? '' : url;
    const now = file
      ? 'The page asks for a file. Hand back and let the agent give it one.' : (notes || []).at(-1) || '';
    if (now !== told) $('news').textContent = now; // else what was told since stays
    told = now;
  }

  return { askDialog, pick, pickValue, copy, showTabs };
}
