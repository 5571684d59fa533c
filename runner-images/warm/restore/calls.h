/* What restore.c has in place of a C library: system calls, and a little about memory and text. It must need neither data that
 * could be written nor a relocation, since it is copied to another address. */
#ifndef CALLS_H
#define CALLS_H
#include <sys/syscall.h>

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return result;
}
#define CALL(number, a, b, c, d, e, f) call((long)(number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

void *memcpy(void *to, const void *from, unsigned long length)
{
    char *t = to;
    const char *f = from;
    __asm__ volatile("rep movsb" : "+D"(t), "+S"(f), "+c"(length)::"memory");
    return to;
}

void *memset(void *to, int byte, unsigned long length)
{
    char *t = to;
    __asm__ volatile("rep stosb" : "+D"(t), "+c"(length) : "a"(byte) : "memory");
    return to;
}

static unsigned long length_of(const char *text)
{
    unsigned long n = 0;
    while (text[n])
        n++;
    return n;
}

static int equal(const void *one, const void *other, unsigned long length)
{
    const char *a = one, *b = other;
    for (unsigned long n = 0; n < length; n++)
        if (a[n] != b[n])
            return 0;
    return 1;
}

static int begins(const char *text, const char *with) { return equal(text, with, length_of(with)); }

static char *append(char *to, const char *text)
{
    while (*text)
        *to++ = *text++;
    return to;
}
#endif
