# Counts the words of a text and shows the most frequent ones.
# prints: the: 4
# prints: Longest word: unmistakable (12 letters)
import re
from collections import Counter

text = """
The sea was quiet that morning, and the gulls had not yet woken. Far out, the fishing
boats were small, unmistakable points of light. Nobody spoke. The oars rose and fell.
"""

words = re.findall(r"[a-z']+", text.lower())
counts = Counter(words)

print(f"Total words: {len(words)}, unique: {len(counts)}")
for word, n in counts.most_common(3):
    print(f"{word}: {n}")

longest = max(words, key=len)
print(f"Longest word: {longest} ({len(longest)} letters)")
