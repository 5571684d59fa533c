"""What plt.show() does in this image: it saves each open figure as /data/figure_1.png, figure_2.png, and so on, and
closes it, as a notebook shows a figure and closes it. A figure that is still open when the program ends is saved too.

The end of matplotlib's backend_agg.py installs this (see Dockerfile-python), so a program that draws nothing never
meets it. A figure that the program itself saved below /data, and has not changed since, is not saved a second time.
Nothing in here may overwrite a file, or end a program that would have gone on without it.
"""

import atexit
import io
import os
import sys

from matplotlib._pylab_helpers import Gcf

FOLDER = "/data"
# All names of the folder whose files come back with the answer.
KEPT = ("/data/", "/mnt/data/", "/workspace/")
# Pictures of one program: a loop that forgets to close its figures must not fill the disk.
MOST = 20

_saved = 0
_last = 0  # the number in the last name
_process = None  # whose end is awaited: a forked child must not save its parent's figures


def install(canvas):
    """Watches a canvas class: which figures pyplot makes, and which of them are saved to files."""
    new_manager, print_figure = canvas.new_manager.__func__, canvas.print_figure

    def watched_new_manager(cls, figure, num):
        global _process
        if _process != os.getpid():
            _process = os.getpid()
            atexit.register(_at_the_end)
        return new_manager(cls, figure, num)

    def watched_print_figure(self, filename, *args, **kwargs):
        result = print_figure(self, filename, *args, **kwargs)
        if isinstance(filename, (str, os.PathLike)) and os.path.abspath(filename).startswith(KEPT):
            _is_saved(self.figure)
        return result

    canvas.new_manager = classmethod(watched_new_manager)
    canvas.print_figure = watched_print_figure


def show(*, block=None):
    """`matplotlib.pyplot.show`."""
    for manager in Gcf.get_all_fig_managers():
        _save(manager.canvas.figure)
    Gcf.destroy_all()


def _at_the_end():
    if _process == os.getpid():
        show()


def _is_saved(figure):
    # Whatever changes the figure from now on makes it stale again.
    figure._sandbox_saved, figure.stale = True, False


def _save(figure):
    global _saved
    is_empty = len(figure.get_children()) < 2  # its background only
    if is_empty or (getattr(figure, "_sandbox_saved", False) and not figure.stale):
        return
    _saved += 1
    if _saved > MOST:
        if _saved == MOST + 1:
            _say(f"only the first {MOST} figures of a program are saved by themselves; plt.savefig saves the others")
        return
    try:
        picture = io.BytesIO()
        figure.savefig(picture, format="png", bbox_inches="tight")
        _write(picture.getbuffer())
    except OSError as error:
        _say(f"a figure could not be saved in {FOLDER}: {error.strerror or error}")
    except Exception as error:
        _say(f"a figure could not be drawn: {type(error).__name__}: {error}")
    else:
        _is_saved(figure)


def _write(picture):
    """Writes it under the first name that is free: all of it, or nothing."""
    global _last
    while True:
        _last += 1
        name = f"{FOLDER}/figure_{_last}.png"
        try:
            file = open(name, "xb")
        except FileExistsError:
            continue
        try:
            with file:
                file.write(picture)
        except OSError:
            os.unlink(name)
            raise
        return


def _say(sentence):
    if sys.stderr is not None:
        print(f"matplotlib: {sentence}", file=sys.stderr)
