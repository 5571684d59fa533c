"""plt.show() in this image saves each open figure as /data/figure_1.png, figure_2.png and so on, and closes it, as a
notebook shows a figure and closes it. A figure that is still open when the program ends is saved too.

The last lines of matplotlib's backend_agg.py install this (see Dockerfile-python), so a program that draws nothing never
loads it. If the program itself saved a figure below /data and has not changed it since, this module does not save it
again. This module must never overwrite a file, nor end a program that would have continued without it.
"""

import atexit
import io
import os
import sys

from matplotlib._pylab_helpers import Gcf

FOLDER = "/data"
# All paths of the folder whose files are returned with the answer.
KEPT = ("/data/", "/mnt/data/", "/workspace/")
# The most figures that are saved for one program: a loop that never closes its figures must not fill the disk.
MOST = 20

_saved = 0
_last = 0  # the number in the name of the last file
_process = None  # the PID that registered _at_the_end: a forked child must not save its parent's figures


def install(canvas):
    """Makes a canvas class notice when pyplot makes a figure, and when the program saves one to a file."""
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
    # matplotlib makes the figure stale again when the program changes it.
    figure._sandbox_saved, figure.stale = True, False


def _save(figure):
    global _saved
    is_empty = len(figure.get_children()) < 2  # only its background
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
    """Writes a picture to the first free name, either completely or not at all."""
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
