// Typing: a hidden field takes what keyboards of any kind, input methods and the clipboard write, and passes it on.
const FILLER = ' '.repeat(30); // so that a keyboard on glass has something to delete
const KEPT_CHARACTERS = 2000;
const NAMED = new Set(['Enter', 'Tab', 'Escape', 'Backspace', 'Delete', 'ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown',
  'Home', 'End', 'PageUp', 'PageDown', 'F2', 'F5']);
const MODES = { email: 'email', tel: 'tel', url: 'url', number: 'decimal', numeric: 'numeric', decimal: 'decimal',
  search: 'search' };

export function openKeyboard(field, send, { leave, clipboard }) {
  let known = FILLER, isComposing = false;

  const refill = () => {
    field.value = known = FILLER;
    field.setSelectionRange(FILLER.length, FILLER.length);
  };
  const key = (event, name = event.key) => send({
    t: 'key', key: name, Control: event.ctrlKey, Alt: event.altKey, Shift: event.shiftKey, Meta: event.metaKey,
  });

  // what the field holds now against what it held tells what was typed or deleted, whoever wrote it
  function passOn() {
    const now = field.value;
    let same = 0;
    while (same < now.length && same < known.length && now[same] === known[same]) same += 1;
    for (let n = known.length - same; n > 0; n -= 1) send({ t: 'key', key: 'Backspace' });
    const text = now.slice(same);
    if (text) send({ t: 'text', text });
    known = now;
    if (!isComposing && (known.length > KEPT_CHARACTERS || known.length < FILLER.length)) refill();
  }

  function keydown(event) {
    if (event.isComposing || event.key === 'Unidentified' || event.key === 'Process') return;
    if (event.key === 'F6') {
      event.preventDefault();
      return leave();
    }
    const command = event.ctrlKey || event.metaKey;
    const letter = event.key.toLowerCase();
    if (command && letter === 'v') return focus(); // the browser pastes into the field
    if (command && (letter === 'c' || letter === 'x')) {
      event.preventDefault();
      return clipboard(letter === 'x');
    }
    const isCommand = command && !event.getModifierState('AltGraph') && event.key.length === 1;
    if (isCommand || NAMED.has(event.key)) {
      event.preventDefault();
      if (event.key.length > 1 || 'abiuyz'.includes(letter)) key(event, command ? letter : event.key);
      refill();
    } else if (event.key.length === 1 && event.target !== field) {
      event.preventDefault();
      send({ t: 'text', text: event.key });
    }
  }

  function focus(kind) {
    field.inputMode = MODES[kind] || 'text';
    refill();
    field.focus({ preventScroll: true });
  }

  field.addEventListener('keydown', keydown);
  field.addEventListener('compositionstart', () => { isComposing = true; });
  field.addEventListener('compositionend', () => {
    isComposing = false;
    passOn();
    refill();
  });
  field.addEventListener('input', () => {
    if (!isComposing) passOn();
  });
  field.addEventListener('paste', (event) => {
    event.preventDefault();
    const text = event.clipboardData?.getData('text/plain');
    if (text) send({ t: 'text', text });
    refill();
  });
  return { focus, blur: () => field.blur(), keydown, catchUp: refill };
}
