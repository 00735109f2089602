const zoom = document.getElementById('zoom');
for (const button of document.querySelectorAll('button.zoom')) {
  button.addEventListener('click', () => {
    const [large, small] = [zoom.firstElementChild, button.firstElementChild];
    [large.src, large.alt] = [small.src, small.alt];
    zoom.showModal();
  });
}
zoom.addEventListener('click', () => zoom.close());

const running = document.querySelector('p.running');
if (running) {
  const minutes = Math.floor((Date.now() / 1000 - running.dataset.written) / 60);
  if (60 * minutes > Math.max(600, 3 * running.dataset.interval)) {
    running.append(` Nothing was written for ${minutes} minutes: the run may have ended. --resume continues it.`);
  }
}
