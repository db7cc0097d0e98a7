/* tcp_pair: two connected ends of TCP over 127.0.0.1. */
#ifndef TCP_PAIR_H
#define TCP_PAIR_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* 1: out_sockets has both ends, the caller's to close. */
static inline int open_tcp_pair(int out_sockets[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &n) != 0)
        return 0;
    out_sockets[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(out_sockets[0], (struct sockaddr *)&at, sizeof at) != 0)
        return 0;
    out_sockets[1] = accept(listener, NULL, NULL);
    return out_sockets[1] >= 0 && close(listener) == 0;
}

#endif
