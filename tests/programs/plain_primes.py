# Finds primes with a sieve, and the longest gap between two of them.
# prints: Primes below 100000: 9592
# prints: Longest gap: 72 (between 31397 and 31469)
def sieve(limit):
    is_prime = bytearray([1]) * limit
    is_prime[0:2] = b"\0\0"
    for n in range(2, int(limit**0.5) + 1):
        if is_prime[n]:
            is_prime[n * n :: n] = bytes(len(range(n * n, limit, n)))
    return [n for n, prime in enumerate(is_prime) if prime]


primes = sieve(100_000)
gap, start = max((b - a, a) for a, b in zip(primes, primes[1:]))
print(f"Primes below 100000: {len(primes)}")
print(f"Longest gap: {gap} (between {start} and {start + gap})")
