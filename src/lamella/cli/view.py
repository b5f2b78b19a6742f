"""`lamella view`: a model at all its levels in one page for the browser."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path

import click

from lamella.base.diagnostic import printable
from lamella.cli.options import command, print_json
from lamella.cli.waiting import waiting
from lamella.pipeline.options import Options
from lamella.studio import make_page
from lamella.studio.serve import HOST, Live, make_server


@command("view")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False))
def view(files: tuple[Path, ...], options: Options) -> None:
    """Write one offline page of FILE: its modules, graph, NAC, kernels, plan and weights, linked with each other.

    FILE is a model of any language, an ONNX or .pt2 file, a folder of Hugging Face, a plan, kernels, or weights. Two of
    them are shown side by side, with what differs in colour.
    """
    if len(files) > 2:
        raise click.UsageError("a page shows one model, or two side by side")
    if options.serve:
        _serve(files, options)
        return
    target = options.output or Path(f"{files[0].resolve().stem or 'model'}.html")
    with waiting(f"looking at {printable(str(files[0]))}"):
        found = make_page(files, options)
        found.save(target)
    size = len(found.html.encode())
    if options.as_json:
        facts = {"written": str(target), "bytes": size, "notes": list(found.notes)}
        print_json({"ok": True, "diagnostics": [], **facts})
        return
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"{printable(str(target))}: {size / 1e6:.2f} MB, open it in a browser")


def _serve(files: tuple[Path, ...], options: Options) -> None:
    """Serve the page until it is interrupted; it is made anew when a file changes."""
    live = Live(files, lambda asked: make_page(files, options, asked).html)
    with waiting(f"looking at {printable(str(files[0]))}"):
        make_page(files, options)  # what is wrong at the start ends the command
        live.refresh()
    server = make_server(live)
    address = f"http://{HOST}:{server.server_address[1]}/{live.token}/"
    click.echo(f"{address}  (Ctrl+C ends it)")
    threading.Timer(0.2, webbrowser.open, (address,)).start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
