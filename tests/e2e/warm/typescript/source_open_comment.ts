// The end of the source has no newline, and a comment that is not closed.
console.log(1); /* open