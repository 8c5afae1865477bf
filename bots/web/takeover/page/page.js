// The take-over page: welcome, the browser at work, thank you. Pictures come over one WebSocket, what hands do goes back.
import { openKeyboard } from './keyboard.js';
import { openPanels } from './panels.js';
import { openScreen } from './screen.js';

const $ = (id) => document.getElementById(id);
const base = location.pathname.replace(/\/$/, '');
const OVER = 4000, OPENED_AGAIN = 4001;
const RETRY_MS = [500, 1000, 2000, 4000, 8000];
let socket = null, isOver = false, isFinishing = false, tries = 0;

const send = (message) => {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
};
const status = (text) => {
  $('connection').textContent = text;
  $('connection').hidden = !text;
};
const screen = openScreen($('screen'), $('stage'), send, () => keyboard.focus());
const keyboard = openKeyboard($('keys'), send, {
  leave: () => $('note').focus(),
  clipboard: (cut) => send({ t: 'copy', cut }),
});
const panels = openPanels(send);

async function post(what, body) {
  const answer = await fetch(`${base}/${what}`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
  });
  const told = await answer.json().catch(() => ({}));
  return answer.ok ? '' : told.message || 'That did not work. Try again.';
}

function thank(text) {
  isOver = true;
  sessionStorage.removeItem(base);
  socket?.close();
  $('welcome').hidden = $('work').hidden = true;
  if (text) $('done-text').textContent = text;
  $('done').hidden = false;
  $('done').focus();
}

function hear(message) {
  const news = $('news');
  switch (message.t) {
    case 'tabs':
      panels.showTabs(message);
      break;
    case 'dialog':
      panels.askDialog(message);
      break;
    case 'select':
      panels.pick(message);
      break;
    case 'picker':
      panels.pickValue(message);
      break;
    case 'clipboard':
      panels.copy(message.text);
      break;
    case 'focus':
      if (message.text === true) keyboard.focus(message.kind);
      else if (screen.isTouch()) keyboard.blur();
      break;
    case 'note':
      news.textContent = String(message.text);
      break;
    case 'behind':
      $('behind').textContent = message.seconds > 0 ? `The browser is ${Number(message.seconds)} s behind` : '';
      break;
    case 'lost':
      status(String(message.text));
      break;
  }
}

function connect() {
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
  socket = new WebSocket(`${scheme}://${location.host}${base}/socket`);
  socket.binaryType = 'arraybuffer';
  socket.onopen = () => {
    tries = 0;
    status('');
    screen.tellSize();
    send({ t: 'note', text: $('note').value });
  };
  socket.onmessage = ({ data }) => {
    if (typeof data === 'string') hear(JSON.parse(data));
    else screen.draw(data);
  };
  socket.onclose = ({ code }) => {
    if (isOver || isFinishing) return;
    if (code === OVER) return thank('The browser was handed back. You can close this page.');
    if (code === OPENED_AGAIN) return status('This take-over goes on in another tab.');
    if (tries >= RETRY_MS.length) {
      return status('The connection is lost. Reload the page to go on.');
    }
    status('Connecting…');
    setTimeout(connect, RETRY_MS[tries]);
    tries += 1;
  };
}

function work() {
  $('welcome').hidden = true;
  $('work').hidden = false;
  status('Connecting…');
  connect();
  $('screen').focus();
}

$('start').addEventListener('click', async () => {
  $('start').disabled = true;
  const problem = await post('start', {}).catch(() => 'The server does not answer. Try again.');
  $('start').disabled = false;
  $('problem').textContent = problem;
  if (!problem) work();
});
$('finish').addEventListener('submit', async (event) => {
  event.preventDefault();
  const button = event.submitter || $('finish').querySelector('button');
  button.disabled = isFinishing = true;
  const problem = await post('finish', { note: $('note').value })
    .catch(() => 'The server does not answer. Try again.');
  button.disabled = isFinishing = false;
  if (!problem) return thank();
  $('news').textContent = problem;
  if (socket?.readyState !== WebSocket.OPEN) connect();
});
$('note').value = sessionStorage.getItem(base) || ''; // as it was before a reload
$('note').addEventListener('input', () => {
  sessionStorage.setItem(base, $('note').value);
  send({ t: 'note', text: $('note').value });
});
$('type').addEventListener('click', () => keyboard.focus());
$('address').addEventListener('submit', (event) => {
  event.preventDefault();
  $('news').textContent = '';
  send({ t: 'go', url: $('url').value });
  $('screen').focus();
});
for (const button of document.querySelectorAll('[data-history]')) {
  button.addEventListener('click', () => send({ t: 'history', to: button.dataset.history }));
}
$('screen').addEventListener('focus', () => keyboard.catchUp());
$('screen').addEventListener('keydown', (event) => keyboard.keydown(event));
