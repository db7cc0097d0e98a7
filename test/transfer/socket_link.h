/* socket_link: a link over a socket of the system (SOCK_SEQPACKET), which keeps messages whole and
 * in order, and says at once when the other process is gone. For tests; an example of a link. */
#ifndef TEST_SOCKET_LINK_H
#define TEST_SOCKET_LINK_H

#include <kvpager/transfer.h>

enum { SOCKET_MESSAGE = 4096 };

typedef struct socket_link {
    int fd;
    kvp_status broken;
    size_t n_in; /* 0: nothing is taken */
    _Alignas(64) unsigned char out[SOCKET_MESSAGE];
    _Alignas(64) unsigned char in[SOCKET_MESSAGE];
} socket_link;

/* `link` must not move as long as the end is used. */
kvp_link socket_link_end(socket_link *link, int fd);

#endif
