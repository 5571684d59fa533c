// Lines that end with U+2028 and U+2029. const a: number = 1; console.log(a, " ".length)
