"""A character that the fonts of a plot do not have is drawn in one of these fonts, whatever fonts the program chose.

The last lines of matplotlib's font_manager.py install this (see Dockerfile-python). Models name the fonts of the systems
that they know (SimHei, Noto Sans CJK, Segoe UI Emoji): matplotlib does not find them here, and would draw boxes. This
module must never take the place of a font that is there.
"""

DIRECTORY = "/usr/share/fonts/truetype/"
# Arabic, Hebrew and most symbols; Chinese, Japanese and Korean; emoji.
FALLBACKS = [DIRECTORY + name for name in ("dejavu/DejaVuSans.ttf", "wqy/wqy-microhei.ttc", "ancient-scripts/Symbola_hint.ttf")]


def install(manager):
    """Makes a class of font managers add the fallbacks to the fonts that it finds."""
    find = manager._find_fonts_by_props

    def find_with_fallbacks(self, *args, **kwargs):
        found = find(self, *args, **kwargs)
        return found + [path for path in FALLBACKS if path not in found]

    manager._find_fonts_by_props = find_with_fallbacks
