const zoom = document.getElementById('zoom');
for (const button of document.querySelectorAll('button.zoom')) {
  button.addEventListener('click', () => {
    zoom.replaceChildren(button.firstElementChild.cloneNode(true));
    zoom.showModal();
  });
}
zoom.addEventListener('click', () => zoom.close());

const sliders = document.querySelectorAll('.slider input');
for (const slider of sliders) {
  slider.addEventListener('input', () => {
    for (const each of sliders) [each.value, each.nextElementSibling.value] = [slider.value, (+slider.value).toFixed(3)];
    for (const shape of document.querySelectorAll('main [data-score]')) {
      const counts = +shape.dataset.score >= slider.value;
      if (shape.closest('.detections')) shape.classList.toggle('off', !counts);
      else [['found', counts], ['missed', !counts]].forEach(state => shape.classList.toggle(...state));
    }
    for (const figure of document.querySelectorAll('.pictures:not(.small) figure')) {
      const count = state => figure.querySelectorAll(`.${state}:not(.off)`).length;
      figure.querySelector('b').textContent = ['false', 'missed', 'right'].map(one => `${count(one)} ${one}`).join(', ');
    }
  });
}

const running = document.querySelector('p.running');
if (running) {
  const minutes = Math.floor((Date.now() / 1000 - running.dataset.written) / 60);
  if (60 * minutes > Math.max(600, 3 * running.dataset.interval)) {
    running.append(` Nothing was written for ${minutes} minutes: the run may have ended. --resume continues it.`);
  }
}
