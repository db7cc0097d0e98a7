/* sockets: what links ask of the system about a connected socket. Nothing waits, nothing raises a
 * signal. */
#ifndef KVPI_SOCKETS_H
#define KVPI_SOCKETS_H

#include <stddef.h>

/* Is it a connected socket that gives bytes in order, without ends of messages? */
int kvpi_socket_is_stream(int socket);

/* A descriptor of the same socket, which programs that are started do not inherit, and which sends
 * at once; -1: none. */
int kvpi_socket_keep(int socket);

/* Bytes that the system took; 0: it has no room now; -1: the peer is gone. */
long kvpi_socket_send(int socket, const void *bytes, size_t n_bytes);

/* Bytes that came; 0: none yet; -1: the peer is gone, and nothing that it sent is left. */
long kvpi_socket_receive(int socket, void *out_bytes, size_t n_bytes);

/* Has the peer's system acknowledged everything that was sent? 0: not yet; -1: it never will. */
int kvpi_socket_flushed(int socket);

/* Let the peer know that this end is done with, and close it. -1 is ignored. */
void kvpi_socket_close(int socket);

#endif
