# Compares two versions of a text and writes the differences as a patch.
# prints: Similarity: 88%
# prints: +The committee meets every Friday at 10:00.
# makes: changes.patch
import difflib
import textwrap

old = textwrap.dedent("""\
    The committee meets every Monday at 9:00.
    Minutes are kept by the secretary.
    Guests are welcome.
""").splitlines()
new = textwrap.dedent("""\
    The committee meets every Friday at 10:00.
    Minutes are kept by the secretary.
    Guests are welcome if they register.
""").splitlines()

diff = list(difflib.unified_diff(old, new, "rules-2025.txt", "rules-2026.txt", lineterm=""))
print("\n".join(diff))
ratio = difflib.SequenceMatcher(None, "\n".join(old), "\n".join(new)).ratio()
print(f"Similarity: {ratio:.0%}")
with open("/data/changes.patch", "w") as file:
    file.write("\n".join(diff) + "\n")
