// Opens the page; document.body.dataset.ready says what was drawn.
window.addEventListener("error", (event) => { document.body.dataset.error = event.message; });
readTheme();
openPanels();
openTimeline();
openMemory();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); repaint(); });
new ResizeObserver(repaint).observe(document.querySelector(".left"));
const began = performance.now();
paintNow();
document.body.dataset.paint = (performance.now() - began).toFixed(1);
document.body.dataset.slices = slices.task.length;
document.body.dataset.tracks = scene.tracks.length;
document.body.dataset.tasks = scene.tasks.length;
document.body.dataset.lines = scene.source.length;
if (location.hash === "#selftest") selftest();
const wanted = /^#task-(\d+)$/.exec(location.hash);
if (wanted && scene.tasks[wanted[1]]) choose(Number(wanted[1]));
document.body.dataset.ready = "true";
