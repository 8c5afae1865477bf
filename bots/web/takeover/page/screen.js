// The picture of the browser, and the pointer on it: mouse, wheel and fingers.
const HEAD_BYTES = 4;
const TAP_PIXELS = 10, HOLD_MS = 450, RESIZE_MS = 250, DOUBLE_MS = 400;
const LINE_PIXELS = 40;

export function openScreen(canvas, stage, send, wantsKeys) {
  const context = canvas.getContext('2d');
  let width = 1280, height = 800, isTouch = false, isDrawing = false, next = null;
  let lastDown = { at: 0, x: 0, y: 0, count: 0 };

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const scale = Math.min(box.width / width, box.height / height);
    const left = (box.width - width * scale) / 2, top = 0;
    const clamp = (value, most) => Math.max(0, Math.min(most - 1, Math.round(value)));
    return {
      x: clamp((event.clientX - box.left - left) / scale, width),
      y: clamp((event.clientY - box.top - top) / scale, height),
    };
  };
  const clicks = (at) => {
    const isNear = Math.hypot(at.x - lastDown.x, at.y - lastDown.y) < TAP_PIXELS;
    const isSoon = performance.now() - lastDown.at < DOUBLE_MS;
    const count = isNear && isSoon ? Math.min(3, lastDown.count + 1) : 1;
    lastDown = { at: performance.now(), count, ...at };
    return count;
  };

  async function paint() {
    if (isDrawing || !next) return;
    isDrawing = true;
    const data = next;
    next = null;
    const view = new DataView(data);
    try {
      const picture = await createImageBitmap(new Blob([data.slice(HEAD_BYTES)], { type: 'image/jpeg' }));
      [width, height] = [view.getUint16(0), view.getUint16(2)];
      const ratio = devicePixelRatio || 1;
      const box = canvas.getBoundingClientRect();
      const size = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
      if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
      const scale = Math.min(size[0] / width, size[1] / height);
      context.imageSmoothingQuality = 'high';
      context.clearRect(0, 0, ...size);
      context.drawImage(picture, (size[0] - width * scale) / 2, 0, width * scale, height * scale);
      picture.close();
      canvas.dataset.size = `${width} ${height}`;
    } finally {
      isDrawing = false;
      send({ t: 'ack' });
      paint();
    }
  }

  const tellSize = () => {
    const box = stage.getBoundingClientRect();
    if (box.width && box.height) send({ t: 'size', w: Math.round(box.width), h: Math.round(box.height) });
  };
  let resizing = 0;
  let known = '';
  new ResizeObserver(() => {
    const box = stage.getBoundingClientRect();
    const now = `${Math.round(box.width)} ${Math.round(box.height)}`;
    if (now === known) return;
    known = now;
    clearTimeout(resizing);
    resizing = setTimeout(tellSize, RESIZE_MS);
  }).observe(stage);

  // a mouse is passed on as it is
  const down = (event) => {
    const at = place(event);
    send({ t: 'down', ...at, b: event.button, n: clicks(at) });
  };
  const up = (event) => send({ t: 'up', ...place(event), b: event.button, n: lastDown.count });

  // a finger taps, scrolls, or, held for a moment, drags
  let finger = null;
  const fingerDown = (event) => {
    if (finger) return;
    finger = { id: event.pointerId, start: event, last: event, kind: 'tap' };
    finger.timer = setTimeout(() => {
      if (finger?.kind !== 'tap') return;
      finger.kind = 'drag';
      navigator.vibrate?.(15);
      down(finger.start);
    }, HOLD_MS);
  };
  const fingerMove = (event) => {
    if (finger?.id !== event.pointerId) return;
    if (finger.kind === 'drag') return send({ t: 'move', ...place(event) });
    const moved = Math.hypot(event.clientX - finger.start.clientX, event.clientY - finger.start.clientY);
    if (finger.kind === 'tap' && moved < TAP_PIXELS) return;
    finger.kind = 'scroll';
    const dx = finger.last.clientX - event.clientX, dy = finger.last.clientY - event.clientY;
    finger.last = event;
    send({ t: 'wheel', ...place(finger.start), dx, dy });
  };
  const fingerUp = (event) => {
    if (finger?.id !== event.pointerId) return;
    clearTimeout(finger.timer);
    if (finger.kind === 'tap') down(event);
    if (finger.kind !== 'scroll') up(event);
    finger = null;
  };

  canvas.addEventListener('pointerdown', (event) => {
    isTouch = event.pointerType === 'touch';
    canvas.setPointerCapture(event.pointerId);
    if (isTouch) return fingerDown(event);
    down(event);
    event.preventDefault();
    wantsKeys();
  });
  canvas.addEventListener('pointermove', (event) => {
    if (event.pointerType === 'touch') fingerMove(event);
    else send({ t: 'move', ...place(event) });
  });
  canvas.addEventListener('pointerup', (event) => (event.pointerType === 'touch' ? fingerUp(event) : up(event)));
  canvas.addEventListener('pointercancel', (event) => {
    if (finger?.id === event.pointerId) {
      clearTimeout(finger.timer);
      if (finger.kind === 'drag') up(event);
      finger = null;
    }
  });
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? LINE_PIXELS : 1;
    send({ t: 'wheel', ...place(event), dx: event.deltaX * unit, dy: event.deltaY * unit });
  }, { passive: false });
  canvas.addEventListener('contextmenu', (event) => event.preventDefault());

  // what a keyboard on the glass covers is moved up to where it can be seen
  visualViewport?.addEventListener('resize', () => {
    const hidden = innerHeight - visualViewport.height;
    const box = stage.getBoundingClientRect();
    const at = box.top + (lastDown.y / height) * box.height;
    const lift = hidden > 80 ? Math.max(0, at + 60 - visualViewport.height) : 0;
    canvas.style.transform = lift ? `translateY(-${Math.round(lift)}px)` : '';
  });

  return {
    draw: (data) => {
      if (next) send({ t: 'ack' }); // a newer one came before it was drawn
      next = data;
      paint();
    },
    tellSize,
    isTouch: () => isTouch,
  };
}
