// Opens the page of a plan; document.body.dataset says what was drawn.
openPanels();
openTimeline();
openMemory();
themed.push(repaint);
new ResizeObserver(repaint).observe(root.querySelector(".left"));
const began = performance.now();
paintNow();
document.body.dataset.paint = (performance.now() - began).toFixed(1);
document.body.dataset.slices = slices.task.length;
document.body.dataset.tracks = scene.tracks.length;
document.body.dataset.tasks = scene.tasks.length;
document.body.dataset.layers = scene.layers.length;
document.body.dataset.lines = scene.source.length;
if (location.hash === "#selftest") setTimeout(selftest, 0);
const wanted = /^#task-(\d+)$/.exec(location.hash);
if (wanted && scene.tasks[wanted[1]]) choose(Number(wanted[1]));
return { choose, clear: () => select(-1) };
