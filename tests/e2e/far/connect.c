/* connect-static ADDRESS PORT: sends "hello" to an echo server and prints what comes back. It is linked statically and
   makes its system calls itself, as programs in Go do: no library of the container has a part in it. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1)
        return 2;
    int fd = syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (syscall(SYS_connect, fd, &to, sizeof to) != 0) {
        printf("connect: %s\n", strerror(errno));
        return 1;
    }
    syscall(SYS_write, fd, "hello", 5);
    syscall(SYS_shutdown, fd, SHUT_WR);
    char answer[64];
    long size, all = 0;
    while ((size = syscall(SYS_read, fd, answer + all, sizeof answer - 1 - all)) > 0)
        all += size;
    answer[all] = 0;
    printf("answer: %s\n", answer);
    return 0;
}
